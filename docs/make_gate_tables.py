"""Makes the tables of docs/measurements/2026-11-24-gate.md: what the gate's self test finds, and what it says of
public runs; and benchmarks/gate/simulated_rates.py, by which reports state false alarms.

.venv/bin/python docs/make_gate_tables.py [--runs=500] [--print] [--only=simulated|replayed]
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.gate.self_test import RUNS, SelfTest, self_test, tables  # noqa: E402
from benchmarks.gate.simulated_rates import SEEN  # noqa: E402
from benchmarks.text import markdown_table  # noqa: E402
from tests.documents import replace_part  # noqa: E402
from tests.public_runs import histories  # noqa: E402

DOCUMENTS = REPOSITORY / "docs"
RATES_SOURCE = REPOSITORY / "benchmarks" / "gate" / "simulated_rates.py"
EFFECTS = (0.01, 0.02, 0.03)


def simulated(runs: int, keep: bool) -> str:
    found = self_test(runs=runs)
    if keep:  # the tables' bounds are those of the newest rates, so another run prints what holds
        RATES_SOURCE.write_text(rates_source(found), encoding="utf-8")
    return tables(found)


def rates_source(found: SelfTest) -> str:
    """A module of data."""
    tables_of = ""
    for what, rows in found.stated.items():
        lines = [f"        {value}: ({', '.join(f'{rate:g}' for rate in rates)}),\n" for value, rates in rows.items()]
        tables_of += f'    "{what}": {{\n{"".join(lines)}    }},\n'
    return f'''"""Simulated false alarms of a gated figure and night, by what a site's nights show. Data alone.

Made by docs/make_gate_tables.py; self_test.py says what the rows are. {found.runs} histories a row.
"""

SEEN = {SEEN}  # what the control sees of night and nodes; 0: there is no control
RATES: dict[str, dict[float, tuple[float, ...]]] = {{
{tables_of}}}
'''


def replayed(_: int, __: bool) -> str:
    """The variance between runs, and the gate on the histories that are named in histories.FAMILIES."""
    sets = histories.read_sets()
    deviations = sorted(100 * histories.deviation(one) for one in sets)
    share, days = histories.share_of_day(sets)
    off, runs = sum(map(histories.outliers, sets)), sum(len(one.logs) for one in sets)
    middle = statistics.median(map(histories.autocorrelation, sets))
    tenth = deviations[round(0.9 * (len(deviations) - 1))]
    rows = []
    total = [0] * (3 + 2 * len(EFFECTS))
    for name, logs in histories.histories(sets).items():
        found = histories.replay(logs, EFFECTS)
        planted = [number for effect in EFFECTS for number in found.found[effect]]
        counts = [found.nights, found.false_alarms, found.improvements, *planted]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        rows.append([name, str(len(logs)), f"{100 * found.noise:.2f}%", *_cells(counts)])
    titles = ["history", "runs", "noise", "judged", "false regressions", "improvements"]
    table = markdown_table(
        [*titles, *(f"{100 * effect:g}% found" for effect in EFFECTS)], [*rows, ["all", "", "", *_cells(total)]]
    )
    return f"""{runs:,} runs of {len(sets)} result sets. Standard deviation between the runs of a set:
{statistics.median(deviations):.2f}% in the middle set, {tenth:.2f}% in one of ten, at most {deviations[-1]:.1f}%. \
{off} runs ({100 * off / runs:.1f}%) lie beyond
5 robust deviations and half a percent. Lag-1 autocorrelation of runs in the middle set: {middle:.2f}.
In the {days} sets that span several days, {100 * share:.0f}% of the variance is between days.

{table}"""


def _cells(counts: Sequence[int]) -> list[str]:
    """Judged, false regressions and improvements; then, of each effect, found of so many."""
    return [
        *map(str, counts[:3]),
        *(f"{found} of {of}" for found, of in zip(counts[3::2], counts[4::2], strict=True)),
    ]


PARTS: dict[str, tuple[str, Callable[[int, bool], str]]] = {
    "simulated": ("measurements/2026-11-24-gate.md", simulated),
    "replayed": ("measurements/2026-11-24-gate.md", replayed),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--print", action="store_true", help="print the tables and write nothing")
    parser.add_argument("--only", choices=[*PARTS], help="one of the two")
    asked = parser.parse_args()
    for name, (place, make) in PARTS.items():
        if asked.only in (None, name):
            text = make(asked.runs, not asked.print)
            if asked.print:
                print(text)
            else:
                replace_part(DOCUMENTS / place, name, text)


if __name__ == "__main__":
    main()
