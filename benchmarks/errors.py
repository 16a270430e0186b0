"""The errors of Stepmark. Each has four parts: what is wrong, where, why, and the command to run next.

Exit codes are a public contract: 1 the run failed, 2 the request was wrong and nothing was started, 3 the run ended
but its result is invalid.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

EXIT_VALID = 0
EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INVALID = 3
EXIT_INTERRUPTED = 130

EXIT_CODES = {"valid": EXIT_VALID, "failed": EXIT_FAILED, "invalid": EXIT_INVALID}  # by a result's status

LIST_COMMAND = "python launch/run.py --list"
SAME_COMMAND = "--"  # a next_command that repeats the typed command

# Completes a next_command that consists of flags. The launcher sets this, because it knows the typed command.
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
    """An error in the request, found before anything was started."""

    exit_code = EXIT_REFUSED


class UnknownName(RequestError):
    """An unknown name. The message suggests the nearest valid name, or lists all valid names."""

    def __init__(self, what: str, name: str, valid: Iterable[str], **details: str) -> None:
        """Add a suggestion to `what`."""
        super().__init__(f"{what}: {nearest(name, valid)}", **details)


class RunError(StepmarkError):
    """A failure of something that was already started."""

    exit_code = EXIT_FAILED


def capture(check: Callable[[], object]) -> Iterator[StepmarkError]:
    """Yield the error that a check raises, so that a caller can collect the errors of several checks."""
    try:
        check()
    except StepmarkError as error:
        yield error


MOST_LISTED = 20


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint: the name that was probably meant, otherwise all valid names, or a few if there are many."""
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
    import difflib  # imported here, because the import is slow and only a typo needs it

    return difflib.get_close_matches(name, valid, most, cutoff)
