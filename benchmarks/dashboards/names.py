"""What a line of many runs is called: where they ran, and what tells runs apart that would have one name. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from benchmarks.measuring.window import STEADY
from benchmarks.runs.finished_run import FinishedRun
from benchmarks.runs.identity import SHOWN_DIGITS

LOCAL = "local"  # the site that every checkout has: there the host says where
MACHINE_PARTS = ("site", "host", "hardware", "device", "processor", "nodes")
SHARED_AXES = ("data", "fsdp")  # of a layout: they grow with the devices, and split no model


def engine_word(entry: FinishedRun) -> str:
    return entry.backend if entry.engine in ("", entry.backend) else f"{entry.backend}-{entry.engine}"


def place_words(entry: FinishedRun) -> list[str]:
    """The site; of runs on the launcher's own machine, which host that was."""
    host = _parts(entry.identity_text.get("machine", "")).get("host")
    if host is None and entry.site == LOCAL:
        host = entry.host
    return [*([] if entry.site == LOCAL else [f"site-{entry.site}"]), *([f"host-{host}"] if host else [])]


def how_words(entry: FinishedRun) -> list[str]:
    """What is seldom other than usual, where it is."""
    return [
        *([] if entry.pgle in ("", "off") else [f"pgle-{entry.pgle}"]),
        *([] if entry.window in ("", STEADY) else [f"window-{entry.window}"]),
    ]


def split_words(entry: FinishedRun) -> list[str]:
    """The part of a layout that splits the model or a sequence, and does not grow with the devices by itself."""
    axes = entry.parallelism.split(" x ") if entry.parallelism != "one device" else []
    return [axis for axis in axes if axis and axis.partition(" ")[0] not in SHARED_AXES]


# --- runs of one name that are not the same -------------------------------------------------------


def telling_apart(groups: Mapping[str, Sequence[FinishedRun]]) -> dict[str, list[str]]:
    """By the path of a run: what its name needs besides, so that no line mixes benchmarks or machines.

    Nothing, where all runs of the group share both.
    """
    found: dict[str, list[str]] = {}
    for group in groups.values():
        benchmarks, machines = (_by_digest(group, kind) for kind in ("benchmark", "machine"))
        if len(benchmarks) == len(machines) == 1:
            continue
        of_machine = _machine_words(machines)
        for entry in group:
            words = [_benchmark_word(entry)] if len(benchmarks) > 1 else []
            words += of_machine[_digest(entry, "machine")] if len(machines) > 1 else []
            found[entry.path] = words
    return found


def _digest(entry: FinishedRun, kind: str) -> str:
    return entry.identity.get(kind, "unknown")


def _by_digest(group: Iterable[FinishedRun], kind: str) -> dict[str, FinishedRun]:
    return {_digest(entry, kind): entry for entry in group}


def _benchmark_word(entry: FinishedRun) -> str:
    return f"benchmark-{_digest(entry, 'benchmark')[:SHOWN_DIGITS]}"


def _machine_words(machines: Mapping[str, FinishedRun]) -> dict[str, list[str]]:
    """What differs in words, such as processor-AMD_EPYC; where words do not tell all of them apart, digits."""
    told = {digest: _parts(entry.identity_text.get("machine", "")) for digest, entry in machines.items()}
    different = [name for name in MACHINE_PARTS if len({parts.get(name) for parts in told.values()}) > 1]
    words = {digest: [f"{name}-{parts.get(name, 'unknown')}" for name in different] for digest, parts in told.items()}
    if len({tuple(one) for one in words.values()}) == len(machines):
        return words
    return {digest: [f"machine-{digest[:SHOWN_DIGITS]}"] for digest in machines}


@lru_cache(maxsize=1024)
def _parts(text: str) -> Mapping[str, str]:
    """Of "host a, hardware cpu, nodes 1": its names and values."""
    found: dict[str, str] = {}
    last = ""
    for part in text.split(", "):
        name, _, value = part.partition(" ")
        if name in MACHINE_PARTS:
            found[last := name] = value
        elif last:  # a value with a comma in it
            found[last] += f", {part}"
    return found
