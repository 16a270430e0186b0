"""Read the results of mlperf-logging's checkers from their output, because two checkers always exit with 0."""

import re
from typing import Literal

from benchmarks.values import Value

Checker = Literal["compliance_checker", "rcp_checker", "seed_checker"]
# Checker -> the pattern of the line that reports success, and of the line that reports failure.
VERDICTS: dict[Checker, tuple[str, str]] = {
    "compliance_checker": (r"^INFO - SUCCESS\s*$", r"^ERROR - FAILED"),
    "rcp_checker": (r"^INFO - .*RCP test PASSED", r"RCP test FAILED"),
    "seed_checker": (r"^INFO - seeds PASSED", r"^ERROR - seeds FAILED"),
}
MESSAGE = re.compile(r"^(?:WARNING|ERROR) -\s+(.*)$")
FACTOR = re.compile(r"Score should be normalized by factor of [\d.]+ / [\d.]+ = ([\d.]+)")
LONGEST = 300
MOST = 12


class CheckerResult(Value, frozen=True):
    """The result of one checker for one file or folder."""

    checker: Checker
    passed: bool
    complaints: list[str]  # shortened warnings and errors; after a crash, also the last line of the output
    factor: float | None = None  # rcp_checker multiplies the score by this if the run converged too fast

    def text(self) -> str:
        complaints = f": {'; '.join(self.complaints)}" if self.complaints else ""
        factor = f"; rcp_checker multiplies the score by {self.factor:.4f}" if self.factor else ""
        return ("SUCCESS" if self.passed else "FAILED") + complaints + factor


def read_text(checker: Checker, text: str) -> CheckerResult:
    """Return a checker's result. It passes if the output reports success, reports no failure, and shows no crash."""
    crashed = "Traceback (most recent call last)" in text
    good, bad = (re.search(pattern, text, re.MULTILINE) is not None for pattern in VERDICTS[checker])
    complaints = _complaints(text)
    if crashed:
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "INFO"))]
        complaints.append(f"the checker crashed: {_short(lines[-1])}")
    elif not good and not bad:
        complaints.append("the checker ended without a verdict")
    more = [f"and {len(complaints) - MOST} more"] if len(complaints) > MOST else []
    factor = FACTOR.search(text)
    return CheckerResult(
        checker, good and not bad and not crashed, complaints[:MOST] + more, float(factor[1]) if factor else None
    )


def _complaints(text: str) -> list[str]:
    """Return the complaints. A checker prints all complaints about a file in one message, separated by dashes."""
    found: list[str] = []
    first_of_one = False
    for written in text.splitlines():
        message = MESSAGE.match(written)
        first_of_one = first_of_one or message is not None
        line = message[1] if message is not None else written
        if set(line.strip()) == {"-"}:
            first_of_one = True
        elif first_of_one and line.strip():
            found.append(_short(line.strip()))
            first_of_one = False
        elif found and line.startswith("failed test:"):
            found[-1] = _short(f"{found[-1]} {line}")
    return [one for one in dict.fromkeys(found) if one != "FAILED"]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
