"""Posts Markdown on the pull request that a GitHub job checks: one comment, which each push replaces.

action.yml runs it as a module, in the job's environment: python -m launch.terminal.pull_request FILE TITLE. If it
can't post the comment, the job gets a warning and does not fail: its summary has the same text.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks import files
from benchmarks.errors import EXIT_VALID

LONGEST = 60_000  # GitHub takes 65,536 characters
PER_PAGE = 100
PATIENCE_SECONDS = 30
CUT = "\n(cut here: the job's summary has all of it)\n"


def main(file: str, title: str) -> int:
    job = os.environ
    event = files.read_json(Path(job["GITHUB_EVENT_PATH"]), dict[str, Any])
    pull_request = event.get("pull_request")
    if pull_request is None:
        print("stepmark: this job checks no pull request; only its summary has the comparison")
        return EXIT_VALID
    mark = f"<!-- stepmark: {job['GITHUB_WORKFLOW']} / {job['GITHUB_JOB']} / {title} -->"
    run = f"{job['GITHUB_SERVER_URL']}/{job['GITHUB_REPOSITORY']}/actions/runs/{job['GITHUB_RUN_ID']}"
    origin = f"{title}, at {pull_request['head']['sha']}, by [this job]({run})"
    try:
        posted = _post(pull_request["number"], mark, comment(mark, Path(file).read_text(encoding="utf-8"), origin))
    except (OSError, ValueError) as error:  # also of an answer with an error's status
        print(
            f"::warning title=Stepmark::the comparison was not posted: {error}. The job needs `permissions: "
            "pull-requests: write`, which GitHub gives to no pull request from a fork; the summary has the comparison"
        )
        return EXIT_VALID
    print(f"stepmark: {posted}")
    return EXIT_VALID


def comment(mark: str, markdown: str, origin: str) -> str:
    """The mark, by which the next push finds the comment; a long text is cut, within its fence."""
    if len(markdown) > LONGEST:
        fence = markdown.rstrip("\n").rpartition("\n")[2]
        markdown = f"{markdown[:LONGEST]}{CUT}{fence}\n"
    return f"{mark}\n{markdown}\n{origin}\n"


def _post(number: int, mark: str, text: str) -> str:
    """Replace the earlier comment with this mark, or add one; return its address."""
    page = 1
    while True:
        found = _ask("GET", f"issues/{number}/comments?per_page={PER_PAGE}&page={page}")
        for one in found:
            if (one["body"] or "").startswith(mark):
                return str(_ask("PATCH", f"issues/comments/{one['id']}", text)["html_url"])
        if len(found) < PER_PAGE:
            return str(_ask("POST", f"issues/{number}/comments", text)["html_url"])
        page += 1


def _ask(method: str, path: str, body: str | None = None) -> Any:
    """The answer of GitHub's REST interface to the repository, with the job's token."""
    job = os.environ
    request = urllib.request.Request(
        f"{job['GITHUB_API_URL']}/repos/{job['GITHUB_REPOSITORY']}/{path}",
        data=None if body is None else json.dumps({"body": body}).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {job['GITHUB_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
            "User-Agent": "stepmark",
        },
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
