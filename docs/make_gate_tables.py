"""Makes the tables of docs/gate.md: what the gate's self test finds.

.venv/bin/python docs/make_gate_tables.py [--runs=500] [--print]
"""

import argparse
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.gate.self_test import RUNS, self_test, tables  # noqa: E402

DOCUMENT = REPOSITORY / "docs" / "gate.md"


def between(text: str, name: str, new: str) -> str:
    """`text` with what stands between the two markers of this name replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"{DOCUMENT.name} lacks the markers of '{name}'")
    return f"{before}{begin}\n{new.strip()}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--print", action="store_true", help="print the tables and write nothing")
    asked = parser.parse_args()
    text = tables(self_test(runs=asked.runs))
    if asked.print:
        print(text)
        return
    DOCUMENT.write_text(between(DOCUMENT.read_text(encoding="utf-8"), "simulated", text), encoding="utf-8")


if __name__ == "__main__":
    main()
