"""Describes the files that a run with real data needs on disk (configs/assets/), and checks that they are complete.

This module reads neither the disk nor the network: launch/assets/needed.py lists the existing files.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from benchmarks.configs import Configs, refuse_unknown
from benchmarks.errors import RequestError, UnknownName
from benchmarks.values import Site, Value

GB = 1e9
GIB = 2**30

Gigabytes = Annotated[float, msgspec.Meta(gt=0)]
RepositoryName = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]+/[\w.-]+$")]
RelativePath = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!.*\.\.)[^\\]+$")]


# --- read from configs ------------------------------------------------------------------------


class Part(Value, frozen=True):
    """A file that an asset must have. A path that ends in / is a folder that must not be empty."""

    path: RelativePath
    gb: Gigabytes | None = None  # the rounded size in the source; None: the source does not state it
    bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None  # the exact size, if the source states it


class Repository(Value, frozen=True):
    """A Hugging Face repository that an asset can be downloaded from, and which of its files to download."""

    kind: Literal["models", "datasets"]
    name: RepositoryName
    revision: str
    files: list[str]  # file names; * and ? are wildcards as in a shell
    gated: bool  # whether users must request access and download with a token


class Asset(Value, frozen=True):
    """A folder of files that a run reads, and how to get the files."""

    name: str
    title: str
    folder: RelativePath  # relative to --out
    gb: Gigabytes | None
    gb_note: str  # what the size includes, or why it is unknown
    parts: list[Part]
    repository: Repository | None
    made_by: str = ""  # how to make the asset if it cannot be downloaded; {out} is the folder of all assets
    only_for: str = ""  # describes the runs that read the asset; empty: all runs of the row read it


class Needs(Value, frozen=True):
    """All assets that the runs of one backend and one task need, for the models in `models`."""

    name: str
    title: str
    backend: str
    task: Literal["pretrain", "lora", "mlperf"]
    models: list[str]
    assets: list[Asset]
    run_flags: str  # the flags with which launch/run.py reads the assets; {out} is the folder of all assets
    source: str
    date: str


def read_needs(configs: Configs, name: str) -> Needs:
    return configs.row("assets", name, Needs)


def read_all_needs(configs: Configs) -> list[Needs]:
    """Return all rows of configs/assets, sorted by name."""
    rows = [read_needs(configs, name) for name in configs.names("assets")]
    for row in rows:
        refuse_unknown(row.models, configs.names("models"), f"{configs.path('assets', row.name)}: models")
    return rows


# --- the row of a request ---------------------------------------------------------------------


def choose(rows: Iterable[Needs], model: str, task: str, backend: str | None) -> Needs:
    """Return the only row that fits the request. Raise RequestError if no row or several rows fit."""
    rows = list(rows)
    found = [row for row in rows if model in row.models and row.task == task and backend in (None, row.backend)]
    if len(found) == 1:
        return found[0]
    asked = f"--model={model} --task={task}" + (f" --backend={backend}" if backend else "")
    known = [f"--model={name} --task={row.task} --backend={row.backend}" for row in rows for name in row.models]
    raise RequestError(
        f"choose a backend for {asked}: {', '.join(row.backend for row in found)}"
        if found
        else f"{asked} has no list of files",
        where="configs/assets",
        why="known: " + "; ".join(known) + "; runs on synthetic data need no files",
        next_command=f"--backend={found[0].backend}" if found else "",
    )


def find_asset(needs: Needs, name: str) -> Asset:
    found = {asset.name: asset for asset in needs.assets}
    if name not in found:
        raise UnknownName(f"{needs.name} has no asset '{name}'", name, found, where="--asset")
    return found[name]


# --- the files on disk ------------------------------------------------------------------------


class AssetStatus(Value, frozen=True):
    """The state of one asset on disk, judged by the sizes of its files."""

    asset: Asset
    state: Literal["present", "incomplete", "missing"]
    bytes: int
    faults: list[str]

    @property
    def missing_gb(self) -> float:
        """Return the number of GB that are still to be downloaded; 0 if the asset's size is unknown."""
        return 0.0 if self.state == "present" else max(0.0, (self.asset.gb or 0.0) - self.bytes / GB)


def compare(asset: Asset, sizes: Mapping[str, int]) -> AssetStatus:
    """Compare the files in the asset's folder (path -> bytes) with the parts that the asset must have."""
    faults = [fault for part in asset.parts if (fault := _fault_of(part, sizes))] if sizes else []
    state: Literal["present", "incomplete", "missing"]
    state = "missing" if not sizes else "incomplete" if faults else "present"
    return AssetStatus(asset=asset, state=state, bytes=sum(sizes.values()), faults=faults)


def _fault_of(part: Part, sizes: Mapping[str, int]) -> str:
    if part.path.endswith("/"):
        return "" if any(path.startswith(part.path) for path in sizes) else f"{part.path}: missing or empty"
    size = sizes.get(part.path)
    if not size:
        return f"{part.path}: {'missing' if size is None else 'empty'}"
    if part.bytes is not None and size != part.bytes:
        return f"{part.path}: {size:,} bytes instead of {part.bytes:,}"
    # The source may use decimal GB, or binary GB as in `ls -h`.
    if part.gb is not None and not (part.gb - 0.5) * GB <= size <= (part.gb + 0.5) * GIB:
        return f"{part.path}: {size / GB:,.1f} GB, {part.gb:g} GB expected"
    return ""


def has_usual_assets(found: Iterable[AssetStatus]) -> bool:
    """Return whether every asset is present, except assets that only some runs read (`only_for`)."""
    return all(one.state == "present" for one in found if not one.asset.only_for)


# --- Hugging Face's cache at a site -----------------------------------------------------------


def hub_home(site: Site) -> Path | None:
    """Return HF_HOME for a site's jobs, in the folder of container images; None if the site has no such folder."""
    images = site.container.images if site.container else None
    return Path(images) / "huggingface" if images else None


def hub_folder(home: Path, repository: Repository) -> Path:
    """Return the folder of a repository in HF_HOME: files in `snapshots/COMMIT`, the commit in `refs/REVISION`."""
    return home / "hub" / f"{repository.kind}--{repository.name.replace('/', '--')}"
