"""What other programs took: our own time is not theirs, and cores that are not ours have room for them."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.checks import other_programs

SECOND_OF_WORK = "import time; end = time.process_time() + 1\nwhile time.process_time() < end: pass"


@pytest.fixture
def still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose processors have worked for so many ticks."""
    stat = tmp_path / "stat"
    monkeypatch.setattr(other_programs, "STAT", stat)
    monkeypatch.setattr(other_programs, "time", SimpleNamespace(monotonic=iter([100.0, 110.0]).__next__))
    ticks(stat, 1000)
    return stat


def ticks(stat: Path, user: int, idle: int = 0) -> None:
    stat.write_text(f"cpu  {user} 2 3 {idle} 5 6 7 8 0 0\ncpu0 1 2\n")


def test_time_that_is_no_ones_of_us_is_others(still: Path) -> None:
    others = other_programs.OtherPrograms()
    ticks(still, 3000, idle=99999)  # 20 seconds of processors in 10
    assert others.cores() == pytest.approx(2.0, abs=0.05)


def test_a_child_that_was_waited_for_is_ours(still: Path) -> None:
    others = other_programs.OtherPrograms()
    subprocess.run([sys.executable, "-c", SECOND_OF_WORK], check=True)
    ticks(still, 1300)  # 3 seconds, one of them our child's
    assert others.cores() == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("text", [None, "", "cpu 1 2", "cpu a b c d e f g h"])
def test_a_machine_that_does_not_say_has_no_figure(still: Path, text: str | None) -> None:
    if text is None:
        still.unlink()
    else:
        still.write_text(text)
    assert other_programs.OtherPrograms().cores() is None


@pytest.mark.parametrize(
    ("taken", "ours", "all_cores", "said"),
    [(None, 2, 2, False), (0.1, 2, 2, False), (0.3, 2, 2, True), (1.0, 1, 4, False), (3.2, 1, 4, True)],
)
def test_a_note_where_they_took_more_than_there_is_room_for(
    taken: float | None, ours: int, all_cores: int, said: bool
) -> None:
    assert bool(other_programs.note(taken, ours, all_cores)) is said
