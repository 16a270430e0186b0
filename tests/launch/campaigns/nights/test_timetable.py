"""--print: what starts a night where nobody types works as it is pasted, and holds no secret."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.errors import RequestError
from launch.campaigns.nights import timetable
from launch.campaigns.nights.timetable import KINDS, Timetable, time_of, timetable_text

PATH = {"PATH": "/usr/bin:/bin"}


def table(folder: Path, *words: str) -> Timetable:
    return Timetable("smoke", 2, 30, ["--suite=smoke", f"--output_dir={folder}", *words], folder)


def test_a_line_of_cron_runs_the_night_in_a_bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder has a space, a % and a quote in its name."""
    launcher = tmp_path / "launcher.py"
    launcher.write_text("import os, sys; print(sys.argv[1:], os.environ.get('STEPMARK_HOME'))")
    monkeypatch.setattr(timetable, "LAUNCHER", launcher)
    folder = tmp_path / "o'clock 5%"
    line = timetable_text("cron", table(folder), {**PATH, "STEPMARK_HOME": "/home/x"})
    minute, hour, *_, command = line.split(" ", 5)
    assert (minute, hour) == ("30", "2")
    assert "%" not in command.replace(r"\%", "")
    subprocess.run(["env", "-i", "/bin/sh", "-c", command.replace(r"\%", "%")], check=True)
    log = (folder / "nights/smoke/launcher.log").read_text()
    assert log == f"{['--suite=smoke', f'--output_dir={folder}']} /home/x\n"


def test_a_scrontab_says_what_its_job_needs(tmp_path: Path) -> None:
    *options, line = timetable_text("scrontab", table(tmp_path), PATH).splitlines()
    assert [option.split()[0] for option in options] == ["#SCRON"] * 5
    assert line.startswith("30 2 * * * ")


def test_systemd_gets_a_service_and_a_timer(tmp_path: Path) -> None:
    text = timetable_text("systemd", table(tmp_path / "5%$x"), PATH)
    assert "OnCalendar=*-*-* 02:30:00" in text
    (started,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    shell, flag, command = shlex.split(started.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    assert (shell, flag) == ("/bin/sh", "-c")
    assert f"--output_dir={tmp_path}/5%$x" in shlex.split(command)


def test_a_workflow_is_yaml_and_runs_the_suite(tmp_path: Path) -> None:
    found = yaml.load(timetable_text("github", table(tmp_path, "--max_reruns=3"), PATH), Loader=yaml.BaseLoader)
    assert found["on"]["schedule"] == [{"cron": "30 2 * * *"}]
    (run,) = [step["run"] for step in found["jobs"]["night"]["steps"] if "nightly.py" in step.get("run", "")]
    words = shlex.split(run)[2:]
    assert words == ["--suite=smoke", "--max_reruns=3", "--output_dir=results", f"--junit={timetable.JUNIT}"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_left_out(tmp_path: Path, kind: str) -> None:
    text = timetable_text(kind, table(tmp_path), {**PATH, "PIP_FIND_LINKS": "https://me:hunter2@index/x"})
    assert "hunter2" not in text
    assert ("$PIP_FIND_LINKS is left out" in text) == (kind != "github")


def test_a_line_that_cron_would_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cron cuts it"):
        timetable_text("cron", table(tmp_path), {"PATH": ":".join(["/a/long/folder"] * 100)})


@pytest.mark.parametrize("text", ["24:00", "2:60", "2", "-1:00", "02:30:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    assert time_of("2:05") == (2, 5)
    with pytest.raises(RequestError, match="HH:MM"):
        time_of(text)


def test_nightly_prints_it(tmp_path: Path) -> None:
    program = [sys.executable, str(timetable.LAUNCHER), "--suite=smoke", "--print=cron", "--at=3:07"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("7 3 * * * ")
    assert list(tmp_path.iterdir()) == []
