"""Which steps of a NeMo run nsys records: begins and ends the recording.

Runs inside NeMo's environment, loaded by its path. It calls what NeMo's own NsysCallback calls; but that one counts
the steps of an epoch, and so would begin twice or never on a small dataset.
"""

from collections.abc import Collection
from typing import Any

NO_CUDA = "profile: a CPU makes no CUDA calls; nsys recorded the whole run"


class ProfiledSteps:
    """`recorded` are steps, empty where nothing is; `mine`: by this rank."""

    def __init__(self, recorded: Collection[int], *, mine: bool) -> None:
        self._recorded, self._mine = recorded, mine
        self._on_cpu = False
        self._ranges: Any = None

    def before(self, step: int, torch: Any) -> None:
        """The step is about to begin."""
        if not self._recorded or step != min(self._recorded):
            return
        self._on_cpu = not torch.cuda.is_available()  # on every rank: it is the first one's notes that are read
        if self._on_cpu or not self._mine:
            return
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
        self._ranges = torch.autograd.profiler.emit_nvtx()
        self._ranges.__enter__()

    def after(self, step: int, torch: Any) -> None:
        """The step has ended, on the device too, and its time is taken."""
        if self._ranges is None or step != max(self._recorded):
            return
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
        self._ranges.__exit__(None, None, None)
        self._ranges = None

    def notes(self) -> list[str]:
        return [NO_CUDA] if self._on_cpu else []
