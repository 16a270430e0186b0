"""Recompute a run's result from its raw files, or prove that the backends do the same work.

Examples:
  python launch/verify.py results/RUN
      exit 0 where every figure follows from the raw files, 3 where one differs
  python launch/verify.py --repair results/RUN
      write steps.jsonl and result.json anew from the raw files (after a crash or a full disk)
  python launch/verify.py --equivalence
      train a tiny Llama 2 and Llama 3 in every backend from the same weights, here on a CPU, and compare parameters,
      FLOPs, settings, loss, logits, gradients and updates: exit 0 where all agree, 3 where a line differs
  python launch/verify.py --equivalence --dtype=bf16 --hardware=h100
      the same in bf16 on a GPU of this machine, with the tolerances of bf16 (--hardware=cpu: on its CPU)
  python launch/verify.py --equivalence --task=lora
      the same of training adapters alone: one rank, alpha and set of matrices in every backend

RUN is a run's folder, or a part of its name that no other run in --output_dir has.
The raw files are benchmark.json, plan.json, provenance.json and attempt-*/; steps.jsonl and
result.json are made from them.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import os
import shlex
import sys
from pathlib import Path

from absl import flags

from benchmarks.backend import Backend, find_backend
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, StepmarkError
from benchmarks.files import cannot_read
from benchmarks.runs.find_runs import place_of
from benchmarks.runs.recompute import differences, recompute
from benchmarks.runs.runfolder import RunFolder, is_followed, without_result
from launch.cli.command import run_main
from launch.terminal.documents import Checked, CheckedRuns, Why
from launch.terminal.output import document

FLAGS = flags.FLAGS
flags.DEFINE_boolean("repair", False, "Write steps.jsonl and result.json anew from the raw files.")
flags.DEFINE_boolean("equivalence", False, "Prove that the backends do the same work: docs/equivalence.md.")
flags.DEFINE_list("model", [], "With --equivalence: the models; else llama2_tiny,llama3_tiny.")
flags.DEFINE_enum(
    "task", "pretrain", ["pretrain", "lora"], "With --equivalence: train everything, or adapters alone."
)
flags.DEFINE_enum("dtype", "fp32", ["fp32", "bf16"], "With --equivalence: the precision, with its own tolerances.")
flags.DEFINE_string("hardware", "cpu", "With --equivalence: where it is computed, of configs/hardware.")
flags.DEFINE_string(
    "output_dir",
    None,
    "The folder with the runs (results); with --equivalence it keeps all files, which are temporary else.",
)
OF_EQUIVALENCE = ("model", "task", "dtype", "hardware")

MOST_SHOWN = 20


def main(argv: list[str]) -> int:
    _refuse_mixed_flags(argv[1:])
    if FLAGS.equivalence:
        return _equivalence()
    if len(argv) < 2:
        raise RequestError("which run?", next_command="python launch/verify.py results/RUN")
    places = [place_of(name, Path(FLAGS.output_dir or "results")) for name in argv[1:]]
    checked = [_one_of_many(place) for place in places]
    document(CheckedRuns(runs=[found for found, _ in checked]))
    return max(code for _, code in checked)


def _refuse_mixed_flags(runs: list[str]) -> None:
    """A run is verified, or the backends are compared: what belongs to the other would be left out in silence."""
    given = [f"--{name}" for name in OF_EQUIVALENCE if FLAGS[name].present]
    if FLAGS.equivalence and (runs or FLAGS.repair):
        raise RequestError(
            f"--equivalence compares backends: it takes no {'--repair' if FLAGS.repair else 'run'}",
            where=" ".join(runs) or "--repair",
            next_command="python launch/verify.py --equivalence",
        )
    if given and not FLAGS.equivalence:
        raise RequestError(
            f"{', '.join(given)} means something with --equivalence alone",
            where=given[0],
            next_command="python launch/verify.py --equivalence",
        )


def _equivalence() -> int:
    from launch.checks.equivalence import MODELS, prove

    output_dir = Path(FLAGS.output_dir) if FLAGS.output_dir else None
    return prove(
        FLAGS.model or MODELS,
        output_dir,
        task=FLAGS.task,
        dtype=FLAGS.dtype,
        hardware=FLAGS.hardware,
    )


def _one_of_many(place: Path) -> tuple[Checked, int]:
    """A folder that cannot be read does not hide the verdict on the others."""
    try:
        try:
            return verify(RunFolder(place))
        except OSError as error:
            if error.filename is None:  # what is printed goes nowhere
                raise
            raise cannot_read(error, Path(os.fsdecode(error.filename))) from None
    except StepmarkError as error:
        print(f"stepmark: {error}", file=sys.stderr)
        return Checked(path=str(place), agrees=None, error=Why(**error.words())), error.exit_code


def verify(folder: RunFolder) -> tuple[Checked, int]:
    """And the exit code."""
    if not folder.path.is_dir():
        raise RequestError(
            "there is no such run folder",
            where=str(folder.path),
            next_command=f"python launch/status.py --output_dir={shlex.quote(FLAGS.output_dir or 'results')}",
        )
    folder.refuse_older()
    backend = find_backend(folder.benchmark().backend)
    if not folder.is_collected() or (not folder.is_queued() and is_followed(folder)):
        raise without_result(folder.path)
    if FLAGS.repair:
        return repair(folder, backend)
    stored, stored_steps = folder.stored_result(), folder.stored_steps()
    result, steps = recompute(folder, backend)
    found = [
        *folder.changed_since_sealed(),
        *differences(stored, result, stored_steps, steps),
    ]
    checked = Checked(
        path=str(folder.path), agrees=not found, status=result.status, steps=len(steps), differences=found
    )
    if not found:
        print(f"{folder.path}: agrees ({len(steps)} steps, status {result.status})")
        return checked, EXIT_VALID
    print(f"{folder.path}: {len(found)} differences between what is stored and what the raw files say")
    for line in found[:MOST_SHOWN]:
        print(f"  {line}")
    if len(found) > MOST_SHOWN:
        print(f"  and {len(found) - MOST_SHOWN} more")
    return checked, EXIT_INVALID


def repair(folder: RunFolder, backend: Backend) -> tuple[Checked, int]:
    from launch.running.execute import store_result

    result = store_result(folder, backend)
    print(f"{folder.path}: steps.jsonl and result.json written anew (status {result.status})")
    for reason in result.reasons:
        print(f"  - {reason}")
    return Checked(path=str(folder.path), agrees=None, status=result.status), EXIT_VALID


if __name__ == "__main__":
    run_main(main)
