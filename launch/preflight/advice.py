"""What to do after a preflight: which files it left, and what to type next."""

import shlex
from pathlib import Path

from benchmarks.preflight.report import FAILING, Report
from launch.command_line import places


def lists(report: Report, folder: Path) -> str:
    """Where the lists are, and how to use them."""
    lines = [f"  files  {folder}"]
    if report.failing and not report.passing:
        lines += _none_passes(report)
    elif report.failing:
        # Slurm takes a value with a slash for a file of names.
        lines.append(
            f"  next   python launch/run.py --site={report.site} ... --exclude={shlex.quote(str(folder / FAILING))}"
        )
        lines.append("         (sbatch and srun take the same flag)")
    return "\n".join(lines)


# The check that every node fails -> the field of the site's file that then does not fit the cluster.
FIELDS = {
    "GPUs": "slurm: hardware",
    "shared folder": "slurm: shared_folders",
    "container runtime": "runtime",
    "environments": "slurm: shared_folders (STEPMARK_HOME must lie in one)",
}


def _none_passes(report: Report) -> list[str]:
    """To exclude every node helps nobody."""
    check = report.failed_everywhere
    if check is None:
        return ["  next   no node passes, each for reasons of its own: see above"]
    if check not in FIELDS:
        return [f"  next   every node fails '{check}': one cause in common, see above"]
    path = places.configs().path("sites", report.site)
    return [
        f"  next   every node fails '{check}': does the site's file fit the cluster?",
        f"         {path}: {FIELDS[check]}",
    ]
