"""Every published run beside its bound and its estimate, and how good estimates are.

python launch/plan.py calibration
python launch/plan.py calibration --write                   fit them again, after rows or formulas changed
python launch/plan.py calibration --layouts                 and where `layouts` puts the published layouts
python launch/plan.py calibration --predictions             register what unpublished recipes should take
"""

from absl import flags

from benchmarks.errors import EXIT_VALID
from launch.cli import refuse_more
from launch.command_line import places
from launch.command_line.output import text_alone
from launch.planning import planning_calibration, registering

WRITE = flags.DEFINE_boolean("write", False, "Keep the fits in configs/calibration.yml.")
LAYOUTS = flags.DEFINE_boolean("layouts", False, "Rank every published layout among its candidates.")
PREDICTIONS = flags.DEFINE_boolean(
    "predictions", False, "Add to configs/predictions.csv what recipes should take that nobody has published."
)


def main(argv: list[str]) -> int:
    refuse_more(argv[1:], "python launch/plan.py calibration")
    if PREDICTIONS.value:
        told = registering.register(places.configs())
        text_alone(told)
        return EXIT_VALID
    return planning_calibration.show(places.configs(), write=WRITE.value, layouts=LAYOUTS.value)
