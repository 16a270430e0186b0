"""Where a night's report goes: the screen, Markdown, JUnit, HTML, a workflow's summary, a chat.

None of them changes the exit code, which is the night's.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import RequestError, RunError
from benchmarks.gate.junit import junit_xml
from benchmarks.gate.report_text import markdown, screen_text
from benchmarks.gate.values import NightReport
from benchmarks.runfolder import write_atomically
from launch.nights.crew import say

SUMMARY = "GITHUB_STEP_SUMMARY"


class Outputs(NamedTuple):
    """What was asked for."""

    junit: str | None = None
    markdown: str | None = None
    html: str | None = None
    webhook: str | None = None

    def check(self) -> None:
        """Before hours of runs: can these files be written?"""
        for flag in ("junit", "markdown", "html"):
            place = getattr(self, flag)
            if place is None:
                continue
            path = Path(place)
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
            if not place or path.is_dir() or not os.access(path.parent, os.W_OK):
                raise RequestError(f"'{place}' cannot be written", where=f"--{flag}={place}")


def show(report: NightReport, outputs: Outputs, record: Path | None) -> None:
    print("\n" + screen_text(report), flush=True)
    if record is not None:
        print(f"\nfiles: {record}\n       {record.with_suffix('.md')}", flush=True)
    for place, text in (
        (outputs.junit, junit_xml),
        (outputs.markdown, markdown),
        (outputs.html, _html),
    ):
        if place is not None:
            _write(Path(place), text(report))
    if os.environ.get(SUMMARY):
        _append(Path(os.environ[SUMMARY]), markdown(report))
    if outputs.webhook is not None:
        from launch.nights.posting import post  # urllib.request takes a while to import

        say(post(report, outputs.webhook))


def _html(report: NightReport) -> str:
    from benchmarks.pages.night import night_page

    return night_page(report)


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
        print(f"       {path}", flush=True)
    except RunError as error:
        say(f"stepmark: {error}")


def _append(path: Path, text: str) -> None:
    """A workflow's summary is one file to which every step adds."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except OSError as error:
        say(f"stepmark: {SUMMARY}: {error.strerror}: {path}")
