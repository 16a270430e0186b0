"""Which round of MLPerf a log is of, from its date, its benchmark and the lines that it has. Pure."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from benchmarks.configs import read_yaml
from benchmarks.mlperf.run_log import LoggedRun
from benchmarks.values import Value

ROUNDS_FILE = Path("references") / "mlperf_rounds.yml"


class Round(Value, frozen=True):
    """When the results of a round were published."""

    ruleset: str
    published: date


class Rounds(Value, frozen=True):
    """configs/references/mlperf_rounds.yml"""

    date: str
    source: str
    rounds: list[Round]


class Rules(Value, frozen=True):
    """What tells one ruleset of the installed package from another."""

    name: str
    benchmarks: frozenset[str]
    required: frozenset[str]  # keys that every log must have


class Ruleset(Value, frozen=True):
    """The ruleset that a set of logs is judged by, and why by that."""

    name: str
    because: str


def read_rounds(root: Path) -> list[Round]:
    return read_yaml(root / ROUNDS_FILE, Rounds).rounds


def find_ruleset(runs: Sequence[LoggedRun], rules: Sequence[Rules], rounds: Sequence[Round]) -> Ruleset:
    """The round that was open when the last of the runs was made; `rules` and `rounds` are oldest first.

    A benchmark that the round lacks moves it to the next one that has it. A round whose new required keys are all
    absent gives way to the one before it: the code that ran was written for that.
    """
    made, name = _made(runs), runs[0].benchmark
    known = [one for one in rules if name in one.benchmarks] or list(rules)
    opened = next((one.ruleset for one in rounds if made is not None and made <= one.published), rules[-1].name)
    order = [one.name for one in rules]
    place = next((n for n, one in enumerate(known) if order.index(one.name) >= order.index(opened)), len(known) - 1)
    because = f"the logs are of {made}" if made else "the logs have no date"
    if known[place].name != opened:
        because += f", and {name} is not in {opened}"
    keys = {record.key for run in runs for record in run.records}
    while place > 0 and _all_absent(known[place].required - known[place - 1].required, keys):
        because += f", and have none of the lines that are new in {known[place].name}"
        place -= 1
    return Ruleset(known[place].name, because)


def of_one_round(own: Ruleset, newest: str, benchmark: str | None, rules: Sequence[Rules]) -> Ruleset:
    """A submission is of one round: older logs that it submits again are judged with its newest ones."""
    if own.name == newest or not any(one.name == newest and benchmark in one.benchmarks for one in rules):
        return own
    return Ruleset(newest, f"{own.because}, but others of this submission are later")


def _made(runs: Sequence[LoggedRun]) -> date | None:
    """The day of the last run, in UTC."""
    times = [run.start_ms for run in runs if run.start_ms] or [r.time_ms for run in runs for r in run.records]
    try:
        return datetime.fromtimestamp(max(times) / 1000, UTC).date()
    except (ValueError, OverflowError, OSError):
        return None


def _all_absent(new: Collection[str], keys: Collection[str]) -> bool:
    return bool(new) and not set(new) & set(keys)
