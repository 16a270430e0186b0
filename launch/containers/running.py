"""A run's containers on this machine: from the benchmark to the command of each rank, and none left behind."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import StepmarkError
from benchmarks.machine import refusals
from benchmarks.request import images
from benchmarks.values import Benchmark, Phase, Site
from launch.containers import stored_images
from launch.containers.commands import Box, client, refuse_folders, words
from launch.containers.programs import Program, answer, found, refuse_without_gpus
from launch.running import interpreters, machine_gpus
from launch.running.local import REPOSITORY, fill, inherited_environment, places
from launch.running.provenance import PREFIXES_THAT_MATTER
from launch.running.this_machine import name_of

# Of these, what would name places or devices of the machine, which are others inside.
OF_THE_MACHINE = ("CUDA_", "LD_", "SLURM_", "STEPMARK_", "HF_HOME", "HF_HUB_CACHE")
GUARD = Path(__file__).with_name("ends_with_launcher.py")
SIGNALLED = 128  # a container's exit code is this and the signal's number, as a shell's


def refuse(benchmark: Benchmark, spec: EnvironmentSpec) -> None:
    """RequestError where no container of this run could start here, as far as it is known without pulling."""
    program = found(benchmark.site)
    if not benchmark.image:
        raise images.none_known(benchmark.engine, spec.image, benchmark.hardware, benchmark.site)
    if benchmark.hardware.platform == "cuda":
        refuse_without_gpus(program)
        too_old = refusals.old_driver_for_image(spec, benchmark.image, machine_gpus.found())
        if too_old is not None:
            raise too_old
    stored_images.refuse(program, benchmark.site, benchmark.image)


def ready(site: Site, image: str, spec: EnvironmentSpec, gpus: list[str] | None = None) -> dict[str, str | None]:
    """The image pulled if need be, and its Python asked what a run needs of it; what is written down of it."""
    box = _box(site, image, [], gpus)
    digest = stored_images.digest_of(box.program, box.image) or stored_images.pull(box.program, box.image, image)
    module = interpreters.module_of(spec)
    command = [spec.image_python, str(interpreters.PROGRAM), module]
    inside = words(box, f"stepmark-asks-{os.getpid()}", Path("/"), {}, command)
    variables = tuple(sorted(client(box, inherited_environment(), {}).items()))
    return {
        "name": spec.name,
        "image": image,
        "image_digest": digest,
        "container_program": box.program.version,
        **interpreters.provenance_of(stored_images.ask(tuple(inside), variables, module)),
    }


def box_of(benchmark: Benchmark, run: Path) -> Box:
    """What the containers of a run in this folder have in common."""
    folders = [benchmark.data] if benchmark.data.startswith("/") else []
    # The run's folder last: it may lie in the checkout, which is not written into.
    return _box(benchmark.site, benchmark.image, [*folders, str(run.resolve())], gpus_of(benchmark))


def _box(site: Site, image: str, own: Sequence[str], gpus: list[str] | None) -> Box:
    program = found(site)
    refuse_folders([str(REPOSITORY), *own])
    of_site = site.container.mounts if site.container else []
    mounts = [f"{REPOSITORY}:{REPOSITORY}:ro", *of_site, *(f"{folder}:{folder}" for folder in own)]
    matter = [name for name in inherited_environment() if name.startswith(PREFIXES_THAT_MATTER)]
    handed_on = sorted(name for name in matter if not name.startswith(OF_THE_MACHINE))
    return Box(
        program=program,
        image=stored_images.told(program, site, image),
        mounts=mounts,
        user=f"{os.getuid()}:{os.getgid()}",
        user_name=name_of(os.getuid()),
        gpus=gpus,
        handed_on=handed_on,
    )


def gpus_of(benchmark: Benchmark) -> list[str] | None:
    """By their UUIDs; None: none."""
    if benchmark.hardware.platform != "cuda":
        return None
    return [gpu.uuid for gpu in machine_gpus.chosen(benchmark)]


class Containers:
    """Of one run: a container for each rank of a phase, which ends with it."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def task(
        self, phase: Phase, phase_dir: Path, rank: int, command: list[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command that runs a rank in its container, and the variables that this command is started with."""
        mounts = [fill(mount, places("", phase_dir)) for mount in phase.mounts]
        for source in (Path(mount.partition(":")[0]) for mount in mounts):
            if source.is_relative_to(phase_dir.resolve()):
                source.mkdir(parents=True, exist_ok=True)
        box = msgspec.structs.replace(self._box, mounts=[*self._box.mounts, *mounts])
        inside = words(box, _name(phase_dir, rank), phase_dir.resolve(), environment, command)
        return [sys.executable, "-I", str(GUARD), *inside], client(box, inherited_environment(), environment)

    def end(self, phase_dir: Path, ranks: int) -> None:
        """Nothing of a phase goes on: the container of a program that was killed does, by itself."""
        program: Program = self._box.program
        if program.name == "apptainer":
            return  # its containers are the processes that were started
        names = [_name(phase_dir, rank) for rank in range(ranks)]
        try:
            done = answer(program.path, "rm", "--force", *names)
            trouble = "" if done.returncode == 0 or "o such container" in done.stderr else done.stderr.strip()
        except StepmarkError as error:
            trouble = f"{error.what}: {error.why}"
        if trouble and "already in progress" not in trouble:
            print(f"stepmark: a container may be left ({trouble}): {program.name} ps", file=sys.stderr, flush=True)

    @staticmethod
    def exit_code(code: int) -> int:
        """As a process's own: that of a container which a signal ended is 128 and the signal's number."""
        return SIGNALLED - code if SIGNALLED < code < SIGNALLED + 65 and code != SIGNALLED + 2 else code


def _name(phase_dir: Path, rank: int) -> str:
    parts = [*phase_dir.resolve().parts[-3:], str(rank)]  # run, attempt, phase
    return "stepmark-" + re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(parts))


def command_words(benchmark: Benchmark, run: Path) -> list[str]:
    """How a container of this run is started, the words of its phase left out. RequestError where none can be."""
    return words(box_of(benchmark, run), "stepmark-RUN-PHASE-RANK", run, {}, ["PYTHON"])
