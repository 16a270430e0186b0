"""Why a run failed: the earliest cause in its logs, the line, and what helps.

    python launch/doctor.py logs LOG...                         files, folders, runs or patterns, packed ones too
    python launch/doctor.py logs results/RUN --json
    kubectl logs POD | python launch/doctor.py logs -           what another program prints

Exit code 3: the logs show a failure, or no end of the training.
"""

from pathlib import Path

from absl import flags

from benchmarks.doctor.text import diagnosis_text
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.runs.diagnosing import diagnosis_of
from benchmarks.runs.find_runs import place_of
from launch.terminal.output import answer

OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", "results", "The folder with the runs, for one that is named by a part of its name."
)


def main(argv: list[str]) -> int:
    if not argv[1:]:
        raise RequestError(
            "which logs?",
            next_command="python launch/doctor.py logs LOG...     (./logs, if a folder of that name was meant)",
        )
    found = diagnosis_of([str(place_of(name, Path(OUTPUT_DIR.value))) for name in argv[1:]])
    answer(found, lambda: diagnosis_text(found))
    return EXIT_INVALID if found.failed else EXIT_VALID
