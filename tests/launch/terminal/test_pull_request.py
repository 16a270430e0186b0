"""action.yml: its steps, in bash, against a stand-in for GitHub's interface; and what a comment holds."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.terminal import pull_request
from tests.launch.test_compare import run_of

REPOSITORY = Path(__file__).resolve().parents[3]


class Comments(HTTPServer):
    """The comments of pull request 7, which only `Bearer good` may write."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.kept = [{"id": number, "body": None, "html_url": "of others"} for number in range(pull_request.PER_PAGE)]


class Answers(BaseHTTPRequestHandler):
    server: Comments

    def do_GET(self) -> None:
        page = int(self.path.rpartition("=")[2])
        size = pull_request.PER_PAGE
        self._answer(self.server.kept[(page - 1) * size : page * size] if "/repos/o/r/issues/7/" in self.path else [])

    def do_POST(self) -> None:
        self._write({"id": len(self.server.kept), "html_url": f"comment {len(self.server.kept)}"})

    def do_PATCH(self) -> None:
        self._write(self.server.kept[int(self.path.rpartition("/")[2])])

    def _write(self, comment: dict[str, Any]) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        if self.headers["Authorization"] != "Bearer good":
            self.send_error(403)
            return
        comment["body"] = body
        if comment not in self.server.kept:
            self.server.kept.append(comment)
        self._answer(comment)

    def _answer(self, value: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_: object) -> None:
        """Nothing on the screen of the tests."""


@pytest.fixture
def github() -> Iterator[Comments]:
    server = Comments()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def job(github: Comments, tmp_path: Path) -> dict[str, str]:
    """The environment of a job, and an installed Stepmark where GitHub puts the action."""
    action = tmp_path / "action"
    action.mkdir()
    (action / "Makefile").write_text("install:\n\t@echo installed\n")
    (action / ".venv/bin").mkdir(parents=True)
    stepmark = '-c "from launch.cli.stepmark import main; main()"'
    for name, words in (("python", ""), ("stepmark", stepmark)):
        program = action / ".venv/bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        program.chmod(0o755)
    for number, side in enumerate(("main", "main", "main", "pr", "pr", "pr")):
        folder = tmp_path / side
        folder.mkdir(exist_ok=True)
        run_of(folder, number, (1.05 if side == "pr" else 1.0) + 0.001 * (number % 3), side)
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": "abc123"}}}))
    return {
        **os.environ, "PYTHONPATH": str(REPOSITORY), "STEPMARK_HOME": str(tmp_path / "home"),
        "RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(action),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
        "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "5",
        "GITHUB_WORKFLOW": "ci", "GITHUB_JOB": "speed",
    }  # fmt: skip


def run_action(job: dict[str, str], folder: Path, **inputs: str) -> list[subprocess.CompletedProcess[str]]:
    """As GitHub runs the steps of a composite action."""
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | inputs
    done = []
    for step in action["runs"]["steps"]:
        of_step = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: given[found[1]], value)
            for name, value in step["env"].items()
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done.append(
            subprocess.run(command, env=job | of_step, cwd=folder, capture_output=True, text=True, check=False)
        )
    return done


def test_a_comparison_is_one_comment_that_the_next_push_replaces(
    job: dict[str, str], github: Comments, tmp_path: Path
) -> None:
    compared, posted = run_action(job, tmp_path, a="main", b="pr", token="good")
    assert (compared.returncode, posted.returncode) == (0, 0), compared.stderr + posted.stderr
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": "def456"}}}))
    compared, posted = run_action(job, tmp_path, a="main", b="pr", token="good", fail_on="worse")
    assert (compared.returncode, posted.returncode) == (3, 0), compared.stderr + posted.stderr
    (ours,) = github.kept[pull_request.PER_PAGE :]
    assert "comment 100" in posted.stdout
    assert "at def456, by [this job](https://github.com/o/r/actions/runs/5)" in ours["body"]
    comparison = (tmp_path / "stepmark.md").read_text()
    assert "seconds/step" in comparison and comparison in ours["body"]
    assert (tmp_path / "summary").read_text().count("seconds/step") == 2 * comparison.count("seconds/step")


def test_what_may_not_be_posted_is_a_warning(job: dict[str, str], github: Comments, tmp_path: Path) -> None:
    compared, posted = run_action(job, tmp_path, a="main", b="pr", token="of a fork")
    assert (compared.returncode, posted.returncode) == (0, 0)
    assert posted.stdout.startswith("::warning title=Stepmark::the comparison was not posted: HTTP Error 403")
    assert len(github.kept) == pull_request.PER_PAGE


def test_a_wrong_request_fails_and_its_error_replaces_the_comment(
    job: dict[str, str], github: Comments, tmp_path: Path
) -> None:
    run_action(job, tmp_path, a="main", b="pr", token="good")
    compared, posted = run_action(job, tmp_path, a="main", b="--no/where", token="good")
    assert (compared.returncode, posted.returncode) == (2, 0)
    (ours,) = github.kept[pull_request.PER_PAGE :]
    for text in (compared.stderr, ours["body"]):
        assert "'--no/where' is not a run" in text
    assert "seconds/step" not in ours["body"]
