"""What a real run needs on disk, and how much of it is there: values read from configs/assets/, and pure logic.

Nothing here looks at a disk or at the network: launch/assets/needed.py says which files are there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from benchmarks.errors import RequestError
from benchmarks.values import Value

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
    """Where an asset can be downloaded from: files of a Hugging Face repository."""

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
    gb_note: str  # what the size covers, or why there is none
    parts: list[Part]
    repository: Repository | None
    made_by: str = ""  # how it is made where it cannot be downloaded; {out} is the folder of all assets
    only_for: str = ""  # the runs that read it, where the row's usual runs do not; they then need not have it


class Needs(Value, frozen=True):
    """Everything that a backend's runs of a task need for some models."""

    name: str
    title: str
    backend: str
    task: Literal["pretrain", "lora", "mlperf"]
    models: list[str]
    recommended_free_gb: Gigabytes | None
    assets: list[Asset]
    run_flags: str  # what launch/run.py takes to read them; {out} is the folder of all assets
    source: str
    date: str


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
        f"which backend? {asked} is known for {', '.join(row.backend for row in found)}"
        if found
        else f"nothing is known of what {asked} needs",
        where="configs/assets",
        why="known: " + "; ".join(known),
        next_command=f"--backend={found[0].backend}" if found else "a run on synthetic data needs no files",
    )


def find_asset(needs: Needs, name: str) -> Asset:
    found = {asset.name: asset for asset in needs.assets}
    if name not in found:
        raise RequestError(
            f"there is no asset '{name}' in {needs.name}", where="--asset", next_command=f"--asset={'|'.join(found)}"
        )
    return found[name]


# --- what is there ----------------------------------------------------------------------------


class Found(Value, frozen=True):
    """What is there of one asset, by the sizes of its files."""

    asset: Asset
    state: Literal["present", "incomplete", "missing"]
    bytes: int
    faults: list[str]


def compare(asset: Asset, sizes: Mapping[str, int], recorded: Mapping[str, int]) -> Found:
    """Hold the files of the asset's folder (path -> bytes) against its parts and what its download recorded."""
    if not sizes:
        return Found(asset=asset, state="missing", bytes=0, faults=[])
    faults = [fault for part in asset.parts if (fault := _fault_of(part, sizes))]
    faults += [
        f"{path}: {sizes.get(path, 0):,} bytes, {wanted:,} were downloaded"
        for path, wanted in recorded.items()
        if sizes.get(path) != wanted
    ]
    state: Literal["present", "incomplete"] = "incomplete" if faults else "present"
    return Found(asset=asset, state=state, bytes=sum(sizes.values()), faults=faults)


def _fault_of(part: Part, sizes: Mapping[str, int]) -> str:
    if part.path.endswith("/"):
        return "" if any(path.startswith(part.path) for path in sizes) else f"{part.path}: missing or empty"
    size = sizes.get(part.path)
    if size is None:
        return f"{part.path}: missing"
    if size == 0:
        return f"{part.path}: empty"
    if part.bytes is not None and size != part.bytes:
        return f"{part.path}: {size:,} bytes, {part.bytes:,} expected"
    if part.gb is not None and not _rounds_to(size, part.gb):
        return f"{part.path}: {size / GB:,.1f} GB, {part.gb:g} GB expected"
    return ""


def _rounds_to(size: int, gb: float) -> bool:
    """Whether a size may have been written so, in decimal GB or in the binary ones of ls -h."""
    return (gb - 0.5) * GB <= size <= (gb + 0.5) * GIB


def enough(found: Iterable[Found]) -> bool:
    """Whether the row's usual runs have all they read."""
    return all(one.state == "present" for one in found if not one.asset.only_for)


class Space(NamedTuple):
    """What the missing assets still take on disk."""

    missing_gb: float  # of those whose size is known, and that every run reads
    optional_gb: float  # of the others
    unknown: list[str]  # names of those whose size is not
    recommended_gb: float | None  # what should be free for all of them, less what is there already


def space(needs: Needs, found: Sequence[Found]) -> Space:
    absent = [one for one in found if one.state != "present"]
    recommended = needs.recommended_free_gb
    if recommended is not None:
        recommended = max(0.0, recommended - sum(one.bytes for one in found) / GB)
    return Space(
        missing_gb=sum(_left_gb(one) for one in absent if not one.asset.only_for),
        optional_gb=sum(_left_gb(one) for one in absent if one.asset.only_for),
        unknown=[one.asset.name for one in absent if one.asset.gb is None],
        recommended_gb=recommended,
    )


def _left_gb(found: Found) -> float:
    return 0.0 if found.asset.gb is None else max(0.0, found.asset.gb - found.bytes / GB)
