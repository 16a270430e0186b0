"""A run folder -> its Entry. Reads three small files, and of those only what a row needs.

A file that an older version of Stepmark wrote, and that lacks what came later, is read all the same. What cannot be
read is refused by name; whether the figures follow from the raw files is for launch/verify.py to say.
"""

import os
import re
import stat
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from benchmarks.errors import RequestError
from benchmarks.history import identity
from benchmarks.history.entry import Entry
from benchmarks.history.slim import BenchmarkPart, ProvenancePart, ResultPart, TelemetryPart, WorkerPart
from benchmarks.measuring.summary import SCHEMA_VERSION
from benchmarks.runs.runfolder import BENCHMARK, PROVENANCE, RESULT, RunFolder
from benchmarks.values import Parallelism

READING = 1  # what an entry means: higher, and every index is made anew
LARGEST_FILE_BYTES = 1 << 28
LARGEST_NUMBER = (1 << 63) - 1  # what the index and every reader of JSON can hold
RUNNING = "running"  # the status of a run that has no result yet: it trains, waits in a queue, or was cut off

_BEGINNING = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")
_AXES = [name for name in Parallelism.__struct_fields__ if name != "virtual_pipeline"] + ["virtual_pipeline"]

_OF_A_RESULT = msgspec.json.Decoder(ResultPart)
_OF_A_PROVENANCE = msgspec.json.Decoder(ProvenancePart)
_OF_A_BENCHMARK = msgspec.json.Decoder(BenchmarkPart)


def read_entry(folder: RunFolder, relative_path: str) -> Entry:
    """The row of a run; of one without a result yet, what is known of it. RequestError: what is wrong with it."""
    benchmark, benchmark_identity = _checked(folder, BENCHMARK, _understood, _bytes(folder, BENCHMARK))
    about = _bytes(folder, PROVENANCE)
    provenance = (
        _checked(folder, PROVENANCE, _OF_A_PROVENANCE.decode, about) if about is not None else ProvenancePart()
    )
    found = _bytes(folder, RESULT)
    result = _checked(folder, RESULT, _OF_A_RESULT.decode, found) if found is not None else None
    _refuse_another(folder, benchmark, result)
    entry = _entry(folder, relative_path, benchmark, benchmark_identity, provenance, result)
    for name in _WHOLE_NUMBERS:
        if abs(getattr(entry, name) or 0) > LARGEST_NUMBER:
            raise _damaged(folder, f"{name} is larger than any run's: {getattr(entry, name):.3g}")
    return entry


def _bytes(folder: RunFolder, name: str) -> bytes | None:
    """A pipe would wait for its writer for ever, so it is opened without waiting, and refused."""
    try:
        descriptor = os.open(f"{folder.path}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as stream:  # noqa: PTH123 - a hundred thousand Paths take seconds
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise _damaged(folder, f"{name} is no plain file")
            if about.st_size > LARGEST_FILE_BYTES:
                raise _damaged(folder, f"{name} has {about.st_size:,} bytes, which no run writes")
            return stream.readall()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read: {error.strerror}") from None


def _checked(folder: RunFolder, name: str, decode: Callable[[bytes], Any], data: bytes | None) -> Any:
    if data is None:
        raise _damaged(folder, f"{name} is missing")
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(folder, f"{name} cannot be read: {error}") from None


@lru_cache(maxsize=256)
def _understood(data: bytes) -> tuple[BenchmarkPart, tuple[str, str]]:
    """Many runs have the very same benchmark."""
    return _OF_A_BENCHMARK.decode(data), identity.of_benchmark(msgspec.json.decode(data))


def _refuse_another(folder: RunFolder, benchmark: BenchmarkPart, result: ResultPart | None) -> None:
    if result is None:
        return
    if result.schema_version > SCHEMA_VERSION:
        raise _damaged(
            folder,
            f"{RESULT} has schema {result.schema_version}, this version of Stepmark knows {SCHEMA_VERSION}",
        )
    asked = (benchmark.backend, benchmark.model.name, benchmark.dtype, benchmark.gpus)
    said = result.benchmark
    if asked != (said.backend, said.model, said.dtype, said.gpus):
        raise _damaged(folder, f"{RESULT} is of another benchmark than {BENCHMARK}")


def _damaged(folder: RunFolder, what: str) -> RequestError:
    return RequestError(
        what,
        where=str(folder.path),
        why="the run's folder is damaged, or no run's",
        next_command=f"python launch/verify.py {folder.path}",
    )


def _entry(
    folder: RunFolder,
    relative_path: str,
    benchmark: BenchmarkPart,
    benchmark_identity: tuple[str, str],
    provenance: ProvenancePart,
    result: ResultPart | None,
) -> Entry:
    run_id = (result.run_id if result else provenance.run_id) or folder.path.name
    nightly = provenance.labels.nightly
    identities = _identities(benchmark, benchmark_identity, provenance)
    return Entry(
        run_id=run_id,
        path=relative_path,
        started=started_of(run_id),
        status=result.status if result else RUNNING,
        backend=benchmark.backend,
        engine=benchmark.engine,
        model=benchmark.model.name,
        task=benchmark.task,
        dtype=benchmark.dtype,
        hardware=benchmark.hardware.name,
        gpus=benchmark.gpus,
        nodes=benchmark.nodes,
        site=benchmark.site.name,
        host=_host(benchmark, provenance, result),
        parallelism=_layout(benchmark.parallelism),
        sequence_length=benchmark.sequence_length,
        global_batch_size=benchmark.global_batch_size,
        steps=benchmark.steps,
        window=result.window.rule if result else benchmark.window,
        profile=benchmark.profile,
        pgle=benchmark.pgle,
        version=provenance.stepmark,
        commit=provenance.git.commit if provenance.git else None,
        changed_files=provenance.git.changed_files if provenance.git else None,
        tags=provenance.labels.tags,
        suite=nightly.suite if nightly else None,
        cell=nightly.cell if nightly else None,
        night=nightly.night if nightly else None,
        role=nightly.role if nightly else None,
        slowed_by=max(benchmark.inject_slowdown, result.slowed_by if result else 0.0),
        identity={kind: found for kind, (found, _) in identities.items()},
        identity_text={kind: text for kind, (_, text) in identities.items()},
        **_figures(result),
    )


def _figures(result: ResultPart | None) -> dict[str, Any]:
    if result is None:
        return dict.fromkeys(_FIGURES) | {"counted": 0, "settled": False, "not_comparable": [], "reasons": []}
    seconds, mfu = result.seconds_per_step, result.mfu[0] if result.mfu else None
    low, high = seconds.ci95 or (None, None)
    return {
        "counted": result.window.counted,
        "settled": result.window.settled,
        "seconds_per_step": seconds.median,
        "seconds_low": low,
        "seconds_high": high,
        "seconds_mean": seconds.mean,
        "excess": seconds.excess,
        "tokens_per_second": result.tokens_per_second,
        "tokens_per_second_per_gpu": result.tokens_per_second_per_gpu,
        "mfu_percent": mfu.percent if mfu else None,
        "mfu_convention": mfu.convention if mfu else None,
        "mfu_precision": mfu.precision_peak if mfu else None,
        "mfu_peak_tflops": mfu.peak_tflops if mfu else None,
        "last_loss": result.loss.last,
        "memory_bytes": _memory(result.telemetry),
        "not_comparable": result.not_comparable,
        "reasons": result.reasons,
    }


_WHOLE_NUMBERS = (
    "gpus", "nodes", "sequence_length", "global_batch_size", "steps", "counted", "memory_bytes", "changed_files",
)  # fmt: skip
_FIGURES = (
    "seconds_per_step", "seconds_low", "seconds_high", "seconds_mean", "excess", "tokens_per_second",
    "tokens_per_second_per_gpu", "mfu_percent", "mfu_convention", "mfu_precision", "mfu_peak_tflops", "last_loss",
    "memory_bytes",
)  # fmt: skip


def _memory(telemetry: TelemetryPart | None) -> float | None:
    if telemetry is None:
        return None
    on_gpu = telemetry.gpu.memory_bytes_max if telemetry.gpu else None
    return telemetry.host_memory_bytes_max if on_gpu is None else on_gpu


def _identities(
    benchmark: BenchmarkPart, benchmark_identity: tuple[str, str], provenance: ProvenancePart
) -> dict[str, tuple[str, str]]:
    first = next((worker for worker in provenance.worker if worker.rank == 0), WorkerPart())
    here = benchmark.site.kind == "local"
    machine = [
        ("site", None if here else benchmark.site.name),
        ("host", provenance.machine.hostname if here else None),
        ("hardware", benchmark.hardware.name),
        ("device", first.device_kind),
        # On a cluster the launcher's own processor says nothing of the nodes.
        ("processor", provenance.machine.cpu if here else None),
        ("nodes", benchmark.nodes),
    ]
    return {
        "benchmark": benchmark_identity,
        "environment": identity.of_environment(provenance.environment, benchmark.site.environment, first.versions),
        "machine": identity.of_machine(machine),
    }


def _host(benchmark: BenchmarkPart, provenance: ProvenancePart, result: ResultPart | None) -> str | None:
    if benchmark.site.kind == "local":
        return provenance.machine.hostname
    nodes = result.attempts[-1].nodes if result and result.attempts else None
    return first_node(nodes) if nodes else None


def first_node(nodes: str) -> str:
    """Of Slurm's list: node[03-07,9],login1 -> node03."""
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", re.split(r",(?![^\[]*\])", nodes)[0])


def started_of(run_id: str) -> str:
    """The time that a run's name begins with; empty where it begins otherwise."""
    found = _BEGINNING.match(run_id)
    return "{}-{}-{}T{}:{}:{}Z".format(*found.groups()) if found else ""


def _layout(parallelism: dict[str, int]) -> str:
    axes = [f"{name} {parallelism[name]}" for name in (*_AXES, *sorted(parallelism.keys() - set(_AXES)))
            if parallelism.get(name, 1) > 1]  # fmt: skip
    return " x ".join(axes) or "one device"
