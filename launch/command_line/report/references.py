"""Published figures, and those that do not follow from their own step time.

python launch/report.py references
python launch/report.py references --format=json
"""

from absl import flags

from benchmarks.errors import EXIT_VALID
from benchmarks.references import reference_table
from benchmarks.references.references import read_references
from benchmarks.values import json_text
from launch.cli import refuse_more
from launch.command_line import places

FORMAT = flags.DEFINE_enum("format", "table", ["table", "json"], "The shape of the report.")


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/report.py references")
    configs = places.configs()
    checked = reference_table.check(read_references(configs.root), configs.model, configs.hardware)
    print(json_text(checked) if FORMAT.value == "json" else reference_table.table_text(checked))
    return EXIT_VALID
