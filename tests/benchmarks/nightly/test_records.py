"""The files of a suite's nights, in a folder that another user may have made."""

from pathlib import Path

import pytest

from benchmarks.nightly.records import DECISIONS, Records


def test_a_decision_is_added_to_the_others_and_never_written_through_a_link(tmp_path: Path) -> None:
    records = Records(tmp_path, "naps")
    made = [records.accept("cell", "night", because) for because in ("first", "second")]
    assert records.accepted() == (made, [])
    (tmp_path / "mine").write_text("before")
    (records.folder / DECISIONS).unlink()
    (records.folder / DECISIONS).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match=DECISIONS):
        records.accept("cell", "night", "third")
    assert (tmp_path / "mine").read_text() == "before"
