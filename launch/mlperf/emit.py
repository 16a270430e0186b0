"""Writes a run's MLLOG with the package's own logger: one file, the run's own times."""

import logging
import os
import re
from pathlib import Path

from benchmarks.mlperf.writing import Entry, WrittenRun, entries

ROOT = Path(__file__).resolve().parents[2]


def write(run: WrittenRun, path: Path) -> Path:
    """The MLLOG of a run, whole or not at all: it is renamed into place when the last line is written."""
    lines = entries(run)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(lines, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _write(lines: list[Entry], path: Path) -> None:
    from mlperf_logging.mllog.mllog import MLLogger  # the package brings pandas: only where it writes

    logger = logging.Logger("stepmark.mllog")  # of its own: the package's default one prints to stdout
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    try:
        # The logger names the file that called it: less this folder's place on this machine.
        mllog = MLLogger(logger=logger, root_dir=re.escape(str(ROOT)))
        say = {"start": mllog.start, "end": mllog.end, "point": mllog.event}
        for line in lines:
            say[line.event](key=line.key, value=line.value, metadata=dict(line.metadata), time_ms=line.time_ms)
    finally:
        handler.close()
