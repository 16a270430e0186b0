"""Container images: what a registry calls one, the file enroot makes of it, and where a site keeps that. Pure."""

import re
from pathlib import Path

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError
from benchmarks.values import Site

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")


def file_name(image: str) -> str:
    """nvcr.io/nvidia/nemo:24.09 -> nvidia+nemo+24.09.sqsh, as enroot names it."""
    _, name = _parts(image)
    return re.sub(r"[/:@]", "+", name) + ".sqsh"


def import_uri(image: str) -> str:
    """nvcr.io/nvidia/nemo:24.09 -> docker://nvcr.io#nvidia/nemo:24.09, as enroot import takes it."""
    registry, name = _parts(image)
    return f"docker://{registry}#{name}" if registry else f"docker://{name}"


def image_of(spec: EnvironmentSpec, site: Site) -> Path | None:
    """The image file an engine runs in at a site; None where the site has no containers."""
    if site.runtime == "venv":
        if not spec.locks:
            raise RequestError(
                f"'{spec.name}' runs in its container alone, and site '{site.name}' has no container runtime",
                where=f"--site={site.name}",
                why="there is no lock file to make a virtual environment from",
                next_command="--site with one whose runtime is container, or another --engine",
            )
        return None
    if site.container is None:
        raise RequestError(
            f"site '{site.name}' does not say where its container images are",
            where=f"the file of site {site.name}: container.images",
            why="its runtime is container",
        )
    if not spec.image:
        raise RequestError(
            f"no container image is known for '{spec.name}'",
            where=f"--site={site.name}",
            why="the site runs everything in containers",
            next_command="--site with one whose runtime is venv",
        )
    return Path(site.container.images) / file_name(spec.image)


def _parts(image: str) -> tuple[str, str]:
    """(registry, or nothing, and the rest); a first word with a dot or a port is a registry, as in Docker."""
    if not _NAME.fullmatch(image):
        raise RequestError(f"'{image}' is no name of a container image", why="REGISTRY/NAME:TAG is expected")
    first, slash, rest = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return "", image
