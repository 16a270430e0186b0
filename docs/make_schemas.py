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

from benchmarks.compare.values import Comparison  # noqa: E402
from benchmarks.compilation.variants import Variants  # noqa: E402
from benchmarks.doctor.order import Diagnosis  # noqa: E402
from benchmarks.equivalence.equivalence import Proof  # noqa: E402
from benchmarks.history.exports import RunListing  # noqa: E402
from benchmarks.logs.report import IngestDocument  # noqa: E402
from benchmarks.logs.timing_table import Timings  # noqa: E402
from benchmarks.machine.peak_file import PeakMeasurementFile  # noqa: E402
from benchmarks.mlperf.verdict import Verdict  # noqa: E402
from benchmarks.model.forecast import PlanReport  # noqa: E402
from benchmarks.nightly.values import Acceptance, NightReport  # noqa: E402
from benchmarks.preflight.report import Report  # noqa: E402
from benchmarks.references.nearest_reference import References  # noqa: E402
from benchmarks.sweeps.sweep_report import SweepReport  # noqa: E402
from benchmarks.trace.report import TraceReport  # noqa: E402
from launch.checks.flags_check import CheckedFlags  # noqa: E402
from launch.preflight.machine import MachineCheck  # noqa: E402
from launch.terminal import documents as d  # noqa: E402

Named = dict[str, str]
# The words of a command, with the flag that selects one of several documents -> its document.
DOCUMENTS: dict[str, Any] = {
    "error": d.Error,
    "ended": d.ExitDocument,
    "text": d.Text,
    "run": d.Runs,
    "run --dry_run": d.DryRun,
    "run --dry_run (sweep)": d.DrySweep,
    "run --list": dict[str, Named],
    "run (sweep)": SweepReport,
    "status": list[d.State],
    "status --follow": d.Runs,
    "compare": Comparison,
    "verify": d.CheckedRuns,
    "verify --equivalence": Proof,
    "nightly": NightReport,
    "nightly --list": Named,
    "nightly --dry_run": d.NightPlan,
    "nightly --rehearse": d.Rehearsal,
    "nightly --accept": Acceptance,
    "ingest": IngestDocument,
    "peak": PeakMeasurementFile,
    "report timing": Timings,
    "report references": References,
    "report mlperf": Verdict,
    "report runs": RunListing,
    "report scaling": SweepReport,
    "report trace": TraceReport,
    "report html": d.Page,
    "report archive": d.Archive,
    "report verify_archive": d.CheckedArchive,
    "doctor logs": Diagnosis,
    "doctor machine": list[MachineCheck],
    "doctor flags": list[CheckedFlags],
    "doctor nodes": Report,
    "doctor nodes --dry_run": d.Text,
    "plan estimate": PlanReport,
    "plan layouts": PlanReport,
    "plan compile": Variants,
    "dashboard": d.Dashboard,
    "cluster up": d.Cluster,
    "cluster down": d.Cluster,
    "cluster status": d.Cluster,
    "cluster kill": d.ExitDocument,
    "cluster revive": d.ExitDocument,
    "cluster restart_controller": d.ExitDocument,
    "setup": d.Files,
    "setup --download": d.Files,
    "setup --download --asset": d.ExitDocument,
    "setup --site": d.Site,
    "setup --site --task=mlperf": d.Files,
    "setup --site --dry_run": d.Text,
    "setup --new_site": d.NewSite,
    "completion": d.Text,
}


def text() -> str:
    """Return the schemas of all documents; common parts are described once, in $defs."""
    found, parts = msgspec.json.schema_components(list(DOCUMENTS.values()), ref_template="#/$defs/{name}")
    lines = [
        ",\n".join(f" {json.dumps(name)}: {json.dumps(one)}" for name, one in rows.items())
        for rows in (dict(zip(DOCUMENTS, found, strict=True)), parts)
    ]
    return f'{{"documents": {{\n{lines[0]}\n}}, "$defs": {{\n{lines[1]}\n}}}}\n'


if __name__ == "__main__":
    FILE.write_text(text())
