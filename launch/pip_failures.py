"""The ways pip fails, as data: how its log shows each, what that means, and what to do. The first that fits."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from launch.programs import RUN_AGAIN


@dataclass(frozen=True)
class Failure:
    """A way for pip to fail. {0} is what was matched; {python} and {lock_file} are the environment's."""

    pattern: str
    what: str
    why: str
    next_command: str
    unless: str | None = None


NOT_OFFERED = Failure(
    r"No matching distribution found for (\S+)",
    "the package index has no {0} for this machine",
    "the lock file pins a version with a wheel; the index lacks it for this Python, system or processor",
    "see which index pip is set up for (pip.conf, PIP_INDEX_URL); it must offer what PyPI offers",
)
FAILURES = (
    Failure(
        r"DO NOT MATCH THE HASHES[^\n]*\n(?:\s*\n)*\s+(\S+)",
        "the package {0} is not the one the lock file was made with",
        "its hash differs from the pinned ones: the package index or a cache gave other content",
        "export PIP_NO_CACHE_DIR=1, and " + RUN_AGAIN + "; if that does not help, ask who runs the package index",
    ),
    Failure(
        r"No space left on device",
        "the disk became full while packages were installed",
        "pip unpacks in TMPDIR and keeps downloads in its cache, besides the environment itself",
        "free some space, or export TMPDIR and STEPMARK_HOME=<folders on a larger disk>",
    ),
    Failure(
        r"(?:HTTP error |\b)(401|403|407)(?: Client)? (?:Error|Proxy|Unauthorized|Forbidden)|User for \S+:",
        "the package index refused the login",
        "pip's own settings name an index that needs one; pip may not ask for it here",
        "give pip the login of the index it is set up for (pip.conf, netrc, keyring), and " + RUN_AGAIN,
    ),
    Failure(
        r"(Failed to establish a new connection|NewConnectionError|NameResolutionError|"
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable|"
        r"Connection refused|Connection reset|ConnectTimeout|Connection broken|timed out|"
        r"ProxyError|SSLError)",
        "the package index cannot be reached ({0})",
        "this machine has no network, or pip is not set up for its proxy or mirror",
        "on a machine with network: {python} -m pip download --require-hashes --no-deps "
        "--only-binary :all: -d wheels -r {lock_file}; copy the folder here, then: "
        "export PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>, and " + RUN_AGAIN + ". "
        "Or copy a STEPMARK_HOME that holds the environment, to the same path beside the same Python",
        unless=r"\(from versions: (?!none)",
    ),
    NOT_OFFERED,
    Failure(
        r"(Permission denied|Read-only file system)[^\n]*",
        "a file could not be written while packages were installed ({0})",
        "the environment, TMPDIR and pip's cache must be writable",
        "export TMPDIR and STEPMARK_HOME=<folders that this user can write>",
    ),
)


class Known(NamedTuple):
    failure: Failure
    found: str  # the words of the log that the failure's text names


def recognise(log: str) -> Known | None:
    for failure in FAILURES:
        match = re.search(failure.pattern, log)
        if match and not (failure.unless and re.search(failure.unless, log)):
            return Known(failure, (match[1] or "") if match.groups() else "")
    return None
