"""The image files that pyxis starts in a cluster's jobs: refuse unusable files, and record the origin of an image."""

import hashlib
import time
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.request import images
from benchmarks.values import Benchmark
from launch.environments import venvs
from launch.environments.runtime import Origin, Runtime

ENDS_BYTES = 2**20
SQUASHFS = b"hsqs"  # the first bytes of the image files that enroot makes and starts


class ClusterContainer(Runtime):
    """The container image of a cluster's site, which pyxis starts on the nodes."""

    def image_file(self) -> Path:
        image = images.image_of(self.benchmark, self.spec.image)
        assert image is not None  # the site's runtime is a container
        return image

    def refuse(self) -> None:
        refuse(self.image_file(), self.benchmark)

    def planned_python(self) -> str:
        return self.spec.image_python

    def prepare(self) -> tuple[str, Origin]:
        return self.spec.image_python, image_origin(self.image_file(), self.benchmark.settings.image, self.spec.name)

    def identity(self) -> str | None:
        image = self.image_file()
        return digest_of_ends(image) if image.is_file() else None

    def installed_python(self) -> Path | None:
        """Return the Python of Stepmark's own environment, whose framework may differ from the image's."""
        return venvs.python_of(self.spec)


# --- before a run -----------------------------------------------------------------------------------


def refuse(image: Path, benchmark: Benchmark) -> None:
    """Raise RequestError if the image does not exist or no container could be started from it."""
    site = benchmark.site.name
    of_setup = f"python launch/setup.py --site={site} --engine={benchmark.engine} --image={benchmark.settings.image}"
    is_file = images.is_file(benchmark.settings.image)  # the user's own file, which setup.py does not import
    if not image.is_file():
        raise RequestError(
            "the container image does not exist",
            where=str(image),
            why=f"site '{site}' runs {benchmark.backend} in this image",
            next_command="--image=" if is_file else of_setup,
        )
    why = broken(image)
    if why:
        raise RequestError(
            f"the container image cannot be used: {why}",
            where=str(image),
            next_command="--image=" if is_file else f"{of_setup} --force",
        )


def broken(image: Path) -> str:
    """Return the reason why no container can start from an image file; empty if no reason is known."""
    try:
        with image.open("rb") as file:
            first = file.read(len(SQUASHFS))
    except OSError:
        return ""
    if not first:
        return "it has 0 bytes"
    return "" if first == SQUASHFS else f"it is not a squashfs file: it does not begin with {SQUASHFS.decode()}"


def size_of(image: Path) -> int:
    try:
        return image.stat().st_size
    except OSError:
        return 0


# --- what a run records -----------------------------------------------------------------------------


def image_origin(image: Path, name: str, environment: str) -> Origin:
    """Return the recorded origin of a container's image."""
    state = image.stat()
    return {
        "name": environment,
        "image": name,
        "file": str(image),
        "file_bytes": str(state.st_size),
        "file_written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(state.st_mtime)),
        "image_digest": digest_of_ends(image),
    }


def digest_of_ends(image: Path) -> str:
    """Return a digest of the file's length and its first and last MiB, which identifies an image under any path.

    A squashfs file begins with its creation time and its size, and ends with its table of files. Reading all of its
    tens of GB at each submission would take minutes.
    """
    size = image.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with image.open("rb") as file:
        for start in (0, max(0, size - ENDS_BYTES)):
            file.seek(start)
            digest.update(file.read(ENDS_BYTES))
    return f"ends-sha256:{digest.hexdigest()}"
