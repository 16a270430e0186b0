"""A run's provenance as named facts by kind, for explain.py to compare. Pure.

A kind that a run does not record is absent; one that it records as empty is empty. The program's arguments and
variables are the plan's, whose paths are placeholders; what else differs between any two runs (when they ran, which
port they got) is taken out of the texts.
"""

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.comparing.admission import OF_THE_WORK, shown
from benchmarks.comparing.figures import NO_DIMENSIONS
from benchmarks.comparing.runs import ComparedRun
from benchmarks.telemetry.gpu import GpuTelemetry
from benchmarks.telemetry.samples import NodeFacts

Facts = dict[str, dict[str, str]]  # kind -> name -> value
SHOWN_DIGEST = 12  # digits
FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
REQUESTED = (*(name for name in OF_THE_WORK if name != "inject_slowdown"), "steps", "data")
MACHINE = ("cpu", "cpus", "cpus_usable", "memory_bytes", "system", "architecture")
IMAGE = ("name", "lock_file", "lock_sha256", "image", "image_digest", "file_bytes", "file_written", "packages_sha256")
# Variables that say where and when a job ran, not how: the scheduler's, this launcher's own, addresses.
NO_SETTING = re.compile(r"^(SLURM_|SLURMD_|STEPMARK_|PMIX_|PMI_)|(^|_)(PORT|PID|JOBID|JOB_ID|ADDR|TMPDIR)$")
OF_ONE_RUN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:/[^\s=,:;\"']*)?\d{8}T\d{6}Z-[A-Za-z0-9_-]+-[0-9a-f]{4}"), "{run}"),
    (re.compile(r"\d{8}T\d{6}(?:\.\d+)?Z"), "{time}"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "{time}"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "{uuid}"),
    # Only of an address: CUBLAS_WORKSPACE_CONFIG=:4096:8 has no host before its colon.
    (
        re.compile(r"(?<![\w.:-])((?:[A-Za-z][\w.-]*|\d+(?:\.\d+){3}|\[[0-9a-fA-F:]+\])):\d{4,5}(?![\w:])"),
        r"\1:{port}",
    ),
)


def facts_of(run: ComparedRun) -> Facts:
    benchmark = run.benchmark
    found: dict[str, dict[str, str] | None] = {
        "slowdown": {"inject_slowdown": f"{run.result.slowed_by:.0%}"},
        "request": _request(run),
        "setting": _texts(benchmark.knobs),
        "profile for PGLE": _pgle(run),
        "XLA flag": _xla_flags(run),
        "version": _versions(run) or None,
        "device": _device(run) or None,
        "image": _image(run) or None,
        "argument": _named_words(run.measured.command) if run.measured else None,
        "layout": _layout(run),
        "environment": _environment(run),
        "program": _program(run),
        "node": _nodes(run),
        "machine": _machine(run) or None,
        "recipe": {name: str(getattr(benchmark.recipe, name)) for name in ("name", "source", "date")},
        "Stepmark": _stepmark(run) or None,
        "telemetry": {"sampled": "yes" if run.result.telemetry else "no"},
        "launcher": _texts(run.provenance.get("launcher")) or None,
    }
    return {kind: facts for kind, facts in found.items() if facts is not None}


# --- what was asked and started -------------------------------------------------------------------


def _request(run: ComparedRun) -> dict[str, str]:
    model = run.benchmark.model
    dimensions = [name for name in model.__struct_fields__ if name not in NO_DIMENSIONS]
    return {
        **{name.replace("_", " "): shown(getattr(run.benchmark, name)) for name in REQUESTED},
        **{f"model {name.replace('_', ' ')}": str(getattr(model, name)) for name in dimensions},
        "site": run.benchmark.site.name,
    }


def _pgle(run: ComparedRun) -> dict[str, str]:
    seen = run.result.pgle.seen if run.result.pgle else None
    found = {"key": run.benchmark.pgle_profile} if run.benchmark.pgle_profile else {}
    if seen is not None:
        found["applied"] = "yes" if seen.applied else "no"
        if seen.profile is not None:
            found["sha256"] = _digest(seen.profile.sha256)
    return found


def _named_words(words: list[str]) -> dict[str, str]:
    parts = [word.partition("=") for word in words if word != "--"]
    return {_of_any_run(name): _of_any_run(value) if equals else "given" for name, equals, value in parts if name}


def _xla_flags(run: ComparedRun) -> dict[str, str] | None:
    """As they were handed over, and as XLA read them where the worker says so."""
    if run.measured is None and not run.provenance:
        return None
    variables = run.measured.environment if run.measured else {}
    texts = [*(variables.get(name, "") for name in FLAG_VARIABLES), str(_worker(run).get("xla_flags") or "")]
    flags = _named_words(" ".join(texts).split())
    return {**run.benchmark.xla_flags, **{name.lstrip("-"): value for name, value in flags.items()}}


def _environment(run: ComparedRun) -> dict[str, str] | None:
    if run.measured is None:
        return None
    both = {**_texts(run.provenance.get("shell")), **run.measured.environment}
    return {
        name: _of_any_run(value)
        for name, value in both.items()
        if name not in FLAG_VARIABLES and not NO_SETTING.search(name)
    }


# --- what ran it, and where -------------------------------------------------------------------------


def _worker(run: ComparedRun) -> Mapping[str, Any]:
    """What rank 0 saw; of several phases and attempts the last, which is the measured one."""
    facts = run.provenance.get("worker") or []
    of_rank_0 = [fact for fact in facts if isinstance(fact, dict) and fact.get("rank") == 0]
    return of_rank_0[-1] if of_rank_0 else {}


def _versions(run: ComparedRun) -> dict[str, str]:
    gpu = run.result.telemetry.gpu if run.result.telemetry else None
    places: list[NodeFacts | GpuTelemetry] = [*run.nodes, *([gpu] if gpu else [])]
    drivers = {"GPU driver": {one.driver for one in places}, "CUDA of the driver": {one.cuda for one in places}}
    found = {name: " ".join(sorted(value for value in values if value)) for name, values in drivers.items()}
    return _texts(_worker(run).get("versions")) | {name: text for name, text in found.items() if text}


def _device(run: ComparedRun) -> dict[str, str]:
    worker = _worker(run)
    found = {name: str(worker[name]) for name in ("device_kind", "platform") if worker.get(name)}
    names = sorted({gpu.name for node in run.nodes for gpu in node.gpus if gpu.name})
    return found | ({"GPU": " ".join(names)} if names else {})


def _image(run: ComparedRun) -> dict[str, str]:
    about = _texts(run.provenance.get("environment"))
    return {name: _digest(about[name]) for name in IMAGE if about.get(name)}


def _layout(run: ComparedRun) -> dict[str, str] | None:
    worker = _worker(run)
    if not worker:
        return None
    mesh = sorted((name, size) for name, size in (worker.get("mesh") or {}).items() if size != 1)
    found = {"mesh": " ".join(f"{name} {size}" for name, size in mesh) or "one device"}
    return found | {name: str(worker[name]) for name in ("process_count", "device_count") if worker.get(name)}


def _program(run: ComparedRun) -> dict[str, str] | None:
    digest = _worker(run).get("program")
    return {"sha256 of the step's program": _digest(str(digest))} if digest else None


def _nodes(run: ComparedRun) -> dict[str, str] | None:
    """Of a queue's run those that were sampled, or that the queue gave it; else this machine."""
    hosts = {node.host for node in run.nodes}
    if run.benchmark.site.kind == "local":
        hosts.add(_texts(run.provenance.get("machine")).get("hostname", ""))
    queued = run.result.attempts[-1].nodes if run.result.attempts else None
    named = " ".join(sorted(filter(None, hosts))) or queued
    return {"hosts": named} if named else None


def _machine(run: ComparedRun) -> dict[str, str]:
    """Of a queue's run the nodes': the launcher's machine trained nothing."""
    if run.benchmark.site.kind == "local":
        machine = _texts(run.provenance.get("machine"))
        return {name: machine[name] for name in MACHINE if name in machine}
    sizes = {"cpus": {node.cpus for node in run.nodes}, "memory_bytes": {node.memory_bytes for node in run.nodes}}
    found = {name: " ".join(sorted(str(value) for value in values if value)) for name, values in sizes.items()}
    return {name: text for name, text in found.items() if text}


def _stepmark(run: ComparedRun) -> dict[str, str]:
    git = _texts(run.provenance.get("git"))
    found = {"version": run.provenance.get("stepmark"), "commit": git.get("commit")}
    found["changed files"] = git.get("changed_files")
    return {name: _digest(str(text)) for name, text in found.items() if text}


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _digest(text: str) -> str:
    """A digest by its first digits; anything else as it is."""
    bare = text.removeprefix("ends-").removeprefix("sha256:")
    return bare[:SHOWN_DIGEST] if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", bare) else text


def _of_any_run(text: str) -> str:
    for pattern, name in OF_ONE_RUN:
        text = pattern.sub(name, text)
    return text
