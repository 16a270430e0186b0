"""The log formats that are known: MLPerf's, which every framework may print, those of all installed backends, and
those of frameworks that are no backend (configs/log_formats)."""

import sys
from pathlib import Path

from benchmarks.backend import ENTRY_POINT_GROUP, Backend, LogFormat, backends
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.logs.templates import formats_in
from benchmarks.mlperf.log_format import MLLOG


def backend_of_format(log_format: LogFormat) -> Backend | None:
    """The backend whose frameworks print a format; None where frameworks of any may print it."""
    names = {backend: [one.name for one in backend.log_formats()] for backend in backends().values()}
    return next((backend for backend, found in names.items() if log_format.name in found), None)


def all_log_formats() -> list[LogFormat]:
    """Without those of a backend, no log could be told from another file."""
    found = [log_format for _, backend in sorted(backends().items()) for log_format in backend.log_formats()]
    if not found:
        raise RequestError(
            "no log format is known",
            where=f"entry point group '{ENTRY_POINT_GROUP}'",
            why=f"no backend with one is registered for {sys.executable}, or this user may not read where it is",
            next_command=f"{sys.executable} -m pip install --editable {Path(__file__).resolve().parents[2]}",
        )
    return [MLLOG, *found, *formats_in(Configs().root)]
