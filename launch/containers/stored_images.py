"""The image of a run on this machine: is it there, is it for this CPU, what does its Python say; and getting it."""

import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.errors import RequestError
from benchmarks.machine import images
from benchmarks.values import Site, Value
from launch.command_line.places import stepmark_home
from launch.containers.programs import Program, answer, last_line
from launch.running import asked_python, local
from launch.running.asked_python import AskedPython

FIRST_SECONDS = 600  # the first container of an image may take minutes on a slow disk


class Stored(Value, frozen=True):
    """An image that is on this machine."""

    digest: str  # tells it from another of the same name
    architecture: str = ""  # empty: not known


class _Inspected(msgspec.Struct):
    Id: str = ""
    Architecture: str = ""
    RepoDigests: list[str] | None = None


def told(program: Program, site: Site, image: str) -> str:
    """The image as the program is told: a name, or for apptainer a file."""
    if program.name != "apptainer":
        if images.is_file(image):
            raise RequestError(
                f"{program.name} runs no image files",
                where=f"--image={image}",
                next_command="--image=REGISTRY/NAME:TAG; or a site whose container.program is apptainer",
            )
        return image
    if images.is_file(image):
        return image
    container = site.container
    folder = Path(container.images) if container and container.images else stepmark_home() / "images"
    return str(folder / Path(images.file_name(image)).with_suffix(".sif").name)


def stored(program: Program, image: str) -> Stored | None:
    """None where it is not on this machine."""
    if program.name == "apptainer":
        from launch.sites.image_files import digest_of_ends

        return Stored(digest=digest_of_ends(Path(image))) if Path(image).is_file() else None
    done = answer(program.path, "image", "inspect", image)
    if done.returncode:
        return None
    try:
        (one,) = msgspec.json.decode(done.stdout, type=list[_Inspected])
    except (msgspec.DecodeError, ValueError):
        return None
    digests = [digest.rpartition("@")[2] for digest in one.RepoDigests or []]
    return Stored(digest=digests[0] if digests else one.Id, architecture=one.Architecture)


def refuse(program: Program, site: Site, name: str) -> None:
    """RequestError where the image is for another CPU, or a file that is not there; what has a name is pulled."""
    image = told(program, site, name)
    here = images.MACHINES.get(platform.machine(), platform.machine())
    there = stored(program, image)
    if there and there.architecture and there.architecture != here:
        raise RequestError(
            f"the container image is for {there.architecture}, this machine is {here}",
            where=image,
            why="none of its programs would start",
            next_command=f"--image=NAME:TAG of one for {here}; or {program.name} rmi {image}, and it is pulled anew",
        )
    if there is None and images.is_file(name):
        raise RequestError(
            "the container image is not there", where=image, next_command="--image with the path of a file that is"
        )


# --- getting it -------------------------------------------------------------------------------------


def pull(program: Program, image: str, name: str) -> Stored:
    """Get it, with the program's own progress; RequestError with its words where it cannot be had."""
    said = f"not on this machine; {program.name} pulls it, once (NVIDIA's images are 10 to 30 GB)"
    print(f"container image {name}: {said}", file=sys.stderr, flush=True)
    target = Path(image)
    if program.name == "apptainer":
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [program.path, "pull", "--force", f"{image}.part", f"docker://{name}"]
    else:
        command = [program.path, "pull", image]
    done = _shown(command)
    if program.name == "apptainer" and done.returncode == 0:
        Path(f"{image}.part").rename(target)
    there = stored(program, image) if done.returncode == 0 else None
    if there is None:
        raise RequestError(
            f"the container image {name} cannot be pulled",
            where=" ".join(command),
            why=last_line(done) if done.stderr else f"exit code {done.returncode}; its words are above",
            next_command=f"{program.name} login {name.partition('/')[0]}; or --image=NAME:TAG of one that you have",
        )
    return there


def _shown(command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Docker shows its progress on stdout and its errors on stderr, the others both on stderr."""
    process = subprocess.Popen(
        command,
        env=local.inherited_environment(),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=subprocess.PIPE if command[1:2] == ["pull"] and Path(command[0]).name == "docker" else None,
        text=True,
        errors="replace",
    )
    try:
        _, said = process.communicate()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return subprocess.CompletedProcess(command, process.returncode, "", said or "")


# --- what is in it ----------------------------------------------------------------------------------


@cache
def ask(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> AskedPython:
    """What the image's Python says of itself, started as a run would start it; RequestError where it cannot run."""
    done = _container(command, variables)
    asked = asked_python.read(done.stdout)
    if asked is None:
        raise _unfit(command, last_line(done))
    why = asked_python.problem(asked, modules)
    if why:
        raise _unfit(command, why)
    return asked


@cache
def ask_for_program(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], program: str) -> None:
    """RequestError where the image has not the program that `command` looks for."""
    if _container(command, variables).returncode:
        raise _unfit(command, f"it has no program '{program}', which a phase of the run starts")


def _container(
    command: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> "subprocess.CompletedProcess[str]":
    try:
        return local.asked(command, FIRST_SECONDS, dict(variables))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unfit(command, str(error)) from None


def _unfit(command: tuple[str, ...], why: str) -> RequestError:
    return RequestError(
        "a container of this image cannot run",
        where=" ".join(command),
        why=why,
        next_command="the same command by hand; --image=NAME:TAG takes another image",
    )
