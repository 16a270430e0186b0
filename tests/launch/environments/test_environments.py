"""Environments made for real, reused, raced for, killed half way."""

import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError, RunError
from launch.campaigns import scheduler
from launch.environments import venvs

Tiny = Any  # the fixture of conftest.py
Hide = Callable[[str], None]
Capture = pytest.CaptureFixture[str]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # A zombie that is not reaped yet is not alive.
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


# --- making and reuse -------------------------------------------------------------------------


@pytest.mark.slow
def test_made_once_reused_at_once_and_made_again_when_not_whole(tiny: Tiny, capsys: Capture) -> None:
    spec = tiny.spec()
    assert venvs.python_of(spec) is None
    python = venvs.ensure(spec)
    printed = capsys.readouterr().err.splitlines()
    assert python == venvs.python_of(spec)
    assert tiny.path(spec) == python.parents[1]
    assert len(tiny.imports()) == 1
    assert any("installing" in line for line in printed), printed
    assert len(printed) < 10
    marker = json.loads((python.parents[1] / venvs.MARKER).read_text())
    assert marker["lock_sha256"] == hashlib.sha256(tiny.lock_file.read_bytes()).hexdigest()

    took = []
    for _ in range(5):
        started = time.process_time()  # the clock on the wall is that of a busy machine
        assert venvs.ensure(spec) == python
        took.append(time.process_time() - started)
    assert min(took) < 0.01
    assert len(tiny.imports()) == 1

    (python.parents[1] / venvs.MARKER).unlink()
    assert venvs.python_of(spec) is None
    assert venvs.ensure(spec) == python
    assert "removing an incomplete" in capsys.readouterr().err
    assert len(tiny.imports()) == 2


@pytest.mark.slow
def test_changed_lock_file_makes_a_new_environment_and_keeps_the_old(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Settings that some machines and container images have, and that must not hold here.
    (tiny.place / "constraint.txt").write_text("tiny==0.1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tiny.place / "constraint.txt"))
    monkeypatch.setenv("UV_CONSTRAINT", str(tiny.place / "constraint.txt"))
    monkeypatch.setenv("UV_EXCLUDE_NEWER", "2001-01-01")
    monkeypatch.setenv("PIP_TARGET", str(tiny.place / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    old = venvs.ensure(tiny.spec("1.0"))
    new = venvs.ensure(tiny.spec("2.0"))
    assert old != new
    assert old.exists()
    assert list(new.parents[1].glob("lib/*/site-packages/tiny-2.0.dist-info"))


@pytest.mark.slow
def test_two_processes_at_the_same_time_make_it_once(tiny: Tiny) -> None:
    tiny.spec()
    both = [tiny.start_ensure(TINY_SECONDS="1") for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert len(tiny.imports()) == 1
    errors = outputs[0][1] + outputs[1][1]
    assert "which creates it" in errors
    assert "the other process has created it" in errors


@pytest.mark.slow
def test_killed_in_the_middle_is_never_whole_and_is_made_again(tiny: Tiny, capsys: Capture) -> None:
    spec = tiny.spec()
    process = tiny.start_ensure(TINY_SECONDS="2")
    orphan = tiny.wait_for_import()
    process.kill()
    process.communicate()
    assert is_alive(orphan)
    assert venvs.python_of(spec) is None
    venvs.ensure(spec)
    printed = capsys.readouterr().err
    # The program that outlived its maker could still write: it was waited for.
    assert not is_alive(orphan)
    assert f"process {process.pid}, which creates it" in printed
    assert "removing an incomplete" in printed
    assert venvs.python_of(spec) is not None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_programs_and_leaves_no_environment(tiny: Tiny, number: signal.Signals) -> None:
    spec = tiny.spec()
    process = tiny.start_ensure(TINY_SECONDS="60")
    import_check = tiny.wait_for_import()
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert not is_alive(import_check)
    assert not tiny.path(spec).exists()


# --- the choice of a lock file ----------------------------------------------------------------

NOT_THERE = "tiny==1.0+special"


def used(spec: EnvironmentSpec, python: Path) -> str | None:
    return venvs.origin(spec, python)["lock_file"]


def test_preferred_lock_file_is_used_where_pip_offers_what_it_needs(tiny: Tiny, capsys: Capture) -> None:
    spec = tiny.prefer(tiny.spec(), offered="tiny==1.0")
    python = venvs.ensure(spec)
    printed = capsys.readouterr().err.splitlines()
    assert venvs.origin(spec, python) == {
        "name": spec.name,
        "lock_file": "preferred.lock",
        "lock_sha256": hashlib.sha256((tiny.place / "preferred.lock").read_bytes()).hexdigest(),
    }
    assert "making it from preferred.lock" in printed[0]
    assert "about 0.01 GB" in printed[0]


def test_lock_file_is_passed_over_where_pip_does_not_offer_what_it_needs(tiny: Tiny, capsys: Capture) -> None:
    spec = tiny.prefer(tiny.spec(), offered=NOT_THERE)
    python = venvs.ensure(spec)
    printed = capsys.readouterr().err.splitlines()
    assert used(spec, python) == "requirements.lock"
    version = ".".join(map(str, tiny.python_version))
    why_not = f"pip's settings do not offer {NOT_THERE} for Python {version}"
    assert f"environment 'tiny-env': not created from preferred.lock (0.01 GB): {why_not}" in printed
    assert not tiny.path(spec).exists()
    # From now on it is reused, and pip is not asked again.
    assert venvs.ensure(spec) == python
    assert capsys.readouterr().err == ""


def test_network_that_is_down_is_not_taken_for_an_answer(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    spec = tiny.prefer(tiny.spec(), offered=NOT_THERE)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(RunError, match="uv failed"):
        venvs.ensure(spec)
    assert "not created from" not in capsys.readouterr().err
    assert not tiny.path(spec).exists()


def test_no_lock_file_fits(tiny: Tiny, no_python_but: Hide, monkeypatch: pytest.MonkeyPatch) -> None:
    base = sys.base_prefix
    no_python_but("")
    monkeypatch.setattr(sys, "base_prefix", base)
    both = tiny.prefer(tiny.spec(), offered=NOT_THERE)
    preferred, plain = both.locks
    with pytest.raises(RequestError, match="pip's settings do not offer") as unoffered:
        venvs.ensure(EnvironmentSpec("tiny-env", (preferred,), "tiny"))
    assert NOT_THERE in str(unoffered.value)
    elsewhere = msgspec.structs.replace(plain, python_minimum=(3, 98), python_maximum=(3, 99))
    # The way out is the Python of the lock file that is not ruled out.
    with pytest.raises(RequestError, match=r"found no Python 3\.98 to 3\.99") as without:
        venvs.ensure(EnvironmentSpec("tiny-env", (preferred, elsewhere), "tiny"))
    assert "-m uv python install 3.98" in without.value.next_command


# --- another user may have changed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "writer"),
    [
        *itertools.product(["parent", "home", "environment", "bin", "packages"], ["others", "owner"]),
        ("python", "owner"),
    ],
)
def test_what_another_user_can_write_is_never_started(
    place: str, writer: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if writer == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    spec = tiny.spec()
    home = tmp_path / "parent" / "home"
    monkeypatch.setenv("STEPMARK_HOME", str(home))
    path = venvs.environment_path(spec, spec.locks[0], spec.locks[0].python_minimum)
    places = {"parent": home.parent, "home": home, "environment": path, "bin": path / "bin"}
    places |= {"packages": path / "lib/python3.12/site-packages", "python": path / "bin/python"}
    for folder in (places["bin"], places["packages"]):
        folder.mkdir(parents=True)
    (path / "bin/python").symlink_to(sys.executable)
    (path / venvs.MARKER).write_text("{}")
    assert venvs.python_of(spec) == path / "bin/python"
    folder = places[place]
    if writer == "owner":
        os.chown(folder, 65534, 65534, follow_symlinks=False)
    else:
        folder.chmod(0o777)
    with pytest.raises(RequestError, match="another user may have changed") as caught:
        venvs.ensure(spec)
    assert str(folder) in (caught.value.where or "") + caught.value.why


def test_no_lock_is_written_through_a_link(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STEPMARK_HOME", str(tmp_path / "home"))
    mine = tmp_path / "mine"
    mine.write_text("before")
    locks = [venvs.environments_root() / "tiny-env.making", tmp_path / "results" / ".sweep-x.lock"]
    for lock in locks:
        lock.parent.mkdir(parents=True)
        lock.symlink_to(mine)
    with pytest.raises(RequestError, match="is not writable"):
        venvs.ensure(tiny.spec())
    with pytest.raises(RequestError, match="is not writable"), scheduler.exclusive_lock(locks[1], "sweep"):
        pass
    assert mine.read_text() == "before"


# --- failures to make one ---------------------------------------------------------------------


def test_root_that_cannot_be_written(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.spec()
    (tiny.place / "file").write_text("not a folder")
    monkeypatch.setenv("STEPMARK_HOME", str(tiny.place / "file"))
    with pytest.raises(RequestError, match="is not writable") as caught:
        venvs.ensure(spec)
    assert "export STEPMARK_HOME=" in caught.value.next_command


def test_disk_too_full(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.spec()
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=20_000_000))
    with pytest.raises(RequestError, match="the disk has too little space") as caught:
        venvs.ensure(spec)
    assert caught.value.why.startswith("it needs about 0.05 GB, and 0.0 GB")
