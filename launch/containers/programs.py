"""Which container program this machine has, and whether it can be used: refused here, before anything is pulled."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal, NoReturn

import msgspec

from benchmarks.errors import RequestError
from benchmarks.values import Site, Value
from launch.command_line.progress import note
from launch.running.local import asked, inherited_environment

Name = Literal["docker", "podman", "apptainer"]
NAMES: tuple[Name, ...] = ("docker", "podman", "apptainer")  # the first that can be used is
ASK_SECONDS = 60
ANOTHER_WAY = "--runtime=venv, or --python=PATH of an interpreter that has the framework"
TOOLKIT = "install NVIDIA's Container Toolkit (docs.nvidia.com/datacenter/cloud-native/container-toolkit)"
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where nvidia-ctk writes what podman gives a container


class Program(Value, frozen=True):
    """A container program, as it was found."""

    name: Name
    path: str
    version: str  # as it says of itself
    rootless: bool = False  # then root in a container is the caller
    gives_gpus: bool = True  # whether NVIDIA's toolkit is set up for it


class _DockerInfo(msgspec.Struct):
    """What is read of `docker info`."""

    Runtimes: dict[str, object] | None = None
    SecurityOptions: list[str] | None = None
    DiscoveredDevices: list[dict[str, str]] | None = None


def answer(*command: str, seconds: float = ASK_SECONDS) -> "subprocess.CompletedProcess[str]":
    """What a command of the program says. RequestError where it cannot be started or gives no answer."""
    try:
        return asked(command, seconds, inherited_environment())
    except subprocess.TimeoutExpired:
        why = f"no answer within {seconds:.0f} s"
    except OSError as error:
        why = error.strerror or str(error)
    raise RequestError(
        f"{Path(command[0]).name} gives no answer", where=" ".join(command[:3]), why=why, next_command=ANOTHER_WAY
    )


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    """Its last words, which say why it failed."""
    hints = ("Run 'docker", "See 'docker")
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(hints)]
    return told[-1][:300] if told else f"exit code {done.returncode}"


def found(site: Site) -> Program:
    """The site's program, else the first that can be used; RequestError where none can, with every reason."""
    wanted = site.container.program if site.container else None
    refused: list[RequestError] = []
    for _, known in here([wanted] if wanted else NAMES):
        if isinstance(known, Program):
            if refused:
                note(f"{_reasons(refused)}; {known.name} is used")
            return known
        refused.append(known)
    if len(refused) == 1:
        raise refused[0]
    raise RequestError(
        "no container program can be used" if refused else f"this machine has no {wanted or ' or '.join(NAMES)}",
        where=f"runtime container, site {site.name}",
        why=_reasons(refused) or "a container needs a program that starts it",
        next_command=refused[0].next_command if refused else f"install {wanted or 'one of them'}; or {ANOTHER_WAY}",
    )


def _reasons(refused: list[RequestError]) -> str:
    return "; ".join(f"{one.what}: {one.why}" for one in refused)


def here(names: Iterable[Name] = NAMES) -> Iterator[tuple[Name, Program | RequestError]]:
    """Each program that is on this machine's PATH, or why it cannot be used."""
    for name in names:
        path = shutil.which(name)
        if path:
            yield name, _looked_at(name, path)


def refuse_without_gpus(program: Program) -> None:
    """RequestError where its containers could not be given NVIDIA's GPUs."""
    if program.gives_gpus:
        return
    why = "`docker info` knows no nvidia runtime and no nvidia.com/gpu, and no nvidia-container-runtime is there"
    mend = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
    if program.name != "docker":
        why = f"no nvidia.com/gpu is described in {', '.join(map(str, CDI_FOLDERS))}"
        mend = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    raise RequestError(
        f"{program.name} cannot give a container NVIDIA's GPUs",
        where=program.path,
        why=why,
        next_command=f"{TOOLKIT}; {mend}; or {ANOTHER_WAY}",
    )


@cache
def _looked_at(name: Name, path: str) -> Program | RequestError:
    """Kept, whatever came of it: a daemon that gives no answer is waited for once."""
    try:
        return _asked(name, path)
    except RequestError as error:
        return error


def _asked(name: Name, path: str) -> Program:
    version = last_line(answer(path, "--version"))
    if name == "docker" and "podman" in version.lower():
        name = "podman"  # under docker's name (podman-docker)
    if name == "docker":
        return _docker(path, version)
    if name == "podman":
        info = answer(path, "info")
        if info.returncode:
            _unusable(name, path, last_line(info), "podman info")
        return Program(name=name, path=path, version=version, rootless=os.geteuid() != 0, gives_gpus=_described())
    return Program(name=name, path=path, version=version, rootless=True)


def _docker(path: str, version: str) -> Program:
    done = answer(path, "info", "--format", "{{json .}}")
    told = last_line(done) if done.returncode else ""
    if "permission denied" in (done.stderr + done.stdout).lower():
        _unusable(
            "docker",
            path,
            f"this user may not use docker's socket: {told or last_line(done)}",
            "sudo usermod --append --groups docker $USER, and log in again; or a site with container.program: podman",
        )
    if done.returncode:
        _unusable("docker", path, told, "sudo systemctl start docker")
    try:
        info = msgspec.json.decode(done.stdout, type=_DockerInfo)
    except msgspec.DecodeError as error:
        _unusable("docker", path, f"`docker info` cannot be read: {error}", "docker info")
    known = [*(info.Runtimes or {}), *(device.get("ID", "") for device in info.DiscoveredDevices or [])]
    return Program(
        name="docker",
        path=path,
        version=version,
        rootless=any("rootless" in option for option in info.SecurityOptions or []),
        # A toolkit that no runtime was configured for gives GPUs all the same, by its hook.
        gives_gpus=any("nvidia" in name for name in known) or shutil.which("nvidia-container-runtime") is not None,
    )


def _described() -> bool:
    """Whether a CDI file of this machine describes NVIDIA's GPUs."""
    for path in (path for folder in CDI_FOLDERS for path in folder.glob("*.*")):
        with contextlib.suppress(OSError):
            if "nvidia.com/gpu" in path.read_text(errors="replace"):
                return True
    return False


def _unusable(name: Name, path: str, why: str, mend: str) -> NoReturn:
    raise RequestError(f"{name} cannot be used", where=path, why=why, next_command=f"{mend}; or {ANOTHER_WAY}")
