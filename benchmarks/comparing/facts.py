"""A run's provenance as named facts by kind, for explain.py to compare. Pure.

A kind that a run does not record is absent; one that it records as empty is empty. What differs between any two runs
(where they lie, when they ran, which port they got) is taken out of the texts. Numbers that vary by themselves, such
as clocks, are in explain.py.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.comparing.admission import OF_THE_WORK, shown
from benchmarks.comparing.figures import NO_DIMENSIONS
from benchmarks.comparing.runs import ComparedRun
from benchmarks.values import Phase

Facts = dict[str, dict[str, str]]  # kind -> name -> value
SHOWN_DIGEST = 12  # digits
FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
FROM_REQUEST = tuple(name for name in OF_THE_WORK if name != "inject_slowdown")
MACHINE = ("cpu", "cpus", "cpus_usable", "memory_bytes", "system", "architecture")
IMAGE = ("name", "lock_file", "lock_sha256", "image", "image_digest", "file_bytes", "file_written", "packages_sha256")
# Variables that say where and when a job ran, not how: the scheduler's, this launcher's own, addresses.
NO_SETTING = re.compile(r"^(SLURM_|SLURMD_|STEPMARK_|PMIX_|PMI_)|(^|_)(PORT|PID|JOBID|JOB_ID|ADDR|TMPDIR)$")
PLACEHOLDERS = re.compile(r"\{(python|repository|phase_dir)\}")
EVERYWHERE: tuple[tuple[re.Pattern[str], str], ...] = (
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
    found: dict[str, dict[str, str] | None] = {
        "slowdown": {"inject_slowdown": f"{run.result.slowed_by:.0%}"},
        "request": _request(run),
        "setting": {name: str(value) for name, value in run.benchmark.knobs.items()},
        "profile for PGLE": _pgle(run),
        "XLA flag": _xla_flags(run),
        "version": _versions(run),
        "device": _device(run),
        "image": _image(run),
        "argument": _arguments(run),
        "layout": _layout(run),
        "environment": _environment(run),
        "program": _program(run),
        "node": _nodes(run),
        "machine": _machine(run),
        "recipe": {name: str(getattr(run.benchmark.recipe, name)) for name in ("name", "source", "date")},
        "Stepmark": _stepmark(run),
        "telemetry": {"sampled": "yes" if run.result.telemetry else "no"},
        "launcher": _texts(run.provenance.get("launcher")),
    }
    return {kind: facts for kind, facts in found.items() if facts is not None}


# --- what was asked -------------------------------------------------------------------------------


def _request(run: ComparedRun) -> dict[str, str]:
    benchmark = run.benchmark
    found = {name.replace("_", " "): shown(getattr(benchmark, name)) for name in (*FROM_REQUEST, "steps", "data")}
    model = benchmark.model
    found |= {
        f"model {name.replace('_', ' ')}": str(getattr(model, name))
        for name in model.__struct_fields__
        if name not in NO_DIMENSIONS
    }
    found["site"] = benchmark.site.name
    return found


def _pgle(run: ComparedRun) -> dict[str, str]:
    seen = run.result.pgle.seen if run.result.pgle else None
    found = {"key": run.benchmark.pgle_profile} if run.benchmark.pgle_profile else {}
    if seen is not None:
        found["applied"] = "yes" if seen.applied else "no"
        if seen.profile is not None:
            found["sha256"] = _digest(seen.profile.sha256)
    return found


# --- what was started -----------------------------------------------------------------------------


def _arguments(run: ComparedRun) -> dict[str, str] | None:
    """As they were filled in; what the worker saw counts where it is known."""
    worker, planned = _worker(run).get("argv"), _phase(run).get("argv")
    planned = planned or (run.measured.command if run.measured else None)
    if not planned and not worker:
        return None
    normalise = _normaliser(run)
    return _named_words(planned or [], normalise) | _named_words(worker or [], normalise)


def _named_words(words: list[Any], normalise: Callable[[str], str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in map(str, words):
        name, equals, value = word.partition("=")
        if name in ("--", ""):
            continue
        found[normalise(name)] = normalise(value) if equals else "given"
    return found


def _xla_flags(run: ComparedRun) -> dict[str, str] | None:
    """As XLA read them, where the worker says so; else as they were handed over."""
    normalise, seen = _normaliser(run), _worker(run).get("xla_flags")
    variables = _variables(run)
    texts = [variables[name] for name in FLAG_VARIABLES if name in variables]
    texts += [str(seen)] if seen else []
    listed = _phase(run).get("xla_flags")
    texts += [str(word) for word in listed] if isinstance(listed, list) else []
    if not texts and not run.provenance and run.measured is None:
        return None
    words = [word for text in texts for word in text.split()]
    flags = {name.lstrip("-"): value for name, value in _named_words(words, normalise).items()}
    return {**run.benchmark.xla_flags, **flags}


def _environment(run: ComparedRun) -> dict[str, str] | None:
    shell = run.provenance.get("shell")
    if run.measured is None and not isinstance(shell, dict) and not _phase(run):
        return None
    normalise = _normaliser(run)
    both = {**_texts(shell), **_variables(run)} if isinstance(shell, dict) else _variables(run)
    return {
        name: normalise(value)
        for name, value in both.items()
        if name not in FLAG_VARIABLES and not NO_SETTING.search(name)
    }


def _variables(run: ComparedRun) -> dict[str, str]:
    """Of the measured phase: what was filled in, or the plan's own."""
    filled = _phase(run).get("environment")
    return _texts(filled) if isinstance(filled, dict) else dict(run.measured.environment if run.measured else {})


# --- what ran it ------------------------------------------------------------------------------------


def _worker(run: ComparedRun) -> Mapping[str, Any]:
    """What rank 0 saw; of several phases and attempts the last, which is the measured one."""
    facts = run.provenance.get("worker")
    of_rank_0 = [fact for fact in facts if isinstance(fact, dict) and fact.get("rank") == 0] if facts else []
    return of_rank_0[-1] if of_rank_0 else {}


def _versions(run: ComparedRun) -> dict[str, str] | None:
    found = _texts(_worker(run).get("versions"))
    drivers = {node.driver for node in run.nodes if node.driver}
    cudas = {node.cuda for node in run.nodes if node.cuda}
    gpu = run.result.telemetry.gpu if run.result.telemetry else None
    if gpu is not None:
        drivers |= {gpu.driver} if gpu.driver else set()
        cudas |= {gpu.cuda} if gpu.cuda else set()
    found |= {"GPU driver": " ".join(sorted(drivers))} if drivers else {}
    found |= {"CUDA of the driver": " ".join(sorted(cudas))} if cudas else {}
    return found or None


def _device(run: ComparedRun) -> dict[str, str] | None:
    worker = _worker(run)
    found = {name: str(worker[name]) for name in ("device_kind", "platform") if worker.get(name)}
    names = sorted({gpu.name for node in run.nodes for gpu in node.gpus if gpu.name})
    return (found | ({"GPU": " ".join(names)} if names else {})) or None


def _image(run: ComparedRun) -> dict[str, str] | None:
    about = run.provenance.get("environment")
    if not isinstance(about, dict):
        return None
    return {name: _digest(str(about[name])) for name in IMAGE if about.get(name)}


def _layout(run: ComparedRun) -> dict[str, str] | None:
    worker = _worker(run)
    if not worker:
        return None
    mesh = {name: size for name, size in (worker.get("mesh") or {}).items() if size != 1}
    found = {"mesh": " ".join(f"{name} {size}" for name, size in sorted(mesh.items())) or "one device"}
    return found | {name: str(worker[name]) for name in ("process_count", "device_count") if worker.get(name)}


def _program(run: ComparedRun) -> dict[str, str] | None:
    digest = _worker(run).get("program")
    return {"sha256 of the step's program": _digest(str(digest))} if digest else None


# --- where it ran -----------------------------------------------------------------------------------


def _nodes(run: ComparedRun) -> dict[str, str] | None:
    """Of a queue's run those that were sampled, or that the queue gave it; else this machine."""
    hosts = {node.host for node in run.nodes}
    if run.benchmark.site.kind == "local":
        hosts |= {name for name in [_texts(run.provenance.get("machine")).get("hostname")] if name}
    queued = run.result.attempts[-1].nodes if run.result.attempts else None
    named = " ".join(sorted(hosts)) or queued
    return {"hosts": named} if named else None


def _machine(run: ComparedRun) -> dict[str, str] | None:
    """Of a queue's run the nodes': the launcher's machine trained nothing."""
    if run.benchmark.site.kind == "local":
        machine = _texts(run.provenance.get("machine"))
        return {name: machine[name] for name in MACHINE if name in machine} or None
    found = {
        "cpus": " ".join(sorted({str(node.cpus) for node in run.nodes if node.cpus})),
        "memory_bytes": " ".join(sorted({str(node.memory_bytes) for node in run.nodes if node.memory_bytes})),
    }
    return {name: text for name, text in found.items() if text} or None


def _stepmark(run: ComparedRun) -> dict[str, str] | None:
    git = run.provenance.get("git")
    found = {"version": str(run.provenance["stepmark"])} if run.provenance.get("stepmark") else {}
    if isinstance(git, dict):
        found |= {"commit": _digest(str(git.get("commit"))), "changed files": str(git.get("changed_files"))}
    return found or None


def _phase(run: ComparedRun) -> dict[str, Any]:
    """What provenance.json says of the measured phase."""
    phases = run.provenance.get("phases")
    if not isinstance(phases, dict) or not phases:
        return {}
    found = phases.get(run.measured.name if isinstance(run.measured, Phase) else list(phases)[-1])
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}


def _digest(text: str) -> str:
    """A digest by its first digits; anything else as it is."""
    bare = text.removeprefix("ends-").removeprefix("sha256:")
    whole = len(bare) in (40, 64) and all(digit in "0123456789abcdef" for digit in bare)
    return bare[:SHOWN_DIGEST] if whole else text


def _normaliser(run: ComparedRun) -> Callable[[str], str]:
    """Replaces this run's own paths in a text, then whatever differs between any two runs."""
    found: dict[str, str] = {}
    argv = _phase(run).get("argv")
    if run.measured is not None and isinstance(argv, list) and len(argv) == len(run.measured.command):
        for template, word in zip(run.measured.command, map(str, argv), strict=True):
            found |= _filled(template, word)
    places = sorted(found.items(), key=lambda place: -len(place[0]))  # a folder before its parent

    def normalise(text: str) -> str:
        for place, name in places:
            text = text.replace(place, name)
        for pattern, name in EVERYWHERE:
            text = pattern.sub(name, text)
        return text

    return normalise


def _filled(template: str, word: str) -> dict[str, str]:
    """{"/a/b/attempt-1/perf": "{phase_dir}"} of "--to={phase_dir}" and "--to=/a/b/attempt-1/perf"."""
    names = PLACEHOLDERS.findall(template)
    if len(names) != 1:
        return {}
    before, _, after = PLACEHOLDERS.split(template)
    if not word.startswith(before) or not word.endswith(after) or len(word) <= len(before) + len(after):
        return {}
    return {word[len(before) : len(word) - len(after)]: f"{{{names[0]}}}"}
