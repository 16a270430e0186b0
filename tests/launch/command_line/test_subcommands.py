"""Commands with several jobs: which module answers, what --help lists, and the spellings of version 0.8."""

import json
import shlex
from pathlib import Path

import pytest

from launch import doctor, plan, report
from launch.command_line.subcommands import Subcommands
from tests import forked

REPOSITORY = Path(__file__).resolve().parents[3]
COMMANDS = [report.SUBCOMMANDS, doctor.SUBCOMMANDS, plan.SUBCOMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=[command.command for command in COMMANDS])
def test_the_help_lists_each_subcommand_and_each_shows_its_own_flags(command: Subcommands) -> None:
    script = REPOSITORY / f"launch/{command.command}.py"
    done = forked.run(script, "--help")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.partition("Subcommands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed[: len(command.names)]] == list(command.names)
    for name in command.names:
        own = forked.run(script, name, "--help")
        assert (own.returncode, own.stderr) == (0, "")
        assert f"python launch/{command.command}.py {name}" in own.stdout  # an example
        assert "\nFlags:\n  --" in own.stdout


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("report", "'--runs=a b' --where=x=1", "runs 'a b' --where=x=1"),
        ("report", "--runs=R --archive=F --where=x=1", "archive F --runs=R --where=x=1"),
        ("report", "--html F RUN", "html F RUN"),
        ("report", "--mlperf=DIR --ruleset=5.1.0", "mlperf DIR --ruleset=5.1.0"),
        ("report", "--sweep=S.json", "scaling S.json"),
        ("doctor", "--xla_flags=--a=b", "flags --a=b"),
        ("doctor", "--site=NAME --nodes=2", "nodes --site=NAME --nodes=2"),
        ("plan", "--backend=jax --layouts --top=2", "layouts --backend=jax --top=2"),
        ("plan", "--calibration --write", "calibration --write"),
        ("plan", "--mlperf_config=F --mlperf_benchmark=N", "mlperf F --mlperf_benchmark=N"),
    ],
)
def test_an_old_spelling_works_and_prints_the_new_one(
    command: str, old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (subcommands,) = [one for one in COMMANDS if one.command == command]
    assert shlex.join(subcommands.with_name("COMMAND", shlex.split(old))) == new
    assert capsys.readouterr().err.endswith(f" is now: COMMAND {new}\n")


@pytest.mark.parametrize(
    ("command", "words", "name"),
    [
        (report, ["DIR"], "timing"),
        (report, ["--trace"], "timing"),
        (doctor, [], "machine"),
        (doctor, ["--json"], "machine"),
        (doctor, ["--json", "a.log"], "logs"),
        (plan, ["--backend=jax"], "estimate"),
    ],
)
def test_what_answers_where_no_subcommand_is_named(command: object, words: list[str], name: str) -> None:
    assert command.SUBCOMMANDS.with_name("", words) == [name, *words]  # type: ignore[attr-defined]


def test_an_unknown_flag_names_the_nearest_of_its_subcommand(tmp_path: Path) -> None:
    done = forked.run(REPOSITORY / "launch/report.py", "runs", "--newst=1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'newest'?" in done.stderr
    assert "report.py runs --newest=1" in done.stderr


def test_a_misspelt_subcommand_is_no_file_of_the_default_one() -> None:
    done = forked.run(REPOSITORY / "launch/report.py", "rns", "a b")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("report.py runs 'a b'")
    as_json = forked.run(REPOSITORY / "launch/report.py", "rns", "--json")
    assert json.loads(as_json.stdout)["error"]["next"].endswith("report.py runs --json")
