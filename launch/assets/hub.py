"""Downloads files of Hugging Face repositories with huggingface_hub, and checks each against the hub's checksum.

The token is HF_TOKEN alone. It is sent to that hub alone, and is in no message and no file.
"""

import contextlib
import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from benchmarks.assets.assets import Asset, Repository
from benchmarks.errors import RequestError, RunError, StepmarkError
from benchmarks.rendering.report import bytes_text
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import Value, json_text
from launch.assets.files import Checksum, Show, refuse_without_room, say

TOKEN_VARIABLE = "HF_TOKEN"
ENDPOINT_VARIABLE = "HF_ENDPOINT"  # Hugging Face's own name for it: a mirror inside a company, say
DEFAULT_ENDPOINT = "https://huggingface.co"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
RECORD = "download.json"
TIMEOUT_SECONDS = 60.0
RUN_AGAIN = "run the same command again: it resumes"


@dataclass(frozen=True)
class Access:
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)


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


def from_environment() -> Access:
    endpoint = (os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w./-]*)?", endpoint, re.ASCII):
        raise RequestError("the hub's address must be https://HOST", where=ENDPOINT_VARIABLE)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise RequestError("the token contains characters that no token has", where=TOKEN_VARIABLE)
    parts = urlsplit(endpoint)
    if token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise RequestError(
            "the token would be sent unencrypted",
            where=f"{ENDPOINT_VARIABLE}={endpoint}",
            next_command=f"export {ENDPOINT_VARIABLE}=https://{parts.netloc}, or unset {TOKEN_VARIABLE}",
        )
    return Access(endpoint, token or None)


def token_is_set() -> bool:
    return bool(os.environ.get(TOKEN_VARIABLE, "").strip())


# --- downloading ------------------------------------------------------------------------------


def download_asset(access: Access, asset: Asset, folder: Path, show: Show) -> None:
    """Every file of the asset that is not there yet, then the record. An existing file is never overwritten."""
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
        there, checksum = folder / path, listing.files[path].checksum
        if not there.is_file() or checksum.of(there, show) != checksum.digest:
            raise RequestError(
                f"another file is there already: its {checksum.kind} is not {checksum.digest}",
                where=str(there),
                next_command=f"rm {there}     (or another --out)",
            )
    size = sum(file.bytes for file in missing.values())
    say(f"{asset.name}: {len(missing)} of {len(listing.files)} files to download, {bytes_text(size)}")
    refuse_without_room(folder, size)
    for path, file in missing.items():
        _download(access, repository, path, file, show, revision=listing.commit, local_dir=folder)
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
        _download(access, repository, path, file, show, revision=repository.revision, cache_dir=cache)
    return listing.commit


def _download(access: Access, repository: Repository, path: str, file: HubFile, show: Show, **where: Any) -> None:
    """One file; a wrong one is removed."""
    with _explained(access, repository):
        from huggingface_hub import hf_hub_download

        kind = repository.kind.removesuffix("s")
        token = access.token or False
        got = hf_hub_download(repository.name, path, repo_type=kind, endpoint=access.endpoint, token=token, **where)
    found = Path(got).resolve()
    digest = file.checksum.of(found, show)
    if digest != file.checksum.digest:
        found.unlink()
        raise RunError(
            f"the downloaded file is not the expected one: its {file.checksum.kind} is {digest}, "
            f"not {file.checksum.digest}",
            where=f"{repository.name}: {path}",
            why="it changed on the server or on the way; it was removed",
            next_command=RUN_AGAIN,
        )


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
            about, files = None, {}
    if about is None or not re.fullmatch(r"[0-9a-f]{40,64}", str(about.sha)):
        raise RunError("the hub's answer is not one that Stepmark understands", where=access.endpoint)
    if not files:
        raise RunError(f"{repository.name} has none of the files", why=", ".join(repository.files))
    for path in files:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise RunError(f"the hub names a file outside its folder: {path!r}", where=repository.name)
    return Listing(str(about.sha), files)


# --- what goes wrong --------------------------------------------------------------------------


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
        where = f"{access.endpoint}/{'datasets/' if repository.kind == 'datasets' else ''}{repository.name}"
        raise _failure(error, where, access) from None


def _failure(error: Exception, where: str, access: Access) -> StepmarkError:
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return RequestError(
            "the hub must not be asked: HF_HUB_OFFLINE is set", where=where, next_command="unset HF_HUB_OFFLINE"
        )
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if status in (401, 403):
        return RequestError(
            f"the server refuses access: {status}",
            where=where,
            why=f"{TOKEN_VARIABLE} is set: it is not valid, or access to the repository was not granted"
            if access.token
            else f"{TOKEN_VARIABLE} is not set; a gated repository also needs access requested on its page",
            next_command=f"request access on the repository's page, then export {TOKEN_VARIABLE}=<your token>",
        )
    if status == 404:
        return RequestError("there is no such repository, revision or file: the hub answers 404", where=where)
    text = f"the hub answers {status}" if status else str(error).partition("\n")[0] or type(error).__name__
    if status is None and isinstance(error, HTTPError):
        text = f"the hub cannot be reached: {text}; check the network, {ENDPOINT_VARIABLE} and HTTPS_PROXY"
    return RunError(f"the download failed: {text}", where=where, next_command=RUN_AGAIN)
