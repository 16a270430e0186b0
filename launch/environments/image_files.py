"""The image files that a cluster's jobs start by pyxis: what set-up found in each, and why a run is refused."""

import hashlib
import time
from collections.abc import Collection
from pathlib import Path

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.request import images
from benchmarks.request.images import MACHINES
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import Architecture, Benchmark, Value, json_text
from launch.environments import venvs
from launch.environments.python_report import PythonReport, module_of, parse_report
from launch.environments.runtime import Origin, Runtime

ENDS_BYTES = 2**20
SQUASHFS = b"hsqs"  # how the files begin that enroot makes and starts
BESIDE = ".checked.json"  # after the image's name


class CheckedImage(Value, frozen=True):
    """What set-up found in an image: its Python's answer, or why there was none."""

    image_digest: str
    asked: PythonReport | None
    why: str = ""


class ClusterContainer(Runtime):
    """The image of a cluster, which pyxis starts on the nodes."""

    def image_file(self) -> Path:
        image = images.image_of(self.benchmark, self.spec.image)
        assert image is not None  # the site's runtime is a container
        return image

    def refuse(self) -> None:
        refuse(self.image_file(), self.benchmark, module_of(self.spec))

    def planned_python(self) -> str:
        return self.spec.image_python

    def prepare(self) -> tuple[str, Origin]:
        return self.spec.image_python, about(self.image_file(), self.benchmark.settings.image, self.spec.name)

    def identity(self) -> str | None:
        image = self.image_file()
        return digest_of_ends(image) if image.is_file() else None

    def installed_python(self) -> Path | None:
        """Return that of Stepmark's own environment, which may answer differently from the image's."""
        return venvs.python_of(self.spec)


# --- before a run -----------------------------------------------------------------------------------


def refuse(image: Path, benchmark: Benchmark, module: str) -> None:
    """RequestError where the image is known to be no good."""
    site = benchmark.site.name
    of_setup = f"python launch/setup.py --site={site} --engine={benchmark.engine} --image={benchmark.settings.image}"
    is_file = images.is_file(benchmark.settings.image)  # somebody's own, which set-up does not import
    if not image.is_file():
        raise RequestError(
            "the container image is not there",
            where=str(image),
            why=f"site '{site}' runs {benchmark.backend} in it",
            next_command="--image=FILE with the path of an existing file" if is_file else of_setup,
        )
    why = unfit(image, benchmark.hardware.cpu_architecture, [module])
    if why:
        raise RequestError(
            f"the container image cannot be used: {why}",
            where=str(image),
            next_command="--image with another FILE or REGISTRY/NAME:TAG" if is_file else f"{of_setup} --force",
        )


def unfit(image: Path, wanted: Architecture | None, modules: Collection[str]) -> str:
    """Why an image cannot be used, as far as it is known; nothing where it may."""
    checked = checked_of(image)
    if checked is None or broken(image):
        return broken(image)
    if checked.asked is None:
        return checked.why
    found = MACHINES.get(checked.asked.machine, checked.asked.machine)
    if wanted is not None and found != wanted:
        return f"it is for {found}, the nodes are {wanted}"
    return checked.asked.problem(modules)


def broken(image: Path) -> str:
    """Why no container can be started from a file, whatever is in it; nothing where that is not known."""
    try:
        with image.open("rb") as file:
            first = file.read(len(SQUASHFS))
    except OSError:
        return ""
    if not first:
        return "it has 0 bytes"
    return "" if first == SQUASHFS else f"it is no squashfs file: it does not begin with {SQUASHFS.decode()}"


def size_of(image: Path) -> int:
    try:
        return image.stat().st_size
    except OSError:
        return 0


# --- what set-up found ------------------------------------------------------------------------------


def checked_of(image: Path) -> CheckedImage | None:
    """What set-up found in this very file; None where it was not looked at, or is another since."""
    try:
        found = files.read_json(_beside(image), CheckedImage)
        return found if found.image_digest == digest_of_ends(image) else None
    except (OSError, ValueError):
        return None


def keep(image: Path, output: str, exit_code: int) -> CheckedImage:
    """What the program that was started in the image has said, kept beside the file."""
    asked = parse_report(output) if exit_code == 0 else None
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("srun: ")]
    words = lines[-1][:200] if lines else f"exit code {exit_code}"
    why = "" if asked else f"its Python could not be started: {words}"
    found = CheckedImage(image_digest=digest_of_ends(image), asked=asked, why=why)
    write_atomically(_beside(image), json_text(found).encode())
    return found


def _beside(image: Path) -> Path:
    return image.with_name(image.name + BESIDE)


# --- what a run writes down -------------------------------------------------------------------------


def about(image: Path, name: str, environment: str) -> Origin:
    """What is written down of a container's image."""
    state = image.stat()
    checked = checked_of(image)
    return {
        "name": environment,
        "image": name,
        "file": str(image),
        "file_bytes": str(state.st_size),
        "file_written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(state.st_mtime)),
        "image_digest": digest_of_ends(image),
        **(checked.asked.origin() if checked and checked.asked else {}),
    }


def digest_of_ends(image: Path) -> str:
    """Tells images apart wherever they lie: its length, its first and its last MiB.

    A squashfs file begins with when it was made and how much is in it, and ends with its table of files. To read all
    of its tens of GB at each submission would take minutes.
    """
    size = image.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with image.open("rb") as file:
        for start in (0, max(0, size - ENDS_BYTES)):
            file.seek(start)
            digest.update(file.read(ENDS_BYTES))
    return f"ends-sha256:{digest.hexdigest()}"
