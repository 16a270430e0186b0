"""What nodes answered -> findings, node lists and text. nvidia-smi's words have the format of its --format=csv."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.preflight.nccl_tests import NcclResult
from benchmarks.preflight.report import Report, counts, failing, judge, node_list, report_text
from benchmarks.preflight.values import Answer, Call, Command, Expectations, Finding, ProbeSpec
from benchmarks.values import Hardware

TABLES = yaml.safe_load(Path(__file__).with_name("node_lists.yml").read_text())

WRONG = yaml.safe_load(Path(__file__).with_name("wrong.yml").read_text())
CPU, H100, MI300X = (Configs().hardware(name) for name in ("cpu", "h100", "mi300x"))

GOOD = Path(__file__).with_name("good_node")
PRINTED = {path.stem: path.read_text() for path in GOOD.glob("*.txt")}  # by each command of the node
GPUS = PRINTED["gpus"]


def answer(node: str = "node1", **changes: Any) -> Answer:
    commands = {name: Command(exit_code=0, output=text) for name, text in PRINTED.items()}
    good = msgspec.json.decode((GOOD / "answer.json").read_bytes(), type=Answer)
    return msgspec.structs.replace(good, **{"node": node, "commands": commands, **changes})


def with_output(name: str, output: str, exit_code: int | None = 0) -> dict[str, Command]:
    return answer().commands | {name: Command(exit_code=exit_code, output=output)}


def spoiled(case: dict[str, Any]) -> Answer:
    """A good node with one thing wrong, as wrong.yml has it."""
    if "changes" in case:
        return msgspec.convert({**msgspec.to_builtins(answer()), **case["changes"]}, Answer)
    text = PRINTED[case["output"]]
    part = text.splitlines(keepends=True)[1 + case["row"]] if "row" in case else text
    changed = part.replace(*case["replace"]) if "replace" in case else case.get("text", "")
    assert changed != part
    return answer(commands=with_output(case["output"], text.replace(part, changed), case.get("exit_code", 0)))


def wanted(*hardware: Hardware, container: bool = True, pyxis: bool | None = True, **asked: Any) -> Expectations:
    return Expectations(
        asked=ProbeSpec(
            token="t",
            shared_folders=["/shared"],
            environments=asked.get("environments", []),
            gpus=True,
            container=container,
            call_seconds=1,
        ),
        hardware=list(hardware or [H100]),
        program="abc",
        pyxis=pyxis,
    )


def findings_of(check: str, *answers: Answer, **more: Any) -> list[tuple[str, str]]:
    """(status, text) of one check for each node."""
    findings = judge(answers, more.get("missing", {}), more.get("wanted", wanted()))
    return [(finding.status, finding.text) for finding in findings if finding.check == check]


def test_a_good_node_passes_every_check() -> None:
    findings = judge([answer("node1"), answer("node2")], {}, wanted())
    assert {f.check: f.text for f in findings if f.status not in ("ok", "not_checked")} == {}
    assert {f.check for f in findings if f.status == "not_checked"} == {"environments"}  # containers, here
    assert failing(findings) == []


# --- nodes compared with each other -----------------------------------------------------------------


def nodes(count: int, odd: Answer) -> list[Answer]:
    return [*(answer(f"node{n}") for n in range(1, count)), msgspec.structs.replace(odd, node=f"node{count}")]


@pytest.mark.parametrize("case", WRONG["differs"])
def test_the_node_that_differs_is_named(case: dict[str, Any]) -> None:
    results = findings_of("same versions", *nodes(4, spoiled(case)))
    assert [status for status, _ in results] == ["ok", "ok", "ok", "failed" if case["words"] else "ok"]
    assert case["words"] in results[3][1]


REACHED = Call(first_node="node1", offered=True)
CUT_OFF = Call(first_node="node1", offered=True, error="timed out")
NO_PORT = Call(first_node="node1", error="node1 opened no port")
ALONE = Call(first_node=None)


@pytest.mark.parametrize(
    ("calls", "statuses"),
    [
        ([REACHED, CUT_OFF], ["ok", "ok", "failed"]),
        ([CUT_OFF, CUT_OFF], ["failed", "not_checked", "not_checked"]),  # the first one is at fault
        ([REACHED, NO_PORT], ["ok", "ok", "not_checked"]),
        ([ALONE, REACHED], ["ok", "not_checked", "ok"]),
    ],
)
def test_every_node_calls_the_first(calls: list[Call], statuses: list[str]) -> None:
    answers = [answer("node1"), *(answer(f"node{n}", call=of_node) for n, of_node in enumerate(calls, 2))]
    assert [status for status, _ in findings_of("ports", *answers)] == statuses


# --- one node ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", WRONG["nodes"] + WRONG["gpus"])
def test_what_is_wrong_with_a_node(case: dict[str, Any]) -> None:
    (result,) = findings_of(case["check"], spoiled(case))
    assert result[0] == case["status"], result
    assert case["words"] in result[1]


@pytest.mark.parametrize(
    ("check", "status", "of_site"),
    [
        ("container runtime", "failed", wanted(pyxis=False)),
        ("container runtime", "not_checked", wanted(container=False)),
        ("environments", "failed", wanted(container=False, environments=["/shared/env/bin/python"])),
        ("environments", "not_checked", wanted(container=False)),
        ("GPUs", "not_checked", wanted(MI300X)),
    ],
)
def test_what_the_site_asks_of_a_node(check: str, status: str, of_site: Expectations) -> None:
    answers = [answer(f"node{n}", environments={"/shared/env/bin/python": False}) for n in (1, 2, 3)]
    assert findings_of(check, *answers, wanted=of_site)[2][0] == status


# --- the report -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "text"), TABLES["node_lists"])
def test_node_lists_are_as_slurm_writes_them(names: list[str], text: str) -> None:
    assert node_list(names) == text


def test_the_table_counts_and_then_names_only_what_is_not_ok() -> None:
    answers = [answer(f"node{n}", shm_bytes=2**26) for n in range(1, 9)]
    answers.append(answer("node9", program="old"))
    made = report(judge(answers, {}, wanted()), [a.node for a in answers])
    text = report_text(made)
    assert "node[1-8]: 0.06 GiB, 8 needed" in text
    assert "checkout: node9: its node_check.py differs" in text
    assert "node9" in made.failing
    assert not made.passed
    assert text.startswith("8 nodes pass, 1 fail\n")
    row = next(line for line in text.splitlines() if line.strip().startswith("/dev/shm"))
    assert row.split() == ["/dev/shm", "1", "8"]
    assert len(text.splitlines()) < 40


def report(findings: list[Finding], names: list[str]) -> Report:
    failed = failing(findings)
    return Report(
        site="dev",
        partition="batch",
        job_id="7",
        started=0.0,
        seconds=3.0,
        nodes=names,
        passing=[name for name in names if name not in failed],
        failing=failed,
        checks=counts(findings),
        findings=[f for f in findings if f.status != "ok"],
        nccl=NcclResult(status="not_checked", text="a CPU"),
    )


@pytest.mark.parametrize("hardware", [CPU, H100, MI300X])
@pytest.mark.parametrize("callers", ["all", "none", "cut off"])
@pytest.mark.parametrize("rows", [GPUS, GPUS.replace("1980", "1410"), "", "no devices were found"])
def test_every_check_says_one_thing_of_every_node(hardware: Hardware, callers: str, rows: str) -> None:
    calls = {"all": REACHED, "none": ALONE, "cut off": CUT_OFF}
    # One node with its GPUs and one that was asked separately, for any answers of the others.
    answers = [answer("node1"), answer("node2", call=ALONE)]
    answers += [answer(f"node{n}", call=calls[callers], commands=with_output("gpus", rows)) for n in (3, 4, 5)]
    findings = judge(answers, {}, wanted(hardware))
    for count in counts(findings):
        assert count.ok + count.failed + count.warning + count.not_checked == len(answers), count.check
    assert len({(finding.check, finding.node) for finding in findings}) == len(findings)
