"""Writes configs/estimate_errors.yml: every published row estimated from the others.

.venv/bin/python docs/make_estimate_errors.py

Run it after rows of configs/references, recipes, memory, FLOPs or bounds have changed.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.configs import Configs
from benchmarks.model.estimate import FILE, ErrorTable, errors_of, read_published
from benchmarks.values import to_builtins

HEADER = """\
# How far estimates of the published rows were off, in percent of the published time (docs/planning.md).
# `kind`: each row was estimated without the rows that share it. Written by docs/make_estimate_errors.py.
"""


def main() -> None:
    configs = Configs()
    table = ErrorTable(date=f"{datetime.now(UTC):%Y-%m-%d}", errors=errors_of(read_published(configs)))
    text = yaml.safe_dump(to_builtins(table), sort_keys=False, default_flow_style=None, width=118)
    (configs.root / FILE).write_text(HEADER + text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
