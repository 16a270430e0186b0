"""What a set of MLPerf logs ran on: by its submission's description, or by the platform that the log names. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.values import Value


class System(Value, frozen=True):
    """Hardware and count; None where nothing says it."""

    hardware: str | None  # a name of configs/hardware
    model: str | None  # in the words of the source
    gpus: int | None
    source: str  # systems/NAME.json or submission_platform
    note: str = ""  # why it isn't a description that should be there

    def text(self) -> str:
        name = self.model or "not known"
        count = f"{self.gpus} x " if self.gpus else ""
        hardware = f" ({self.hardware})" if self.hardware else ""
        return f"{count}{name}{hardware}, by {self.source}" + (f": {self.note}" if self.note else "")


def described(description: Mapping[str, Any], source: str, known: Iterable[str]) -> System | None:
    """By a submission's description; None where it names no accelerator."""
    model = description.get("accelerator_model_name")
    if not isinstance(model, str) or not model:
        return None
    counts = [_count(description.get(key)) for key in ("number_of_nodes", "accelerators_per_node")]
    gpus = counts[0] * counts[1] if counts[0] and counts[1] else None
    return System(named(model, known), model, gpus, source)


def on_platform(platform: str | None, known: Iterable[str], note: str = "") -> System:
    """By what a log prints: NVIDIA's has the number of nodes, others that of devices, so the count is not known."""
    return System(named(platform or "", known), platform, None, "submission_platform", note)


def named(text: str, known: Iterable[str]) -> str | None:
    """The longest name of a device in a text: GB200 before B200, and H100 in 8xH100-SXM."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower())
    found = [name for name in known if re.search(rf"{name.replace('_', ' ')}(?!\d)", words) and name != "cpu"]
    return max(found, key=len, default=None)


def _count(value: Any) -> int | None:
    return int(value) if re.fullmatch(r"\d+", str(value).strip(), re.ASCII) else None
