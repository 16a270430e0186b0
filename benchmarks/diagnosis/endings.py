"""Why a log ended, in one line for the tables of many logs: the first cause of what follows the last step. Pure."""

from benchmarks.diagnosis.evidence import SUSPECT, UNKNOWN, Finding, Scanner
from benchmarks.diagnosis.order import diagnose
from benchmarks.diagnosis.stamps import Clock
from benchmarks.diagnosis.symptoms import Symptoms
from benchmarks.logs.log_endings import Ending

PYTHON_ERROR = "python_error"
ANY_YEAR = 2000  # of stamps without one; all are of one log


class Endings:
    """Finds the reason in a piece of a log, by the symptoms that the doctor knows."""

    def __init__(self, symptoms: Symptoms) -> None:
        self._symptoms = symptoms

    def find(self, text: bytes) -> Ending | None:
        """The reason that a piece of a log shows; None where it shows none."""
        scanner = Scanner(self._symptoms, "", Clock(ANY_YEAR))
        scanner.feed(text)
        found = diagnose([scanner.finish()], self._symptoms)
        first = next((one for one in found.entries if one.kind != SUSPECT), None)
        return None if first is None else self._ending(first.first)

    def _ending(self, finding: Finding) -> Ending:
        if finding.id == UNKNOWN:
            return Ending(name=PYTHON_ERROR, text=finding.text)
        title = self._symptoms.by_id[finding.id].title
        return Ending(name=finding.id, text=f"{title}: {finding.text}" if title else finding.text)
