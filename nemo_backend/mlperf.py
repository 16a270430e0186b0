"""The engines `mlperf_*`: NVIDIA's submissions of MLPerf benchmarks, run as they are in their own containers. Nothing
of them is imported.

What it is started with is in mlperf_planning.py, what is refused without asking the rules in mlperf_refusals.py, how
its logs are read in mlperf_reading.py. The rules themselves are benchmarks/mlperf/admission.py's.
"""

from nemo_backend.mlperf_planning import (
    LAYOUT_SETTINGS,
    check_phase,
    engines,
    environment,
    parallelism,
    plan,
    reserved,
    settings,
    shares,
)
from nemo_backend.mlperf_reading import follow, read_phase
from nemo_backend.mlperf_refusals import refusals, refuses_hardware

__all__ = [
    "LAYOUT_SETTINGS",
    "check_phase",
    "engines",
    "environment",
    "follow",
    "parallelism",
    "plan",
    "read_phase",
    "refusals",
    "refuses_hardware",
    "reserved",
    "settings",
    "shares",
]
