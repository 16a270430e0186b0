"""Gains -> the table for people. Pure."""

from collections.abc import Sequence

from benchmarks.measuring import statistics
from benchmarks.rendering.columns import aligned, columns
from benchmarks.rendering.report import seconds_text
from benchmarks.sweeps.gain import Gain

HEADINGS = ("", "seconds/step", "against", "pairs", "speedup", "95% interval", "verdict")
_HOW_TO_READ = (
    "Speedup: seconds of the base over those of the way, less 1, of the two runs of each repeat; the mean over pairs",
    "of its logarithm, with its interval by Student's t. It speaks of these machines on this day.",
)


def table_text(gains: Sequence[Gain]) -> str:
    """Every gain with its verdict, and what was left out."""
    rows = [HEADINGS, *map(_row, gains)]
    lines = ["what PGLE gains, run against run"]
    lines += columns(rows)
    notes: dict[tuple[str, str], list[str]] = {}
    for found in gains:
        said = [("why", f"{found.verdict}: {found.why}")]
        said += [("note", text) for text in found.notes]
        said += [("left out", text) for text in found.left_out]
        for row in said:
            notes.setdefault(row, []).append(_name(found))
    # What all rows share is said once.
    shared = [
        (label, text if len(names) == len(gains) else f"{', '.join(names)}: {text}")
        for (label, text), names in notes.items()
    ]
    return "\n".join([*lines, *aligned(shared), *_HOW_TO_READ])


def _name(found: Gain) -> str:
    return f"{found.cell} --pgle={found.way}"


def _row(found: Gain) -> tuple[str, ...]:
    pairs, speedup = found.pairs, found.speedup_percent
    return (
        _name(found),
        _typical([pair.way_seconds for pair in pairs]),
        f"{_typical([pair.base_seconds for pair in pairs])} {found.base}",
        f"{len(pairs)} of {found.wanted}",
        f"{speedup.value:+.2f}%" if speedup else "-",
        f"{speedup.low:+.2f}% to {speedup.high:+.2f}%"
        if speedup and speedup.low is not None and speedup.high is not None
        else "-",
        found.verdict,
    )


def _typical(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    return seconds_text(middle) if middle is not None else "-"
