"""Makes docs/schemas.json: the JSON Schema of each document that a command prints with --json.

.venv/bin/python docs/make_schemas.py
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

REPOSITORY = Path(__file__).resolve().parents[1]
FILE = REPOSITORY / "docs" / "schemas.json"
sys.path.insert(0, str(REPOSITORY))

from benchmarks.comparing.values import Comparison  # noqa: E402
from benchmarks.diagnosis.order import Diagnosis  # noqa: E402
from benchmarks.gate.values import NightReport  # noqa: E402
from benchmarks.history.index import Problem  # noqa: E402
from benchmarks.planning.covered import Fit  # noqa: E402
from benchmarks.planning.forecast import PlanReport  # noqa: E402
from benchmarks.preflight.report import Report  # noqa: E402
from benchmarks.references.reference_table import CheckedRow  # noqa: E402
from benchmarks.runs.finished_run import FinishedRun  # noqa: E402
from benchmarks.sweeps.sweep_report import SweepReport  # noqa: E402
from benchmarks.trace.report import TraceReport  # noqa: E402
from launch.command_line import documents as d  # noqa: E402

Listing = msgspec.defstruct(
    "Listing",
    [("folder", str), ("where", list[str]), ("runs", list[FinishedRun]), ("problems", list[Problem])],
    forbid_unknown_fields=True,
)
Named = dict[str, str]
# The words of a command -> what its document is; where it is one of several, the flag that chooses it stands with it.
DOCUMENTS: dict[str, Any] = {
    "error": d.Error,
    "ended": d.Ended,
    "text": d.Text,
    "run": d.Runs,
    "run --dry_run": d.DryRun,
    "run --list": dict[str, Named],
    "run (sweep)": SweepReport,
    "status": list[d.State],
    "status --follow": d.Runs,
    "compare": Comparison,
    "verify": d.CheckedRuns,
    "nightly": NightReport,
    "nightly --list": Named,
    "nightly --dry_run": d.NightPlan,
    "nightly --rehearse": d.Rehearsal,
    "report runs": Listing,
    "report references": list[CheckedRow],
    "report scaling": SweepReport,
    "report trace": TraceReport,
    "report html": d.Page,
    "report archive": d.Archive,
    "report verify_archive": d.CheckedArchive,
    "doctor logs": Diagnosis,
    "doctor nodes": Report,
    "plan": PlanReport,
    "plan calibration": Fit,
    "dashboard": d.Dashboard,
    "cluster": d.Cluster,
    "setup": d.Files,
    "setup --site": d.Site,
    "setup --new_site": d.NewSite,
}


def text() -> str:
    """Of all documents; what several share is described once, in $defs."""
    found, parts = msgspec.json.schema_components(list(DOCUMENTS.values()), ref_template="#/$defs/{name}")
    lines = [
        ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in rows.items())
        for rows in (dict(zip(DOCUMENTS, found, strict=True)), parts)
    ]
    return f'{{"documents": {{\n{lines[0]}\n}}, "$defs": {{\n{lines[1]}\n}}}}\n'


if __name__ == "__main__":
    FILE.write_text(text())
