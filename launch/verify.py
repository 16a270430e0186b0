"""Recompute a run's result from its raw files and compare it with what is stored.

Examples:
  python launch/verify.py results/RUN
      exit 0 where every figure follows from the raw files, 3 where one differs
  python launch/verify.py --repair results/RUN
      write steps.jsonl and result.json anew from the raw files (after a crash or a full disk)

The raw files are benchmark.json, plan.json, provenance.json and attempt-*/; steps.jsonl and
result.json are made from them.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import json
import shlex
import sys
from pathlib import Path

from absl import flags

from benchmarks.backend import Backend, find_backend
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, StepmarkError
from benchmarks.runfolder import PROVENANCE, RESULT, RunFolder, not_collected, recompute
from benchmarks.verification import differences, younger_keys
from launch.cli import run_main

FLAGS = flags.FLAGS
flags.DEFINE_boolean("repair", False, "Write steps.jsonl and result.json anew from the raw files.")

MOST_SHOWN = 20


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        raise RequestError("which run?", next_command="python launch/verify.py results/RUN")
    codes = [_one_of_many(RunFolder(Path(name))) for name in argv[1:]]
    return max(codes)


def _one_of_many(folder: RunFolder) -> int:
    """A folder that cannot be read does not hide the verdict on the others."""
    try:
        return verify(folder)
    except StepmarkError as error:
        print(f"stepmark: {error}", file=sys.stderr)
        return error.exit_code


def verify(folder: RunFolder) -> int:
    if not folder.path.is_dir():
        raise RequestError("there is no such run folder", where=str(folder.path))
    backend = find_backend(folder.benchmark().backend)
    if not folder.is_collected():
        raise not_collected(folder.path)
    if FLAGS.repair:
        return repair(folder, backend)
    stored, stored_steps = folder.stored_result(), folder.stored_steps()
    result, steps = recompute(folder, backend)
    younger, told = _younger(folder)
    found = [*folder.changed_since_sealed(), *differences(stored, result, stored_steps, steps, younger)]
    if not found:
        print(f"{folder.path}: agrees ({len(steps)} steps, status {result.status})")
        print(told, end="")
        return EXIT_VALID
    print(f"{folder.path}: {len(found)} differences between what is stored and what the raw files say")
    for line in found[:MOST_SHOWN]:
        print(f"  {line}")
    if len(found) > MOST_SHOWN:
        print(f"  and {len(found) - MOST_SHOWN} more")
    print(told, end="")
    return EXIT_INVALID


def _younger(folder: RunFolder) -> tuple[list[str], str]:
    """The keys that an earlier version, which stored the result, did not have; and the line that says so."""
    if not (folder.path / PROVENANCE).exists():
        return [], ""
    stored_by = str(folder.provenance().get("stepmark"))
    keys = younger_keys(json.loads((folder.path / RESULT).read_bytes()), stored_by)
    add = f"python launch/verify.py --repair {shlex.quote(str(folder.path))} adds {'them' if len(keys) > 1 else 'it'}"
    return keys, f"  stored by Stepmark {stored_by}, which had no {', '.join(keys)}: {add}\n" if keys else ""


def repair(folder: RunFolder, backend: Backend) -> int:
    from launch.execute import store_result

    result = store_result(folder, backend)
    print(f"{folder.path}: steps.jsonl and result.json written anew (status {result.status})")
    for reason in result.reasons:
        print(f"  - {reason}")
    return EXIT_VALID


if __name__ == "__main__":
    run_main(main)
