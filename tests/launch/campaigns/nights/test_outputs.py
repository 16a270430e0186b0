"""Which files a report may take the place of."""

from pathlib import Path

import pytest

from benchmarks.errors import RequestError
from benchmarks.gate.junit import junit_xml
from benchmarks.gate.report_text import markdown
from launch.campaigns.nights.outputs import Outputs
from tests.benchmarks.gate.nights_made import report


def test_a_report_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    made = report([])
    written = {"junit": junit_xml(made), "markdown": markdown(made)}
    for flag, text in written.items():
        (tmp_path / flag).write_text(text)
        Outputs(**{flag: str(tmp_path / flag)}).check()


@pytest.mark.parametrize("flag", ["junit", "markdown", "html"])
def test_and_of_nothing_else(tmp_path: Path, flag: str) -> None:
    other = tmp_path / "letter"
    other.write_text("to a friend")
    run = tmp_path / "run"
    run.mkdir()
    (run / "benchmark.json").write_text("{}")
    for path, why in ((other, "not a report of a night"), (run / "steps.jsonl", "within a run's folder")):
        with pytest.raises(RequestError, match=why):
            Outputs(**{flag: str(path)}).check()
    assert other.read_text() == "to a friend"
