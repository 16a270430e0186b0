"""The account of `make gpu`: a line for each check, a table of them, and the folder that holds all they left."""

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from benchmarks import VERSION
from benchmarks.values import Value, json_text
from launch.machine import machine_gpus, processes, this_machine
from launch.running import execute

TABLE, ROWS, MACHINE = "table.txt", "checks.json", "machine.json"

Outcome = Literal["holds", "does not hold", "not tried"]


class Row(Value, frozen=True):
    """One check: what it needed, what it measured, and whether it holds."""

    name: str
    needs: str
    outcome: Outcome
    figures: list[str]
    why: str  # why it does not hold, or was not tried
    seconds: float


def table(rows: Sequence[Row], title: str) -> str:
    """What holds and what does not, for people: figures and reasons below each check."""
    width = max((len(row.name) for row in rows), default=0)
    lines = [title, ""]
    for row in rows:
        lines.append(f"{row.name.ljust(width)}  {row.outcome:13}  {row.seconds:6.0f} s")
        lines += [f"    {text}" for text in (*row.figures, *([row.why] if row.why else []))]
    counts = [f"{sum(row.outcome == outcome for row in rows)} {outcome}" for outcome in get_args(Outcome)]
    lines += ["", ", ".join(counts)]
    return "\n".join(lines) + "\n"


def write(folder: Path, rows: Sequence[Row], title: str) -> str:
    """Into the folder of the runs; the table, to be shown."""
    folder.mkdir(parents=True, exist_ok=True)
    text = table(rows, title)
    (folder / TABLE).write_text(text)
    (folder / ROWS).write_text(json_text(rows))
    (folder / MACHINE).write_text(json.dumps(machine(), indent=2) + "\n")
    return text


def machine() -> dict[str, object]:
    """What the checks ran on; each run says besides in its provenance.json what its framework was."""
    found = machine_gpus.found()
    return {
        "stepmark": VERSION,
        "git": execute.git_state(processes.REPOSITORY),
        "python": platform.python_version(),
        "machine": this_machine.facts(),
        "driver": found.driver,
        "cuda": ".".join(map(str, found.cuda)) if found.cuda else None,
        "gpus": [{"index": gpu.index, "name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in found.gpus],
        "why_no_gpus": found.why_none or None,
        "hidden": found.hidden or None,
    }
