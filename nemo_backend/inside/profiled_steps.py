"""Which steps of a NeMo run nsys records: begins and ends the recording, and says which steps it disturbs.

Runs inside NeMo's environment, loaded by its path. It calls what NeMo's own NsysCallback calls; but that one counts
the steps of an epoch, and so would begin twice or never on a small dataset.
"""

from typing import Any

PROFILER = "profiler"
NO_CUDA = "profile: a CPU makes no CUDA calls; nsys recorded the whole run"


def numbers_of(text: str) -> list[int]:
    """0-2,8 -> [0, 1, 2, 8]"""
    found: list[int] = []
    for word in filter(None, text.split(",")):
        first, _, last = word.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


class ProfiledSteps:
    """`recorded` on some ranks. All wait for those, so the `disturbed` steps are every rank's. Empty: nothing is."""

    def __init__(self, recorded: str, disturbed: str, ranks: str, rank: int) -> None:
        self._recorded = numbers_of(recorded)
        self._mine = rank in numbers_of(ranks)
        self._disturbed = set(numbers_of(disturbed))
        self._on_cpu = False
        self._ranges: Any = None

    def before(self, step: int, torch: Any) -> None:
        """The step is about to begin."""
        if step not in self._recorded[:1]:
            return
        self._on_cpu = not torch.cuda.is_available()  # on every rank: it is the first one's notes that are read
        if self._on_cpu or not self._mine:
            return
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
        self._ranges = torch.autograd.profiler.emit_nvtx()
        self._ranges.__enter__()

    def after(self, step: int, torch: Any) -> None:
        """The step has ended, on the device too, and its time is taken."""
        if self._ranges is None or step != self._recorded[-1]:
            return
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
        self._ranges.__exit__(None, None, None)
        self._ranges = None

    def reason(self, step: int) -> "str | None":
        """Why a step is left out of the window; None: it is not."""
        return PROFILER if step in self._disturbed else None

    def notes(self) -> list[str]:
        return [NO_CUDA] if self._on_cpu else []
