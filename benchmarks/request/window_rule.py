"""The rules that say which steps of a run count. measuring/window.py applies them.

`steady` is the uniform rule, the same for every backend. `last` and `A-B` are the rules of published recipes, kept so
that their tables can be reproduced.
"""

import re

from benchmarks.errors import RequestError, UnknownName

STEADY = "steady"
LAST = "last"

# For `steady`: step times have settled once the medians of two successive bins agree, or after the limit.
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
            f"window rule '{rule}' has no steps",
            where="--window",
            why="its first step comes after its last",
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
    """The last step number an A-B rule asks for; None for rules that take what the run has."""
    check_rule(rule)
    wanted = step_range(rule)
    return wanted[-1] if wanted else None


def step_range(rule: str) -> range | None:
    """The steps that an A-B rule counts; None for the other rules."""
    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", rule)
    return range(int(match[1]), int(match[2]) + 1) if match else None
