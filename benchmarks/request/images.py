"""Chooses the container image of an engine, and names it in a registry and as the file of enroot. No I/O."""

import re
from pathlib import Path

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark, Hardware, ImageNames, Site

# The pattern allows no user and password before the registry, because the run's files contain the name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?")
FILES = (".sqsh", ".sif")  # the endings of image files: enroot's and apptainer's
_FILE = re.compile(r"/[A-Za-z0-9._:/@+=, -]*\.(sqsh|sif)")
# Registries that file names omit. An image from any other registry may differ, so its file name has the registry.
UNNAMED = ("nvcr.io", "ghcr.io", "docker.io")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # the kernel's name of an architecture -> the registry's name


# --- the choice -----------------------------------------------------------------------------------


def choose(typed: str | None, site: Site, engine: str, own: ImageNames, hardware: Hardware) -> str:
    """Return the typed image, the site's or Stepmark's `own`; empty without containers or without a known image."""
    refuse_without_containers(typed, site)
    if site.runtime != "container":
        return ""
    if typed:
        return checked(typed, "--image")
    if engine not in site.images:
        return _image_for(own, hardware)
    of_site = _image_for(site.images[engine], hardware)  # if empty, Stepmark's own image must not replace it silently
    return checked(of_site, f"the file of site {site.name}: images: {engine}") if of_site else ""


def _image_for(names: ImageNames, hardware: Hardware) -> str:
    """Return the image; empty if it depends on the CPU architecture and the nodes' architecture is unknown."""
    if isinstance(names, str):
        return names
    return names.get(hardware.cpu_architecture, "") if hardware.cpu_architecture else ""


def refuse_without_containers(typed: str | None, site: Site) -> None:
    """Raise RequestError if the site cannot run the image passed with --image."""
    what, why = "", ""
    if typed and site.runtime != "container":
        what, why = "does not use containers", f"the site's runtime is {site.runtime}"
    elif typed and typed.endswith(".sif") and site.slurm is not None:
        what, why = "cannot run .sif files", "pyxis starts containers from .sqsh files"
    if what:
        raise RequestError(f"site '{site.name}' {what}", where=f"--image={typed}", why=why, next_command="--image=")


def checked(image: str, where: str) -> str:
    """Return the image in its recorded form: REGISTRY/NAME:TAG, or the path of a file. Accept enroot's #."""
    plain = image if is_file(image) else image.removeprefix("docker://").replace("#", "/", 1)
    if not (_FILE if is_file(image) else _NAME).fullmatch(plain):
        raise RequestError(
            f"'{image.rpartition('@')[2]}' is not a valid name of a container image",
            where=where,
            why="use REGISTRY/NAME:TAG without a login, or the path of a .sqsh or .sif file",
            next_command="--image=nvcr.io/nvidia/nemo:25.09",
        )
    return plain


def is_file(image: str) -> bool:
    return image.startswith("/")


# --- its file -------------------------------------------------------------------------------------


def file_of(image: str, site: Site) -> Path:
    """Return the path of an image's file at a site."""
    if site.container is None or site.container.images is None:
        raise RequestError(
            f"site '{site.name}' has no folder for container images",
            where=f"the file of site {site.name}: container.images",
            why=f"the site's runtime is {site.runtime}; add `container: {{images: /FOLDER}}` to the site file",
        )
    return Path(image) if is_file(image) else Path(site.container.images) / file_name(image)


def image_of(benchmark: Benchmark, own: ImageNames) -> Path | None:
    """Return the file of a run's image; None without containers. Raise RequestError if no image is known."""
    site = benchmark.site
    if site.runtime != "container":
        return None
    if not benchmark.settings.image:
        raise unknown_image(benchmark.engine, own, benchmark.hardware, site)
    return file_of(benchmark.settings.image, site)


def unknown_image(engine: str, own: ImageNames, hardware: Hardware, site: Site) -> RequestError:
    """Return the refusal for an engine that has no known image on this hardware."""
    known = site.images.get(engine, own)
    others = "none" if isinstance(known, str) else ", ".join(sorted(known))
    return RequestError(
        f"engine '{engine}' has no container image for {hardware.title}",
        where=f"--hardware={hardware.name} --site={site.name}",
        why=f"the site runs everything in containers; architectures with an image: {others}; "
        f"pass --image=NAME:TAG, or add `images: {{{engine}: NAME:TAG}}` to the file of the site",
    )


def file_name(image: str) -> str:
    """Return the file name that enroot gives an image: nvcr.io/nvidia/nemo:24.09 -> nvidia+nemo+24.09.sqsh."""
    registry, name = _parts(image)
    return re.sub(r"[/:@]", "+", name if registry in ("", *UNNAMED) else f"{registry}/{name}") + ".sqsh"


def import_uri(image: str) -> str:
    """Return the URI for `enroot import`: nvcr.io/nvidia/nemo:24.09 -> docker://nvcr.io#nvidia/nemo:24.09."""
    registry, name = _parts(image)
    return f"docker://{registry}#{name}" if registry else f"docker://{name}"


def _parts(image: str) -> tuple[str, str]:
    """Return the registry (or an empty string) and the rest. As in Docker, a registry has a dot or a port."""
    first, slash, rest = checked(image, "").partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first, rest
    return "", checked(image, "")
