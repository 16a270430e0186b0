"""Read and write the files of a suite's nights: a record of each night, and the user's decisions.

The files are <output_dir>/nights/<suite>/<night>.json (and .md) and decisions.jsonl. The launcher writes the record
before each run starts and after each run ends, so that a night can be resumed after its launcher was killed.
"""

import contextlib
import fcntl
import getpass
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.errors import RequestError
from benchmarks.nightly.report_text import markdown
from benchmarks.nightly.series import MOST_NIGHTS
from benchmarks.nightly.values import Acceptance, NightReport
from benchmarks.runs.campaign_record import read_record, write_record
from benchmarks.runs.runfolder import write_atomically

NIGHT_FORMAT = "%Y%m%dT%H%M%SZ"
DECISIONS = "decisions.jsonl"
# For this long, the same command resumes an interrupted night. After that, it starts a new night.
RESUMED_WITHIN_HOURS = 12.0
MOST_SHOWN = 5  # how many unreadable folders or records a report names


class Records:
    """The records of one suite in one folder of runs."""

    def __init__(self, output_dir: Path, suite: str) -> None:
        self.suite = suite
        self.folder = output_dir / "nights" / suite

    def path(self, night: str) -> Path:
        return self.folder / f"{night}.json"

    def new_night(self) -> str:
        """Return an unused name for a night. Names of later nights sort after names of earlier nights."""
        while self.path(night := time.strftime(NIGHT_FORMAT, time.gmtime())).exists():
            time.sleep(0.1)
        return night

    def nights(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def read(self, night: str) -> NightReport:
        return read_record(self.path(night), NightReport, "night", "")

    def read_newest(self) -> tuple[list[NightReport], list[str]]:
        """Return the newest records, oldest first, and a message for each record that could not be read."""
        found, problems = [], []
        for night in self.nights()[-MOST_NIGHTS:]:
            try:
                found.append(self.read(night))
            except RequestError as error:
                problems.append(f"{error.where}: {error.what}")
        return found, first_problems(problems)

    def write(self, report: NightReport) -> None:
        write_record(self.path(report.night), report, "night")
        if report.finished is not None:
            write_atomically(self.path(report.night).with_suffix(".md"), markdown(report).encode())

    def unfinished(self, site: str, slowed_by: float) -> NightReport | None:
        """Return the latest night if its launcher stopped too early and it can be resumed, otherwise None."""
        reports, _ = self.read_newest()
        for report in reversed(reports):
            if (report.site, report.slowed_by) == (site, slowed_by):
                hours = (datetime.now(UTC) - datetime.fromisoformat(report.started)).total_seconds() / 3600
                return report if report.finished is None and hours < RESUMED_WITHIN_HOURS else None
        return None

    # --- the user's decisions ---

    def accept(self, cell: str, night: str, because: str) -> Acceptance:
        user = "unknown"
        with contextlib.suppress(KeyError, OSError):
            user = getpass.getuser()
        acceptance = Acceptance(cell=cell, night=night, because=because, accepted_at=now(), by=user)
        self.folder.mkdir(parents=True, exist_ok=True)
        own = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW  # a link could point to any file of this user
        with os.fdopen(os.open(self.folder / DECISIONS, own, 0o666), "ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.write(msgspec.json.encode(acceptance) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        return acceptance

    def accepted(self) -> tuple[list[Acceptance], list[str]]:
        """Return the user's decisions, the oldest first, and a message for each line that could not be read."""
        path = self.folder / DECISIONS
        found: list[Acceptance] = []
        problems = []
        for number, line in enumerate(files.read(path).splitlines() if path.exists() else [], start=1):
            try:
                found.append(files.decode_json(line, msgspec.json.Decoder(Acceptance)))
            except files.NOT_JSON as error:
                problems.append(f"{path}:{number}: {error}")
        return found, problems


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def first_problems(problems: Sequence[str]) -> list[str]:
    more = [f"and {len(problems) - MOST_SHOWN} more"] if len(problems) > MOST_SHOWN else []
    return [*problems[:MOST_SHOWN], *more]
