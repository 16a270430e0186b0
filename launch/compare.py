"""Compares two runs, or two sets of runs: how far B is from A, whether that is shown, and what may have caused it.

Examples:
  python launch/compare.py RUN_A RUN_B
      two runs; without 3 earlier runs of the same kind the verdict is inconclusive: one run shows no noise
  python launch/compare.py RUN1,RUN2,RUN3 RUN4,RUN5,RUN6
      two sets of 3 runs or more, best run in turns: Welch's t on the runs
  python launch/compare.py tag=before tag=after --explain
      filters; and what differs in the provenance of the two sides, the most likely cause first
  python launch/compare.py dtype=bf16,gpus=64,date>=2026-11-01 dtype=fp8,gpus=64 --html=FILE
      several conditions a side; and a page for people

A is the baseline. Each side is one of: a run's folder; a folder with runs; a part of its name that no other run in
--output_dir has; several of those with commas; conditions such as model=llama2_70b or date>=2026-11-01, joined by
commas, plus signs or blanks, which runs must fit all (dtype=bf16,fp8 is any of the two).
docs/how-to/compare.md explains the verdicts. Exit codes: 0 compared, with any verdict; 2 the request was wrong; 3 the
sides are not comparable, or, with --fail_on=worse, B is worse.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.verdict import Verdict
from launch.cli.command import run_main
from launch.terminal.output import VERBOSE, answer, verbose

if TYPE_CHECKING:
    from benchmarks.history.index import Index

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", "results", "The folder with the runs.")
flags.DEFINE_boolean("explain", False, "Rank what differs in provenance, the most likely cause first.")
flags.DEFINE_float("margin", 1.0, "Percent: sides within it are called the same; 0: none are.", 0, 100)
flags.DEFINE_string("html", None, "Write a page with the comparison to this file too.")
flags.DEFINE_string("markdown", None, "Write Markdown to this file too ($GITHUB_STEP_SUMMARY gets it anyway).")
flags.DEFINE_enum("fail_on", "not_comparable", ["not_comparable", "worse"], "What ends with 3; worse: both do.")
flags.declare_key_flag(VERBOSE)


def main(argv: list[str]) -> int:
    from benchmarks.compare.compare import compare
    from benchmarks.compare.sides import Sides
    from benchmarks.compare.text import table_text
    from benchmarks.pages import html_pages
    from benchmarks.pages.comparison import comparison_part
    from benchmarks.pages.page import page
    from benchmarks.runs.runfolder import write_atomically
    from benchmarks.text import headed
    from launch.campaigns.nights import outputs
    from launch.terminal.run_index import open_index, say_problems

    if len(argv) != 3:
        raise RequestError(
            f"a comparison needs two sides, not {len(argv) - 1}",
            next_command="python launch/compare.py --help",
        )
    outputs.Outputs(markdown=FLAGS.markdown, html=FLAGS.html).check()

    def opened(folder: Path) -> "Index":
        index = open_index(folder)
        say_problems(index)  # a run that can't be read may be one that was meant
        return index

    sides = Sides(Path(FLAGS.output_dir), opened)
    a, b = sides.chosen(argv[1], argv[2])
    found = compare(a, b, explained=FLAGS.explain, margin_percent=FLAGS.margin, history=sides.history)
    text = table_text(found)
    answer(found, text if verbose() else table_text(found, whole=False))
    markdown = headed(text)
    outputs.add_to_summary(markdown)
    if FLAGS.markdown is not None:
        write_atomically(Path(FLAGS.markdown), markdown.encode())
    if found.refused:
        print(f"stepmark: next:  {sides.list_command()}", file=sys.stderr)
    if FLAGS.html is not None:
        html_pages.write_page(page(comparison_part(found)), Path(FLAGS.html))
        print(f"page: {FLAGS.html}", file=sys.stderr)
    if FLAGS.fail_on == "worse" and found.verdict == Verdict.WORSE:
        print("stepmark: B is worse (--fail_on=worse)", file=sys.stderr)
        return EXIT_INVALID
    return EXIT_INVALID if found.refused else EXIT_VALID


if __name__ == "__main__":
    run_main(main)
