"""How far a training came by what its log printed last, and how far it was to go. Pure."""

import re
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.values import Value

BARS = "progress bars"
OF_ANOTHER = re.compile(
    rb"(?i)\b(?:epoch|eval\w*|valid\w*|test\w*|predict\w*|generat\w*|load\w*|download\w*|map|filter|token\w*|shards?)\b"
)
RECENT = 20  # steps, by which it is known how many are printed


class StepNumbers(Value, frozen=True):
    """How a format numbers its steps (configs/symptoms.yml)."""

    of: str  # the programs
    step: str  # a pattern: the number of a step and, where the line has it too, of the last
    last: str = ""  # a pattern: the last, in a line of its own
    words: list[str] = []  # one stands in every line that `last` finds
    counted_from: int = 1  # 0: `last` is how many there are
    unit: str = "step"


class Progress(Value, frozen=True):
    """The last number of a step that was printed, and that of the last step; as printed."""

    unit: str
    at: str
    last: str
    ended: bool  # no further one would have been printed

    @property
    def text(self) -> str:
        return f"the log ends at {self.unit} {self.at} of {self.last}"


class ProgressReader:
    """The formats, compiled."""

    def __init__(self, formats: Sequence[StepNumbers]) -> None:
        self._rows = [(one, re.compile(one.step.encode()), re.compile(one.last.encode())) for one in formats]
        self.words = {word.lower().encode() for one in formats for word in one.words}

    def lasts(self, line: bytes) -> dict[str, bytes]:
        """The number of the last step in a line that says only that, for the formats that say it so."""
        return {one.of: found[1] for one, _, last in self._rows if one.last and (found := last.search(line))}

    def of(self, end: bytes, lasts: dict[str, bytes]) -> Progress | None:
        """By the end of a log; None: its format is not known, or prints no last step."""
        for one, step, _ in self._rows:
            numbers = list(step.finditer(end))
            if numbers and one.of == BARS and numbers[-1][1] == numbers[-1][2]:
                # A bar that came to its end may be that of an epoch or of loading, and not the training's.
                found = numbers[-1].start()
                begin = max(end.rfind(b"\n", 0, found), end.rfind(b"\r", 0, found)) + 1
                if OF_ANOTHER.search(end, begin, found):
                    return None
            last = lasts.get(one.of) if one.last else numbers[-1][2] if numbers else None
            if numbers and last:
                return _progress(one, [found[1] for found in numbers], _number(last) - (one.counted_from == 0))
        return None


def _progress(one: StepNumbers, printed: list[bytes], last: float) -> Progress:
    """Steps may be printed seldom: it ended where the next one to be printed would be beyond the last."""
    numbers = [_number(text) for text in printed[-RECENT:]]
    apart = min((after - before for before, after in pairwise(numbers) if after > before), default=1.0)
    ended = numbers[-1] >= last or numbers[-1] + apart > last
    return Progress(unit=one.unit, at=printed[-1].decode(), last=f"{last:.0f}", ended=ended)


def _number(text: bytes) -> float:
    return float(text.replace(b",", b""))
