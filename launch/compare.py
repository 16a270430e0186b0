"""Compares two runs, or two sets of runs: how far B is from A, whether that is shown, and what may have caused it.

Examples:
  python launch/compare.py RUN_A RUN_B
      two runs; without earlier runs of the same kind beside them there is no verdict: one run shows no noise
  python launch/compare.py RUN1,RUN2,RUN3 RUN4,RUN5,RUN6
      two sets: from 3 runs a side on, the interval and the verdict are those of the runs
  python launch/compare.py tag=before tag=after --explain
      filters; and what differs in the provenance of the two sides, the most likely cause first
  python launch/compare.py commit=185ebab commit=0167317 --where=model=llama2_70b --where=gpus=64 --newest=10
      conditions for both sides, and of each side the newest 10 runs
  python launch/compare.py dtype=bf16,status=valid dtype=fp8 --format=markdown
      for a pull request; --html=FILE writes a page

A is the baseline. Each side is one of: a run's folder; a part of its name that no other run in --output_dir has;
several of those with commas; conditions such as model=llama2_70b or date>=2026-11-01, joined by commas, plus signs or
blanks, which runs must fit all (dtype=bf16,fp8 is any of the two). docs/comparing.md has the verdicts and what they
rest on. Exit codes: 0 compared, whatever the verdict; 2 the request was wrong; 3 the sides are not comparable.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from launch.cli import run_main

FORMATS = ("table", "json", "markdown")

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", "results", "The folder with the runs.")
flags.DEFINE_multi_string("where", [], "A condition for both sides, such as model=llama2_70b; repeat for more.")
flags.DEFINE_integer("newest", None, "Of the runs that fit a side's conditions, so many of the newest.")
flags.DEFINE_boolean("explain", False, "Rank what differs in provenance, the most likely cause first.")
flags.DEFINE_float("margin", 1.0, "Percent: sides within it are called equal; 0: none are.")
flags.DEFINE_enum("format", "table", list(FORMATS), "The shape of the answer.")
flags.DEFINE_string("html", None, "Write a page with the comparison to this file too.")


def main(argv: list[str]) -> int:
    from benchmarks.comparing.compare import compare
    from launch.reports import comparing

    if len(argv) != 3:
        raise RequestError(
            f"two sides are expected, {len(argv) - 1} given",
            where="launch/compare.py",
            why="A is the baseline, B is held against it",
            next_command="python launch/compare.py RUN_A RUN_B     (or --help)",
        )
    if not 0 <= FLAGS.margin <= comparing.LARGEST_MARGIN:
        raise RequestError(f"--margin={FLAGS.margin:g}: 0 to {comparing.LARGEST_MARGIN:g} percent", where="--margin")
    if FLAGS.html is not None:
        comparing.refuse_folder(Path(FLAGS.html))
    sides = comparing.Sides(Path(FLAGS.output_dir), FLAGS.where, FLAGS.newest)
    a, b = sides.chosen(argv[1], argv[2])
    found = compare(a, b, explained=FLAGS.explain, margin_percent=FLAGS.margin, history=sides.history)
    print(comparing.text_of(found, FLAGS.format), end="")
    if FLAGS.html is not None:
        comparing.write_page(found, Path(FLAGS.html))
    return EXIT_INVALID if found.refused else EXIT_VALID


if __name__ == "__main__":
    run_main(main)
