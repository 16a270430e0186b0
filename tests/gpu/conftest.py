"""`make gpu`: skip tests that need a GPU without one, show the needs of each check, and end with a summary.

$STEPMARK_GPU_FLAGS go to every run, such as --runtime=container. $STEPMARK_GPU_ON=cpu rehearses the checks on this
machine's CPU with a tiny model: what needs a GPU is then not tried.
"""

import datetime
import json
import os
import platform
import shlex
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal, get_args

import pytest

from benchmarks import VERSION
from benchmarks.configs import Configs
from benchmarks.values import Value, json_text
from launch.machine import machine_gpus, processes, this_machine
from launch.running import execute
from tests.gpu.commands import Commands, Here
from tests.gpu.judged import JudgedCheck

Outcome = Literal["holds", "does not hold", "not tried"]


class Row(Value, frozen=True):
    """One check: what it needed, what it measured, and whether it holds."""

    name: str
    needs: str
    outcome: Outcome
    figures: list[str]
    why: str  # why it does not hold, or was not tried
    seconds: float


ON_CPU = "cpu"
CHECKS = "test_gpu.py"
ROWS = pytest.StashKey[list[Row]]()
FOLDER = pytest.StashKey[Path]()
FIGURES = pytest.StashKey[list[str]]()
RESULTS = Path("results")  # of the folder that make was typed in


def rehearsed() -> bool:
    return os.environ.get("STEPMARK_GPU_ON") == ON_CPU


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Query NVML only if tests may be skipped."""
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not rehearsed() and not machine_gpus.detect().gpus:
        reason = pytest.mark.skip(reason=f"this machine has no GPU: {machine_gpus.detect().why_none}")
        for item in needing:
            item.add_marker(reason)
    config.stash[ROWS] = []


# --- what a check is given ----------------------------------------------------------------------


class Check:
    """The result of one check, as a test reports it."""

    def __init__(self, figures: list[str]) -> None:
        self._figures = figures

    def holds(self, judged: JudgedCheck) -> None:
        """Its figures are kept, whether it holds or not."""
        self._figures.append(judged.figures)
        if judged.problems:
            pytest.fail("; ".join(judged.problems), pytrace=False)


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Check:
    return Check(request.node.stash.setdefault(FIGURES, []))


@pytest.fixture(scope="session")
def host() -> Here:
    """The GPUs of this machine's largest kind; in a rehearsal its CPU, and a model that trains there in seconds."""
    if rehearsed():
        return Here("cpu", "llama2_tiny", {}, on_gpu=False)
    (row, *_) = machine_gpus.rows(Configs())
    return Here("here", "llama32_1b", {dtype: peak.tflops for dtype, peak in row.peaks.items()}, on_gpu=True)


@pytest.fixture(scope="session")
def commands(request: pytest.FixtureRequest) -> Commands:
    folder = RESULTS.absolute() / f"gpu-check-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}"
    folder.mkdir(parents=True)
    request.config.stash[FOLDER] = folder
    return Commands(folder, shlex.split(os.environ.get("STEPMARK_GPU_FLAGS", "")))


# --- the account --------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    if item.get_closest_marker("gpu"):
        say(item, f"{name_of(item)}: needs {needs_of(item)}")
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.get_closest_marker("gpu") and is_over(report):
        row = row_of(item, report, call)
        item.config.stash[ROWS].append(row)
        if report.failed and FOLDER in item.config.stash:
            with (item.config.stash[FOLDER] / "failed.txt").open("a") as stream:
                stream.write(f"{row.name}\n{report.longreprtext}\n\n")
        if report.when == "call":  # else there is no GPU for any, which is said once
            for text in (*row.figures, f"{row.outcome}: {row.why}" if row.why else row.outcome):
                say(item, f"    {text}")
    return report


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """No letters between the lines of the checks."""
    if isinstance(report, pytest.TestReport) and CHECKS in report.nodeid:
        return (report.outcome if is_over(report) else "", "", "")
    return None


def is_over(report: pytest.TestReport) -> bool:
    """A test that was called, or that failed or was skipped while it was set up."""
    return report.when == "call" or (report.when == "setup" and report.outcome != "passed")


def say(item: pytest.Item, text: str) -> None:
    reporter = item.config.pluginmanager.getplugin("terminalreporter")
    if reporter:  # missing in a worker of pytest-xdist
        reporter.ensure_newline()
        reporter.write_line(text)


def row_of(item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> Row:
    """Why a check does not hold or was not tried is one line; all of it is in the logs of the commands."""
    outcomes: dict[str, Outcome] = {"skipped": "not tried", "passed": "holds"}
    error = call.excinfo.value if call.excinfo is not None and report.outcome != "passed" else ""
    return Row(
        name=name_of(item),
        needs=needs_of(item),
        outcome=outcomes.get(report.outcome, "does not hold"),
        figures=item.stash.get(FIGURES, []),
        why=str(getattr(error, "msg", None) or error).strip().partition("\n")[0],
        seconds=report.duration,
    )


def name_of(item: pytest.Item) -> str:
    return item.name.removeprefix("test_").replace("_", " ").replace("[", ": ").replace("]", "")


def needs_of(item: pytest.Item) -> str:
    mark = item.get_closest_marker("gpu")
    return str(mark.kwargs.get("needs", "a GPU")) if mark else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    rows, folder = config.stash.get(ROWS, []), config.stash.get(FOLDER, None)
    if rows and folder is None:  # nothing was tried
        reasons = dict.fromkeys(row.why for row in rows)
        terminalreporter.write_line(f"{len(rows)} checks were not tried: {'; '.join(reasons)}")
    if folder is None:
        return
    title = f"{'A rehearsal on the CPU of' if rehearsed() else 'The GPUs of'} this machine, {folder.name[10:]}"
    terminalreporter.write_sep("=", "what holds and what does not")
    terminalreporter.write(write_account(folder, rows, title))
    packed = f"{folder.name}.tar.gz"
    terminalreporter.write_line(f"\nto send: {folder}     tar czf {packed} -C {folder.parent} {folder.name}")


def table(rows: Sequence[Row], title: str) -> str:
    """Return the table of passed and failed checks, with values and reasons below each."""
    width = max((len(row.name) for row in rows), default=0)
    lines = [title, ""]
    for row in rows:
        lines.append(f"{row.name.ljust(width)}  {row.outcome:13}  {row.seconds:6.0f} s")
        lines += [f"    {text}" for text in (*row.figures, *([row.why] if row.why else []))]
    counts = [f"{sum(row.outcome == outcome for row in rows)} {outcome}" for outcome in get_args(Outcome)]
    lines += ["", ", ".join(counts)]
    return "\n".join(lines) + "\n"


def write_account(folder: Path, rows: Sequence[Row], title: str) -> str:
    """Into the folder of the runs; the table, to be shown."""
    folder.mkdir(parents=True, exist_ok=True)
    text = table(rows, title)
    (folder / "table.txt").write_text(text)
    (folder / "checks.json").write_text(json_text(rows))
    (folder / "machine.json").write_text(json.dumps(machine_facts(), indent=2) + "\n")
    return text


def machine_facts() -> dict[str, object]:
    """What the checks ran on; each run says besides in its provenance.json what its framework was."""
    found = machine_gpus.detect()
    return {
        "stepmark": VERSION,
        "git": execute.git_state(processes.REPOSITORY),
        "python": platform.python_version(),
        "machine": this_machine.facts(),
        "driver": found.driver,
        "cuda": ".".join(map(str, found.cuda)) if found.cuda else None,
        "gpus": [{"index": gpu.index, "name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in found.gpus],
        "why_no_gpus": found.why_none or None,
        "hidden": found.hidden or None,
    }
