"""Links, files and folders with which another user could change what this user runs."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.errors import RequestError
from launch.terminal import places

OTHER = 65534


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "real/home"
    (home / "sites").mkdir(parents=True)
    (home / "sites/local.yml").write_bytes(Path("configs/sites/local.yml").read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "link/home"))
    places.configs().site("local")
    return tmp_path / "link/home/sites/local.yml"


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


def share(path: Path) -> None:
    os.chown(path, -1, next(group for group in (OTHER, *os.getgroups()) if group != os.getegid()))
    path.chmod(0o775)


def replace_by_a_link(path: Path) -> None:
    target = path.parents[2] / "target"
    path.replace(target)
    path.symlink_to(target)
    give_away(target)


@pytest.mark.parametrize(
    ("place", "spoil", "advice"),
    [
        ("link", give_away, "STEPMARK_HOME="),
        ("real", lambda path: path.chmod(0o777), "chmod go-w"),
        ("real/home", give_away, "STEPMARK_HOME="),
        ("real/home/sites", share, "chmod go-w"),
        ("real/home/sites", give_away, "STEPMARK_HOME="),
        ("real/home/sites/local.yml", lambda path: path.chmod(0o666), "chmod go-w"),
        ("real/home/sites/local.yml", share, "chmod go-w"),
        ("real/home/sites/local.yml", give_away, "rm"),
        ("real/home/sites/local.yml", replace_by_a_link, "rm"),
    ],
)
@pytest.mark.usefixtures("site")
def test_sites_that_another_user_could_have_changed_are_refused(
    place: str, spoil: Callable[[Path], None], advice: str, tmp_path: Path
) -> None:
    spoil(tmp_path / place)
    for read in (places.configs, lambda: places.own_place("sites", "local.yml")):
        with pytest.raises(RequestError, match="another user") as caught:
            read()
        assert advice in caught.value.next_command
        assert Path(caught.value.where).resolve() == (tmp_path / place).resolve()


def test_a_private_group_without_other_members_may_write(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    site.parent.chmod(0o775)
    answers = {(user, ()): False, (user, (user,)): False, (user, (user, "other")): True, ("team", ()): True}
    for (name, members), is_open in answers.items():
        group = grp.struct_group((name, "x", os.getegid(), list(members)))
        monkeypatch.setattr(grp, "getgrgid", lambda _number, group=group: group)
        assert (places.others_can_write(site.parent), bool(places.exposed(site))) == (is_open, is_open)


def test_in_a_sticky_folder_only_a_missing_file_is_open_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert places.exposed(tmp_path / "slurm.conf") == [tmp_path]
    (tmp_path / "slurm.conf").touch()
    assert places.exposed(tmp_path / "slurm.conf") == []
    (tmp_path / "slurm.conf").chmod(0o666)
    assert places.exposed(tmp_path / "slurm.conf") == [tmp_path / "slurm.conf"]
