"""Downloads what an asset needs from Hugging Face: which files, how large and with which checksum, its API says."""

import fnmatch
import json
import re
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from benchmarks.assets.assets import Asset, Repository
from benchmarks.errors import RequestError, RunError
from benchmarks.values import Value, json_text
from launch.assets.byte_progress import Show, say, size_text
from launch.assets.download import Checksum, Item, Patience, Pause, fetch, part_path, refuse_without_room
from launch.assets.web import Answer, Unavailable, Web, shown

RECORD = "download.json"
LARGEST_LIST_BYTES = 64 << 20
NEXT_PAGE = re.compile(r'<([^>]+)>\s*;\s*rel="next"')
ITEM = re.compile(r"[0-9a-f]+")

Result = TypeVar("Result")


class Record(Value, frozen=True):
    """download.json, written last: what was downloaded into a folder, from where."""

    repository: str
    commit: str
    files: dict[str, int]  # path -> bytes
    checksums: dict[str, str]  # path -> kind:digest


class Listing(NamedTuple):
    """The files of a repository at one commit: path -> item, whose target is below the asset's folder."""

    commit: str
    items: dict[str, Item]


def download_asset(web: Web, asset: Asset, folder: Path, show: Show, pause: Pause = time.sleep) -> None:
    """Every file of the asset that is not there yet, each whole; the record last."""
    repository = asset.repository
    if repository is None:
        raise RequestError(
            f"'{asset.name}' cannot be downloaded: it is made",
            where=f"--asset={asset.name}",
            next_command=asset.made_by,
        )
    listing = list_files(web, repository, folder, pause)
    _refuse_listing_without_parts(asset, listing)
    missing = [item for item in listing.items.values() if not item.target.exists()]
    say(f"{asset.name}: {len(missing)} of {len(listing.items)} files to download, {size_text(_left_bytes(missing))}")
    refuse_without_room(folder, _left_bytes(missing))
    for item in listing.items.values():
        fetch(web, item, show, pause)
    _write_record(folder, repository, listing)


def fill_cache(web: Web, repository: Repository, folder: Path, show: Show, pause: Pause = time.sleep) -> str:
    """A repository's files where huggingface_hub looks for them offline; their commit. The revision comes last."""
    listing = list_files(web, repository, folder, pause)
    if repository.files[0] not in listing.items:
        raise RunError(f"{repository.name} has no {repository.files[0]}", where=f"commit {listing.commit}")
    for path, item in listing.items.items():
        fetch(web, item._replace(target=folder / "snapshots" / listing.commit / path), show, pause)
    reference = folder / "refs" / repository.revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    half_written = reference.with_name(f"{reference.name}.part")
    half_written.write_text(listing.commit)
    half_written.replace(reference)
    return listing.commit


def commit_in_cache(repository: Repository, folder: Path) -> str | None:
    """The commit that an offline job would read; None where it is not there whole."""
    try:
        commit = (folder / "refs" / repository.revision).read_text().strip()
    except OSError:
        return None
    return commit if (folder / "snapshots" / commit / repository.files[0]).is_file() else None


def recorded_sizes(folder: Path) -> dict[str, int]:
    """What a finished download left in the folder; empty where there was none."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Record).files
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _left_bytes(items: list[Item]) -> int:
    parts = [part_path(item.target) for item in items]
    return sum(item.bytes or 0 for item in items) - sum(part.stat().st_size for part in parts if part.exists())


def _refuse_listing_without_parts(asset: Asset, listing: Listing) -> None:
    lacking = [part.path for part in asset.parts if part.path not in listing.items]
    if lacking:
        raise RunError(
            f"the repository of '{asset.name}' has no {', '.join(lacking)}", where=f"commit {listing.commit}"
        )


def _write_record(folder: Path, repository: Repository, listing: Listing) -> None:
    record = Record(
        repository=f"{repository.kind}/{repository.name}",
        commit=listing.commit,
        files={path: item.target.stat().st_size for path, item in listing.items.items()},
        checksums={path: ":".join(item.checksum) for path, item in listing.items.items()},
    )
    half_written = folder / f"{RECORD}.part"
    half_written.write_text(json_text(record))
    half_written.replace(folder / RECORD)


# --- the API ----------------------------------------------------------------------------------


def list_files(web: Web, repository: Repository, folder: Path, pause: Pause = time.sleep) -> Listing:
    """The wanted files at the commit that the revision names now: all are of one commit."""
    api = f"{web.endpoint}/api/{repository.kind}/{repository.name}"
    about, _ = _ask(web, f"{api}/revision/{quote(repository.revision, safe='')}", pause)
    commit = about.get("sha") if isinstance(about, dict) else None
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        raise _not_understood(api)
    kind = "" if repository.kind == "models" else f"{repository.kind}/"
    files = f"{web.endpoint}/{kind}{repository.name}/resolve/{commit}"
    items: dict[str, Item] = {}
    page: str | None = f"{api}/tree/{commit}?recursive=true"
    while page:
        entries, page = _ask(web, page, pause)
        if not isinstance(entries, list):
            raise _not_understood(api)
        for entry in entries:
            path = _wanted_path(entry, repository, api)
            if path:
                items[path] = _item(entry, path, files, folder, api)
    if not items:
        raise RunError("the repository has none of the files", where=shown(api), why=", ".join(repository.files))
    return Listing(commit, items)


def _wanted_path(entry: Any, repository: Repository, api: str) -> str | None:
    """The path of a file that is asked for; one that would lie outside the folder is refused."""
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        raise _not_understood(api)
    path: str = entry["path"]
    if entry.get("type") != "file" or not any(fnmatch.fnmatchcase(path, wanted) for wanted in repository.files):
        return None
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or not pure.parts:
        raise RunError(f"the hub names a file outside its folder: {path!r}", where=shown(api))
    return path


def _item(entry: dict[str, Any], path: str, files: str, folder: Path, api: str) -> Item:
    """A large file stands with its SHA-256, a small one with what Git calls it."""
    large = entry.get("lfs")
    kind, facts = ("sha256", large) if isinstance(large, dict) else ("git-sha1", entry)
    size, digest = facts.get("size"), facts.get("oid")
    if (
        not isinstance(size, int)
        or not isinstance(digest, str)
        or len(digest) != {"sha256": 64, "git-sha1": 40}[kind]
    ):
        raise _not_understood(api)
    return Item(f"{files}/{quote(path)}", folder / path, size, Checksum(kind, digest.lower()))


def _ask(web: Web, url: str, pause: Pause) -> tuple[Any, str | None]:
    """One answer of the API, and the address of the next page where there is one."""

    def once() -> tuple[Any, str | None]:
        answer = web.open(url)
        try:
            return _parsed(answer, url)
        finally:
            answer.close()

    return _patiently(once, url, pause)


def _parsed(answer: Answer, url: str) -> tuple[Any, str | None]:
    text = b""
    while block := answer.read(1 << 20):
        text += block
        if len(text) > LARGEST_LIST_BYTES:
            raise _not_understood(url)
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and len(text) < int(length):
        raise Unavailable("the connection broke off")
    try:
        value = json.loads(text)
    except ValueError:
        raise _not_understood(url) from None
    following = NEXT_PAGE.search(answer.headers.get("Link", ""))
    return value, following[1] if following else None


def _patiently(action: Callable[[], Result], url: str, pause: Pause) -> Result:
    patience = Patience(pause)
    while True:
        try:
            return action()
        except Unavailable as error:
            if not patience.wait(f"the hub: {error}", error):
                raise RunError(f"the hub does not answer: {error}", where=shown(url)) from None


def _not_understood(url: str) -> RunError:
    return RunError(
        "the hub's answer is not one that Stepmark understands",
        where=shown(url),
        why="its API changed, or something on the way answers in its place",
    )
