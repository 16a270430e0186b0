"""The generated reference pages are current, and the changelog stays short."""

import re
import runpy
from pathlib import Path

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_command_reference_is_current(tmp_path: Path) -> None:
    script = "docs/make_command_reference.py"
    made = runpy.run_path(str(REPOSITORY / script))

    def help_of(words: list[str]) -> str:
        return forked.run(REPOSITORY / words[0], *words[1:], cwd=tmp_path).stdout

    assert made["PAGE"].read_text() == made["page"](help_of), f".venv/bin/python {script}"


def test_the_expected_results_are_current() -> None:
    script = "docs/make_expected_results.py"
    made = runpy.run_path(str(REPOSITORY / script))
    assert made["PAGE"].read_text() == made["page"](), f".venv/bin/python {script}"


def test_pages_that_messages_and_docstrings_name_exist() -> None:
    texts = [path.read_text() for layer in ("benchmarks", "launch") for path in (REPOSITORY / layer).rglob("*.py")]
    named = {page for text in texts for page in re.findall(r"\bdocs/[\w./-]+\.\w+", text)}
    assert len(named) > 5
    assert sorted(page for page in named if not (REPOSITORY / page).exists()) == []


def test_a_version_takes_at_most_400_words_of_the_changelog() -> None:
    """A merge can bring back lines that were shortened: see .gitattributes."""
    _, *versions = re.split(r"^## ", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    words = {version.split()[0]: len(version.split()) for version in versions}
    assert len(words) == len(versions) > 12
    assert {version: count for version, count in words.items() if count > 400} == {}
