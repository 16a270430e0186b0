"""Logs as texts, read by the doctor, for its tests."""

from pathlib import Path

import yaml

from benchmarks.configs import DEFAULT_ROOT
from benchmarks.doctor.evidence import LogEvidence, Scanner
from benchmarks.doctor.lines import Clock, rank_of_file
from benchmarks.doctor.order import NOTHING, Diagnosis, RunContext, diagnose
from benchmarks.doctor.symptoms import read_symptoms

LINES: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("lines.yml").read_text())
SYMPTOMS = read_symptoms(DEFAULT_ROOT)
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
STEP = "completed step: {}, seconds: 0.010, TFLOP/s/device: 0.1, Tokens/s/device: 91.0, loss: 5.9\n"


def evidence(text: str | bytes, name: str = "a.log", piece: int = 1 << 20) -> LogEvidence:
    data = text.encode() if isinstance(text, str) else text
    scanner = Scanner(SYMPTOMS, name, Clock(2026), rank_of_file(name))
    for start in range(0, len(data), piece):
        scanner.feed(data[start : start + piece])
    return scanner.finish()


def diagnosis(known: RunContext = NOTHING, **logs: str) -> Diagnosis:
    """Return the diagnosis of logs by their names, with `_` for a dot: rank_0_log is the log of rank 0."""
    return diagnose([evidence(text, name.replace("_", ".")) for name, text in logs.items()], SYMPTOMS, known)


def ids(found: Diagnosis) -> list[str]:
    return [one.id for one in found.entries]


def steps(count: int, first: int = 0) -> str:
    return "".join(STEP.format(number) for number in range(first, first + count))
