"""The engine `bridge`: NVIDIA's Megatron-Bridge, planned and read. GPU only; nothing of it is imported.

What a run is started with is in bridge_planning.py, what is refused in bridge_refusals.py, what it stores in
bridge_memory.py, how its logs are read in bridge_reading.py, and which settings and recipes there are in
bridge_settings.yml.
"""

from nemo_backend.bridge_memory import parallelism, storage
from nemo_backend.bridge_planning import RESERVED, environment, hub_repository, plan, settings
from nemo_backend.bridge_reading import follow, read_phase
from nemo_backend.bridge_refusals import refusals, refuses_hardware

__all__ = [
    "RESERVED",
    "environment",
    "follow",
    "hub_repository",
    "parallelism",
    "plan",
    "read_phase",
    "refusals",
    "refuses_hardware",
    "settings",
    "storage",
]
