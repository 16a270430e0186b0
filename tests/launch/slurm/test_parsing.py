"""Slurm's words read right: recorded/ has what the commands of a real Slurm (22.05.8) printed, and what was read.

A text has the name of the function that reads it. Most show "|" where the commands are asked for the unit separator.
"""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from launch.slurm import parsing

RECORDED = Path(__file__).with_name("recorded")
FIELDS = yaml.safe_load((RECORDED / "fields.yml").read_text())


def recorded(name: str) -> str:
    text = (RECORDED / f"{name}.txt").read_text()
    return text if name == "accounts" else text.replace("|", parsing.SEPARATOR)


def null_if_unset(value: Any) -> Any:
    """Without what is not known."""
    if isinstance(value, list):
        return [null_if_unset(one) for one in value]
    return (
        {k: null_if_unset(v) for k, v in value.items() if v not in (None, "")} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_what_a_command_prints(path: Path) -> None:
    found = getattr(parsing, path.stem.partition("-")[0])(recorded(path.stem))
    assert null_if_unset(msgspec.to_builtins(found)) == json.loads(path.read_text())


@pytest.mark.parametrize(("function", "text"), [(name, text) for name, rows in FIELDS.items() for text in rows])
def test_what_a_field_says(function: str, text: str) -> None:
    assert getattr(parsing, function)(text) == FIELDS[function][text]


def test_the_expected_start_uses_this_machines_clock() -> None:
    found = parsing.queue_states(recorded("queue_states"))
    assert found["12"].start == time.strftime("%Y-%m-%d %H:%M", time.localtime(1795294609))
    assert (found["5"].start, found["8"].start) == (None, None)


@pytest.mark.parametrize(("run_id", "job"), [("r1", "30"), ("r2", "2"), ("r10", "4"), ("r", None), ("r3", None)])
def test_the_job_of_a_run_is_found_by_its_comment_or_its_folder(run_id: str, job: str | None) -> None:
    assert next(reversed(parsing.jobs_of_run(recorded("comments"), run_id)), None) == job


@pytest.mark.parametrize(
    ("states", "up"),
    [("idle mixed- allocated idle~ reserved", True), ("idle* down down* drained* draining unknown", False)],
)
def test_which_nodes_take_jobs(states: str, up: bool) -> None:
    assert {parsing.Node(name="n", state=state, gpus=0).up for state in states.split()} == {up}


@pytest.mark.parametrize(
    ("state", "reason", "text"),
    [
        ("PENDING", "PartitionNodeLimit", "can never start (PartitionNodeLimit)"),
        ("PENDING", "launch failed requeued held", "can never start (launch failed"),
        ("PENDING", "Resources", "waits (Resources)"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:node4", "waits (ReqNodeNotAvail, Unav"),
        ("PENDING", None, "waits"),
        ("POWER_UP_NODE", None, "is power up node"),
    ],
)
def test_what_a_job_waits_for(state: str, reason: str | None, text: str) -> None:
    assert (parsing.permanent_reason(reason) is not None) == ("never" in text)
    assert parsing.explain(state, reason).startswith(text)
