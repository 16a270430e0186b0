"""One page about runs, sweeps and nights that needs no network.

python launch/report.py html FILE.html RUN...
python launch/report.py html FILE.html --where=model=llama2_70b --output_dir=FOLDER
"""

import sys
from pathlib import Path

from absl import flags

from benchmarks.pages.html_pages import write_html
from benchmarks.reading.shown_lines import printable
from benchmarks.runs.find_runs import place_of
from benchmarks.runs.finished_run import RUNNING
from benchmarks.text import bytes_text
from launch.cli.report import choice
from launch.terminal.documents import Page
from launch.terminal.output import answer

flags.adopt_module_key_flags(choice)


def main(argv: list[str]) -> int:
    target, named = choice.file_and_runs(argv[1:], "html")
    folder = choice.all_runs()
    places = [str(place_of(name, folder)) for name in named] or _with_result(folder)
    code = write_html(places, target)
    size = target.stat().st_size
    answer(Page(file=str(target), bytes=size), f"{target}: {bytes_text(size)}, needs no network")
    return code


def _with_result(folder: Path) -> list[str]:
    """A run that has no result yet has no figures to show: it is named and left out."""
    entries = choice.fitting(folder)
    ended = [str(folder / one.path) for one in entries if one.status != RUNNING]
    if not ended:
        raise choice.no_result("no run that fits has a result yet", folder / entries[0].path)
    for one in entries:
        if one.status == RUNNING:
            print(f"stepmark: left out, it has no result yet: {printable(one.path)}", file=sys.stderr)
    return ended
