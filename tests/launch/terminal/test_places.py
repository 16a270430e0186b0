"""Links and folders with which another user could replace a file of this user."""

import os
from pathlib import Path

import pytest

from benchmarks.errors import RequestError
from launch.terminal import places

OTHER = 65534


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "real/home"
    (home / "sites").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "link/home"))
    places.configs()
    assert places.exposed(tmp_path / "link/home") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.usefixtures("home")
def test_a_link_of_another_user_on_the_way_is_found(tmp_path: Path) -> None:
    os.chown(tmp_path / "link", OTHER, OTHER, follow_symlinks=False)
    assert places.exposed_parents(tmp_path / "link/home") == [tmp_path / "link"]
    with pytest.raises(RequestError, match="your sites"):
        places.configs()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("place", ["real", "real/home", "real/home/sites"])
def test_sites_that_others_can_write_are_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / place).chmod(0o777)
    with pytest.raises(RequestError, match="your sites"):
        places.configs()


def test_in_a_sticky_folder_only_a_missing_file_is_open_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert places.exposed(tmp_path / "slurm.conf") == [tmp_path]
    (tmp_path / "slurm.conf").touch()
    assert places.exposed(tmp_path / "slurm.conf") == []
    (tmp_path / "slurm.conf").chmod(0o666)
    assert places.exposed(tmp_path / "slurm.conf") == [tmp_path / "slurm.conf"]
