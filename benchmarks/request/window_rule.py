"""Defines the rules for which steps of a run are in the window. measuring/window.py applies them.

`steady` is the same rule for every backend. `last` and `A-B` are the rules of published recipes. They exist to
reproduce the tables of these recipes.
"""

import re

from benchmarks.errors import RequestError, UnknownName

STEADY = "steady"
LAST = "last"

# `steady` starts as soon as the medians of two successive intervals (bins) agree, or at the limit.
BIN_SECONDS = 15.0
AGREEMENT = 0.0025
LIMIT_SECONDS = 75.0


def check_rule(rule: str) -> None:
    """Refuse a window rule that does not exist."""
    if rule in (STEADY, LAST):
        return
    wanted = step_range(rule)
    if wanted is None:
        raise UnknownName(
            f"unknown window rule '{rule}'",
            rule,
            (STEADY, LAST),
            where="--window",
            why="you can also pass the first and the last step to count, such as 35-44",
            next_command=f"--window={STEADY}",
        )
    if not wanted:
        raise RequestError(
            f"window rule '{rule}' selects no steps",
            where="--window",
            why="the first step comes after the last",
        )


def describe_rule(rule: str) -> str:
    """Return a window rule in words."""
    check_rule(rule)
    if rule == STEADY:
        return (
            f"begins when two successive {BIN_SECONDS:g} s medians of the step time agree within {AGREEMENT:.2%}, or "
            f"after {LIMIT_SECONDS:g} s; excludes the first step (compilation) and, in logs of other programs, "
            "dispatch artefacts"
        )
    if rule == LAST:
        return "the last step with a time (a recipe's own rule)"
    return "steps {} to {}, both included (a recipe's own rule)".format(*rule.split("-"))


def last_step_wanted(rule: str) -> int | None:
    """Return the last step number that an A-B rule needs; None for rules without a fixed range."""
    check_rule(rule)
    wanted = step_range(rule)
    return wanted[-1] if wanted else None


def step_range(rule: str) -> range | None:
    """Return the steps of an A-B rule; None for the other rules."""
    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", rule)
    return range(int(match[1]), int(match[2]) + 1) if match else None
