"""Turn a run's provenance into named facts, grouped by kind, for explain.py to compare. No I/O.

If a run does not record a kind, the kind is absent; if the record is empty, the kind is empty. The arguments and
variables of the program come from the plan, in which paths are placeholders. Values that differ between any two runs,
such as the start time or the port, are replaced by placeholders.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.compare.admission import OF_THE_WORK, field_text
from benchmarks.compare.metrics import NO_DIMENSIONS
from benchmarks.compare.runs import ComparedRun
from benchmarks.job_record import figures_from
from benchmarks.values import benchmark_fields

Facts = dict[str, dict[str, str]]  # kind -> name -> value
SHOWN_DIGEST = 12  # digits
FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
REQUESTED = (*(name for name in OF_THE_WORK if name != "inject_slowdown"), "steps", "data")
MACHINE = ("cpu", "cpus", "cpus_usable", "memory_bytes", "system", "architecture")
IMAGE = ("name", "lock_file", "lock_sha256", "image", "image_digest", "file_bytes", "file_written", "packages_sha256")
# Variables of the scheduler and of Stepmark, and addresses: they only show where and when a job ran.
NO_SETTING = re.compile(r"^(SLURM_|SLURMD_|STEPMARK_|PMIX_|PMI_)|(^|_)(PORT|PID|JOBID|JOB_ID|ADDR|TMPDIR)$")
OF_ONE_RUN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:/[^\s=,:;\"']*)?\d{8}T\d{6}Z-[A-Za-z0-9_-]+-[0-9a-f]{4}"), "{run}"),
    (re.compile(r"\d{8}T\d{6}(?:\.\d+)?Z"), "{time}"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "{time}"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "{uuid}"),
    # A port follows a host and a colon: CUBLAS_WORKSPACE_CONFIG=:4096:8 has no host, so it contains no port.
    (
        re.compile(r"(?<![\w.:-])((?:[A-Za-z][\w.-]*|\d+(?:\.\d+){3}|\[[0-9a-fA-F:]+\])):\d{4,5}(?![\w:])"),
        r"\1:{port}",
    ),
)


def facts_of(run: ComparedRun) -> Facts:
    benchmark, about = run.benchmark, run.provenance
    measured = figures_from(run.result.attempts) if run.result.attempts else None
    # Only the last phase is measured, so its record is the one to use.
    first_rank = (one for one in reversed(about.get("worker") or []) if one.get("rank") == 0)
    own = (one for one in first_rank if not measured or one.get("attempt", measured.attempt) == measured.attempt)
    worker: dict[str, Any] = next(own, {})
    # A queued run trained on another machine than the launcher's.
    machine, is_local = _texts(about.get("machine")), _is_local(run)
    hosts = machine.get("hostname") if is_local else measured.nodes if measured else None
    image, git = _texts(about.get("environment")), _texts(about.get("git"))
    drivers = {"GPU driver": run.gpu.driver, "CUDA of the driver": run.gpu.cuda} if run.gpu else {}
    found: dict[str, dict[str, str] | None] = {
        "slowdown": {"inject_slowdown": f"{run.result.slowed_by:.0%}"},
        "request": _request(run),
        "setting": _texts(benchmark.settings.knobs),
        "profile for PGLE": _pgle(run),
        "XLA flag": _xla_flags(run, worker),
        "version": _known({**_texts(worker.get("versions")), **drivers}),
        "device": _known({name: worker.get(name) for name in ("device_kind", "platform")}),
        "image": _known({name: image.get(name) for name in IMAGE}),
        "argument": _named_words(run.measured.command),
        "layout": _layout(worker) if worker else None,
        "environment": _environment(run),
        "program": _known({"sha256 of the step's program": worker.get("program")}),
        "node": _known({"hosts": hosts}),
        "machine": _known({name: machine.get(name) for name in MACHINE}) if is_local else None,
        "Stepmark": _known({
            "version": about.get("stepmark"), "commit": git.get("commit"), "changed files": git.get("changed_files"),
        }),
    }  # fmt: skip
    return {kind: facts for kind, facts in found.items() if facts is not None}


def load_per_processor(run: ComparedRun) -> float | None:
    """Return the machine's load average per processor before the run started; None if it is unknown."""
    try:
        machine = run.provenance["machine"]
        load = float(machine["load_average"][0]) / float(machine["cpus_usable"])
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
    return load if _is_local(run) else None


# --- the request and the started program ----------------------------------------------------------


def _request(run: ComparedRun) -> dict[str, str]:
    model, asked = run.benchmark.model, benchmark_fields(run.benchmark)
    dimensions = [name for name in model.__struct_fields__ if name not in NO_DIMENSIONS]
    return {
        **{name.replace("_", " "): field_text(asked[name]) for name in REQUESTED},
        **{f"model {name.replace('_', ' ')}": str(getattr(model, name)) for name in dimensions},
        "site": run.benchmark.site.name,
    }


def _pgle(run: ComparedRun) -> dict[str, str]:
    seen = run.result.pgle.seen if run.result.pgle else None
    found = {"key": run.benchmark.instruments.pgle_profile} if run.benchmark.instruments.pgle_profile else {}
    if seen is not None:
        found["applied"] = "yes" if seen.applied else "no"
        if seen.profile is not None:
            found["sha256"] = _digest(seen.profile.sha256)
    return found


def _named_words(words: Sequence[str]) -> dict[str, str]:
    parts = [word.partition("=") for word in words if word != "--"]
    return {_of_any_run(name): _of_any_run(value) if equals else "given" for name, equals, value in parts if name}


def _xla_flags(run: ComparedRun, worker: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags that were passed and, if the worker recorded them, the flags that XLA read."""
    variables = run.measured.environment
    texts = [*(variables.get(name, "") for name in FLAG_VARIABLES), str(worker.get("xla_flags") or "")]
    flags = _named_words(" ".join(texts).split())
    return {**run.benchmark.settings.xla_flags, **{name.lstrip("-"): value for name, value in flags.items()}}


def _environment(run: ComparedRun) -> dict[str, str]:
    both = {**_texts(run.provenance.get("shell")), **run.measured.environment}
    kept = [name for name in both if name not in FLAG_VARIABLES and not NO_SETTING.search(name)]
    return {name: _of_any_run(both[name]) for name in kept}


# --- the framework and the machine ------------------------------------------------------------------


def _is_local(run: ComparedRun) -> bool:
    return run.benchmark.site.kind == "local"


def _layout(worker: Mapping[str, Any]) -> dict[str, str] | None:
    mesh = sorted((name, size) for name, size in (worker.get("mesh") or {}).items() if size != 1)
    counts = {name: worker.get(name) for name in ("process_count", "device_count")}
    return _known({"mesh": " ".join(f"{name} {size}" for name, size in mesh) or "one device", **counts})


def _texts(value: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(text) for name, text in (value or {}).items()}


def _known(facts: Mapping[str, object]) -> dict[str, str] | None:
    """Return the recorded facts, with shortened digests; None if nothing is recorded."""
    return {name: _digest(str(value)) for name, value in facts.items() if value} or None


def _digest(text: str) -> str:
    """Return the first digits of a digest; return any other text unchanged."""
    bare = text.removeprefix("ends-").removeprefix("sha256:")
    return bare[:SHOWN_DIGEST] if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", bare) else text


def _of_any_run(text: str) -> str:
    for pattern, name in OF_ONE_RUN:
        text = pattern.sub(name, text)
    return text
