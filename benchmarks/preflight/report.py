"""Findings of a preflight -> its report, the lists of nodes, and the table a person reads. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.preflight import gpus, node, together
from benchmarks.preflight.nccl_tests import NcclTest
from benchmarks.preflight.values import Answer, Finding, Status, Wanted
from benchmarks.rendering.columns import columns, plural
from benchmarks.values import Value

PASSING, FAILING, REPORT = "nodes-pass.txt", "nodes-fail.txt", "report.json"
SHOWN_TEXTS = 6  # of one check on the screen; report.json has all
WORDS: dict[Status, str] = {"ok": "ok", "failed": "failed", "warning": "warning", "not_checked": "not checked"}


class CheckCount(Value, frozen=True):
    """One check over all nodes."""

    check: str
    ok: int
    failed: int
    warning: int
    not_checked: int


class NcclResult(Value, frozen=True):
    """One program of nccl-tests over all nodes, and how it is judged."""

    program: str
    status: Status
    text: str
    measured: NcclTest | None = None


class Report(Value, frozen=True):
    """report.json: a whole preflight. Of the findings, those that are `ok` are only counted."""

    site: str
    partition: str
    job_id: str
    started: float  # Unix time
    seconds: float
    nodes: list[str]
    passing: list[str]
    failing: list[str]
    checks: list[CheckCount]
    findings: list[Finding]
    nccl: list[NcclResult]
    schema_version: str = "1"

    @property
    def failed_everywhere(self) -> str | None:
        """A check that every node fails: what all have in common is seldom the nodes' own fault."""
        return next((count.check for count in self.checks if self.nodes and count.failed == len(self.nodes)), None)

    @property
    def passed(self) -> bool:
        return not self.failing and all(result.status != "failed" for result in self.nccl)


def judge(answers: Sequence[Answer], missing: Mapping[str, str], wanted: Wanted) -> list[Finding]:
    """Every finding about every node. `missing` says why a node has not answered."""
    findings = [Finding(check="answers", status="failed", node=name, text=why) for name, why in missing.items()]
    findings += [Finding(check="answers", status="ok", node=answer.node) for answer in answers]
    findings += together.findings(answers, wanted)
    findings += [check(answer, wanted) for check in node.CHECKS for answer in answers]
    return findings + gpus.findings(answers, wanted)


def failing(findings: Sequence[Finding]) -> list[str]:
    """The nodes that fail, in the order in which they are first named."""
    return list(dict.fromkeys(f.node for f in findings if f.status == "failed" and f.node is not None))


def counts(findings: Sequence[Finding]) -> list[CheckCount]:
    """In the order in which the checks were made."""
    by_check: dict[str, Counter[Status]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, Counter())[finding.status] += 1
    return [
        CheckCount(check=check, ok=c["ok"], failed=c["failed"], warning=c["warning"], not_checked=c["not_checked"])
        for check, c in by_check.items()
    ]


def nccl_result(program: str, output: str, ranks: int, wanted_gb_s: float | None, source: str | None) -> NcclResult:
    """What a program of nccl-tests proved; only the all-reduce is held against the site's expectation."""
    from benchmarks.preflight.nccl_tests import parse

    measured = parse(output)

    def result(status: Status, text: str) -> NcclResult:
        return NcclResult(program=program, status=status, text=text, measured=measured)

    if "STEPMARK: not found" in output:
        return result("not_checked", f"{program} was not found in the image or on PATH")
    if measured.failure or measured.average_gb_s is None:
        last = output.strip().splitlines()[-1:] or ["it printed nothing"]
        return result("failed", measured.failure or f"no bus bandwidth: {last[0][:200]}")
    if measured.ranks != ranks:
        why = f"it ran {measured.ranks} ranks of {ranks}: a program built without MPI measures no network"
        return result("not_checked", why)
    if measured.wrong_values:
        return result("failed", f"{measured.wrong_values} values came out wrong")
    seen = f"{measured.average_gb_s:.1f} GB/s"
    if not program.startswith("all_reduce") or wanted_gb_s is None:
        held = "" if program.startswith("all_reduce") else ", held against nothing"
        return result("ok", seen + (held or ", the site expects nothing (slurm.bus_bandwidth_gb_s)"))
    expected = f"{wanted_gb_s:g} GB/s wanted (source: {source or 'none is given'})"
    return result("ok" if measured.average_gb_s >= wanted_gb_s else "failed", f"{seen}, {expected}")


# --- text -------------------------------------------------------------------------------------------


def report_text(report: Report) -> str:
    """The counts of every check, then only what is not ok, by node."""
    nodes = plural(len(report.nodes), "node", "nodes")
    title = f"preflight of {report.site}: {nodes} of partition {report.partition}"
    lines = [f"{title}, job {report.job_id}, {report.seconds:.0f} s", *_table(report)]
    lines += [f"  {_nccl_line(result)}" for result in report.nccl]
    for heading, status in (("failed", "failed"), ("warnings", "warning")):
        found = [finding for finding in report.findings if finding.status == status]
        if found:
            lines += ["", heading, *_grouped(found)]
    if any(result.status == "failed" for result in report.nccl):
        lines += ["", "NCCL failed over all nodes together, which names none of them: halve the nodes to find it"]
    lines += ["", f"{plural(len(report.passing), 'node passes', 'nodes pass')}, {len(report.failing)} fail"]
    return "\n".join(lines)


def _nccl_line(result: NcclResult) -> str:
    return f"NCCL {result.program}: {WORDS[result.status]}: {result.text}"


def _table(report: Report) -> list[str]:
    rows: list[tuple[str, ...]] = [("check", "ok", "failed", "warning", "not checked", "")]
    for count in report.checks:
        numbers = (str(n or "") for n in (count.ok, count.failed, count.warning, count.not_checked))
        rows.append((count.check, *numbers, _why_not(report, count)))
    return columns(rows, numbers=range(1, 5))


def _why_not(report: Report, count: CheckCount) -> str:
    texts = [f.text for f in report.findings if f.check == count.check and f.status == "not_checked"]
    return ", ".join(list(dict.fromkeys(texts))[:2])


def _grouped(findings: Sequence[Finding]) -> list[str]:
    """A line for each text of each check, with all its nodes; most nodes first."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        by_text.setdefault((finding.check, finding.text), []).append(finding.node or "all nodes together")
    lines = []
    for check in dict.fromkeys(check for check, _ in by_text):
        groups = [(nodes, text) for (name, text), nodes in by_text.items() if name == check]
        groups.sort(key=lambda group: -len(group[0]))
        lines += [f"  {check}: {node_list(nodes)}: {text}" for nodes, text in groups[:SHOWN_TEXTS]]
        more = [node for nodes, _ in groups[SHOWN_TEXTS:] for node in nodes]
        if more:
            count = plural(len(more), "more node", "more nodes, each its own")
            lines.append(f"  {check}: and {count}: {node_list(more)} (see {REPORT})")
    return lines


def node_list(names: Iterable[str]) -> str:
    """Names as Slurm writes them: node1, node2, node4 -> node[1-2,4]."""
    split = [(name, re.fullmatch(r"(.*?)([0-9]+)", name)) for name in names]
    # 01 and 1 are different names: where a prefix has numbers with zeros in front, their width is kept.
    padded = {(m[1], len(m[2])) for _, m in split if m and m[2].startswith("0") and len(m[2]) > 1}
    numbered: dict[tuple[str, int], list[int]] = {}
    parts = [name for name, match in split if match is None]
    for match in (match for _, match in split if match):
        width = len(match[2]) if (match[1], len(match[2])) in padded else 0
        numbered.setdefault((match[1], width), []).append(int(match[2]))
    parts += [_bracketed(prefix, width, sorted(set(numbers))) for (prefix, width), numbers in numbered.items()]
    return ",".join(parts)


def _bracketed(prefix: str, width: int, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{r[0]:0{width}}" if len(r) == 1 else f"{r[0]:0{width}}-{r[-1]:0{width}}" for r in runs]
    return f"{prefix}{texts[0]}" if texts == [f"{numbers[0]:0{width}}"] else f"{prefix}[{','.join(texts)}]"
