"""What is known of failures: every symptom that `logs` looks for.

python launch/doctor.py symptoms
python launch/doctor.py symptoms --json
"""

from absl import flags

from benchmarks.diagnosis.symptoms import read_symptoms
from benchmarks.diagnosis.text import symptoms_text
from benchmarks.errors import EXIT_VALID
from benchmarks.values import json_text
from launch.cli import refuse_more
from launch.command_line import places

JSON = flags.DEFINE_boolean("json", False, "Print the table as JSON.")


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/doctor.py symptoms")
    table = read_symptoms(places.configs().root).table
    print(json_text(table.symptoms).rstrip() if JSON.value else symptoms_text(table))
    return EXIT_VALID
