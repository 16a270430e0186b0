"""The container programs that this machine has and can use, and the command that starts one container.

Each rank has its own container, which shares everything except the file system with the machine. NCCL finds its peers
by the host's name, /dev/shm, process numbers and network; telemetry finds the node by the host's name.
"""

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from benchmarks.errors import RequestError
from benchmarks.values import Site, Value
from launch.machine import processes

Name = Literal["docker", "podman", "apptainer"]
NAMES: tuple[Name, ...] = ("docker", "podman", "apptainer")  # in order of preference
ASK_SECONDS = 60
WITHOUT = "--runtime=venv"  # the flag for a run without a container
TOOLKIT = "install it (docs.nvidia.com/datacenter/cloud-native/container-toolkit), or run without a container"
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where nvidia-ctk writes the device files that podman reads

# NVIDIA's frameworks need locked memory and a large stack: docs.nvidia.com/deeplearning/frameworks/user-guide.
LIMITS = {"memlock": resource.RLIM_INFINITY, "stack": 67108864}
MAY_RAISE_LIMITS = 1 << 24  # CAP_SYS_RESOURCE
SHARED = ("--network=host", "--ipc=host", "--pid=host", "--uts=host", "--userns=host")
HOME = "/tmp"  # the container's own folder, because the image has no home for the caller


class Program(Value, frozen=True):
    """A container program of this machine."""

    name: Name
    path: str
    version: str  # the last line that --version prints
    rootless: bool = False  # True: root in a container is the caller on the machine
    gives_gpus: bool = True  # whether NVIDIA's Container Toolkit is set up for this program

    def ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run one of the program's commands and return its output. Raise RequestError if the program is silent."""
        return _ask(self.path, *words)


def select_program(site: Site) -> Program:
    """Return the program that the site names, or the first usable program. Raise RequestError if none is usable."""
    wanted = site.container.program if site.container else None
    found = [program for _, program in installed_programs([wanted] if wanted else NAMES)]
    for program in found:
        if isinstance(program, Program):
            return program
    for refusal in found:
        if isinstance(refusal, RequestError):
            raise refusal
    raise RequestError(
        f"this machine has no {wanted or ' or '.join(NAMES)}",
        where=f"runtime container, site {site.name}",
        why=f"install {wanted or 'one of them'}, or run without a container",
        next_command=WITHOUT,
    )


def installed_programs(names: Iterable[Name] = NAMES) -> Iterator[tuple[Name, Program | RequestError]]:
    """Yield each program on this machine's PATH, or why it cannot be used."""
    for name in names:
        path = shutil.which(name)
        if path:
            yield name, _look_at(name, path)


def refuse_without_gpus(program: Program) -> None:
    """Raise RequestError if the program cannot give containers NVIDIA's GPUs."""
    if not program.gives_gpus:
        raise RequestError(
            f"{program.name} cannot give a container NVIDIA's GPUs",
            where=program.path,
            why=f"NVIDIA's Container Toolkit (nvidia-ctk) is not set up for {program.name}: {TOOLKIT}",
            next_command=WITHOUT,
        )


@cache
def _look_at(name: Name, path: str) -> Program | RequestError:
    """Return the program, or why it cannot be used. The cache avoids waiting again for a daemon that is silent."""
    try:
        version = last_line(_ask(path, "--version"))
        if name == "apptainer":
            return Program(name=name, path=path, version=version, rootless=True)
        done = _ask(path, "info", "--format", "{{json .}}")
    except RequestError as error:
        return error
    if done.returncode:
        return RequestError(
            f"{name} cannot be used",
            where=f"{path} info",
            why=last_line(done),
            next_command=f"{name} info",
        )
    if name == "podman" or "podman" in version.lower():  # the package podman-docker installs podman as docker
        gives_gpus = any(path for folder in CDI_FOLDERS for path in folder.glob("nvidia*"))
        return Program(name="podman", path=path, version=version, rootless=os.geteuid() != 0, gives_gpus=gives_gpus)
    # The toolkit's hook gives containers GPUs even if no runtime of docker was configured for the toolkit.
    gives_gpus = "nvidia" in done.stdout or shutil.which("nvidia-container-runtime") is not None
    rootless = "name=rootless" in done.stdout
    return Program(name=name, path=path, version=version, rootless=rootless, gives_gpus=gives_gpus)


def _ask(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return processes.ask(command, ASK_SECONDS, processes.inherited_environment())
    except (subprocess.TimeoutExpired, OSError) as error:
        raise RequestError(
            f"{Path(command[0]).name} does not answer",
            where=" ".join(command[:3]),
            why=str(error),
            next_command=WITHOUT,
        ) from None


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the last line of a program's output, which usually gives the reason of a failure."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Run 'docker", "See 'docker"))]
    return lines[-1][:300] if lines else f"exit code {done.returncode}"


# --- the command ------------------------------------------------------------------------------------


class ContainerOptions(Value, frozen=True):
    """The options that all containers of a run share."""

    program: Program
    image: str  # in the form that the program accepts (image_argument)
    mounts: list[str]  # HOST:CONTAINER, or HOST:CONTAINER:ro
    user: str  # UID:GID of the caller
    user_name: str
    gpus: list[str] | None = None  # UUIDs; None: no GPUs
    inherited_variables: list[str] = []  # names of shell variables, whose values must not appear in a command


def command_words(
    options: ContainerOptions, name: str, workdir: Path, environment: Mapping[str, str], command: Sequence[str]
) -> list[str]:
    """Return the command that starts one container; `environment` comes from the plan, which has no secrets."""
    program, gpus = options.program, options.gpus
    if program.name == "apptainer":  # by default it shares the machine's namespaces and the caller's home and name
        binds = [f"--bind={mount}" for mount in options.mounts]
        nvidia = ["--nv"] if gpus is not None else []
        words = [program.path, "exec", "--cleanenv", "--writable-tmpfs", *nvidia, *binds, f"--pwd={workdir}"]
        return [*words, options.image, *command]
    # New files must belong to the caller, whom rootless programs map to root. With podman's --userns=keep-id, the
    # first container of an image would copy the whole image.
    user = "0:0" if program.rootless else options.user
    if program.name == "podman":
        devices = [f"--device=nvidia.com/gpu={gpu}" for gpu in gpus or ()]
    else:  # docker splits this option at commas, so the quotes must be part of the word
        devices = [] if gpus is None else [f'--gpus="device={",".join(gpus)}"']
    variables = {"HOME": HOME, "USER": options.user_name, "LOGNAME": options.user_name, **environment}
    return [
        program.path,
        "run",
        "--rm",
        "--stop-timeout=0",  # podman would wait 10 s for each container that it is asked to remove
        f"--name={name}",
        *SHARED,
        *(f"--ulimit={name}={limit}" for name, limit in _limits(program).items()),
        "--security-opt=label=disable",  # SELinux would relabel every folder that is mounted
        f"--user={user}",
        *devices,
        *(f"--volume={mount}" for mount in options.mounts),
        f"--workdir={workdir}",
        *(f"--env={name}={value}" for name, value in variables.items()),
        *(f"--env={name}" for name in options.inherited_variables),
        f"--entrypoint={command[0]}",  # the image's own entrypoint prints a banner
        options.image,
        *command[1:],
    ]


def _limits(program: Program) -> Mapping[str, int]:
    """Return the limits of a container. Podman has no daemon, so its limits cannot exceed the caller's."""
    capabilities = re.search(r"^CapEff:\t(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    if program.name != "podman" or (capabilities and int(capabilities[1], 16) & MAY_RAISE_LIMITS):
        return LIMITS
    # By default podman raises the last two. It lowers its own number of processes to pid_max.
    wanted = {**LIMITS, "nofile": 2**20, "nproc": int(Path("/proc/sys/kernel/pid_max").read_text())}
    own = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1] for name in wanted}
    # RLIM_INFINITY is -1, which would be the smaller of two numbers.
    return {name: min(wanted[name], own[name], key=lambda limit: limit % 2**64) for name in wanted}


def client_variables(
    options: ContainerOptions, shell: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables for the process of the container program. Apptainer passes them into its containers."""
    if options.program.name != "apptainer":
        return dict(shell)
    handed_on = {name: shell[name] for name in options.inherited_variables if name in shell}
    # Apptainer mounts the caller's home: Python must not find packages that were installed there for another Python.
    inside = {"PYTHONNOUSERSITE": "1", **handed_on, **environment}
    return {**shell, **{f"APPTAINERENV_{name}": value for name, value in inside.items()}}
