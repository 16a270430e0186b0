"""Looks at the product's figures with simulators and arithmetic of its own, and says which claims hold.

    python tests/audit.py [--only=interval,compare] [--size=small] [--seed=1] [--out=FILE]

Not a test: the full size takes some minutes. Prints a table in Markdown. Exit code 1: a claim does not hold.
tests/test_audit.py runs the small size.
"""

import argparse
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a script: in the checkout's environment
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
    import _script  # noqa: F401

import numpy as np

from tests.auditing import (
    estimating,
    published,
    ranking,
)
from tests.auditing.table import Line, Size, found_in, markdown

PARTS = {
    "rows": published.lines,
    "estimates": estimating.lines,
    "layouts": ranking.lines,
}
SEED = 20261124


def audit(parts: Sequence[str], size: Size, seed: int = SEED) -> list[Line]:
    found: list[Line] = []
    for part in parts:
        began = time.monotonic()
        random = np.random.default_rng([seed, zlib.crc32(part.encode())])  # the same whichever parts are asked for
        found += PARTS[part](size, random)
        print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, help="the file for the table; else it is printed")
    parser.add_argument("--before", type=Path, help="an earlier table, to be shown beside this one")
    parser.add_argument(
        "--clone", action="append", default=[], metavar="OWNER/NAME=PATH", help="to look up cited lines in"
    )
    asked = parser.parse_args()
    parts = asked.only.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if unnamed := [one for one in asked.clone if "=" not in one]:
        parser.error(f"--clone={unnamed[0]}: OWNER/NAME=PATH was expected")
    clones = {name: Path(path) for name, _, path in (one.partition("=") for one in asked.clone)}
    read = [*clones.values(), *([asked.before] if asked.before else []), *([asked.out.parent] if asked.out else [])]
    if missing := [str(path) for path in read if not path.exists()]:
        parser.error(f"there is no {', '.join(missing)}")
    lines = audit(parts, Size(asked.size == "full", clones), asked.seed)
    text = markdown(lines, found_in(asked.before.read_text(encoding="utf-8")) if asked.before else None)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    failed = sum(line.holds is False for line in lines)
    print(f"{len(lines)} lines, {failed} fail", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
