"""Opens a URL for a download: redirects, the token, and what an answer's status means. Moves no file.

The token comes from HF_TOKEN alone. It is sent to the hub it belongs to and to nobody else, over
https; no error, URL or file holds it.
"""

import contextlib
import email.message
import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from benchmarks.errors import RequestError, RunError

TOKEN_VARIABLE = "HF_TOKEN"
ENDPOINT_VARIABLE = "HF_ENDPOINT"  # Hugging Face's own name for it: a mirror inside a company, say
DEFAULT_ENDPOINT = "https://huggingface.co"
TIMEOUT_SECONDS = 60.0  # without a byte
MOST_REDIRECTS = 10
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Unavailable(Exception):
    """It did not work this time: the connection broke, or the server asks to come again."""

    def __init__(self, what: str, wait_seconds: float | None = None) -> None:
        super().__init__(what)
        self.wait_seconds = wait_seconds


@dataclass(frozen=True)
class Answer:
    """What a server sent: the head at once, the body as it is read."""

    status: int
    headers: email.message.Message
    body: http.client.HTTPResponse

    def read(self, count: int) -> bytes:
        try:
            return self.body.read(count)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(_words(error)) from None

    def close(self) -> None:
        self.body.close()


@dataclass(frozen=True)
class Web:
    """The way out: which hub the token belongs to, and the token, which no representation shows."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer at the end of all redirects. Unavailable: try again; a StepmarkError: do not."""
        first = url
        for _ in range(MOST_REDIRECTS):
            answer = self._ask(url, dict(headers or {}))
            location = answer.headers.get("Location")
            if answer.status not in (301, 302, 303, 307, 308) or not location:
                self._refuse_bad_status(answer, first, url)
                return answer
            answer.close()
            url = _joined(url, location)
            if urlsplit(first).scheme == "https" and urlsplit(url).scheme != "https":
                raise RunError(f"the server redirects from https to {urlsplit(url).scheme}", where=shown(first))
        raise RunError(f"the server redirects over {MOST_REDIRECTS} times", where=shown(first))

    def _ask(self, url: str, headers: dict[str, str]) -> Answer:
        if self.token is not None and self._is_the_hub(url):
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(url, headers={"User-Agent": "stepmark", **headers})
        try:
            response = _OPENER.open(request, timeout=self.timeout_seconds)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                why = reason.verify_message
                raise RunError("the server's certificate is not trusted", where=shown(url), why=why) from None
            raise Unavailable(f"{urlsplit(url).netloc.rpartition('@')[2]}: {_words(reason)}") from None
        except ValueError:  # its message may quote a header
            raise RunError("the URL cannot be asked for", where=shown(url)) from None
        return Answer(response.status, response.headers, response)

    def _is_the_hub(self, url: str) -> bool:
        return _origin(url) == _origin(self.endpoint)

    def _refuse_bad_status(self, answer: Answer, first: str, url: str) -> None:
        status = answer.status
        if status in (200, 206, 416):
            return
        answer.close()
        said = f"{status} {http.client.responses.get(status, '')}".strip()
        if status in (408, 425, 429) or status >= 500:
            after = answer.headers.get("Retry-After", "")
            raise Unavailable(f"the server says {said}", float(after) if after.isdecimal() else None)
        if status in (401, 403):
            raise self._no_access(said, first, url)
        if status in (404, 410):
            raise RequestError(f"there is no such file: the server says {said}", where=shown(first))
        raise RunError(f"the server says {said}", where=shown(first))

    def _no_access(self, said: str, first: str, url: str) -> RequestError:
        if not self._is_the_hub(url):
            return RequestError(f"the server refuses access: {said}", where=shown(first))
        if self.token is None:
            why = f"{TOKEN_VARIABLE} is not set; a gated repository also needs access requested on its page"
        else:
            why = f"{TOKEN_VARIABLE} is set: it is not valid, or access to the repository was not granted"
        return RequestError(
            f"the server refuses access: {said}",
            where=shown(first),
            why=why,
            next_command=f"request access on the repository's page, then export {TOKEN_VARIABLE}=<your token>",
        )


def from_environment() -> Web:
    """With the token of HF_TOKEN, where it is set."""
    endpoint = (os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT).rstrip("/")
    if not _is_web_address(endpoint) or "@" in endpoint or "?" in endpoint:
        raise RequestError("the hub's address must be https://HOST", where=ENDPOINT_VARIABLE)
    parts = urlsplit(endpoint)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        return Web(endpoint)
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise RequestError("the token holds characters that no token has", where=TOKEN_VARIABLE)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise RequestError(
            "the token would travel unencrypted",
            where=f"{ENDPOINT_VARIABLE}={endpoint}",
            next_command=f"export {ENDPOINT_VARIABLE}=https://{parts.netloc}, or unset {TOKEN_VARIABLE}",
        )
    return Web(endpoint, token)


def refuse_url(url: str) -> None:
    """What cannot be downloaded, or should not be."""
    if not _is_web_address(url):
        raise RequestError("only http and https URLs can be downloaded", where="--url")
    if "@" in urlsplit(url).netloc:
        raise RequestError("a login in the URL would be seen by everyone on this machine", where="--url")


def _joined(url: str, location: str) -> str:
    with contextlib.suppress(ValueError):
        found = urljoin(url, location)
        if _is_web_address(found):
            return found
    raise RunError("the server redirects to what is no web address", where=shown(url))


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # a bad one raises
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def token_is_set() -> bool:
    return bool(os.environ.get(TOKEN_VARIABLE, "").strip())


def shown(url: str) -> str:
    """A URL as it may be printed: a login or a signature in it is a secret too."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + ("?..." if parts.query else "")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _words(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection broke off"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Hands every answer on: urllib would follow redirects by itself, with all headers."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:  # noqa: ARG002
        return response

    https_response = http_response


_OPENER = urllib.request.build_opener(_EveryStatus)
