"""The files that a real run needs on disk, read from configs/assets/, and how complete they are.

Nothing here reads a disk or the network: launch/assets/needed.py lists the existing files.
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
    """A file an asset must have, or a folder (its path ends in /) that must hold something."""

    path: RelativePath
    gb: Gigabytes | None = None  # as the source rounds it; None: the source gives none
    bytes: Annotated[int, msgspec.Meta(gt=0)] | None = None  # where the source gives them all


class Repository(Value, frozen=True):
    """Files of a Hugging Face repository, from which an asset can be downloaded."""

    kind: Literal["models", "datasets"]
    name: RepositoryName
    revision: str
    files: list[str]  # names, with * and ? as in a shell
    gated: bool  # access must be requested, and a token proves it


class Asset(Value, frozen=True):
    """A folder of files that a run reads, and how one comes by it."""

    name: str
    title: str
    folder: RelativePath  # below --out
    gb: Gigabytes | None
    gb_note: str  # what the size covers, or why it is unknown
    parts: list[Part]
    repository: Repository | None
    made_by: str = ""  # how to make it if it cannot be downloaded; {out} is the folder of all assets
    only_for: str = ""  # the only runs that read it; the row's other runs do not need it


class Needs(Value, frozen=True):
    """Everything that a backend's runs of a task need for some models."""

    name: str
    title: str
    backend: str
    task: Literal["pretrain", "lora", "mlperf"]
    models: list[str]
    assets: list[Asset]
    run_flags: str  # what launch/run.py takes to read them; {out} is the folder of all assets
    source: str
    date: str


def read_needs(configs: Configs, name: str) -> Needs:
    return configs.row("assets", name, Needs)


def read_all_needs(configs: Configs) -> list[Needs]:
    """Return all rows of configs/assets in the order of their names."""
    rows = [read_needs(configs, name) for name in configs.names("assets")]
    for row in rows:
        refuse_unknown(row.models, configs.names("models"), f"{configs.path('assets', row.name)}: models")
    return rows


# --- which row --------------------------------------------------------------------------------


def choose(rows: Iterable[Needs], model: str, task: str, backend: str | None) -> Needs:
    """The one row for the request; none or several are refused."""
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


# --- what is there ----------------------------------------------------------------------------


class AssetStatus(Value, frozen=True):
    """The state of one asset on disk, by the sizes of its files."""

    asset: Asset
    state: Literal["present", "incomplete", "missing"]
    bytes: int
    faults: list[str]

    @property
    def missing_gb(self) -> float:
        """Return the size still to be downloaded; 0 if the asset's size is unknown."""
        return 0.0 if self.state == "present" else max(0.0, (self.asset.gb or 0.0) - self.bytes / GB)


def compare(asset: Asset, sizes: Mapping[str, int]) -> AssetStatus:
    """Hold the files of the asset's folder (path -> bytes) against its parts."""
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
    # As written in decimal GB, or in the binary ones of ls -h.
    if part.gb is not None and not (part.gb - 0.5) * GB <= size <= (part.gb + 0.5) * GIB:
        return f"{part.path}: {size / GB:,.1f} GB, {part.gb:g} GB expected"
    return ""


def has_usual_assets(found: Iterable[AssetStatus]) -> bool:
    """Whether the row's usual runs have all they read."""
    return all(one.state == "present" for one in found if not one.asset.only_for)


# --- what a site's programs read from Hugging Face by a repository's name --------------------------


def hub_home(site: Site) -> Path | None:
    """Return HF_HOME of a job: a folder next to the site's images. None if the site has no folder of images."""
    images = site.container.images if site.container else None
    return Path(images) / "huggingface" if images else None


def hub_folder(home: Path, repository: Repository) -> Path:
    """The repository's place in it; `snapshots/COMMIT` has its files, `refs/REVISION` the commit."""
    return home / "hub" / f"{repository.kind}--{repository.name.replace('/', '--')}"
