"""Check that a run's result agrees with the run's raw files, for verify.py and for each run of an archive."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.backend import find_backend
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, StepmarkError
from benchmarks.files import cannot_read
from benchmarks.runs.recompute import differences, recompute
from benchmarks.runs.runfolder import RunFolder, is_followed, without_result
from benchmarks.text import plural
from benchmarks.values import Step
from launch.terminal.documents import RunCheck, Why

MOST_SHOWN = 20


def check_run(place: Path, output_dir: Path, *, repair: bool = False) -> tuple[RunCheck, int]:
    """Check or repair a run, and print the outcome. Return the outcome and the exit code."""
    try:
        folder = _readable(place, output_dir)
        return _repair(folder) if repair else _verify(folder)
    except BrokenPipeError:  # the program that reads the output has ended
        raise
    except (OSError, StepmarkError) as error:
        refused = cannot_read(error, place) if isinstance(error, OSError) else error
        print(f"stepmark: {refused}", file=sys.stderr)
        return RunCheck(path=str(place), agrees=None, error=Why(**refused.words())), refused.exit_code


def _readable(place: Path, output_dir: Path) -> RunFolder:
    folder = RunFolder(place)
    if not place.is_dir():
        runs = output_dir if place.name == str(place) else place.parent
        command = f"python launch/status.py --output_dir={shlex.quote(str(runs))}" if runs.is_dir() else ""
        why = f"{runs} has no such run; for a run in another folder, pass its path or --output_dir=DIR"
        raise RequestError("the run folder does not exist", where=str(place), why=why, next_command=command)
    folder.refuse_older()
    folder.benchmark()  # refuses a folder that is not a run
    if not folder.is_collected() or (not folder.is_queued() and is_followed(folder)):
        raise without_result(place)
    return folder


def _verify(folder: RunFolder) -> tuple[RunCheck, int]:
    result, steps = recompute(folder, find_backend(folder.benchmark().backend))
    numbers, ranks = set[int](), set[int]()

    def counting() -> Iterator[Step]:
        for step in steps:
            numbers.add(step.step)
            ranks.add(step.rank)
            yield step

    stored = differences(folder.stored_result(), result, folder.each_stored_step(), counting())
    found = [*folder.changed_since_sealed(), *stored]
    checked = RunCheck(
        path=str(folder.path), agrees=not found, status=result.status, steps=len(numbers), differences=found
    )
    if not found:
        of_ranks = f" of each of {len(ranks)} ranks" if len(ranks) > 1 else ""
        print(f"{folder.path}: agrees ({len(numbers)} steps{of_ranks}, status {result.status})")
        return checked, EXIT_VALID
    print(f"{folder.path}: {plural(len(found), 'difference')} between the stored result and the raw files")
    for line in found[:MOST_SHOWN]:
        print(f"  {line}")
    if len(found) > MOST_SHOWN:
        print(f"  and {len(found) - MOST_SHOWN} more")
    return checked, EXIT_INVALID


def _repair(folder: RunFolder) -> tuple[RunCheck, int]:
    from launch.running.execute import store_result

    result = store_result(folder, find_backend(folder.benchmark().backend))
    print(f"{folder.path}: steps.jsonl and result.json written again (status {result.status})")
    for reason in result.reasons:
        print(f"  - {reason}")
    return RunCheck(path=str(folder.path), agrees=None, status=result.status), EXIT_VALID
