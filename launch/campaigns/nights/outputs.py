"""Where a night's report goes: the screen, Markdown, JUnit, HTML, a workflow's summary.

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
from benchmarks.runs.runfolder import BENCHMARK, write_atomically
from launch.campaigns.scheduler import say

SUMMARY = "GITHUB_STEP_SUMMARY"
WITHIN_BYTES = 2000
BEGINNINGS = {"junit": b"<testsuite", "markdown": b"## suite ", "html": b'content="Stepmark '}


class Outputs(NamedTuple):
    """What was asked for."""

    junit: str | None = None
    markdown: str | None = None
    html: str | None = None

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
            _refuse_other_files(flag, path)

    def remove_old(self) -> None:
        """Of the night before: where this one comes to no end, nobody shall take that for its result."""
        for place in (self.junit, self.markdown, self.html):
            if place is not None and Path(place).is_file():
                with contextlib.suppress(OSError):  # what cannot be removed is said when it cannot be written
                    Path(place).unlink()


def _refuse_other_files(flag: str, path: Path) -> None:
    """A report takes the place of an earlier one, and of nothing else."""
    if any((folder / BENCHMARK).is_file() for folder in path.resolve().parents):
        what = "this is within a run's folder, where only the run itself writes"
    elif path.exists() and not _is_ours(flag, path):
        what = "there is such a file already, and it is no report of a night"
    else:
        return
    raise RequestError(what, where=f"--{flag}={path}", next_command=f"--{flag} with another name")


def _is_ours(flag: str, path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        beginning = stream.read(WITHIN_BYTES)
    return not beginning or BEGINNINGS[flag] in beginning


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
