"""Read one run as a row with the fields that history, comparisons, nightly suites, dashboards and pages need.

Three small files of the run folder contain these fields. Only the keys in SOURCES are read, so files of other
Stepmark versions can be read too. If a file cannot be read, an error names it. launch/verify.py checks whether the
metrics follow from the raw files.
"""

import functools
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from benchmarks.errors import RequestError
from benchmarks.runs import identity
from benchmarks.runs.runfolder import BENCHMARK, PROVENANCE, RESULT, RunFolder
from benchmarks.values import BenchmarkName, Parallelism, Seconds, Settling, Value

READING = 8  # the version of the row's format; increase it to recreate every index
RUNNING = "running"  # the run has no result: it is training, is queued, or was interrupted


class RunBenchmark(BenchmarkName, frozen=True, kw_only=True):
    """The benchmark that a run executed."""

    site: str
    parallelism: str
    steps: int
    window: str
    profile: str = "none"
    pgle: str = "off"
    settings: str = ""  # the settings passed with --set, as typed


class RunMetrics(Value, frozen=True):
    """The metrics of a run. None: result.json contains null, or does not exist yet."""

    seconds_per_step: Seconds | None = None  # the median step time
    seconds_low: Seconds | None = None  # lower end of the median's 95% confidence interval
    seconds_high: Seconds | None = None
    seconds_mean: Seconds | None = None
    excess: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    last_loss: float | None = None
    memory_bytes: float | None = None  # the peak of one device (GPU runs) or of the host (CPU runs)


class RunMfu(Value, frozen=True):
    """The first MFU entry in result.json."""

    percent: float | None = None
    convention: str | None = None
    precision: str | None = None
    peak_tflops: float | None = None


class RunWindow(Value, frozen=True):
    """The window of a run: which steps count, and whether the step time had settled."""

    counted: int = 0
    first_step: int | None = None
    settled: bool = False
    settling: Settling = "not judged"
    median_off_percent: float | None = None  # the largest error of the median that a drift may cause


class RunOrigin(Value, frozen=True):
    """The origin of a run. `identity` maps each kind to a digest; runs with equal digests form a baseline."""

    identity: dict[str, str]
    identity_text: dict[str, str] = {}  # the identity as text, to show how two runs differ
    host: str | None = None  # the launcher's host for a local run, otherwise the job's first node
    version: str | None = None  # the Stepmark version
    commit: str | None = None  # the commit of the checkout that ran the benchmark
    changed_files: int | None = None  # how many files of the checkout differ from the commit


class RunLabels(Value, frozen=True):
    """The labels that the user or a suite gave a run."""

    tags: list[str] = []
    suite: str | None = None
    cell: str | None = None
    night: str | None = None
    role: str | None = None  # "night" or "rerun"


class FinishedRun(Value, frozen=True):
    """One run as a row: its result, benchmark and provenance, reduced to what commands about many runs need."""

    run_id: str
    path: str  # relative to the folder that contains the runs
    started: str  # in UTC, such as 2026-11-22T03:45:11Z, from the run's original name
    status: Literal["valid", "invalid", "failed", "running"]
    benchmark: RunBenchmark
    origin: RunOrigin
    labels: RunLabels = RunLabels()
    window: RunWindow = RunWindow()
    metrics: RunMetrics = RunMetrics()
    mfu: RunMfu = RunMfu()
    reasons: list[str] = []
    not_comparable: list[str] = []
    slowed_by: float = 0.0
    pgle_applied: bool | None = None  # None: PGLE was off, or the result does not state it
    pgle_reason: str = ""
    null_because: dict[str, str] = {}  # metric -> the reason why it is None


_GROUPS: dict[str, type[Value]] = {
    "benchmark": RunBenchmark,
    "metrics": RunMetrics,
    "mfu": RunMfu,
    "window": RunWindow,
    "origin": RunOrigin,
    "labels": RunLabels,
}
# The name of a field, as in filters, CSV and SOURCES -> the path to the field in FinishedRun.
FIELDS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in FinishedRun.__struct_fields__ if name not in _GROUPS},
    **{
        f"mfu_{name}" if group == "mfu" else name: (group, name)
        for group, kind in _GROUPS.items()
        for name in kind.__struct_fields__
    },
}


def field_of(run: FinishedRun, name: str) -> Any:
    """Return the field with this name in FIELDS."""
    return functools.reduce(getattr, FIELDS[name], run)


def finished_run(fields: Mapping[str, Any]) -> FinishedRun:
    """Return a run with these fields, named as in FIELDS. Raise msgspec.ValidationError if a type is wrong."""
    nested: dict[str, Any] = {group: {} for group in _GROUPS}
    for name, value in fields.items():
        *groups, last = FIELDS[name]
        (nested[groups[0]] if groups else nested)[last] = value
    return msgspec.convert(nested, FinishedRun)


def changed(run: FinishedRun, **fields: Any) -> FinishedRun:
    """Return the run with new values for these fields, named as in FIELDS."""
    return finished_run({name: field_of(run, name) for name in FIELDS} | fields)


# File -> field -> the keys that lead to the value in the file (a number is an index in a list). Values are copied
# unchanged. If a value is missing or null, the field has its default.
SOURCES: dict[str, dict[str, tuple[str | int, ...]]] = {
    BENCHMARK: {
        **{name: (name,) for name in ("backend", "engine", "task", "dtype", "gpus", "nodes", "steps", "window")},
        **{name: (name,) for name in ("sequence_length", "global_batch_size", "profile", "pgle")},
        **{name: (name, "name") for name in ("model", "hardware", "site")},
        "slowed_by": ("inject_slowdown",),
    },
    PROVENANCE: {
        "run_id": ("run_id",),
        "version": ("stepmark",),
        "commit": ("git", "commit"),
        "changed_files": ("git", "changed_files"),
        "tags": ("labels", "tags"),
        **{name: ("labels", "nightly", name) for name in ("suite", "cell", "night", "role")},
    },
    RESULT: {
        **{name: (name,) for name in ("run_id", "status", "reasons", "not_comparable")},
        **{name: (name,) for name in ("tokens_per_second", "tokens_per_second_per_gpu")},
        "window": ("window", "rule"),
        "null_because": ("null_because",),
        "pgle_applied": ("pgle", "seen", "applied"),
        "pgle_reason": ("pgle", "seen", "reason"),
        "first_step": ("window", "first_step"),
        "counted": ("window", "counted"),
        "settled": ("window", "settled"),
        "settling": ("window", "settling"),
        "median_off_percent": ("window", "median_off_percent"),
        "seconds_per_step": ("seconds_per_step", "median"),
        "seconds_low": ("seconds_per_step", "ci95", 0),
        "seconds_high": ("seconds_per_step", "ci95", 1),
        "seconds_mean": ("seconds_per_step", "mean"),
        "excess": ("seconds_per_step", "excess"),
        "mfu_percent": ("mfu", 0, "percent"),
        "mfu_convention": ("mfu", 0, "convention"),
        "mfu_precision": ("mfu", 0, "precision_peak"),
        "mfu_peak_tflops": ("mfu", 0, "peak_tflops"),
        "last_loss": ("loss", "last"),
    },
}
_BEGINNING = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")

Document = Mapping[str, Any]


def read_finished_run(folder: RunFolder, relative_path: str) -> FinishedRun:
    """Return a run as a row; without a result, its status is `running`. Raise RequestError for unreadable files."""
    row: Document = {"path": relative_path, "status": RUNNING, "run_id": folder.path.name}
    try:
        benchmark = folder.read(BENCHMARK, dict[str, Any])
        row = {**row, **_of_benchmark(benchmark)}
        row |= _of_provenance(folder.provenance(), benchmark, row)
        if (folder.path / RESULT).exists():
            row |= _of_result(folder.read(RESULT, dict[str, Any]), benchmark, row)
        return finished_run({**row, "started": started_of(row["run_id"])})
    except (LookupError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise RequestError(
            f"the run's files cannot be read: {type(error).__name__}: {error}",
            where=str(folder.path),
            next_command=f"python launch/verify.py {shlex.quote(str(folder.path))}",
        ) from None


def _taken(file: str, document: Any) -> dict[str, Any]:
    found = {name: _at(document, *keys) for name, keys in SOURCES[file].items()}
    return {name: value for name, value in found.items() if value is not None}


def _at(document: Any, *keys: str | int) -> Any:
    """Follow the keys into nested data, and return the value to which they lead, or None."""
    for key in keys:
        if document is None:
            return None
        keyed = not isinstance(key, int)
        document = document.get(key) if keyed else (document[key] if document else None)
    return document


def _of_benchmark(found: Document) -> Document:
    digest, text = identity.of_benchmark(found)
    layout = msgspec.convert(found["parallelism"], Parallelism).words()
    return {
        **_taken(BENCHMARK, found),
        "parallelism": " x ".join(f"{name} {size}" for name, size in layout) or "one device",
        "settings": " ".join(f"{name}={text}" for name, text in sorted(found.get("overrides", {}).items())),
        "identity": {"benchmark": digest},
        "identity_text": {"benchmark": text},
    }


def _of_provenance(found: Document, benchmark: Document, row: Document) -> Document:
    site, local = benchmark["site"], _is_local(benchmark)
    host = _at(found, "machine", "hostname") if local else None
    first: Document = next((worker for worker in found.get("worker", []) if worker.get("rank", 0) == 0), {})
    machine = [
        ("site", None if local else row["site"]),
        ("host", host),
        ("hardware", row["hardware"]),
        ("device", first.get("device_kind")),
        # On a cluster, the launcher's processor may differ from the nodes' processor.
        ("processor", _at(found, "machine", "cpu") if local else None),
        ("nodes", row["nodes"]),
    ]
    kinds = {
        "environment": identity.of_environment(found.get("environment", {}), site.get("environment", {})),
        "machine": identity.of_machine(machine),
    }
    return {
        **_taken(PROVENANCE, found),
        "host": host,
        "identity": row["identity"] | {kind: digest for kind, (digest, _) in kinds.items()},
        "identity_text": row["identity_text"] | {kind: text for kind, (_, text) in kinds.items()},
    }


def _of_result(found: Document, benchmark: Document, row: Document) -> Document:
    on_gpu = _at(found, "telemetry", "gpu", "memory_bytes_max")
    nodes = None if _is_local(benchmark) else _at(found, "attempts", -1, "nodes")
    return {
        **_taken(RESULT, found),
        "host": first_node(nodes) if nodes else row["host"],
        "memory_bytes": _at(found, "telemetry", "host_memory_bytes_max") if on_gpu is None else on_gpu,
        "slowed_by": max(row.get("slowed_by", 0.0), found.get("slowed_by", 0.0)),
    }


def _is_local(benchmark: Document) -> bool:
    return bool(benchmark["site"].get("kind", "local") == "local")


def first_node(nodes: str) -> str:
    """Return the first node of a Slurm node list: node[03-07,9],login1 -> node03."""
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", re.split(r",(?![^\[]*\])", nodes)[0])


def started_of(run_id: str) -> str:
    """Return the time at the beginning of a run's name; an empty string if the name does not begin with a time."""
    found = _BEGINNING.match(run_id)
    return "{}-{}-{}T{}:{}:{}Z".format(*found.groups()) if found else ""


def changes(before: FinishedRun, after: FinishedRun, kinds: Sequence[str] = identity.KINDS) -> list[str]:
    """Return how two identities differ: "environment: requirements.lock e4c92fe -> requirements.lock 1a2b3c4"."""
    was, now = before.origin, after.origin
    return [
        f"{kind}: {was.identity_text.get(kind, 'unknown')} -> {now.identity_text.get(kind, 'unknown')}"
        for kind in kinds
        if was.identity.get(kind) != now.identity.get(kind)
    ]
