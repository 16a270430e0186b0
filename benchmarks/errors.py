"""How Stepmark says no: one error carries what, where, why, and the command to run next.

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
DRY_RUN_SHOWS = "the same command with --dry_run shows the plan"


class StepmarkError(Exception):
    """An error a person can act on. Launch scripts print it without a traceback."""

    exit_code = EXIT_FAILED

    def __init__(self, what: str, *, where: str = "", why: str = "", next_command: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next_command = next_command

    def words(self) -> dict[str, str]:
        """For --json."""
        return {"what": self.what, "where": self.where, "why": self.why, "next": self.next_command}

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.next_command:
            lines.append(f"  next:  {self.next_command}")
        return "\n".join(lines)


class RequestError(StepmarkError):
    """The request cannot work; nothing was started."""

    exit_code = EXIT_REFUSED


class UnknownName(RequestError):
    """A word of a flag ("": of none) that names nothing. Where a valid one is close, a script's `next` is the command
    with that.
    """

    def __init__(self, what: str, flag: str, name: str, valid: Iterable[str], **details: str) -> None:
        """`what` without the hint, which is added."""
        names = sorted(valid)
        super().__init__(f"{what}: {nearest(name, names)}", **details)
        self.flag, self.name, self.meant = flag, name, closest(name, names)


class OtherGpus(RequestError):
    """The layout is for another number of GPUs than was asked for."""


class RunError(StepmarkError):
    """Something that had started failed."""

    exit_code = EXIT_FAILED


def raised(check: Callable[[], object]) -> Iterator[StepmarkError]:
    """Yields the error that a check raises, so that a caller can collect the errors of many."""
    try:
        check()
    except StepmarkError as error:
        yield error


MOST_LISTED, NEAREST_LISTED = 20, 5


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint: "did you mean 'bf16'?"; all valid names where none is close; of very many, the nearest few."""
    names = sorted(valid)
    meant = closest(name, names)
    if meant:
        return f"did you mean '{meant}'?"
    if len(names) > MOST_LISTED:
        holding = sorted((one for one in names if name.lower() in one.lower()), key=len)
        few = list(dict.fromkeys([*holding, *_with_words_of(name, names)]))[:NEAREST_LISTED]
        return f"the nearest of {len(names)}: {', '.join(few)}" if few else f"none of {len(names)} resembles it"
    return f"valid: {', '.join(names)}" if names else "there is none to choose from"


def closest(name: str, valid: Sequence[str]) -> str | None:
    """The valid name that was probably meant: the first letter is seldom wrong, and swapped letters are all there.

    The beginning of one name alone means that name. The same words are nearer than the same letters; where several
    names have them, none was surely meant.
    """
    same = [one for one in valid if one.lower() == name.lower()]
    if len(same) == 1:
        return same[0]
    same_letter = [one for one in valid if one[:1] == name[:1]]
    reordered = [one for one in same_letter if sorted(one) == sorted(name)]
    found = _alike(name, reordered, 1, 0.0) or _alike(name, same_letter, 1, 0.8)
    begun = [one for one in valid if one.startswith(name)] if len(name) > 1 else []
    if not found and len(begun) == 1:
        return begun[0]
    if not found and (with_words := _with_words_of(name, valid)):
        ending_alike = [one for one in with_words if _last(one) == _last(name)]
        surest = ending_alike or with_words
        return surest[0] if len(surest) == 1 else None
    return next(iter(found or _alike(name, same_letter, 1, 0.6) or _alike(_last(name), valid, 1, 0.75)), None)


def _with_words_of(name: str, valid: Sequence[str]) -> list[str]:
    """What has the words of the last component in a row, the shortest first: adam_weight_decay for x.weight_decay."""
    words = f"_{_last(name)}_"
    return sorted((one for one in valid if words in f"_{one.replace('.', '_')}_"), key=len)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _alike(name: str, valid: Sequence[str], most: int, cutoff: float) -> list[str]:
    import difflib  # takes a while, and only a mistake needs it

    return difflib.get_close_matches(name, valid, most, cutoff)
