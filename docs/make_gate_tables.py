"""Makes the tables of docs/gate.md and docs/measurements/2026-11-24-gate.md: what the gate's self test finds, and
what the gate says of public runs.

.venv/bin/python docs/make_gate_tables.py [--runs=500] [--print] [--only=simulated|replayed]
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.gate.self_test import RUNS, self_test, tables  # noqa: E402
from tests.public_runs import histories  # noqa: E402

DOCUMENTS = REPOSITORY / "docs"
EFFECTS = (0.01, 0.02, 0.03)


def simulated(runs: int) -> str:
    return tables(self_test(runs=runs))


def replayed(_: int) -> str:
    """The variance between runs, and the gate on the histories that are named in histories.FAMILIES."""
    sets = histories.read_sets()
    deviations = sorted(100 * histories.deviation(one) for one in sets)
    share, days = histories.share_of_day(sets)
    off, runs = sum(map(histories.outliers, sets)), sum(len(one.logs) for one in sets)
    middle = statistics.median(map(histories.autocorrelation, sets))
    tenth = deviations[round(0.9 * (len(deviations) - 1))]
    lines = [
        f"{runs:,} runs of {len(sets)} result sets. Standard deviation between the runs of a set:",
        f"{statistics.median(deviations):.2f}% in the middle set, {tenth:.2f}% in one of ten, at most "
        f"{deviations[-1]:.1f}%. "
        f"{off} runs ({100 * off / runs:.1f}%) lie beyond",
        f"5 robust deviations and half a percent. Lag-1 autocorrelation of runs in the middle set: {middle:.2f}.",
        f"In the {days} sets that span several days, {100 * share:.0f}% of the variance is between days.",
        "",
        "| history | runs | noise | judged | false regressions | improvements | "
        + " | ".join(f"{100 * effect:g}% found" for effect in EFFECTS)
        + " |",
        "| --- " * (6 + len(EFFECTS)) + "|",
    ]
    total = [0] * (3 + 2 * len(EFFECTS))
    for name, logs in histories.histories(sets).items():
        found = histories.replay(logs, EFFECTS)
        counts = [number for effect in EFFECTS for number in found.found[effect]]
        total = [a + b for a, b in zip(total, [*found[:1], *found[2:4], *counts], strict=True)]
        lines.append(_row(name, len(logs), f"{100 * found.noise:.2f}%", found.nights, found.false_alarms,
                          found.improvements, *_shares(counts)))  # fmt: skip
    lines.append(_row("all", "", "", *total[:3], *_shares(total[3:])))
    return "\n".join(lines)


def _shares(counts: list[int]) -> list[str]:
    """Found, of so many."""
    return [f"{found} of {of}" for found, of in zip(counts[::2], counts[1::2], strict=True)]


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


PARTS: dict[str, tuple[str, Callable[[int], str]]] = {
    "simulated": ("gate.md", simulated),
    "replayed": ("measurements/2026-11-24-gate.md", replayed),
}


def between(document: Path, name: str, new: str) -> str:
    """The document with what is between the two markers of this name replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = document.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"{document.name} lacks the markers of '{name}'")
    return f"{before}{begin}\n{new.strip()}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--print", action="store_true", help="print the tables and write nothing")
    parser.add_argument("--only", choices=[*PARTS], help="one of the two")
    asked = parser.parse_args()
    for name, (place, make) in PARTS.items():
        if asked.only in (None, name):
            text, document = make(asked.runs), DOCUMENTS / place
            if asked.print:
                print(text)
            else:
                document.write_text(between(document, name, text), encoding="utf-8")


if __name__ == "__main__":
    main()
