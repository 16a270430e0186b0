"""action.yml: its steps, in bash and in Node, with a stand-in for GitHub's own objects."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.launch.test_compare import run_of

REPOSITORY = Path(__file__).resolve().parents[3]
STEPS = yaml.safe_load((REPOSITORY / "action.yml").read_text())
# What actions/github-script passes to a script. Its answers and what is written go through one JSON file.
GITHUB = """
const fs = require("fs")
const file = process.env.COMMENTS
const comments = JSON.parse(fs.readFileSync(file))
const written = (comment) => {
  if (process.env.FORBIDDEN) throw new Error("HTTP 403")
  comments[comment.comment_id ?? comments.length] = { id: comment.comment_id ?? comments.length, body: comment.body }
  fs.writeFileSync(file, JSON.stringify(comments))
}
const issues = { listComments: null, updateComment: written, createComment: written }
const github = { rest: { issues }, paginate: async () => comments }
const pull_request = { number: 7, head: { sha: process.env.SHA } }
const repo = { owner: "o", repo: "r" }
const names = { workflow: "ci", job: "speed", serverUrl: "https://github.com", runId: 5 }
const context = { payload: { pull_request }, repo, ...names }
const core = { warning: console.log }
"""


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a job, and an installed Stepmark where GitHub puts the action."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    action = tmp_path / "action"
    (action / ".venv/bin").mkdir(parents=True)
    (action / "Makefile").write_text("install:\n\t@echo installed\n")
    program = action / ".venv/bin/stepmark"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from launch.cli.stepmark import main; main()" "$@"\n')
    program.chmod(0o755)
    for number, side in enumerate(("main", "main", "main", "pr", "pr", "pr")):
        folder = tmp_path / side
        folder.mkdir(exist_ok=True)
        run_of(folder, number, (1.05 if side == "pr" else 1.0) + 0.001 * (number % 3), side)
    (tmp_path / "comments.json").write_text(json.dumps([{"id": 0, "body": None}]))
    return {
        **os.environ, "PYTHONPATH": str(REPOSITORY), "STEPMARK_HOME": str(tmp_path / "home"),
        "RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(action), "SHA": "abc123",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "COMMENTS": str(tmp_path / "comments.json"),
    }  # fmt: skip


def run_action(job: dict[str, str], folder: Path, **inputs: str) -> list[subprocess.CompletedProcess[str]]:
    """As GitHub runs the steps of a composite action."""
    given = {name: str(one.get("default", "")) for name, one in STEPS["inputs"].items()} | inputs
    done = []
    for step in STEPS["runs"]["steps"]:
        of_step = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: given[found[1]], value)
            for name, value in step["env"].items()
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.get("run", "")]
        if "uses" in step:
            command = ["node", "-e", f"{GITHUB};(async () => {{\n{step['with']['script']}\n}})()"]
        done.append(
            subprocess.run(command, env=job | of_step, cwd=folder, capture_output=True, text=True, check=False)
        )
    return done


def comments(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "comments.json").read_text())
    return found


def test_a_comparison_is_one_comment_that_the_next_push_replaces(job: dict[str, str], tmp_path: Path) -> None:
    compared, posted = run_action(job, tmp_path, a="main", b="pr")
    assert (compared.returncode, posted.returncode) == (0, 0), compared.stderr + posted.stderr
    compared, posted = run_action(job | {"SHA": "def456"}, tmp_path, a="main", b="pr", fail_on="worse")
    assert (compared.returncode, posted.returncode) == (3, 0), compared.stderr + posted.stderr
    _, ours = comments(tmp_path)
    assert "at def456, by [this job](https://github.com/o/r/actions/runs/5)" in ours["body"]
    comparison = (tmp_path / "stepmark.md").read_text()
    assert "Step time" in comparison and comparison in ours["body"]
    assert (tmp_path / "summary").read_text().count("Step time") == 2 * comparison.count("Step time")


def test_what_may_not_be_posted_is_a_warning(job: dict[str, str], tmp_path: Path) -> None:
    compared, posted = run_action(job | {"FORBIDDEN": "1"}, tmp_path, a="main", b="pr")
    assert (compared.returncode, posted.returncode) == (0, 0)
    assert "not posted: HTTP 403" in posted.stdout
    assert len(comments(tmp_path)) == 1


def test_a_wrong_request_fails_and_its_error_replaces_the_comment(job: dict[str, str], tmp_path: Path) -> None:
    run_action(job, tmp_path, a="main", b="pr")
    compared, posted = run_action(job, tmp_path, a="main", b="--no/where")
    assert (compared.returncode, posted.returncode) == (2, 0)
    _, ours = comments(tmp_path)
    for text in (compared.stderr, ours["body"]):
        assert "'--no/where' is neither" in text
    assert "Step time" not in ours["body"]


def test_text_of_a_side_is_no_markup_and_no_workflow_command(job: dict[str, str], tmp_path: Path) -> None:
    hostile = "x\n::error::no\n~~~~\n```\n<img src=x> @all ##[error]no"
    title = "speed --><img src=x>\n# of @all"
    compared, posted = run_action(job | {"GITHUB_ACTIONS": "true"}, tmp_path, a="main", b=hostile, title=title)
    assert (compared.returncode, posted.returncode) == (2, 0), compared.stderr + posted.stderr
    printed = compared.stdout + compared.stderr
    assert "##[" not in printed
    assert not any(line.lstrip().startswith("::error") for line in printed.splitlines())
    tokens = MarkdownIt().parse(comments(tmp_path)[1]["body"])
    assert [one.type for one in tokens] == ["html_block", "code_block", "paragraph_open", "inline", "paragraph_close"]
    assert "<img" not in tokens[0].content + tokens[3].content and "@" not in tokens[3].content.partition(", at ")[0]
