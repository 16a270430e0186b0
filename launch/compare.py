"""Compare two runs or two sets of runs: the difference, its verdict and its possible causes.

Examples:
  python launch/compare.py RUN_A RUN_B
      two runs; a verdict needs 3 earlier runs of the same benchmark, because one run does not show the noise
  python launch/compare.py RUN1,RUN2,RUN3 RUN4,RUN5,RUN6
      two sets of 3 or more runs, compared with Welch's t-test; if possible, alternate the runs of the two sets
  python launch/compare.py tag=before tag=after --explain
      the runs with each tag; also list the differences in provenance, the most likely cause first
  python launch/compare.py dtype=bf16,gpus=64,date>=2026-11-01 dtype=fp8,gpus=64 --html=FILE
      the runs that meet several conditions; also write an HTML page

The first side, A, is the baseline. A side is one of: a run's folder; a folder of runs; a unique part of a run's name
in --output_dir; a list of these with commas; or conditions such as model=llama2_70b or date>=2026-11-01, joined by
commas, plus signs or spaces. A run must meet all conditions (dtype=bf16,fp8 means either value).
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
flags.DEFINE_string("output_dir", "results", "Folder of the runs.")
flags.DEFINE_boolean("explain", False, "Rank the differences in provenance, the most likely cause first.")
flags.DEFINE_float("margin", 1.0, "Largest difference in percent that counts as `same`; 0: no margin.", 0, 100)
flags.DEFINE_string("html", None, "Also write an HTML page to this file.")
flags.DEFINE_string("markdown", None, "Also write Markdown to this file ($GITHUB_STEP_SUMMARY always gets it).")
flags.DEFINE_enum(
    "fail_on",
    "not_comparable",
    ["not_comparable", "worse"],
    "Outcome that exits with code 3; worse includes not_comparable.",
)
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
        say_problems(index)  # the user may have meant a run that cannot be read
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
