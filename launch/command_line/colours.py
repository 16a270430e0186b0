"""Status words of tables in colour, on a terminal alone: whoever writes a table writes plain text."""

import io
import re

GREEN, YELLOW, RED = "32", "33", "31"
WORDS = {
    GREEN: ("valid", "ok", "agrees", "holds", "no change", "improvement", "better"),
    YELLOW: ("warning", "inconclusive", "suspect", "no verdict", "not checked", "not tried", "not submitted"),
    RED: ("invalid", "failed", "regression", "worse", "cut off", "unreadable", "missing", "does not hold"),
}
COLOURS = {word: colour for colour, words in WORDS.items() for word in words}
# A whole cell of benchmarks/rendering/columns.py: two spaces or an end of the line on either side.
# Or the first word after "NAME: ".
CELL = re.compile(rf"(?:(?<=  )|(?<=: )|^)({'|'.join(COLOURS)})(?=  |\s*$|[:;,] | \()", re.MULTILINE)


def coloured(text: str) -> str:
    return CELL.sub(lambda found: in_colour(found[1], COLOURS[found[1]]), text)


def in_colour(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m"


class Coloured(io.TextIOWrapper):
    """Standard output with colours."""

    def write(self, text: str, /) -> int:
        super().write(coloured(text))
        return len(text)
