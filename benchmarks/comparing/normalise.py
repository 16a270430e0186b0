"""Takes out of a text what differs between any two runs: where they lie, when they ran, which port they got. Pure.

What is left is the same for two runs that were set up alike, so that only what matters shows as a difference.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.comparing.runs import ComparedRun
from benchmarks.values import Phase

PLACEHOLDERS = re.compile(r"\{(python|repository|phase_dir)\}")
RUN_ID = r"\d{8}T\d{6}Z-[A-Za-z0-9_-]+-[0-9a-f]{4}"
EVERYWHERE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"(?:/[^\s=,:;\"']*)?{RUN_ID}"), "{run}"),
    (re.compile(r"\d{8}T\d{6}(?:\.\d+)?Z"), "{time}"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "{time}"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "{uuid}"),
    # Of an address alone: CUBLAS_WORKSPACE_CONFIG=:4096:8 has no host before its colon.
    (
        re.compile(r"(?<![\w.:-])((?:[A-Za-z][\w.-]*|\d+(?:\.\d+){3}|\[[0-9a-fA-F:]+\])):\d{4,5}(?![\w:])"),
        r"\1:{port}",
    ),
)
# Variables that say where and when a job ran, not how: the scheduler's, this launcher's own, addresses.
NO_SETTING = re.compile(r"^(SLURM_|SLURMD_|STEPMARK_|PMIX_|PMI_)|(^|_)(PORT|PID|JOBID|JOB_ID|ADDR|TMPDIR)$")


def normaliser(run: ComparedRun) -> Callable[[str], str]:
    """What takes one run's own places out of a text, and then what differs between any two."""
    places = sorted(_places(run), key=lambda place: -len(place[0]))  # a folder before the one that it lies in

    def normalise(text: str) -> str:
        for place, name in places:
            text = text.replace(place, name)
        for pattern, name in EVERYWHERE:
            text = pattern.sub(name, text)
        return text

    return normalise


def _places(run: ComparedRun) -> Iterable[tuple[str, str]]:
    """What the plan's placeholders were filled with, read from the words that were made of them."""
    if run.measured is None:
        return []
    filled = phase_of(run)
    found: dict[str, str] = {}
    argv = filled.get("argv")
    if isinstance(argv, list) and len(argv) == len(run.measured.command):
        for template, word in zip(run.measured.command, argv, strict=True):
            found |= _filled(template, str(word))
    return found.items()


def _filled(template: str, word: str) -> dict[str, str]:
    """{"/a/b/attempt-1/perf": "{phase_dir}"} of "--to={phase_dir}" and "--to=/a/b/attempt-1/perf"."""
    names = PLACEHOLDERS.findall(template)
    if len(names) != 1:
        return {}
    before, after = PLACEHOLDERS.split(template)[0], PLACEHOLDERS.split(template)[-1]
    if not word.startswith(before) or not word.endswith(after) or len(word) <= len(before) + len(after):
        return {}
    return {word[len(before) : len(word) - len(after)]: f"{{{names[0]}}}"}


def phase_of(run: ComparedRun) -> dict[str, Any]:
    """What provenance.json says of the measured phase."""
    phases = run.provenance.get("phases")
    if not isinstance(phases, dict) or not phases:
        return {}
    name = run.measured.name if isinstance(run.measured, Phase) else list(phases)[-1]
    found = phases.get(name)
    return found if isinstance(found, dict) else {}
