"""What a real run needs, as a table: which of it is on this disk, what it still takes, and what to do next."""

import os
import shutil
from pathlib import Path

from benchmarks.assets.assets import Found, Needs, compare, enough, space
from benchmarks.errors import EXIT_FAILED, EXIT_VALID, RequestError
from benchmarks.rendering.columns import columns
from launch.assets.byte_progress import size_text
from launch.assets.hub import recorded_sizes
from launch.assets.hub_access import DEFAULT_ENDPOINT, TOKEN_VARIABLE, token_is_set

MOST_FAULTS = 5


def report(needs: Needs, model: str, out: Path | None) -> int:
    """Print the table; 0 when everything is there that the row's usual runs read."""
    found = [compare(asset, *look(out / asset.folder)) for asset in needs.assets] if out else None
    print(f"{needs.title} ({needs.name})\n")
    for line in _asset_lines(needs, found) + _access_lines(needs):
        print(line)
    if found is None or out is None:
        print(f"\nnot looked for: --out=DIR names the folder of the files\n  next:  {_command(needs, model, 'DIR')}")
        return EXIT_FAILED
    for line in _space_lines(needs, found, out):
        print(line)
    print()
    if enough(found):
        print(f"{_what_is_there(needs, found)} is there, under {out}\n  next:  {_run_command(needs, model, out)}")
    for line in _next_lines(found, _command(needs, model, str(out)), out):
        print(line)
    return EXIT_VALID if enough(found) else EXIT_FAILED


def look(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of the files there are, and those a download recorded."""
    sizes: dict[str, int] = {}
    for place, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if name != ".cache"]  # huggingface_hub's notes on its downloads
        for path in (Path(place) / name for name in names):
            if path.is_file():
                sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    return sizes, recorded_sizes(folder)


def _refuse_unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise RequestError(f"the folder cannot be read: {error.strerror}", where=str(error.filename)) from error


# --- the table --------------------------------------------------------------------------------


def _asset_lines(needs: Needs, found: list[Found] | None) -> list[str]:
    rows: list[tuple[str, ...]] = [("what", "size", "state", "for", "where under --out")]
    for number, asset in enumerate(needs.assets):
        size = "unknown" if asset.gb is None else f"{asset.gb:,g} GB"
        state = "not checked" if found is None else found[number].state
        rows.append((asset.name, size, state, asset.only_for or "every run", asset.folder + "/"))
    lines = columns(rows, indent="")
    lines += [f"  {asset.name}: {asset.title}; size: {asset.gb_note}" for asset in needs.assets]
    for one in found or []:
        faults = [f"  {one.asset.name}: {fault}" for fault in one.faults]
        more = len(faults) - MOST_FAULTS
        lines += faults[:MOST_FAULTS] + ([f"  {one.asset.name}: and {more} more"] if more > 0 else [])
    return lines


def _access_lines(needs: Needs) -> list[str]:
    gated = [asset.repository for asset in needs.assets if asset.repository and asset.repository.gated]
    lines = [""] if gated else []
    for repository in gated:
        page = f"{DEFAULT_ENDPOINT}/{'' if repository.kind == 'models' else 'datasets/'}{repository.name}"
        lines.append(f"access    {repository.name} is gated: request it at {page} (known only when it is asked)")
    if gated:
        lines.append(f"{TOKEN_VARIABLE}  {'set' if token_is_set() else 'not set'}")
    return lines


def _space_lines(needs: Needs, found: list[Found], out: Path) -> list[str]:
    place = out
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    missing = space(needs, found)
    takes = f"{missing.missing_gb:,.0f} GB"
    if missing.unknown:
        takes += f", and {', '.join(missing.unknown)} of unknown size"
    if missing.optional_gb:
        takes += f"; {missing.optional_gb:,.0f} GB more where not every run needs it"
    lines = ["", f"disk      {size_text(free)} free at {place}; missing: {takes}"]
    if missing.missing_gb * 1e9 > free:
        lines.append("          not enough for what is missing")
    elif missing.recommended_gb is not None and missing.recommended_gb * 1e9 > free:
        recommended = f"{missing.recommended_gb:,.0f} GB"
        lines.append(f"          {recommended} free are recommended for all of it, temporary files too")
    return lines


# --- what next --------------------------------------------------------------------------------


def _next_lines(found: list[Found], command: str, out: Path) -> list[str]:
    absent = [one.asset for one in found if one.state != "present"]
    lines = []
    downloadable = [asset for asset in absent if asset.repository]
    if any(asset.repository and asset.repository.gated for asset in downloadable) and not token_is_set():
        lines.append(f"  next:  export {TOKEN_VARIABLE}=<your token>")
    lines += [f"  next:  {command} --download --asset={asset.name}" for asset in downloadable]
    for asset in sorted((asset for asset in absent if asset.made_by), key=lambda asset: asset.only_for):
        lead = f"{asset.only_for} alone" if asset.only_for else "next"
        lines.append(f"  {lead}:  {asset.name}: {asset.made_by.replace('{out}', str(out))}")
    return lines


def _what_is_there(needs: Needs, found: list[Found]) -> str:
    if all(one.state == "present" for one in found):
        return "all"
    return f"all that engine {needs.backend} reads"


def _command(needs: Needs, model: str, out: str) -> str:
    return f"python launch/setup.py --model={model} --task={needs.task} --out={out}"


def _run_command(needs: Needs, model: str, out: Path) -> str:
    flags = needs.run_flags.replace("{out}", str(out))
    return f"python launch/run.py --backend={needs.backend} --model={model} --task={needs.task} {flags} --dry_run"
