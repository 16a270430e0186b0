"""Posts a night to a chat's webhook. Its address is a secret: no file, screen or record ever has it."""

import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.errors import RequestError
from benchmarks.gate.values import NightReport
from benchmarks.gate.webhook import message
from benchmarks.secret_rules import hidden

VARIABLE = "STEPMARK_WEBHOOK"
TIMEOUT_SECONDS = 15.0
HIDDEN = "<not shown>"


def address(typed: str | None, file: str | None) -> str | None:
    """Where to post, from the flag, a file of this user's or the environment; None: nowhere. Checked before a run."""
    if typed and file:
        raise RequestError("--webhook and --webhook_file exclude each other", where="--webhook_file")
    # Taken out of the environment: a run writes down the variables it was started with, and its worker inherits them.
    variable = os.environ.pop(VARIABLE, "")
    if file and not typed:
        return address_in(file)
    return _checked(typed or variable.strip(), "--webhook" if typed else f"${VARIABLE}")


def address_in(file: str) -> str:
    """RequestError: there is none."""
    found = _checked(_from_file(file).strip(), f"--webhook_file={file}")
    if found is None:
        raise RequestError("the file with the webhook's address is empty", where=f"--webhook_file={file}")
    return found


def _checked(found: str, where: str) -> str | None:
    if not found:
        return None
    try:
        parts = urllib.parse.urlsplit(found)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        valid = False
    if not valid or any(character.isspace() for character in found):
        raise RequestError(
            "the address of the webhook is none (it is not shown: it is a secret)",
            where=where,
            why="https://HOST/... is expected",
        )
    return found


def without_address(words: Sequence[str]) -> list[str]:
    """A command line that may be shown: as --webhook=URL or as two words."""
    found: list[str] = []
    for word in words:
        name, equals, _ = word.partition("=")
        if found and found[-1].lstrip("-") == "webhook" and found[-1].startswith("-"):
            found.append(HIDDEN)
        elif equals and name.startswith("-") and name.lstrip("-") == "webhook":
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(word)
    return found


def _from_file(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or "" if isinstance(error, OSError) else "it is no text"
        raise RequestError("the file with the webhook's address cannot be read", where=file, why=why) from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A webhook that has moved would be asked without the message, and its new address might be anybody's."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(report: NightReport, url: str) -> str:
    """What became of it, in words; it never fails a night."""
    data = hidden(msgspec.json.encode(message(report)).decode()).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SECONDS) as answer:
            return f"webhook: posted ({answer.status})"
    except urllib.error.HTTPError as error:
        return f"webhook: not taken, the answer was {error.code}; the exit code is the night's all the same"
    except (OSError, ValueError) as error:
        # The words of an error may hold the address: only its kind is shown.
        reason = getattr(error, "reason", error)
        kind = getattr(reason, "strerror", None) or type(reason).__name__
        return f"webhook: not posted, {kind}; the exit code is the night's all the same"
