"""Containers of docker, podman or apptainer on this machine: pull the image, start and end each rank's container."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.request import images
from benchmarks.values import Benchmark, Phase, Site
from launch.environments import venvs
from launch.environments.container_programs import (
    ContainerOptions,
    Program,
    client_variables,
    command_words,
    refuse_without_gpus,
    select_program,
)
from launch.environments.image_files import digest_of_ends
from launch.environments.python_report import PROGRAM, ask_python, module_of
from launch.environments.runtime import Origin, Runtime
from launch.machine import machine_gpus, processes
from launch.machine.processes import PREFIXES_THAT_MATTER, REPOSITORY, inherited_environment
from launch.machine.this_machine import name_of
from launch.terminal.places import own_place

# Variables with these prefixes name paths or devices of the machine, which differ inside a container.
OF_THE_MACHINE = ("CUDA_", "LD_", "SLURM_", "STEPMARK_", "HF_HOME", "HF_HUB_CACHE")
GUARD = Path(__file__).with_name("ends_with_launcher.py")
SIGNALLED = 128  # if signal N ends a container, its exit code is 128 + N, as in a shell
FIRST_SECONDS = 600  # the first container of an image may take minutes on a slow disk


class MachineContainer(Runtime):
    """Runs each rank in its own container on this machine."""

    def refuse(self) -> None:
        """Raise RequestError if it is known, without pulling the image, that no container could start."""
        benchmark, site, image = self.benchmark, self.benchmark.site, self.benchmark.settings.image
        program = select_program(site)
        if not image:
            raise images.unknown_image(benchmark.engine, self.spec.image, benchmark.hardware, site)
        if benchmark.hardware.platform == "cuda":
            refuse_without_gpus(program)
        file = image_argument(program, site, image)
        if images.is_file(image) and not Path(file).is_file():  # an image with a registry name is pulled later
            raise RequestError(
                "the container image does not exist",
                where=file,
                why="pass --image=PATH with an existing file, or --image=REGISTRY/NAME:TAG",
                next_command="--image=",
            )

    def planned_python(self) -> str:
        return self.spec.image_python

    def prepare(self) -> tuple[str, Origin]:
        gpus = _gpus_of(self.benchmark)
        return self.spec.image_python, make_ready(self.benchmark.site, self.benchmark.settings.image, self.spec, gpus)

    def identity(self) -> str | None:
        program = select_program(self.benchmark.site)
        return _digest_of(program, image_argument(program, self.benchmark.site, self.benchmark.settings.image))

    def installed_python(self) -> Path | None:
        """Return the Python of Stepmark's own environment, whose framework may differ from the image's."""
        return venvs.python_of(self.spec)

    def containers(self, run: Path) -> "TaskContainers":
        return TaskContainers(self._options(run))

    def preview(self, run: Path) -> str:
        words = command_words(self._options(run), "stepmark-RUN-PHASE-RANK", run, {}, ["PYTHON"])
        return "\n".join(["container", *(f"    {word}" for word in words)])

    def _options(self, run: Path) -> ContainerOptions:
        benchmark = self.benchmark
        folders = [benchmark.data] if benchmark.data.startswith("/") else []
        # The run's folder is last, because it may be inside the checkout, which is mounted read-only.
        return _options(benchmark.site, benchmark.settings.image, [*folders, str(run.resolve())], _gpus_of(benchmark))


def _gpus_of(benchmark: Benchmark) -> list[str] | None:
    """Return the UUIDs of the run's GPUs; None without GPUs."""
    if benchmark.hardware.platform != "cuda":
        return None
    return [gpu.uuid for gpu in machine_gpus.chosen(benchmark)]


def _options(site: Site, image: str, own_folders: Sequence[str], gpus: list[str] | None) -> ContainerOptions:
    program = select_program(site)
    of_site = site.container.mounts if site.container else []
    mounts = [f"{REPOSITORY}:{REPOSITORY}:ro", *of_site, *(f"{folder}:{folder}" for folder in own_folders)]
    matter = [name for name in inherited_environment() if name.startswith(PREFIXES_THAT_MATTER)]
    return ContainerOptions(
        program=program,
        image=image_argument(program, site, image),
        mounts=mounts,
        user=f"{os.getuid()}:{os.getgid()}",
        user_name=name_of(os.getuid()),
        gpus=gpus,
        inherited_variables=sorted(name for name in matter if not name.startswith(OF_THE_MACHINE)),
    )


# --- the tasks of a run -----------------------------------------------------------------------------


class TaskContainers:
    """Starts a container for each rank of a phase, and removes it when the phase ends."""

    def __init__(self, options: ContainerOptions) -> None:
        self._options = options

    def task(
        self, phase: Phase, phase_dir: Path, rank: int, command: list[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that runs a rank in its container, and the variables of that command."""
        mounts = [processes.fill(mount, processes.places("", phase_dir)) for mount in phase.mounts]
        for source in (Path(mount.partition(":")[0]) for mount in mounts):
            if source.is_relative_to(phase_dir.resolve()):
                source.mkdir(parents=True, exist_ok=True)
        options = msgspec.structs.replace(self._options, mounts=[*self._options.mounts, *mounts])
        words = command_words(options, _name(phase_dir, rank), phase_dir.resolve(), environment, command)
        variables = client_variables(options, inherited_environment(), environment)
        return [sys.executable, "-I", str(GUARD), *words], variables

    def end(self, phase_dir: Path, ranks: int) -> None:
        """Remove the containers of a phase. If the docker or podman client was killed, its container still runs."""
        program = self._options.program
        if program.name == "apptainer":
            return  # an apptainer container is the process that was started, and ends with it
        # If a name does not exist, podman removes none of the containers, unless it gets --ignore.
        force = ["--force", "--ignore"] if program.name == "podman" else ["--force"]
        try:
            program.ask("rm", *force, *(_name(phase_dir, rank) for rank in range(ranks)))
        except RequestError as error:
            print(f"stepmark: `{program.name} ps` may list a container ({error.why})", file=sys.stderr, flush=True)

    @staticmethod
    def exit_code(code: int) -> int:
        """Return the exit code of a container as Popen reports it: -N instead of 128 + N if signal N ended it."""
        return SIGNALLED - code if SIGNALLED < code < SIGNALLED + 65 and code != SIGNALLED + 2 else code


def _name(phase_dir: Path, rank: int) -> str:
    parts = [*phase_dir.resolve().parts[-3:], str(rank)]  # run, attempt, phase
    return "stepmark-" + re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(parts))


# --- the image --------------------------------------------------------------------------------------


def make_ready(site: Site, image: str, spec: EnvironmentSpec, gpus: list[str] | None = None) -> Origin:
    """Pull the image if necessary, check its Python, and return the origin that a run records."""
    options = _options(site, image, [], gpus)
    digest = _digest_of(options.program, options.image) or _pull(options.program, options.image, image)
    module = module_of(spec)
    ask = [spec.image_python, str(PROGRAM), module]
    words = command_words(options, f"stepmark-asks-{os.getpid()}", Path("/"), {}, ask)
    variables = tuple(client_variables(options, inherited_environment(), {}).items())
    report = ask_python(tuple(words), FIRST_SECONDS, variables)
    why = report if isinstance(report, str) else report.problem([module])
    if isinstance(report, str) or why:
        raise RequestError(
            "a container of this image cannot run",
            where=" ".join(words),
            why=f"{why}; pass --image=NAME:TAG to use another image",
            next_command=shlex.join(words),
        )
    return {
        "name": spec.name,
        "image": image,
        "image_digest": digest,
        "container_program": options.program.version,
        **report.origin(),
    }


def image_argument(program: Program, site: Site, image: str) -> str:
    """Return the image in the form that the program accepts: a name, or for apptainer a file."""
    if program.name != "apptainer":
        if images.is_file(image):
            raise RequestError(
                f"{program.name} cannot run image files",
                where=f"--image={image}",
                why="use --image=REGISTRY/NAME:TAG, or a site whose container.program is apptainer",
                next_command="--image=",
            )
        return image
    if images.is_file(image):
        return image
    container, name = site.container, Path(images.file_name(image)).with_suffix(".sif").name
    return str(Path(container.images) / name if container and container.images else own_place("images", name))


def _digest_of(program: Program, image: str) -> str | None:
    """Return the digest or id of the image; None if it is not on this machine."""
    if program.name == "apptainer":
        return digest_of_ends(Path(image)) if Path(image).is_file() else None
    done = program.ask("image", "inspect", '--format={{.Id}} {{join .RepoDigests " "}}', image)
    if done.returncode:
        return None
    image_id, *digests = done.stdout.split()
    return digests[0].rpartition("@")[2] if digests else image_id


def _pull(program: Program, image: str, name: str) -> str:
    """Pull the image, show the program's progress, and return the digest. Raise RequestError if the pull fails."""
    once = f"{program.name} pulls it once (NVIDIA's images are 10 to 30 GB)"
    print(f"container image {name}: {once}", file=sys.stderr, flush=True)
    command = [program.path, "pull", image]
    if program.name == "apptainer":
        Path(image).parent.mkdir(parents=True, exist_ok=True)
        command = [program.path, "pull", "--force", f"{image}.part", f"docker://{name}"]
    environment, screen = inherited_environment(), sys.stderr.fileno()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=screen, check=False)
    if program.name == "apptainer" and done.returncode == 0:
        Path(f"{image}.part").rename(image)
    digest = _digest_of(program, image) if done.returncode == 0 else None
    if digest is None:
        raise RequestError(
            f"{program.name} cannot pull the container image {name}",
            where=" ".join(command),
            why=f"exit code {done.returncode}; its output is above",
            next_command=f"{program.name} login {name.partition('/')[0]}",
        )
    return digest
