"""The ways uv fails, as data: how its log shows each, what that means, and what to do. The first that fits."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from launch.environments.programs import RUN_AGAIN


@dataclass(frozen=True)
class Failure:
    """A way for uv to fail. {0} is what was matched; {python} and {lock_file} are the environment's."""

    pattern: str
    what: str
    why: str
    next_command: str


NOT_OFFERED = Failure(
    r"No solution found[\s\S]*?you require (\S+?),",
    "the package index has no {0} for this machine",
    "the lock file pins a version with a wheel; the index lacks it for this Python, system or processor",
    "see which index pip and uv are set up for (`pip config list`, UV_DEFAULT_INDEX); it must offer what PyPI offers",
)
FAILURES = (
    Failure(
        r"Hash mismatch for `(\S+)`",
        "the package {0} is not the one the lock file was made with",
        "its hash differs from the pinned ones: the package index or a cache gave other content",
        "export UV_NO_CACHE=1, and " + RUN_AGAIN + "; if that does not help, ask who runs the package index",
    ),
    Failure(
        r"No space left on device",
        "the disk became full while packages were installed",
        "uv unpacks and keeps packages in its cache (`uv cache dir`), and links or copies them into the environment",
        "free some space, or export UV_CACHE_DIR and STEPMARK_HOME=<folders on a larger disk>",
    ),
    Failure(
        r"\b(401 Unauthorized|403 Forbidden|407 Proxy|proxy authorization required)",
        "the package index refused the login",
        "the settings of pip or uv name an index or a proxy that needs one; uv may not ask for it here",
        "write the login into ~/.netrc or the index's URL (pip.conf, UV_DEFAULT_INDEX), and " + RUN_AGAIN,
    ),
    Failure(
        r"(?:error sending request|error decoding response body)[\s\S]*cause: ([^\n(]*\w)|network was disabled",
        "the package index cannot be reached ({0})",
        "this machine has no network, or pip and uv are not set up for its proxy, mirror or certificates",
        "on a machine with network: {python} -m pip download --require-hashes --no-deps "
        "--only-binary :all: -d wheels -r {lock_file}; copy the folder here, then: "
        "export PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>, and " + RUN_AGAIN + ". "
        "Or copy a STEPMARK_HOME that holds the environment, to the same path beside the same Python",
    ),
    NOT_OFFERED,
    Failure(
        r"(Permission denied|Read-only file system)",
        "a file could not be written while packages were installed ({0})",
        "the environment and uv's cache (`uv cache dir`) must be writable",
        "export UV_CACHE_DIR and STEPMARK_HOME=<folders that this user can write>",
    ),
)


class Known(NamedTuple):
    failure: Failure
    found: str  # the words of the log that the failure's text names


def recognise(log: str) -> Known | None:
    for failure in FAILURES:
        match = re.search(failure.pattern, log)
        if match:
            return Known(failure, (match.groups() and match[1]) or match[0])
    return None
