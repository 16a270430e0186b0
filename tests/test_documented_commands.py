"""The documentation is correct: runs (each is dry-run, without any Slurm), flags, links and paths."""

import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from tests import forked

REPOSITORY = Path(__file__).resolve().parents[1]
KINDS = ("tutorials", "how-to", "reference", "explanation")
PAGES = ("README.md", *(f"docs/{kind}/*.md" for kind in KINDS), "launch/run.py")
# Sites that a reader makes first; an example with the same kind of nodes stands for each.
SITES = {
    "--site=dev": "--site=example_venv",
    "--site=NAME": "--site=example_pyxis",
    "--site=mine": "--site=example_venv",
}
# Scripts with subcommands, and the one of a command that names none.
SUBCOMMANDS = {
    "launch/report.py": ("timing",),
    "launch/doctor.py": ("machine",),
    "launch/plan.py": ("estimate",),
}
# What only a reader can fill in: such a command is an outline, not one to type.
PLACEHOLDERS = ("...", "DIR", "FILE", "data/books")
# A command that is shown for its refusal -> what it says.
REFUSED: dict[str, str] = {
    "launch/run.py --backend=nemo --task=mlperf --model=llama2_70b_lora --recipe=mlperf_llama2_70b_lora_h100_guide"
    " --site=example_pyxis --data=/lustre/mlperf/lora --steps=100"
    " --set=VAL_CHECK_INTERVAL=1152": "3456 > MAX_STEPS 100",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a user who has made nothing yet."""
    return tmp_path_factory.mktemp("home")


def commands() -> list[str]:
    found: dict[str, None] = {}
    for path in (path for page in PAGES for path in sorted(REPOSITORY.glob(page))):
        text = re.sub(r"\\+\n\s*", " ", path.read_text())  # run.py's help writes \\ at the end of a continued line
        for command in re.findall(r"python (launch/run\.py --[^`\n)\"&|]*)", text):
            found.setdefault(" ".join(re.sub(r"\s+(#.*)?$", "", command).split()))
    return list(found)


def is_outline(command: str) -> bool:
    return any(word in command for word in PLACEHOLDERS)


@pytest.mark.parametrize("command", [command for command in commands() if not is_outline(command)])
def test_a_documented_run_can_be_planned(command: str, tmp_path: Path, home: Path) -> None:
    made_before = sorted(home.rglob("*"))
    words = [SITES.get(word, word) for word in shlex.split(command)]
    dry = [] if {"--dry_run", "--list", "--help"} & set(words) else ["--dry_run"]
    # The environment of a machine without Slurm.
    env = {"PATH": os.path.dirname(sys.executable), "STEPMARK_HOME": str(home)}  # noqa: PTH120
    done = forked.run(REPOSITORY / words[0], *words[1:], *dry, env=env, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    if command in REFUSED:
        assert (done.returncode, REFUSED[command] in done.stderr) == (2, True), done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert (list(tmp_path.iterdir()), sorted(home.rglob("*"))) == ([], made_before)  # a dry run writes nothing


def test_commands_are_found() -> None:
    found = commands()
    assert "launch/run.py --backend=jax --model=llama2_tiny" in found
    assert any("--repeats=3" in command for command in found)
    assert any(
        "ici_data_parallelism" in command and command.startswith("launch/run.py --backend") for command in found
    )


def documents() -> list[Path]:
    return [*REPOSITORY.glob("[A-Z]*.md"), *(REPOSITORY / "docs").rglob("*.md")]


def test_documented_flags_exist(tmp_path: Path) -> None:
    """The flags of the other scripts, which need logs and runs."""
    asked: dict[tuple[str, ...], set[str]] = {}
    for page in documents():
        text = re.sub(r"\\+\n\s*", " ", page.read_text())
        for script, words in re.findall(r"python (launch/(?!run)\w+\.py)([^`\n|#\"]*)", text):
            subcommand = re.match(r" [a-z_]+(?= |$)", words) if script in SUBCOMMANDS else None
            key = (script, subcommand[0].strip()) if subcommand else (script, *SUBCOMMANDS.get(script, ()))
            asked.setdefault(key, set()).update(re.findall(r" --(\w+)", words))
    assert len(asked) > 20
    for (script, *subcommand), names in asked.items():
        helped = forked.run(REPOSITORY / script, *subcommand, "--help=all", cwd=tmp_path).stdout
        flags = set(re.findall(r"--(?:\[no\])?(\w+)", helped))
        assert {name for name in names if not {name, name.removeprefix("no")} & flags} == set(), (script, subcommand)


def test_links_lead_to_files_and_headings() -> None:
    links = [
        (page, link, heading)
        for page in documents()
        for link, heading in re.findall(r"\]\(([^)#\s:]*)(?:#([^)]*))?\)", page.read_text())
    ]
    assert len(links) > 50
    wrong = []
    for page, link, heading in links:
        target = page.parent / link if link else page
        if not target.exists() or (heading and heading not in headings(target)):
            wrong.append(f"{page.name}: {link}#{heading}")
    assert wrong == []


def headings(page: Path) -> list[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title).replace(" ", "-").lower() for title in titles]


def test_documented_paths_exist() -> None:
    folders = "benchmarks|configs|docs|jax_backend|launch|nemo_backend|tests"
    paths = [
        (page, path)
        for page in documents()
        if page.name != "CHANGELOG.md" and page.parent.name != "measurements"
        for path in re.findall(rf"`((?:{folders})/[\w./-]+)[`:]", page.read_text())
    ]
    assert len(paths) > 50
    assert [f"{page.name}: {path}" for page, path in paths if not (REPOSITORY / path).exists()] == []


# --- generated pages, and the changelog ---------------------------------------------------------


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
