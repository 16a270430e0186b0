"""The summary that GitHub shows of a workflow's job: one file to which every step adds."""

import os
from pathlib import Path

from launch.terminal.progress import say

VARIABLE = "GITHUB_STEP_SUMMARY"


def add_to_summary(markdown: str) -> None:
    """Nothing outside a workflow; a file that can't be written is no reason to fail."""
    place = os.environ.get(VARIABLE)
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as stream:
            stream.write(markdown + "\n")
    except OSError as error:
        say(f"stepmark: {VARIABLE}: {error.strerror}: {place}")
