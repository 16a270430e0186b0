"""Published figures, and those that do not follow from their own step time.

python launch/report.py references
python launch/report.py references --json
"""

from benchmarks.errors import EXIT_VALID
from benchmarks.model.published_rows import read_references
from benchmarks.references import reference_table
from launch.cli.command import refuse_more
from launch.terminal import places
from launch.terminal.output import answer


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/report.py references")
    configs = places.configs()
    checked = reference_table.check(read_references(configs.root), configs.model, configs.hardware)
    answer(checked, lambda: reference_table.table_text(checked))
    return EXIT_VALID
