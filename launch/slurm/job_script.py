"""Render job.sbatch from a plan, a site and a job's options. This module reads no file except the template.

Every word is quoted for the program that reads it: the shell, or sbatch, which has its own quoting in `#SBATCH` lines
and expands nothing there.
"""

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from benchmarks import VERSION
from benchmarks.backend import Backend, Checks
from benchmarks.errors import RequestError
from benchmarks.job_record import JOB_SCRIPT
from benchmarks.runs.first_check import BEFORE_THE_RUN, UNPACK
from benchmarks.secret_rules import Known, why_secret
from benchmarks.text import plural, title
from benchmarks.values import Benchmark, Container, JobOptions, Phase, Plan, Value
from launch.machine.processes import NOT_INHERITED, NOT_INHERITED_PREFIXES
from launch.slurm.options import key_of, seconds_of

PYNVML = "pynvml.py"  # the launcher's copy in the run's folder, because an image may lack this module
JOB_NAME = "stepmark"  # the same for every run: --dependency=singleton compares job names
# Variables that srun obeys in addition to its command line, and that sbatch does not set by default.
STEERING = (
    "SLURM_CPU_BIND", "SLURM_EXACT", "SLURM_EXPORT_ENV", "SLURM_IMMEDIATE", "SLURM_LABELIO", "SLURM_MPI_TYPE",
    "SLURM_OVERLAP", "SLURM_STDERRMODE", "SLURM_STDOUTMODE", "SLURM_TIMELIMIT", "SLURM_WAIT", "SLURM_WORKING_DIR",
)  # fmt: skip
PHASE_DIR = "{phase_dir}"
PLACEHOLDERS = {"{python}": "$python", "{repository}": "$repository", "{phase_dir}": "$phase_dir"}

_PLAIN = re.compile(r"[\w@%+=:,./\[\]-]+", re.ASCII)  # a word that sbatch reads correctly without quotes


class JobPlace(Value, frozen=True):
    """The paths of a job as every node sees them. `python` is a path inside the environment or container."""

    repository: Path
    run: Path
    run_id: str
    python: str
    image: str | None = None
    sampler_python: str | None = None  # None: no telemetry


def render(
    benchmark: Benchmark,
    plan: Plan,
    place: JobPlace,
    options: JobOptions,
    hang_timeout: float | None = None,
    secrets: Known = MappingProxyType({}),
) -> str:
    """Return the job script of a run. Raise RequestError if it would contain one of the `secrets`."""
    for text in (place.python, place.sampler_python or ""):
        one_line(text)
    _refuse_shared_nodes(plan, options)
    phases = [_phase(phase, benchmark, place, options) for phase in plan.phases]
    hang = max(1, math.ceil(hang_timeout)) if hang_timeout is not None else None
    # After the last step, nsys writes its report. This silent time must not count as a hang.
    watched = [phase.name for phase in plan.phases if phase.writes_steps and not phase.programs]
    if hang is not None and not watched:
        raise RequestError(
            "--hang_timeout cannot watch a phase of this run",
            where=f"--hang_timeout={hang}",
            why="nsys writes its report long after the last step, which looks like a hang; --time still ends the job",
            next_command="--hang_timeout=",
        )
    commands = [f"run_phase {phase.name}" for phase in plan.phases]
    if place.sampler_python is not None:  # sampling starts when every node of the job has its container
        commands.insert(sum(phase.name in BEFORE_THE_RUN for phase in plan.phases), "start_sampling")
    text = fill(
        Path(__file__).with_name("job.sbatch.j2"),
        title=one_line(title(benchmark)),
        run_id=one_line(place.run_id),
        version=VERSION,
        script=shlex.quote(str(place.run / JOB_SCRIPT)),
        directives=directives(benchmark, plan, place, options),
        repository=shlex.quote(str(place.repository)),
        run=shlex.quote(str(place.run)),
        python=shlex.quote(place.python),
        image=shlex.quote(place.image) if place.image else None,
        not_inherited=NOT_INHERITED,
        not_inherited_prefixes=NOT_INHERITED_PREFIXES,
        steering=STEERING,
        hang_timeout=hang,
        poll_seconds=max(1, min(10, hang // 4)) if hang else None,
        watched=watched,
        telemetry=place.sampler_python is not None,
        sampler_python=shlex.quote(place.sampler_python or ""),
        pynvml=PYNVML,
        container=_container(benchmark, place, '"$run"'),
        nodes=benchmark.nodes,
        phases=phases,
        commands=" && ".join(commands),
    )
    refuse_secrets(text, JOB_SCRIPT, secrets)
    return text


def fill(template: Path, **values: Any) -> str:
    """Return a template filled with `values`, which the caller has quoted; nothing is escaped for HTML."""
    import jinja2  # imported here, because it takes 30 ms and only rendering needs it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="<#",  # {# is bash's: ${#names[@]}
        comment_end_string="#>",
        autoescape=False,
    )
    text: str = environment.get_template(template.name).render(**values)
    return text


# --- the plan of a job ---------------------------------------------------------------------------


def job_plan(benchmark: Benchmark, backend: Backend, options: JobOptions, *, container: bool) -> Plan:
    """Return the plan of the job. `container` is whether the phases run in a container."""
    plan = backend.plan(benchmark)
    check = backend.check_phase(benchmark) if options.check and isinstance(backend, Checks) else None
    before = [check] if check is not None else []
    if container and (benchmark.nodes > 1 or check is None):
        # Pyxis unpacks the image on each node that does not have a container with the job's name yet. Phases and
        # samplers only join that container, because two programs that unpack it on one node at once would collide.
        unpack = Phase(
            name=UNPACK,
            command=["true"],
            environment={},
            nodes=benchmark.nodes,
            tasks_per_node=1,
            devices_per_task=0,
            writes_steps=False,
        )
        before.append(unpack)
    return msgspec.structs.replace(plan, phases=[*before, *plan.phases])


# --- what sbatch reads --------------------------------------------------------------------------


def directives(benchmark: Benchmark, plan: Plan, place: JobPlace, options: JobOptions) -> list[str]:
    """Return the `#SBATCH` lines of a run: the benchmark's needs, the job's options, and last the arguments."""
    arguments = {key_of(argument): argument for argument in options.arguments}
    dependency = arguments.pop("dependency", "").partition("=")[2]
    if options.singleton and "singleton" not in dependency.split(","):
        dependency = f"singleton,{dependency}".removesuffix(",")
    on_gpus = benchmark.hardware.kind == "gpu"  # not for virtual devices of a CPU
    own: dict[str, object] = {
        "job-name": JOB_NAME,
        "nodes": benchmark.nodes,
        "ntasks-per-node": max(phase.tasks_per_node for phase in plan.phases),
        "dependency": dependency or None,
        "kill-on-invalid-dep": "yes" if dependency else None,
        "segment": _segment(benchmark, options),
        "comment": " ".join(filter(None, [f"stepmark:{place.run_id}", options.comment])),
        "output": f"{place.run}/slurm-%j.out",
        # In a short job, send the warning nearer to the time limit, so that it does not precede the start.
        "signal": f"B:USR1@{min(options.warn_seconds, seconds_of(options.time) // 4)}",
        "requeue" if options.requeue else "no-requeue": True,
    }
    gpus = benchmark.gpus // benchmark.nodes if on_gpus else 0
    return directive_lines(msgspec.structs.replace(options, arguments=[*arguments.values()]), own, gpus)


def directive_lines(options: JobOptions, own: Mapping[str, object], gpus: int) -> list[str]:
    """Return the `#SBATCH` lines of any job of Stepmark; `own` overrides `options`, and `gpus` is per node."""
    directives: dict[str, object] = {
        **dict.fromkeys(("job-name", "nodes", "ntasks-per-node")),
        "time": options.time,
        "exclusive": options.exclusive,
        "mem": options.memory,
        **dict.fromkeys(("dependency", "kill-on-invalid-dep")),
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "gres": f"gpu:{gpus}" if gpus and options.gpus == "gres" else None,
        "gpus-per-node": gpus if gpus and options.gpus == "gpus_per_node" else None,
        "reservation": options.reservation,
        "constraint": options.constraint,
        "nodelist": options.nodelist,
        "exclude": options.exclude,
        "segment": None,
        "nice": options.nice,
        "comment": options.comment,
        "output": None,
        "open-mode": "append",
        **own,
    }
    found = [
        f"--{name}" if value is True else f"--{name}={directive_word(str(value))}"
        for name, value in directives.items()
        if value is not None and value is not False
    ]
    split = [argument.partition("=") for argument in options.arguments]
    return found + [f"{name}={directive_word(value)}" if equals else name for name, equals, value in split]


def directive_word(text: str) -> str:
    """Return a value for an `#SBATCH` line, in double quotes if it needs them; sbatch expands nothing in them."""
    text = one_line(text)
    return text if _PLAIN.fullmatch(text) else f'"{directive_text(text)}"'


def directive_text(text: str) -> str:
    """Return a text escaped for sbatch's double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _segment(benchmark: Benchmark, options: JobOptions) -> int | None:
    """Return the segment size: the largest equal part of the job that fits an NVLink domain. None for one node."""
    if options.segment is not None:
        return None if options.segment == "none" else options.segment
    domain = benchmark.hardware.nvlink_domain
    if domain is None or benchmark.nodes == 1:
        return None
    return max(size for size in range(1, domain.nodes + 1) if benchmark.nodes % size == 0)


# --- one phase ----------------------------------------------------------------------------------


def _phase(phase: Phase, benchmark: Benchmark, place: JobPlace, options: JobOptions) -> Mapping[str, object]:
    tasks, devices = plural(phase.tasks_per_node, "task"), plural(phase.devices_per_task, "device")
    own_gpu = benchmark.hardware.platform == "cuda" and phase.devices_per_task == 1
    in_container = place.image is not None and not phase.on_host
    where = _container(benchmark, place, '"$phase_dir"', phase) if in_container else ['--chdir="$phase_dir"']
    folders = [folder for mount in phase.mounts if (folder := mount.partition(":")[0]).startswith(f"{PHASE_DIR}/")]
    return {
        "name": phase.name,
        "text": f"{phase.name}: {plural(phase.nodes, 'node')} x {tasks}, {devices} per task",
        "nodes": phase.nodes,
        "tasks": phase.nodes * phase.tasks_per_node,
        "tasks_per_node": phase.tasks_per_node,
        "options": [*_srun_options(benchmark, options), *where],
        "folders": [shell_word(folder) for folder in folders],  # these must exist before the container starts
        "environment": [
            *(["STEPMARK_BIND=gpu"] if own_gpu else []),
            *(f"{name}={shell_word(value)}" for name, value in phase.environment.items()),
        ],
        "words": _joined([shell_word(word) for word in phase.command]),
    }


def _srun_options(benchmark: Benchmark, options: JobOptions) -> list[str]:
    found = ["--distribution=block --kill-on-bad-exit=1 --export=ALL"]
    if benchmark.hardware.kind == "gpu":
        # A cluster may bind each task to one core, but the threads that feed a GPU need more cores.
        found.append("--cpu-bind=none")
    if options.mpi:
        found.append(f"--mpi={shlex.quote(one_line(options.mpi))}")
    return [*found, '--output="$phase_dir/rank-%t.log"']


def _container(benchmark: Benchmark, place: JobPlace, workdir: str, phase: Phase | None = None) -> list[str]:
    """Return pyxis's options. Pyxis passes the environment into the container, but the image's values have priority,
    unless --container-env names the variable. NVIDIA's images may set XLA_FLAGS.
    """
    container = benchmark.site.container
    if place.image is None or container is None:
        return []
    return [
        '--container-image="$image"',
        # All programs of the job on a node share the container's files; each srun has its own mounts (no_exec).
        '--container-name="$container:no_exec"',
        f"--container-mounts={_mounts(benchmark, container, phase)}",
        f"--container-workdir={shlex.quote(container.workdir) if container.workdir else workdir}",
        f"--container-{'writable' if container.writable or (phase and phase.as_root) else 'readonly'}",
        f"--{'' if container.mount_home else 'no-'}container-mount-home",
        *(["--container-remap-root"] if phase and phase.as_root else []),
        *([f"--container-env={','.join(phase.environment)}"] if phase and phase.environment else []),
    ]


def _mounts(benchmark: Benchmark, container: Container, phase: Phase | None) -> str:
    data = []
    if benchmark.data.startswith("/"):
        data = [f"{benchmark.data}:{benchmark.data}"]
    of_phase = phase.mounts if phase else []
    own = ["$repository:$repository", "$run:$run"]  # followed by the mounts from the phase's folder
    own += [mount.replace(PHASE_DIR, "$phase_dir") for mount in of_phase if mount.startswith(PHASE_DIR)]
    others = [*container.mounts, *data, *(mount for mount in of_phase if not mount.startswith(PHASE_DIR))]
    return ",".join([f'"{",".join(own)}"', *map(shell_word, others)])


# --- words --------------------------------------------------------------------------------------


def shell_word(text: str) -> str:
    """Quote a word of a plan for bash, and replace the plan's placeholders with shell variables."""
    pieces = filter(None, re.split(r"(\{python\}|\{repository\}|\{phase_dir\})", one_line(text)))
    return "".join(f'"{PLACEHOLDERS[one]}"' if one in PLACEHOLDERS else shlex.quote(one) for one in pieces) or "''"


def _joined(words: list[str], width: int = 100) -> list[str]:
    """Return the words in lines: one line for the words before the first `key=value`, then one line per word."""
    head = next((place for place, word in enumerate(words) if "=" in word), len(words))
    if len(" ".join(words[:head])) > width:
        head = 0
    return [" ".join(words[:head]), *words[head:]] if head else words


def one_line(text: str) -> str:
    """Return the text. Refuse a line break, because the next line would not be part of the comment or quoted word."""
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise RequestError(
            f"{text!r} cannot be part of a job script", why="it has a line break or a control character"
        )
    return text


# --- refusals -----------------------------------------------------------------------------------


def _refuse_shared_nodes(plan: Plan, options: JobOptions) -> None:
    alone = [phase.name for phase in plan.phases if phase.alone]
    if alone and not options.exclusive:
        raise RequestError(
            f"phase {alone[0]} needs exclusive nodes, because it changes settings of the nodes",
            where="--noexclusive",
            why="the changes would slow other jobs on the same nodes",
            next_command="--exclusive",
        )


# --- secrets ------------------------------------------------------------------------------------


def refuse_secrets(text: str, script: str, secrets: Known) -> None:
    """Refuse a script that contains a secret, because others may read the file. Show the place, not the secret."""
    written: dict[str, str] = {}
    for value, name in secrets.items():  # unquoted, and as the shell and sbatch quote it
        written |= dict.fromkeys((value, shlex.quote(value).strip("'"), directive_text(value)), name)
    for number, line in enumerate(text.splitlines(), start=1):
        why = why_secret(line, written)
        if why:
            place = f"line {number} of {script}"
            # Name the option or variable that the line sets; a word without a value may be the secret itself.
            sets = re.match(r"(?:#SBATCH )?\s*(?:export )?(--[a-z-]+|[A-Za-z_][A-Za-z0-9_.]*)=", line)
            raise RequestError(
                "a secret must not be written into a job script",
                where=place if sets is None or why_secret(sets[1], written) else f"{sets[1]} ({place})",
                why=f"{why}; remove it: the job inherits the variables of the shell that submits it",
            )
