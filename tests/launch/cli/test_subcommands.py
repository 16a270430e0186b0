"""Commands with several jobs: what --help lists, and that each subcommand has its own flags."""

from pathlib import Path

import pytest

from tests import forked

LAUNCH = Path(__file__).resolve().parents[3] / "launch"


def subcommands(command: str) -> list[str]:
    done = forked.run(LAUNCH / f"{command}.py", "--help")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.partition("Subcommands:\n")[2].partition("\n\n")[0].splitlines()
    return [line.split()[0] for line in listed]


@pytest.mark.parametrize("command", ["report", "doctor", "plan"])
def test_the_help_lists_each_subcommand_and_each_shows_its_own_flags(command: str) -> None:
    names = subcommands(command)
    assert len(names) >= 3
    for name in names:
        own = forked.run(LAUNCH / f"{command}.py", name, "--help")
        assert (own.returncode, own.stderr) == (0, "")
        assert f"python launch/{command}.py {name}" in own.stdout  # an example
        assert "\nFlags:\n  --" in own.stdout
