"""The command that starts one container: what it sees of this machine, and as whom it writes. Pure.

A rank has a container of its own and shares all but the file system with the machine, as a bare process does: NCCL
finds its peers by the host's name, /dev/shm, process numbers and network, and telemetry by the host's name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.values import Value
from launch.containers.programs import Program

# NVIDIA's frameworks want locked memory and a large stack: docs.nvidia.com/deeplearning/frameworks/user-guide.
LIMITS = ("--ulimit=memlock=-1", "--ulimit=stack=67108864")
SHARED = ("--network=host", "--ipc=host", "--pid=host", "--uts=host")
HOME = "/tmp"  # the image's own, gone with the container: the caller has no home and no name in it


class Box(Value, frozen=True):
    """What the containers of a run have in common."""

    program: Program
    image: str  # as the program is told
    mounts: list[str]  # HOST:CONTAINER, or HOST:CONTAINER:ro
    user: str  # UID:GID of the caller
    user_name: str
    gpus: list[str] | None = None  # by their UUIDs; None: none
    handed_on: list[str] = []  # variables of the shell: their values are in no command


def words(box: Box, name: str, workdir: Path, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The command line of one container; `environment` is the plan's, which has no secrets."""
    if box.program.name == "apptainer":
        return _apptainer(box, workdir, command)
    variables = {"HOME": HOME, "USER": box.user_name, "LOGNAME": box.user_name, **environment}
    return [
        box.program.path,
        "run",
        "--rm",
        f"--name={name}",
        *SHARED,
        *_limits(box.program),
        "--security-opt=label=disable",  # SELinux would relabel every folder that is mounted
        *_user(box),
        *_gpus(box),
        *(f"--volume={mount}" for mount in box.mounts),
        f"--workdir={workdir}",
        *(f"--env={name}={value}" for name, value in variables.items()),
        *(f"--env={name}" for name in box.handed_on),
        f"--entrypoint={command[0]}",  # the image's own prints a banner
        box.image,
        *command[1:],
    ]


def _limits(program: Program) -> tuple[str, ...]:
    """Who is not root may not raise a limit: podman then hands on the caller's."""
    return ("--ulimit=host",) if program.name == "podman" and program.rootless else LIMITS


def _user(box: Box) -> list[str]:
    """What is written belongs to the caller. In rootless docker that is root's work inside; podman is told to map."""
    if not box.program.rootless:
        return [f"--user={box.user}"]
    return ["--userns=keep-id", f"--user={box.user}"] if box.program.name == "podman" else []


def _gpus(box: Box) -> list[str]:
    if box.gpus is None:
        return []
    if box.program.name == "podman":
        return [f"--device=nvidia.com/gpu={gpu}" for gpu in box.gpus]
    # Docker reads comma-separated fields, so that the quotes are part of the word.
    return [f'--gpus="device={",".join(box.gpus)}"']


def _apptainer(box: Box, workdir: Path, command: Sequence[str]) -> list[str]:
    """It shares the machine's namespaces and the caller's home and name by itself; its variables: see `client`."""
    binds = [f"--bind={mount}" for mount in box.mounts]
    nvidia = ["--nv"] if box.gpus is not None else []
    return [
        box.program.path, "exec", "--cleanenv", "--writable-tmpfs", *nvidia, *binds, f"--pwd={workdir}", box.image,
        *command,
    ]  # fmt: skip


def client(box: Box, shell: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the program itself is started with: apptainer's containers get theirs by them."""
    if box.program.name != "apptainer":
        return dict(shell)
    handed_on = {name: shell[name] for name in box.handed_on if name in shell}
    # The home is the caller's: packages that were installed there for another Python must not be found.
    inside = {"PYTHONNOUSERSITE": "1", **handed_on, **environment}
    return {**shell, **{f"APPTAINERENV_{name}": value for name, value in inside.items()}}


def refuse_folders(folders: Iterable[str]) -> None:
    """RequestError where a folder's name would end the word that mounts it."""
    for folder in folders:
        found = re.search(r"[:,\x00-\x1f]", folder)
        if found:
            raise RequestError(
                f"a folder with {found[0]!r} in its name cannot be mounted in a container",
                where=folder,
                why="it separates the parts of a mount",
                next_command="--output_dir=DIR with a plainer name, and a checkout in one",
            )
