"""The allowed places of a night's report."""

from pathlib import Path

import pytest

from benchmarks.errors import RequestError
from launch.campaigns.nights.outputs import Outputs


@pytest.mark.parametrize("flag", ["junit", "markdown", "html"])
def test_a_report_is_not_written_into_a_run_and_makes_no_folder(tmp_path: Path, flag: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "benchmark.json").write_text("{}")
    with pytest.raises(RequestError, match="cannot be written"):
        Outputs(**{flag: str(run / "steps.jsonl")}).check()
    with pytest.raises(RequestError, match="does not exist"):
        Outputs(**{flag: str(tmp_path / "new" / flag)}).check()
    assert not (tmp_path / "new").exists()
    Outputs(**{flag: str(tmp_path / flag)}).check()
