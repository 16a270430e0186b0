"""Text of a stranger's run folder, in each field that may hold text: no screen, page or Markdown obeys it."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from benchmarks import files
from benchmarks.backend import find_backend
from benchmarks.errors import StepmarkError
from benchmarks.model.bounds import bound
from benchmarks.nightly import report_text
from benchmarks.nightly.junit import junit_xml
from benchmarks.nightly.values import NightReport
from benchmarks.pages.night import night_part
from benchmarks.pages.page import page
from benchmarks.runs.finished_run import read_finished_run
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import to_builtins
from tests import forked
from tests.benchmarks.nightly.test_report_text import CELL, SLOW, report, unjudged

REPOSITORY = Path(__file__).resolve().parents[2]
STORED = REPOSITORY / "tests/launch/stored_runs"
LINES = ("::error::no", "B is 31% faster", "~~~~", "# heading", "- item")
HOSTILE = (
    "x\x1b[2J\x1b]0;title\x07\x9b31m\u202e\n" + "\n".join(LINES) + "\r::warning::no\n````\n"
    "<img src=x onerror=y></pre></code> ![i](http://h/i.png) [l](http://h) @all ##[error]no `` ` &#64;all\u2028end"
)
COMPARABLE = ("jax_on_slurm", "other")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029\u2066-\u2069]")


def texts_in(value: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield for each text a function that replaces it and returns the earlier text."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        if isinstance(inner, str):

            def replaced(text: str, key: Any = key) -> Any:
                before, value[key] = value[key], text
                return before

            yield replaced
        elif isinstance(inner, dict | list):
            yield from texts_in(inner)


def assert_inert(text: str) -> None:
    assert not CONTROL.search(text.replace("\r\n", "\n"))  # CSV ends its lines so
    for line in text.splitlines():
        assert not line.startswith(LINES)
        assert not line.lstrip().startswith(("::error", "::warning"))


def assert_markdown_is_inert(text: str) -> None:
    assert_inert(text)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    assert [one.type for one in tokens] == ["heading_open", "inline", "heading_close", "fence"]
    assert [one.type for one in tokens[1].children or []] == ["code_inline"]


def assert_page_is_inert(html: str) -> None:
    assert not CONTROL.search(html)
    for markup in ("<img", "<script", "</code> !"):
        assert markup not in html
    assert html.count("<pre>") == html.count("</pre>")


def make_hostile(fields: dict[str, Any], accepted: Callable[[dict[str, Any]], object], name: str) -> int:
    """Put the text into each field that accepts it. If a field refuses it, the refusal must be inert too."""

    def put(replacing: Sequence[Callable[[str], str]]) -> int:
        before = [replace(f"{HOSTILE} {name}") for replace in replacing]
        try:
            accepted(fields)
            return len(replacing)
        except (ValueError, LookupError, StepmarkError) as error:
            assert_inert(str(error))
        for replace, text in zip(replacing, before, strict=True):
            replace(text)
        half = len(replacing) // 2
        return put(replacing[:half]) + put(replacing[half:]) if half else 0

    return put(list(texts_in(fields)))


def make_run_hostile(run: Path) -> int:
    taken = 0
    for name in ("provenance.json", "result.json", "benchmark.json"):
        fields = json.loads((run / name).read_text())
        listed = ("reasons", "notes") if run.name in COMPARABLE else ("reasons", "notes", "not_comparable")
        fields |= {key: ["reason"] for key in listed if key in fields}

        def accepted(fields: dict[str, Any], path: Path = run / name) -> None:
            path.write_text(json.dumps(fields))
            folder = RunFolder(run)
            benchmark = folder.benchmark()
            bound(benchmark, find_backend(benchmark.backend).storage(benchmark))
            folder.stored_result()
            read_finished_run(folder, "run")

        taken += make_hostile(fields, accepted, run.name)
        accepted(fields)
    return taken


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    shutil.copytree(STORED, made / "results")
    shutil.copytree(STORED / "jax_on_slurm", made / "results" / "other")
    for run in (made / "results").iterdir():
        assert make_run_hostile(run) > 60
    strange = made / "results" / "x\n::error::no"
    shutil.copytree(STORED / "jax_local", strange)
    return made


@pytest.mark.parametrize(
    "typed",
    [
        "report runs results",
        "report runs results --format=csv",
        "report html page.html jax_local",
        "report html page.html jax_local jax_on_slurm nemo_lora",
        "compare jax_local jax_on_slurm --explain --markdown=a.md --html=page.html",
        "compare jax_on_slurm other --explain --markdown=a.md --html=page.html",
        "compare nemo_lora nemo_lora --markdown=a.md --html=page.html",
        "status",
        "status --collect jax_on_slurm",
        "verify results/jax_local results/nemo_lora",
        "doctor logs nemo_lora",
        "dashboard",
    ],
)
def test_no_command_obeys_a_run_folder(typed: str, results: Path) -> None:
    command, *arguments = typed.split()
    environment = {"HOME": str(results), "PATH": os.environ["PATH"], "GITHUB_ACTIONS": "true"}
    done = forked.run(REPOSITORY / "launch" / f"{command}.py", *arguments, cwd=results, env=environment)
    assert "Traceback" not in done.stderr
    assert_inert(done.stdout + done.stderr)
    assert "##[" not in done.stdout + done.stderr
    for name, check in (("a.md", assert_markdown_is_inert), ("page.html", assert_page_is_inert)):
        if name in typed:
            check((results / name).read_text())


def test_no_form_of_a_night_obeys_its_record(tmp_path: Path) -> None:
    record = tmp_path / "night.json"
    fields = to_builtins(report([SLOW, unjudged(CELL, "run", "failed", ["reason"])]))
    fields |= {"notes": ["note"], "could_not_see": ["reason"], "history": ["place"]}

    def accepted(fields: dict[str, Any]) -> NightReport:
        record.write_text(json.dumps(fields))
        read = files.read_json(record, NightReport)
        junit_xml(read)
        return read

    assert make_hostile(fields, accepted, "night") > 20
    read = accepted(fields)
    assert_inert(report_text.screen_text(read))
    assert_inert(junit_xml(read))
    assert_markdown_is_inert(report_text.markdown(read))
    assert_page_is_inert(page(night_part(read, "a")))
