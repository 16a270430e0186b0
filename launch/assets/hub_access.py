"""Which hub is asked, and the token for it: HF_TOKEN alone, sent to that hub alone, in no message and no file."""

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmarks.errors import RequestError

TOKEN_VARIABLE = "HF_TOKEN"
ENDPOINT_VARIABLE = "HF_ENDPOINT"  # Hugging Face's own name for it: a mirror inside a company, say
DEFAULT_ENDPOINT = "https://huggingface.co"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Access:
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)


def from_environment() -> Access:
    endpoint = (os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT).rstrip("/")
    if not _is_web_address(endpoint) or "@" in endpoint or "?" in endpoint:
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


def refused(status: int, where: str, token: str | None) -> RequestError:
    """The error for a 401 or 403."""
    missing = f"{TOKEN_VARIABLE} is not set; a gated repository also needs access requested on its page"
    wrong = f"{TOKEN_VARIABLE} is set: it is not valid, or access to the repository was not granted"
    return RequestError(
        f"the server refuses access: {status}",
        where=where,
        why=wrong if token else missing,
        next_command=f"request access on the repository's page, then export {TOKEN_VARIABLE}=<your token>",
    )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # a bad one raises
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)
