"""Every published run beside its bound and its estimate, and how good estimates are.

python launch/plan.py calibration
python launch/plan.py calibration --write                   fit them again, after rows or formulas changed
"""

from absl import flags

from launch.cli import refuse_more
from launch.command_line import places
from launch.planning import planning_calibration

JSON = flags.DEFINE_boolean("json", False, "JSON instead of text.")
WRITE = flags.DEFINE_boolean("write", False, "Keep the fits in configs/calibration.yml.")


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/plan.py calibration")
    return planning_calibration.show(places.configs(), as_json=JSON.value, write=WRITE.value)
