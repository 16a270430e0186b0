"""Commands with several jobs: which module answers, what --help lists, and what a typo gets."""

from pathlib import Path

import pytest

from launch import doctor, plan, report
from launch.cli.subcommands import Subcommands
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
    assert command.SUBCOMMANDS.default(words) == name  # type: ignore[attr-defined]
