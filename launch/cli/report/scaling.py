"""How a sweep scales, and what PGLE gains in it, from the results there are now.

python launch/report.py scaling results/sweep-TIME.json
python launch/report.py scaling results/sweep-*.json        the newest of several
"""

import sys
from pathlib import Path

from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.sweeps import sweep_report
from launch.terminal.output import answer

WHICH_SWEEPS = "python launch/report.py scaling FILE, one of results/sweep-*.json (in the --output_dir of the sweep)"


def main(argv: list[str]) -> int:
    path = _newest(argv[1:])
    try:
        found = sweep_report.report_of_file(path)
    except RequestError as error:
        # What the sweep's own launcher would do next is no help to one who only looks.
        raise RequestError(error.what, where=error.where, why=error.why, next_command=WHICH_SWEEPS) from None
    answer(found, lambda: sweep_report.text(found, path))
    return EXIT_VALID


def _newest(names: list[str]) -> Path:
    """Of the records that are named."""
    if not names:
        raise RequestError("which sweep?", next_command=WHICH_SWEEPS)
    # No shell expands what follows a `=`.
    paths = [path for one in map(Path, names) for path in ([*one.parent.glob(one.name)] or [one])]
    newest = max(paths, key=lambda path: path.name)  # their names begin with the time
    if paths[1:]:
        print(f"the newest of {len(paths)} sweeps: {newest}", file=sys.stderr)
    return newest
