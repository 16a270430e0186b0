"""Makes one environment, from nothing to its marker, or leaves nothing behind.

Whoever calls this holds the environment's lock (environments.py).
"""

import json
import shutil
import time
from pathlib import Path

from benchmarks.errors import RequestError, RunError
from launch.environments.installing import install, is_offered
from launch.environments.making_progress import Progress, Say, shown_progress
from launch.environments.programs import Making, check, run, signals_as_exit
from launch.environments.pythons import MARKER
from launch.environments.uv_settings import uv


def make(making: Making, say: Say, bar: bool) -> Path | None:
    """The Python of the new environment; None where nobody offers what the lock file needs."""
    spec, path, size_gb = making.spec, making.path, making.lock_file.size_gb
    if path.exists():
        say(f"environment '{spec.name}': removing one that was left incomplete")
    _remove(path)
    _refuse_without_room(making)
    say(
        f"environment '{spec.name}': making it from {making.lock_file.path.name} with Python {making.version_text}, "
        f"once, about {size_gb:g} GB, in {path}"
    )
    started = time.monotonic()
    try:
        with signals_as_exit(), shown_progress(spec.name, say, bar) as progress:
            filled = _fill(making, progress)
        if filled:
            _mark_complete(making, time.monotonic() - started)
    except OSError as error:
        _remove(path)
        raise _unwritten(making, error) from error
    except BaseException:
        _remove(path)
        raise
    if not filled:
        _remove(path)
        return None
    say(f"environment '{spec.name}': ready after {time.monotonic() - started:.0f} s")
    return making.python


def _fill(making: Making, progress: Progress) -> bool:
    making.log_file.write_text("")
    progress("creating")
    check(making, "creating it", run(making, uv("venv", "--python", str(making.base), str(making.path))))
    if not is_offered(making, progress):
        return False
    install(making, progress)
    progress("checking")
    check(making, "`uv pip check`", run(making, making.uv_pip("check")))
    module = making.spec.import_check
    variables = making.spec.import_variables
    import_it = f"import importlib, os; os.environ.update({variables!r}); importlib.import_module({module!r})"
    check(making, f"importing {module}", run(making, [str(making.python), "-I", "-c", import_it]))
    return True


def _mark_complete(making: Making, seconds: float) -> None:
    facts = {"name": making.spec.name, "lock_sha256": making.lock_sha256, "seconds": round(seconds, 1)}
    half_written = making.path / f"{MARKER}.part"
    half_written.write_text(json.dumps(facts) + "\n")
    half_written.replace(making.path / MARKER)


def _remove(path: Path) -> None:
    """Remove an environment; the marker first, so that what is half removed is never taken for whole."""
    if not path.exists():
        return
    (path / MARKER).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise RunError(
            "an incomplete environment cannot be removed",
            where=str(path),
            why="a file in it is in use or belongs to another user",
            next_command=f"rm -rf {path}",
        )


def _refuse_without_room(making: Making) -> None:
    size_gb, place = making.lock_file.size_gb, making.path.parent
    free_gb = shutil.disk_usage(place).free / 1e9
    if free_gb < size_gb:
        raise RequestError(
            f"the disk has no room for the environment '{making.spec.name}'",
            where=str(place),
            why=f"it takes about {size_gb:g} GB and {free_gb:.1f} GB are free",
            next_command="free some space, or export STEPMARK_HOME=<a folder on a larger disk>",
        )


def _unwritten(making: Making, error: OSError) -> RunError:
    return RunError(
        f"environment '{making.spec.name}': a file could not be written",
        where=str(error.filename or making.path),
        why=error.strerror or str(error),
        next_command="export STEPMARK_HOME=<a folder that this user can write, on a disk with room>",
    )
