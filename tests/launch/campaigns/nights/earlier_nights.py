"""Earlier nights of a suite: copies of one that was run, which took other times."""

import json
import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

NIGHT_FORMAT = "%Y%m%dT%H%M%SZ"


def copy_to_earlier_days(results: Path, suite: str, factors: Sequence[tuple[float, float]]) -> None:
    """A day earlier each: the median times the first factor, the mean over the median times the second."""
    (record,) = results.glob(f"nights/{suite}/2*.json")
    first = json.loads(record.read_text())
    night = first["night"]
    for days, (factor, mean_factor) in enumerate(factors, start=1):
        earlier = (datetime.strptime(night, NIGHT_FORMAT) - timedelta(days=days)).strftime(NIGHT_FORMAT)
        names = {night: earlier}
        for cell in first["cells"]:
            run_id = cell["run_id"]
            names[run_id] = earlier + run_id[len(earlier) :]
            shutil.copytree(results / run_id, results / names[run_id])
            for name in ("provenance.json", "result.json"):
                rename(results / names[run_id] / name, names)
            result = results / names[run_id] / "result.json"
            result.write_text(json.dumps(slower(json.loads(result.read_text()), factor, mean_factor)))
        shutil.copy(record, record.with_name(f"{earlier}.json"))
        rename(record.with_name(f"{earlier}.json"), names)


def rename(path: Path, names: dict[str, str]) -> None:
    """Longer names first: those of runs begin as that of their night may."""
    text = path.read_text()
    for old in sorted(names, key=len, reverse=True):
        text = text.replace(old, names[old])
    path.write_text(text)


def slower(result: dict[str, Any], factor: float, mean_factor: float) -> dict[str, Any]:
    times = result["seconds_per_step"]
    mean = times["mean"] * factor * mean_factor
    scaled = {
        "median": times["median"] * factor,
        "mean": mean,
        "stdev": times["stdev"] * factor,
        "ci95": times["ci95"] and [end * factor for end in times["ci95"]],  # None below 9 counted steps
        "excess": mean / (times["median"] * factor) - 1,
    }
    return {**result, "seconds_per_step": {**times, **scaled}}
