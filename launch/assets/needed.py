"""The table of the files that a real run needs: their state on this disk, and the next commands."""

import os
import shlex
import shutil
from pathlib import Path

from benchmarks.assets import GB, Asset, AssetStatus, Needs, compare, has_usual_assets
from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError
from benchmarks.text import bytes_text, columns
from launch.assets.hub import DEFAULT_ENDPOINT, TOKEN_VARIABLE, token_is_set
from launch.terminal.documents import Files
from launch.terminal.output import answer

MOST_FAULTS = 5


def report(needs: Needs, model: str, out: Path | None) -> int:
    """Print the table and return the exit code: 0 if every file exists that runs without special options need."""
    found = [look_for(asset, out) for asset in needs.assets] if out else []
    data = Files(needs=needs, out=None if out is None else str(out), found=found)
    lines = [f"{needs.title} ({needs.name})", "", *_asset_lines(needs, found), *_access_lines(needs)]
    command = f"python launch/setup.py --model={model} --task={needs.task} --out={shlex.quote(str(out or 'DIR'))}"
    if out is None:
        last = f"not checked: pass --out=DIR, the folder of the files\n  next:  {command}"
        answer(data, "\n".join([*lines, "", last]))
        return EXIT_FAILED
    lines += [*_space_lines(found, out), ""]
    if has_usual_assets(found):
        what = (
            "all files" if all(one.state == "present" for one in found) else f"all files for engine {needs.backend}"
        )
        run_flags = f"--model={model} --task={needs.task} {needs.run_flags.replace('{out}', str(out))}"
        lines.append(f"{out} has {what}")
        lines.append(f"  next:  python launch/run.py --backend={needs.backend} {run_flags} --dry_run")
    answer(data, "\n".join(lines + _next_lines(found, command, out)))
    return EXIT_VALID if has_usual_assets(found) else EXIT_FAILED


def look_for(asset: Asset, out: Path) -> AssetStatus:
    """Return the state of an asset below `out`, the folder of all assets."""
    folder = out / asset.folder
    sizes: dict[str, int] = {}
    for place, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if name != ".cache"]  # the metadata of huggingface_hub's downloads
        for path in (Path(place) / name for name in names):
            if path.is_file():
                sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    return compare(asset, sizes)


def _refuse_unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise RequestError(f"the folder cannot be read: {error.strerror}", where=str(error.filename)) from error


def free_bytes(folder: Path) -> int:
    """Return the free space on the disk of a folder, which may not exist yet."""
    whole = folder.absolute()
    return shutil.disk_usage(next(path for path in (whole, *whole.parents) if path.exists())).free


def _asset_lines(needs: Needs, found: list[AssetStatus]) -> list[str]:
    states: list[str] = [one.state for one in found] or ["not checked"] * len(needs.assets)
    rows: list[tuple[str, ...]] = [("what", "size", "state", "for", "where under --out")]
    for asset, state in zip(needs.assets, states, strict=True):
        size = "unknown" if asset.gb is None else f"{asset.gb:,g} GB"
        rows.append((asset.name, size, state, asset.only_for or "every run", asset.folder + "/"))
    lines = columns(rows, indent="")
    lines += [f"  {asset.name}: {asset.title}; size: {asset.gb_note}" for asset in needs.assets]
    for one in found:
        lines += [f"  {one.asset.name}: {fault}" for fault in one.faults[:MOST_FAULTS]]
        if len(one.faults) > MOST_FAULTS:
            lines.append(f"  {one.asset.name}: and {len(one.faults) - MOST_FAULTS} more")
    return lines


def _access_lines(needs: Needs) -> list[str]:
    lines = []
    for repository in (asset.repository for asset in needs.assets if asset.repository and asset.repository.gated):
        page = f"{DEFAULT_ENDPOINT}/{'' if repository.kind == 'models' else 'datasets/'}{repository.name}"
        lines.append(f"access    {repository.name} is gated: request it at {page}")
    return ["", *lines, f"{TOKEN_VARIABLE}  {'set' if token_is_set() else 'not set'}"] if lines else []


def _space_lines(found: list[AssetStatus], out: Path) -> list[str]:
    free = free_bytes(out)
    missing = sum(one.missing_gb for one in found if not one.asset.only_for)
    optional = sum(one.missing_gb for one in found if one.asset.only_for)
    unknown = [one.asset.name for one in found if one.state != "present" and one.asset.gb is None]
    takes = f"{missing:,.0f} GB" + (f", and {', '.join(unknown)} of unknown size" if unknown else "")
    takes += f"; {optional:,.0f} GB more for some runs" if optional else ""
    lines = ["", f"disk      {bytes_text(free)} free at {out}; missing: {takes}"]
    return [*lines, "          too little space for the missing files"] if missing * GB > free else lines


def _next_lines(found: list[AssetStatus], command: str, out: Path) -> list[str]:
    absent = [one.asset for one in found if one.state != "present"]
    downloadable = [asset for asset in absent if asset.repository]
    lines = []
    if any(asset.repository and asset.repository.gated for asset in downloadable) and not token_is_set():
        lines.append(f"  next:  export {TOKEN_VARIABLE}=YOUR_TOKEN")
    lines += [f"  next:  {command} --download --asset={asset.name}" for asset in downloadable]
    for asset in sorted((asset for asset in absent if asset.made_by), key=lambda asset: asset.only_for):
        lead = f"only for {asset.only_for}" if asset.only_for else "to make"
        lines.append(f"  {lead}:  {asset.name}: {asset.made_by.replace('{out}', str(out))}")
    return lines
