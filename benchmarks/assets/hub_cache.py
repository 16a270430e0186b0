"""Where a site keeps what its programs read from Hugging Face by a repository's name, laid out as they look for it.

Pure; huggingface_hub fills it (launch/assets/hub.py), a job mounts it and is offline.
"""

from pathlib import Path

from benchmarks.assets.assets import Repository
from benchmarks.values import Site


def home(site: Site) -> Path | None:
    """What HF_HOME is in a job: beside the site's images. None where there is no folder of images."""
    images = site.container.images if site.container else None
    return Path(images) / "huggingface" if images else None


def folder(home: Path, repository: Repository) -> Path:
    """The repository's place in it; `snapshots/COMMIT` has its files, `refs/REVISION` the commit."""
    return home / "hub" / f"{repository.kind}--{repository.name.replace('/', '--')}"
