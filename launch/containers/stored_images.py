"""The image of a run on this machine: is it there, what does its Python say; and getting it."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.errors import RequestError
from benchmarks.request import images
from benchmarks.values import Site
from launch.command_line.places import stepmark_home
from launch.containers.programs import Program, answer, last_line
from launch.running import interpreters, local
from launch.running.interpreters import AskedPython

FIRST_SECONDS = 600  # the first container of an image may take minutes on a slow disk


class _Inspected(msgspec.Struct):
    Id: str = ""
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


def digest_of(program: Program, image: str) -> str | None:
    """What tells the image from another of the same name; None where it is not on this machine."""
    if program.name == "apptainer":
        from launch.sites.image_files import digest_of_ends

        return digest_of_ends(Path(image)) if Path(image).is_file() else None
    done = answer(program.path, "image", "inspect", image)
    if done.returncode:
        return None
    try:
        (one,) = msgspec.json.decode(done.stdout, type=list[_Inspected])
    except (msgspec.DecodeError, ValueError):
        return None
    return next((digest.rpartition("@")[2] for digest in one.RepoDigests or []), one.Id)


def refuse(program: Program, site: Site, name: str) -> None:
    """RequestError where the image is a file that is not there; what has a name is pulled."""
    image = told(program, site, name)
    if images.is_file(name) and not Path(image).is_file():
        raise RequestError(
            "the container image is not there", where=image, next_command="--image with the path of a file that is"
        )


# --- getting it -------------------------------------------------------------------------------------


def pull(program: Program, image: str, name: str) -> str:
    """Get it, with the program's own progress; its digest. RequestError with its words where it cannot be had."""
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
    digest = digest_of(program, image) if done.returncode == 0 else None
    if digest is None:
        raise RequestError(
            f"the container image {name} cannot be pulled",
            where=" ".join(command),
            why=last_line(done) if done.stderr else f"exit code {done.returncode}; its words are above",
            next_command=f"{program.name} login {name.partition('/')[0]}; or --image=NAME:TAG of one that you have",
        )
    return digest


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
def ask(command: tuple[str, ...], variables: tuple[tuple[str, str], ...], module: str) -> AskedPython:
    """What the image's Python says of itself, started as a run would start it; RequestError where it cannot run."""
    try:
        done = local.asked(command, FIRST_SECONDS, dict(variables))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unfit(command, str(error)) from None
    asked = interpreters.answer_in(done.stdout)
    if asked is None:
        raise _unfit(command, last_line(done))
    why = interpreters.problem(asked, (module,))
    if why:
        raise _unfit(command, why)
    return asked


def _unfit(command: tuple[str, ...], why: str) -> RequestError:
    return RequestError(
        "a container of this image cannot run",
        where=" ".join(command),
        why=why,
        next_command="the same command by hand; --image=NAME:TAG takes another image",
    )
