"""Downloads files of Hugging Face repositories with huggingface_hub, and checks each against the hub's checksum."""

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from benchmarks.assets.assets import Asset, Repository
from benchmarks.errors import RequestError, RunError, StepmarkError
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import Value, json_text
from launch.assets import hub_access
from launch.assets.byte_progress import Show, say, size_text
from launch.assets.checks import (
    RUN_AGAIN,
    Checksum,
    refuse_another_file,
    refuse_without_room,
    refuse_wrong_content,
    unwritten,
)
from launch.assets.hub_access import Access

RECORD = "download.json"
TIMEOUT_SECONDS = 60.0


class Record(Value, frozen=True):
    """download.json, written last: what was downloaded into a folder, from where."""

    repository: str
    commit: str
    files: dict[str, int]  # path -> bytes
    checksums: dict[str, str]  # path -> kind:digest


class HubFile(NamedTuple):
    bytes: int
    checksum: Checksum


class Listing(NamedTuple):
    """The wanted files of a repository at one commit, by path."""

    commit: str
    files: dict[str, HubFile]


def download_asset(access: Access, asset: Asset, folder: Path, show: Show) -> None:
    """Every file of the asset that is not there yet, then the record."""
    repository = asset.repository
    if repository is None:
        raise RequestError(
            f"'{asset.name}' cannot be downloaded: it is made",
            where=f"--asset={asset.name}",
            next_command=asset.made_by,
        )
    listing = list_files(access, repository)
    lacking = [part.path for part in asset.parts if part.path not in listing.files]
    if lacking:
        raise RunError(f"{repository.name} has no {', '.join(lacking)}", where=f"commit {listing.commit}")
    missing = {path: file for path, file in listing.files.items() if not (folder / path).exists()}
    for path in listing.files.keys() - missing.keys():
        refuse_another_file(folder / path, listing.files[path].checksum, show)
    size = sum(file.bytes for file in missing.values())
    say(f"{asset.name}: {len(missing)} of {len(listing.files)} files to download, {size_text(size)}")
    refuse_without_room(folder, size)
    for path, file in missing.items():
        found = _download(access, repository, path, listing.commit, local_dir=folder)
        refuse_wrong_content(found, file.checksum, f"{repository.name}: {path}", show)
    record = Record(
        repository=f"{repository.kind}/{repository.name}",
        commit=listing.commit,
        files={path: file.bytes for path, file in listing.files.items()},
        checksums={path: ":".join(file.checksum) for path, file in listing.files.items()},
    )
    write_atomically(folder / RECORD, json_text(record).encode())


def fill_cache(access: Access, repository: Repository, cache: Path, show: Show) -> str:
    """A repository's files in a cache of huggingface_hub, for jobs that are offline; the commit."""
    listing = list_files(access, repository)
    if repository.files[0] not in listing.files:
        raise RunError(f"{repository.name} has no {repository.files[0]}", where=f"commit {listing.commit}")
    for path, file in listing.files.items():
        found = _download(access, repository, path, repository.revision, cache_dir=cache)
        refuse_wrong_content(found.resolve(), file.checksum, f"{repository.name}: {path}", show)
    return listing.commit


def _download(
    access: Access,
    repository: Repository,
    path: str,
    revision: str,
    local_dir: Path | None = None,
    cache_dir: Path | None = None,
) -> Path:
    with _explained(access, repository):
        from huggingface_hub import hf_hub_download

        found = hf_hub_download(
            repository.name,
            path,
            repo_type=repository.kind.removesuffix("s"),
            revision=revision,
            local_dir=local_dir,
            cache_dir=cache_dir,
            endpoint=access.endpoint,
            token=access.token or False,
        )
    return Path(found)


def recorded_sizes(folder: Path) -> dict[str, int]:
    """What a finished download left in the folder; empty where there was none."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Record).files
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def list_files(access: Access, repository: Repository) -> Listing:
    """The wanted files at the commit that the revision names now."""
    with _explained(access, repository):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=access.endpoint, token=access.token or False)
        ask = api.model_info if repository.kind == "models" else api.dataset_info
        try:
            about = ask(repository.name, revision=repository.revision, files_metadata=True, timeout=TIMEOUT_SECONDS)
            files = {
                one.rfilename: HubFile(one.lfs.size, Checksum("sha256", one.lfs.sha256))
                if one.lfs
                else HubFile(int(one.size or 0), Checksum("git-sha1", str(one.blob_id)))
                for one in about.siblings or []
                if any(fnmatch.fnmatchcase(one.rfilename, wanted) for wanted in repository.files)
            }
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _not_understood(access) from None
    if not re.fullmatch(r"[0-9a-f]{40,64}", str(about.sha)):
        raise _not_understood(access)
    if not files:
        raise RunError(f"{repository.name} has none of the files", why=", ".join(repository.files))
    for path in files:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise RunError(f"the hub names a file outside its folder: {path!r}", where=repository.name)
    return Listing(str(about.sha), files)


def _not_understood(access: Access) -> RunError:
    return RunError(
        "the hub's answer is not one that Stepmark understands",
        where=access.endpoint,
        why="its API changed, or something on the way answers in its place",
    )


@contextlib.contextmanager
def _explained(access: Access, repository: Repository) -> Iterator[None]:
    """Turns what huggingface_hub raises into one message. Its own log is silent: it may show signed URLs."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # without it, a list of AI agents is downloaded and kept
    from httpx2 import HTTPError
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        raise _failure(error, access, repository) from None


def _failure(error: Exception, access: Access, repository: Repository) -> StepmarkError:
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    where = f"{access.endpoint}/{'datasets/' if repository.kind == 'datasets' else ''}{repository.name}"
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return RequestError(
            "the hub must not be asked: HF_HUB_OFFLINE is set", where=where, next_command="unset HF_HUB_OFFLINE"
        )
    if isinstance(error, HfHubHTTPError):
        return _bad_status(error.response.status_code, where, access)
    text = str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, HTTPError):
        return RunError(
            f"the hub cannot be reached: {text}",
            where=where,
            why="no network here, or a proxy or certificate that is not set up",
            next_command=f"check the network, {hub_access.ENDPOINT_VARIABLE} and HTTPS_PROXY, then {RUN_AGAIN}",
        )
    if isinstance(error, OSError) and error.errno:
        return unwritten(Path(error.filename or repository.name), error)
    return RunError(f"the download failed: {text}", where=where, next_command=RUN_AGAIN)


def _bad_status(status: int, where: str, access: Access) -> StepmarkError:
    if status in (401, 403):
        return hub_access.refused(status, where, access.token)
    if status == 404:
        return RequestError("there is no such repository, revision or file: the hub answers 404", where=where)
    return RunError(f"the hub answers {status}", where=where, next_command=RUN_AGAIN)
