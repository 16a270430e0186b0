"""Errors of Stepmark: each carries what, where, why, and the command to run next.

Exit codes are a public contract: 1 the run failed, 2 the request was wrong and nothing
started, 3 it ran but the result is invalid.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

EXIT_VALID = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INVALID = 3
EXIT_INTERRUPTED = 130

EXIT_CODES = {"valid": EXIT_VALID, "failed": EXIT_FAILED, "invalid": EXIT_INVALID}  # of a result's status

LIST_COMMAND = "python launch/run.py --list"
SAME_COMMAND = "--"  # as a next_command: the typed command again

# Return the whole command for a next_command that is flags only. The launcher sets it: it knows what was typed.
complete: Callable[[str], str] = str


class StepmarkError(Exception):
    """An error that the user can act on. Launch scripts print it without a traceback."""

    exit_code = EXIT_FAILED

    def __init__(self, what: str, *, where: str = "", why: str = "", next_command: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next_command = complete(next_command) if next_command.startswith("--") else next_command

    def words(self) -> dict[str, str]:
        """Return the parts of the error for --json."""
        return {"what": self.what, "where": self.where, "why": self.why, "next": self.next_command}

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append("  why:   " + self.why.replace("\n", "\n         "))
        if self.next_command:
            lines.append(f"  next:  {self.next_command}")
        return "\n".join(lines)


class RequestError(StepmarkError):
    """The request cannot work; nothing was started."""

    exit_code = EXIT_REFUSED


class UnknownName(RequestError):
    """A word that names nothing; the message has the nearest name, or all of them."""

    def __init__(self, what: str, name: str, valid: Iterable[str], **details: str) -> None:
        """`what` without the hint, which is added."""
        super().__init__(f"{what}: {nearest(name, valid)}", **details)


class RunError(StepmarkError):
    """Something that had started failed."""

    exit_code = EXIT_FAILED


def capture(check: Callable[[], object]) -> Iterator[StepmarkError]:
    """Yields the error that a check raises, so that a caller can collect the errors of many."""
    try:
        check()
    except StepmarkError as error:
        yield error


MOST_LISTED = 20


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint: "did you mean 'bf16'?"; all valid names if none is close, or the nearest of many."""
    names = sorted(valid)
    meant = closest(name, names)
    if meant:
        return f"did you mean '{meant}'?"
    if len(names) <= MOST_LISTED:
        return f"valid: {', '.join(names)}"
    return f"the nearest of {len(names)}: {', '.join(_close_names(name, names, 5, 0.4)) or 'none'}"


def closest(name: str, valid: Sequence[str]) -> str | None:
    """Return the valid name that was probably meant, or None."""
    return next(iter(_close_names(name, valid, 1, 0.6)), None)


def _close_names(name: str, valid: Sequence[str], most: int, cutoff: float) -> list[str]:
    import difflib  # takes a while, and only a mistake needs it

    return difflib.get_close_matches(name, valid, most, cutoff)
