"""The dashboard's files: only changes are written, and TensorBoard can read them at any time."""

import os
import stat
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.dashboard.folders import LOCK, STATE, Board, Point, exclusive_update, keep
from benchmarks.errors import RequestError

NAME = "series/a line"


def folder(count: int, name: str = NAME, changed: int | None = None, **others: object) -> Board:
    points = [
        Point(step=n, unix_seconds=1000.0 + n, scalars={"tag": float(-1 if n == changed else n)})
        for n in range(count)
    ]
    return Board(name=name, points=points, **others)  # type: ignore[arg-type]


def kept(logdir: Path, *wanted: Board) -> int:
    with exclusive_update(logdir):
        return keep(logdir, wanted)


def line(logdir: Path, name: str = NAME) -> list[tuple[int, float]]:
    events = EventAccumulator(str(logdir / name), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("tag")]


def files(logdir: Path, name: str = NAME) -> list[str]:
    return sorted(path.name for path in (logdir / name).iterdir())


def refused(*_: object) -> None:
    raise OSError(28, "No space left on device")


def up_to(count: int) -> list[tuple[int, float]]:
    return [(n, float(n)) for n in range(count)]


@pytest.mark.parametrize("now", [folder(2), folder(3, changed=1), folder(5), folder(5, changed=0)])
def test_a_line_that_has_become_another_is_written_anew_in_its_place(tmp_path: Path, now: Board) -> None:
    kept(tmp_path, folder(3))
    assert kept(tmp_path, now) == 1
    assert len(files(tmp_path)) == 1
    assert line(tmp_path) == [(point.step, point.scalars["tag"]) for point in now.points]


def test_an_unfinished_file_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, folder(3))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(Path, "replace", refused)
        kept(tmp_path, folder(3, changed=0))
    assert line(tmp_path) == up_to(3)
    assert kept(tmp_path, folder(3, changed=0)) == 1
    assert len(files(tmp_path)) == 1


def test_links_are_relative_and_follow_what_is_wanted(tmp_path: Path) -> None:
    target = tmp_path / "results" / "run" / "events.out.tfevents.1.stepmark"
    target.parent.mkdir(parents=True)
    target.write_text("x")
    logdir = tmp_path / "results" / "dashboard"
    name = "plugins/profile/s/h.xplane.pb"
    kept(logdir, folder(1, "runs/run", links={target.name: str(target), name: str(target)}))
    (tmp_path / "results").rename(tmp_path / "moved")
    moved = tmp_path / "moved/dashboard/runs/run"
    assert [(moved / one).read_text() for one in (target.name, name)] == ["x", "x"]
    assert not (moved / name).readlink().is_absolute()
    kept(tmp_path / "moved/dashboard", folder(1, "runs/run"))
    assert not (moved / target.name).is_symlink()
    assert not (moved / name).is_symlink()


def test_a_dashboard_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "board" / STATE).mkdir(parents=True)
    (tmp_path / "board").chmod(0o777)
    (tmp_path / "board" / STATE / LOCK).symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_text("before")
    with pytest.raises(RequestError, match="can write to it"), exclusive_update(tmp_path / "board"):
        pass
    assert (tmp_path / "mine").read_text() == "before"


def test_the_group_of_a_team_folder_cannot_write_to_a_dashboard(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    before = os.umask(0o002)
    try:
        kept(tmp_path / "board", folder(3))
        after = os.umask(0o002)
    finally:
        os.umask(before)
    assert after == 0o002
    folders = [tmp_path / "board", *(path for path in (tmp_path / "board").rglob("*") if path.is_dir())]
    assert len(folders) == 4
    assert [path for path in folders if path.stat().st_mode & 0o022] == []
    assert stat.S_IMODE((tmp_path / "board" / STATE).stat().st_mode) & 0o777 == 0o700


@pytest.mark.parametrize("link", [STATE, f"{STATE}/{LOCK}", "runs", "series", NAME, ".unfinished"])
def test_no_update_follows_a_link_of_the_group(tmp_path: Path, link: str) -> None:
    board, mine = tmp_path / "board", tmp_path / "mine"
    kept(board, folder(3), folder(1, "runs/old"))
    for path in (board, *board.rglob("*")):
        path.chmod(0o2775 if path.is_dir() else 0o664)
    (mine / "a line").mkdir(parents=True)
    for name in ("a file", LOCK, "a line/thesis.tex"):
        (mine / name).write_text("before")
    (mine / "a line" / "link").symlink_to("thesis.tex")
    held = sorted(mine.rglob("*"))
    if (board / link).is_dir():
        (board / link).rename(tmp_path / "old")
    (board / link).unlink(missing_ok=True)
    (board / link).symlink_to(mine / "a file" if link.endswith((LOCK, ".unfinished")) else mine)
    kept(board, folder(4), folder(1, "."))
    assert line(board) == up_to(4)
    assert sorted(mine.rglob("*")) == held
    assert {path.read_text() for path in held if path.is_file()} == {"before"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folders_of_a_member_of_the_group_are_made_again(tmp_path: Path) -> None:
    kept(tmp_path, folder(3))
    for path in (tmp_path / STATE, tmp_path / "series", tmp_path / NAME):
        os.chown(path, 65534, 65534)
    kept(tmp_path, folder(3))
    assert {path.stat().st_uid for path in (tmp_path / STATE, tmp_path / "series", tmp_path / NAME)} == {0}
    assert line(tmp_path) == up_to(3)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RequestError, match="not a dashboard") as refused, exclusive_update(tmp_path):
        pass
    assert "--dashboard_dir" in refused.value.next_command
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
