"""Download files of Hugging Face repositories with huggingface_hub, and check each against the hub's checksum.

The token comes only from HF_TOKEN. Stepmark sends it only to the hub, and never writes it to a message or a file.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.assets import Asset, Repository
from benchmarks.errors import SAME_COMMAND, RequestError, RunError, StepmarkError
from launch.terminal.progress import say

TOKEN_VARIABLE = "HF_TOKEN"
ENDPOINT_VARIABLE = "HF_ENDPOINT"  # Hugging Face's own variable, for example for a mirror inside a company
DEFAULT_ENDPOINT = "https://huggingface.co"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Access:
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)


def from_environment() -> Access:
    endpoint = (os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT).rstrip("/")
    if not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w./-]*)?", endpoint, re.ASCII):
        raise RequestError("the address of the hub must be https://HOST", where=ENDPOINT_VARIABLE)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise RequestError("the token has invalid characters", where=TOKEN_VARIABLE)
    parts = urlsplit(endpoint)
    if token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise RequestError(
            "the token would be sent unencrypted",
            where=f"{ENDPOINT_VARIABLE}={endpoint}",
            next_command=f"export {ENDPOINT_VARIABLE}=https://{parts.netloc}",
        )
    return Access(endpoint, token or None)


def token_is_set() -> bool:
    return bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def download_asset(access: Access, asset: Asset, folder: Path) -> None:
    """Download every file of the asset that is missing or differs from the hub's file."""
    if asset.repository is None:
        raise RequestError(
            f"'{asset.name}' cannot be downloaded; you must make it",
            where=f"--asset={asset.name}",
            why=f"to make it: {asset.made_by}",
        )
    folder.mkdir(parents=True, exist_ok=True)
    commit = fetch(access, asset.repository, local_dir=folder)
    lacking = [part.path for part in asset.parts if not (folder / part.path).exists()]
    if lacking:
        raise RunError(f"{asset.repository.name} has no {', '.join(lacking)}", where=f"commit {commit}")
    say(f"{asset.name}: in {folder}, commit {commit}")


def fetch(access: Access, repository: Repository, **place: Any) -> str:
    """Download files to a `local_dir`, or to a `cache_dir` for jobs that are offline. Return the commit."""
    with _explained(access, repository):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=access.endpoint, token=access.token or False)
        asked: dict[str, Any] = {"repo_type": repository.kind.removesuffix("s"), "revision": repository.revision}
        commit = str(api.repo_info(repository.name, **asked).sha)  # its errors are clearer than those of a download
        if "local_dir" in place:  # a cache must record the branch, by which an offline job finds the files
            asked["revision"] = commit
        wanted = {"allow_patterns": repository.files, **asked, **place}
        _set_aside(api.snapshot_download(repository.name, dry_run=True, **wanted))
        root = api.snapshot_download(repository.name, **wanted)
        found = api.verify_repo_checksums(repository.name, **asked, **place)
    # Ignore other local files with the names of hub files, because they may belong to the user.
    wrong = [one["path"] for one in found.mismatches if any(fnmatch(one["path"], name) for name in repository.files)]
    for path in (found.verified_path / path for path in wrong):
        (path if "local_dir" in place else path.resolve()).unlink()
    if not wrong and not any(Path(root).glob(repository.files[0])):
        raise RunError(f"{repository.name} has no {repository.files[0]}", where=f"commit {commit}")
    if wrong:
        raise RunError(
            f"the checksum of the download is wrong: {', '.join(wrong)}",
            where=repository.name,
            why="the file changed on the server or was damaged during the download; Stepmark removed it",
            next_command=SAME_COMMAND,
        )
    return commit


def _set_aside(files: Any) -> None:
    """Rename files that a download would overwrite, because they may be the user's own."""
    for path in (Path(one.local_path) for one in files if one.will_download):
        if path.is_file():
            names = (path.with_name(f"{path.name}.before-download{number or ''}") for number in count())
            aside = next(name for name in names if not name.exists())
            path.replace(aside)
            say(f"{path.name} differs from the hub's file and is kept as {aside}")


@contextlib.contextmanager
def _explained(access: Access, repository: Repository) -> Iterator[None]:
    """Turn an exception of huggingface_hub into one message. Silence its log, which may show signed URLs."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # otherwise it downloads and stores a list of AI agents
    from httpx2 import HTTPError
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        where = f"{access.endpoint}/{'datasets/' if repository.kind == 'datasets' else ''}{repository.name}"
        raise _failure(error, where, access) from None


def _failure(error: Exception, where: str, access: Access) -> StepmarkError:
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, OfflineModeIsEnabled):
        return RequestError(
            "HF_HUB_OFFLINE is set, so Stepmark cannot ask the hub", where=where, next_command="unset HF_HUB_OFFLINE"
        )
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if status in (401, 403):
        return RequestError(
            f"the server refuses access ({status})",
            where=where,
            why=f"{TOKEN_VARIABLE} is invalid, or its owner has no access to the repository; request access on its "
            "page"
            if access.token
            else f"{TOKEN_VARIABLE} is not set; for a gated repository, also request access on its page",
            next_command=f"export {TOKEN_VARIABLE}=YOUR_TOKEN",
        )
    if status == 404:
        return RequestError("the repository, the revision or the file does not exist (404)", where=where)
    text = f"the hub answers {status}" if status else str(error).partition("\n")[0] or type(error).__name__
    if status is None and isinstance(error, HTTPError):
        text = f"the hub cannot be reached: {text}; check the network, {ENDPOINT_VARIABLE} and HTTPS_PROXY"
    return RunError(f"the download failed: {text}", where=where, next_command=SAME_COMMAND)
