"""Recompute a run's result from its raw files, or check that the backends do the same work.

Examples:
  python launch/verify.py results/RUN
      exit code 0 if every metric can be recomputed from the raw files, 3 if one differs
  python launch/verify.py --repair results/RUN
      write steps.jsonl and result.json again from the raw files (after a crash or a full disk)
  python launch/verify.py --equivalence
      train a tiny Llama 2 and Llama 3 in every backend from the same weights, on this machine's CPU, and compare
      parameters, FLOPs, settings, loss, logits, gradients and updates: exit code 0 if all agree, 3 if a line differs
  python launch/verify.py --equivalence --dtype=bf16 --hardware=h100
      the same check in bf16 on a GPU of this machine, with the tolerances of bf16 (on its CPU: --hardware=cpu)
  python launch/verify.py --equivalence --task=lora
      the same check, but train only adapters, which have the same rank, alpha and matrices in every backend

RUN is a run's folder, or a unique part of a run's name in --output_dir.
The raw files are benchmark.json, plan.json, provenance.json and attempt-*/. Stepmark makes steps.jsonl and
result.json from them.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from pathlib import Path

from absl import flags

from benchmarks.errors import RequestError
from launch.cli.command import run_main
from launch.terminal.documents import CheckedRuns
from launch.terminal.output import document

FLAGS = flags.FLAGS
flags.DEFINE_boolean("repair", False, "Write steps.jsonl and result.json again from the raw files.")
flags.DEFINE_boolean("equivalence", False, "Check that the backends do the same work.")
flags.DEFINE_list("model", [], "With --equivalence: the models. (default: llama2_tiny,llama3_tiny)")
flags.DEFINE_enum(
    "task", "pretrain", ["pretrain", "lora"], "With --equivalence: train all weights, or only adapters."
)
flags.DEFINE_enum("dtype", "fp32", ["fp32", "bf16"], "With --equivalence: the precision of the compared runs.")
flags.DEFINE_string("hardware", "cpu", "With --equivalence: the device (configs/hardware).")
flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the runs (default: results). With --equivalence: the folder in which to keep all files.",
)
OF_EQUIVALENCE = ("model", "task", "dtype", "hardware")


def main(argv: list[str]) -> int:
    runs = argv[1:]
    if FLAGS.equivalence:
        return _equivalence(runs)
    given = [f"--{name}" for name in OF_EQUIVALENCE if FLAGS[name].present]
    if given:
        raise RequestError(
            f"{', '.join(given)} needs --equivalence",
            where=given[0],
            next_command="python launch/verify.py --equivalence",
        )
    if not runs:
        raise RequestError("the run is missing", next_command="python launch/status.py")
    from benchmarks.runs.find_runs import place_of
    from launch.checks.verifying import check_run

    output_dir = Path(FLAGS.output_dir or "results")
    checked = [check_run(place_of(name, output_dir), output_dir, repair=FLAGS.repair) for name in runs]
    document(CheckedRuns(runs=[found for found, _ in checked]))
    return max(code for _, code in checked)


def _equivalence(runs: list[str]) -> int:
    from launch.checks.equivalence import MODELS, prove

    if runs or FLAGS.repair:
        raise RequestError(
            f"--equivalence compares backends and does not accept {'--repair' if FLAGS.repair else 'a run'}",
            where=" ".join(runs) or "--repair",
            next_command="python launch/verify.py --equivalence",
        )
    output_dir = Path(FLAGS.output_dir) if FLAGS.output_dir else None
    models = FLAGS.model or MODELS
    return prove(models, output_dir, task=FLAGS.task, dtype=FLAGS.dtype, hardware=FLAGS.hardware)


if __name__ == "__main__":
    run_main(main)
