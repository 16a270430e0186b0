"""Texts that are recorded next to a test: what a plan, a command or a job was when someone last read it."""

import os
from pathlib import Path


def assert_recorded(text: str, path: Path) -> None:
    """Record the text first, if the tests were started with STEPMARK_RECORD_GOLDEN=1."""
    if os.environ.get("STEPMARK_RECORD_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
