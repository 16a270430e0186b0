"""Timetables: idempotent, absolute, quoted, without secrets; with stand-ins for crontab, scrontab and systemctl."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.errors import RequestError
from launch.campaigns.nights.installing import Timetable, script_text, time_of, with_block
from launch.campaigns.nights.systemd import _word
from tests import forked
from tests.launch.campaigns.nights.toy_suite import REPOSITORY, naps_in

# Keeps the table in a file, as crontab and scrontab keep it in their spool.
STAND_IN = """#!/bin/sh
table="$STAND_IN_DIR/$(basename "$0").table"
case "$1" in
  -l) [ -f "$table" ] && cat "$table" || { echo "no crontab for you" >&2; exit 1; } ;;
  -)  cat > "$table"; echo written >> "$table.writes" ;;
esac
"""
KINDS = ("cron", "scrontab")
PROGRAM = {"cron": "crontab", "scrontab": "scrontab"}


class Installer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "a home with 100% blanks"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.home.mkdir()
        for name in PROGRAM.values():
            (self.bin / name).write_text(STAND_IN)
            (self.bin / name).chmod(0o755)

    def call(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            "PATH": f"{self.bin}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.home),
            "STEPMARK_HOME": str(self.home / "stepmark"),
            "STAND_IN_DIR": str(self.folder),
            "HF_TOKEN": "hf_a-token-that-must-not-be-written",
            **variables,
        }
        words = ("--suite=smoke", f"--output_dir={self.home / 'results'}", *words)
        done = forked.run(REPOSITORY / "launch/nightly.py", *words, env=environment, cwd=self.folder)
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def table(self, kind: str) -> str:
        path = self.folder / f"{PROGRAM[kind]}.table"
        return path.read_text() if path.exists() else ""

    def writes(self, kind: str) -> int:
        path = self.folder / f"{PROGRAM[kind]}.table.writes"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def script(self, kind: str = "cron") -> Path:
        return self.home / f"stepmark/nights/smoke.{kind}.sh"


@pytest.fixture
def installer(tmp_path: Path) -> Installer:
    return Installer(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_installation_changes_nothing_and_another_time_replaces(installer: Installer, kind: str) -> None:
    (installer.folder / f"{PROGRAM[kind]}.table").write_text("# mine\n5 4 * * * /bin/true\n")
    first = installer.call(f"--install={kind}", "--at=02:30")
    assert first.returncode == 0, first.stderr
    table = installer.table(kind)
    assert table.startswith("# mine\n5 4 * * * /bin/true\n# stepmark nightly smoke: begin\n")
    assert "\n30 2 * * * " in table
    assert installer.script(kind).name in first.stdout
    assert f"--uninstall={kind}" in first.stdout
    again = installer.call(f"--install={kind}", "--at=02:30")
    assert again.stdout.count("is as it should be") == 2
    assert installer.table(kind) == table
    assert installer.writes(kind) == 1
    installer.call(f"--install={kind}", "--at=23:05")
    assert "\n5 23 * * * " in installer.table(kind)
    assert "30 2 * * *" not in installer.table(kind)
    assert installer.table(kind).count("stepmark nightly smoke: begin") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_removed_it_leaves_the_table_as_it_was(installer: Installer, kind: str) -> None:
    mine = "# mine\n5 4 * * * /bin/true\n"
    (installer.folder / f"{PROGRAM[kind]}.table").write_text(mine)
    installer.call(f"--install={kind}")
    assert installer.script(kind).exists()
    done = installer.call(f"--uninstall={kind}")
    assert done.stdout.count(": removed") == 2
    assert installer.table(kind) == mine
    assert not installer.script(kind).exists()
    assert "was not there" in installer.call(f"--uninstall={kind}").stdout


@pytest.mark.parametrize("kind", [*KINDS, "systemd"])
def test_print_only_writes_nothing(installer: Installer, kind: str) -> None:
    done = installer.call(f"--install={kind}", "--print_only")
    assert done.returncode == 0
    assert "would be made" in done.stdout
    assert "exec " in done.stdout
    assert installer.writes("cron") == installer.writes("scrontab") == 0
    assert not installer.script(kind).exists()
    assert not (installer.home / ".config").exists()


def test_a_scrontab_says_what_its_job_needs(installer: Installer) -> None:
    installer.call("--install=scrontab")
    lines = [line for line in installer.table("scrontab").splitlines() if line.startswith("#SCRON ")]
    assert "#SCRON --job-name=stepmark-smoke" in lines
    assert any("--time=" in line for line in lines)


def test_no_token_and_no_webhook_is_ever_written(installer: Installer) -> None:
    refused = installer.call("--install=cron", "--webhook=https://hooks.example/secret-part")
    assert refused.returncode == 2
    assert "--webhook_file=FILE" in refused.stderr
    address = "https://hooks.example/secret-part"
    index = "https://me:s3cr3t@host/simple"
    done = installer.call("--install=cron", STEPMARK_WEBHOOK=address, PIP_FIND_LINKS=index)
    assert done.returncode == 0, done.stderr
    assert "$STEPMARK_WEBHOOK is not carried, it is a secret; to have the nights posted: --webhook_file=FILE" in (
        done.stdout
    )
    assert "$PIP_FIND_LINKS is not carried" in done.stdout
    everything = "".join(path.read_text() for path in installer.folder.rglob("*") if path.is_file())
    for secret in ("secret-part", "hf_a-token", "s3cr3t"):
        assert secret not in everything + done.stdout


def test_the_file_with_the_address_is_looked_at(installer: Installer) -> None:
    mine = installer.folder / "mine"
    refused = installer.call("--install=cron", "--webhook_file=mine")
    assert refused.returncode == 2
    assert "cannot be read" in refused.stderr
    mine.write_text(" \n")
    assert "is empty" in installer.call("--install=cron", "--webhook_file=mine").stderr
    mine.write_text("https://hooks.example/secret-part\n")
    done = installer.call("--install=cron", "--webhook_file=mine", STEPMARK_WEBHOOK="https://other.example/x")
    assert done.returncode == 0, done.stderr
    assert "not carried" not in done.stdout
    assert f"--webhook_file={mine}" in installer.script().read_text()
    assert "secret-part" not in done.stdout + installer.script().read_text()
    assert installer.call("--install=github", "--webhook_file=mine").returncode == 2


def test_what_was_said_of_the_nights_is_installed_or_refused(installer: Installer) -> None:
    assert installer.call("--install=cron", "--sweep=no", "--noresume", "--max_reruns=3").returncode == 0
    for word in ("--sweep=no", "--noresume", "--max_reruns=3"):
        assert f" {word}" in installer.script().read_text()
    for word in ("--inject_slowdown=0.5", "--history=/nowhere", "--max_reruns=1"):
        assert installer.call("--install=cron", word).returncode == 2


def test_one_kind_is_removed_without_the_other(installer: Installer) -> None:
    installer.call("--install=cron")
    installer.call("--install=systemd")
    installer.call("--uninstall=cron")
    assert not installer.script("cron").exists()
    assert installer.script("systemd").exists()
    (service,) = units(installer).glob("*.service")
    assert "smoke.systemd.sh" in service.read_text()


def test_a_table_that_somebody_has_spoilt_is_left_alone(installer: Installer) -> None:
    spoilt = "# stepmark nightly smoke: begin\n30 2 * * * x\n"
    (installer.folder / "crontab.table").write_text(spoilt)
    assert installer.call("--install=cron").returncode == 2
    assert installer.table("cron") == spoilt


def test_without_the_program_it_is_said(installer: Installer) -> None:
    for name in PROGRAM.values():
        (installer.bin / name).unlink()
    if shutil.which("scrontab", path="/usr/bin:/bin"):
        pytest.skip("this machine has one")
    done = installer.call("--install=scrontab")
    assert done.returncode == 2
    assert "there is no scrontab on this machine" in done.stderr


@pytest.mark.slow
def test_the_entry_works_in_the_bare_environment_of_cron(tmp_path: Path) -> None:
    """Blanks, quotes and % in names; no PATH to speak of; another folder to start in."""
    place = tmp_path / "it's 100% bare"
    place.mkdir()
    naps = naps_in(place)
    stand_ins = Installer(tmp_path)
    path = f"{stand_ins.bin}:{os.environ['PATH']}"
    done = naps.night("--install=cron", PATH=path, STAND_IN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    line = stand_ins.table("cron").splitlines()[1]
    _, _, command = line.partition("* * * ")
    # As cron does it: an unescaped % would end the line, \% is a %.
    assert "%" not in command.replace(r"\%", "")
    ran = subprocess.run(
        ["/bin/sh", "-c", command.replace(r"\%", "%")],
        env={"HOME": str(place), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "me"},
        capture_output=True, text=True, check=False, timeout=120, cwd="/",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ran.stderr == ""
    assert naps.last()["verdict"] == "inconclusive"
    assert "could not see" in (naps.nights / "launcher.log").read_text()


# --- systemd ------------------------------------------------------------------------------------------


def units(installer: Installer) -> Path:
    return installer.home / ".config/systemd/user"


def test_systemd_gets_a_service_and_a_timer_and_without_it_what_to_type(installer: Installer) -> None:
    done = installer.call("--install=systemd", "--at=03:07")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in units(installer).iterdir())
    assert names == ["stepmark-nightly-smoke.service", "stepmark-nightly-smoke.timer"]
    assert "OnCalendar=*-*-* 03:07:00" in (units(installer) / names[1]).read_text()
    assert "100%% blanks" in (units(installer) / names[0]).read_text()
    assert "systemctl --user daemon-reload" in done.stdout or "is started" in done.stdout
    again = installer.call("--install=systemd", "--at=03:07")
    assert again.stdout.count("is as it should be") == 3
    installer.call("--uninstall=systemd")
    assert list(units(installer).iterdir()) == []


def test_systemctl_is_told_what_has_changed(installer: Installer) -> None:
    log = installer.folder / "told"
    (installer.bin / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> "{log}"\n')
    (installer.bin / "systemctl").chmod(0o755)
    installer.call("--install=systemd")
    timer = "stepmark-nightly-smoke.timer"
    wanted = ["--user daemon-reload", f"--user enable {timer}", f"--user restart {timer}"]
    assert log.read_text().splitlines() == wanted
    installer.call("--install=systemd")
    assert log.read_text().splitlines() == wanted
    installer.call("--uninstall=systemd")
    assert f"--user disable --now {timer}" in log.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_its_units(installer: Installer) -> None:
    installer.call("--install=systemd")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", *map(str, units(installer).iterdir())],
        env={**os.environ, "HOME": str(installer.home), "XDG_RUNTIME_DIR": str(installer.folder)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "stepmark" not in done.stderr, done.stderr


def test_a_path_is_one_word_to_systemd() -> None:
    assert _word('/a b/100%/"q"/$x') == '"/a b/100%%/\\"q\\"/$$x"'


# --- GitHub -------------------------------------------------------------------------------------------


def test_a_workflow_is_written_into_the_checkout_that_it_is_typed_in(installer: Installer) -> None:
    assert installer.call("--install=github").returncode == 2
    (installer.folder / ".git").mkdir()
    done = installer.call("--install=github", "--at=04:15")
    assert done.returncode == 0, done.stderr
    path = installer.folder / ".github/workflows/stepmark-smoke.yml"
    flow = yaml.safe_load(path.read_text())
    assert flow[True]["schedule"] == [{"cron": "15 4 * * *"}]  # YAML 1.1 reads on as true
    steps = flow["jobs"]["night"]["steps"]
    (night,) = (step for step in steps if "nightly.py" in step.get("run", ""))
    assert "--suite=smoke" in night["run"]
    assert "--junit=stepmark-junit.xml" in night["run"]
    assert str(installer.home) not in path.read_text()
    assert night["env"] == {"STEPMARK_WEBHOOK": "${{ secrets.STEPMARK_WEBHOOK }}"}
    assert "is as it should be" in installer.call("--install=github", "--at=04:15").stdout
    installer.call("--uninstall=github")
    assert not path.exists()


# --- pieces -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "found"), [("02:30", (2, 30)), ("9:05", (9, 5)), ("23:59", (23, 59))])
def test_times(text: str, found: tuple[int, int]) -> None:
    assert time_of(text) == found


@pytest.mark.parametrize("text", ["24:00", "12:60", "noon", "12", "-1:00", "12:5"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="HH:MM is expected"):
        time_of(text)


def test_a_block_keeps_its_place_and_those_of_other_suites() -> None:
    table = with_block(with_block("a\n", "one", ["x"]), "two", ["y"])
    changed = with_block(table, "one", ["z"])
    assert changed == table.replace("x\n", "z\n")
    assert with_block(with_block(changed, "one", []), "two", []) == "a\n"
    assert with_block("", "one", []) == ""
    assert with_block("no newline at the end", "one", []) == "no newline at the end\n"


def test_a_line_break_in_a_variable_is_refused(tmp_path: Path) -> None:
    table = Timetable("smoke", 2, 30, ["--suite=smoke"], tmp_path, "cron")
    assert "export TZ=UTC" in script_text(table, {"TZ": "UTC", "SECRET": "x"})
    assert "SECRET" not in script_text(table, {"SECRET": "x"})
    with pytest.raises(RequestError, match="line break"):
        script_text(table, {"PATH": "a\nb"})
