"""Find the few lines of a log that contain one of many words, at a cost that does not grow with their number. No I/O.

The search for a word uses its rarest four consecutive bytes: one pass compares every four consecutive bytes of a text
with those of all words.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

WIDTH = 4
# The most frequent bytes in logs, the most frequent first. All other bytes are rarer.
USUAL = b"e taionrslcdm_pu:0g.fh1y2b=3/v54w-k"
# Words that are frequent in logs. Four bytes of these are searched only if a word has no other four bytes.
ORDINARY = (
    b"config param completed step seconds compute backward forward iteration consumed samples learning rate global "
    b"batch size lm loss scale grad norm number of skipped nan iterations throughput elapsed time epoch training "
    b"optimizer tokens device total weights not with running using setting offload validation checkpoint process "
    b"normalization attribute 0.0.0.0 address config none false true default gradient distributed information"
)
TABLE_BITS = 16
MULTIPLIER = np.uint32(2654435761)  # spreads similar values (Knuth)


class PickedLine(NamedTuple):
    """A line that contains searched words: its start and end, the position of its first word, and all its words."""

    start: int
    end: int
    at: int
    words: set[bytes]


class LinePicker:
    """Finds lines by the words they contain. The words are in lower case and have at least four bytes."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._found_by: dict[bytes, list[tuple[bytes, int]]] = {}  # four bytes -> words, and where each contains them
        for word in words:
            groups = [word[start : start + WIDTH] for start in range(len(word) - WIDTH + 1)]
            group = min(groups, key=lambda one: (one in ORDINARY, sum(USUALNESS[byte] for byte in one)))
            self._found_by.setdefault(group, []).append((word, word.find(group)))
        numbers = [int.from_bytes(group, "little") for group in self._found_by]
        self._groups = np.sort(np.array(numbers, dtype=np.uint32))
        self._table = np.zeros(1 << TABLE_BITS, dtype=bool)
        self._table[_hashed(self._groups)] = True

    def lines(self, text: bytes) -> Iterator[PickedLine]:
        """Yield, in order, the lines of a text that contain at least one of the words."""
        lower = text.lower()
        picked: PickedLine | None = None
        line_feed = 0  # position of the next line feed, or the end of the text
        for position in self._positions(lower):
            found = self._found_by[lower[position : position + WIDTH]]
            words = [word for word, at in found if position >= at and lower.startswith(word, position - at)]
            if picked is not None and position < picked.end:
                picked.words.update(words)
                continue
            if not words:
                continue
            if picked is not None:
                yield picked
            if position >= line_feed:
                line_feed = lower.find(b"\n", position) % (len(lower) + 1)  # -1 (not found) becomes the end
            after = 0 if picked is None else picked.end
            begin = max(lower.rfind(b"\n", after, position), lower.rfind(b"\r", after, position)) + 1 or after
            back = lower.find(b"\r", position, line_feed)  # a carriage return also ends a line
            picked = PickedLine(begin, line_feed if back < 0 else back, position, set(words))
        if picked is not None:
            yield picked

    def _positions(self, lower: bytes) -> list[int]:
        found = []
        for offset in range(WIDTH):
            whole = (len(lower) - offset) // WIDTH
            if whole <= 0:
                continue
            values = np.frombuffer(lower, dtype="<u4", count=whole, offset=offset)
            likely = np.flatnonzero(self._table[_hashed(values)])
            exact = np.isin(values[likely], self._groups)
            found.append(likely[exact] * WIDTH + offset)
        return sorted(np.concatenate(found).tolist()) if found else []


def _hashed(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return (values * MULTIPLIER) >> np.uint32(32 - TABLE_BITS)


# The weight of each byte by its frequency in logs: large for letters, digits and blanks.
USUALNESS = [1 << max(0, 12 - USUAL.find(byte) // 3) if byte in USUAL else 0 for byte in range(256)]
