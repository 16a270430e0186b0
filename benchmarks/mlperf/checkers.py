"""What the package's checkers say, read from their text: two of them exit with 0 whatever they found. Pure."""

import re
from typing import Literal

from benchmarks.values import Value

Checker = Literal["compliance_checker", "rcp_checker", "package_checker", "system_desc_checker"]
# What a checker prints last, when it is content and when it is not.
PASSES: dict[Checker, str] = {
    "compliance_checker": r"^INFO - SUCCESS\s*$",
    "rcp_checker": r"^INFO - .*RCP test PASSED",
    "package_checker": r"PACKAGE CHECKER FOUND NO ERRORS, SUCCESS",
    "system_desc_checker": r"System description checker passed for",
}
FAILS: dict[Checker, str] = {
    "compliance_checker": r"^ERROR - FAILED",
    "rcp_checker": r"RCP test FAILED",
    "package_checker": r"PACKAGE CHECKER FOUND ERRORS",
    "system_desc_checker": r"System description checker failed for",
}
SAID = re.compile(r"^(?:WARNING|ERROR) -\s+(.*)$")
FACTOR = re.compile(r"Score should be normalized by factor of [\d.]+ / [\d.]+ = ([\d.]+)")
MEAN = re.compile(r"Submission mean epochs: (nan|[\d.]+)")
LONGEST = 300
MOST = 12


class CheckerResult(Value, frozen=True):
    """One checker's judgement of one file or folder."""

    checker: Checker
    passed: bool
    complaints: list[str]  # warnings and errors, shortened; the last line of a crash
    factor: float | None = None  # by which rcp_checker has the score multiplied, where it converged too fast
    not_a_number: bool = False  # rcp_checker's mean: too few runs


def read_text(checker: Checker, text: str) -> CheckerResult:
    """A checker passes where it says so, and nowhere says the contrary, and does not crash."""
    crashed = "Traceback (most recent call last)" in text
    good = re.search(PASSES[checker], text, re.MULTILINE) is not None
    bad = re.search(FAILS[checker], text, re.MULTILINE) is not None
    factor, mean = FACTOR.search(text), MEAN.findall(text)
    complaints = _complaints(text)
    if crashed:
        complaints.append(f"it crashed: {_last_line(text)}")
    elif not good and not bad:
        complaints.append("it ended without a verdict")
    return CheckerResult(
        checker=checker,
        passed=good and not bad and not crashed,
        complaints=complaints[:MOST] + ([f"and {len(complaints) - MOST} more"] if len(complaints) > MOST else []),
        factor=float(factor[1]) if factor else None,
        not_a_number="nan" in mean,
    )


def _complaints(text: str) -> list[str]:
    """The checker puts all complaints of a file into one message, with lines of dashes between them."""
    found: list[str] = []
    first_of_one = False
    for written in text.splitlines():
        said = SAID.match(written)
        first_of_one = first_of_one or said is not None
        line = said[1] if said is not None else written
        if set(line.strip()) == {"-"}:
            first_of_one = True
        elif first_of_one and line.strip():
            found.append(_short(line.strip()))
            first_of_one = False
        elif found and line.startswith("failed test:"):
            found[-1] = _short(f"{found[-1]} {line}")
    return [one for one in dict.fromkeys(found) if one not in ("FAILED",)]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "INFO"))]
    return _short(lines[-1]) if lines else "without a word"
