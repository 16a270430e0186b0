"""Make the report of a preflight from its findings: lists of nodes, and a table. No I/O."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.preflight import checks, gpus
from benchmarks.preflight.nccl_tests import NcclResult
from benchmarks.preflight.values import Answer, Expectations, Finding, Status
from benchmarks.text import columns, plural, spans_text
from benchmarks.values import Value

PASSING, FAILING, REPORT = "nodes-pass.txt", "nodes-fail.txt", "report.json"
SHOWN_TEXTS = 6  # the most texts per check on the screen; report.json has all
WORDS: dict[Status, str] = {"ok": "ok", "failed": "failed", "warning": "warning", "not_checked": "not checked"}


class CheckCount(Value, frozen=True):
    """How many nodes have each status in one check."""

    check: str
    ok: int
    failed: int
    warning: int
    not_checked: int


class Report(Value, frozen=True):
    """The report of a preflight (report.json). `findings` omits findings with status `ok`; `checks` counts them."""

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
    nccl: NcclResult
    schema_version: str = "1"

    @property
    def passed(self) -> bool:
        return not self.failing and self.nccl.status != "failed"


def judge(answers: Sequence[Answer], missing: Mapping[str, str], wanted: Expectations) -> list[Finding]:
    """Return all findings about all nodes. `missing` contains node -> why it did not answer."""
    findings = [Finding(check="answers", status="failed", node=name, text=why) for name, why in missing.items()]
    findings += [Finding(check="answers", status="ok", node=answer.node) for answer in answers]
    return findings + checks.findings(answers, wanted) + gpus.findings(answers, wanted)


def failing(findings: Sequence[Finding]) -> list[str]:
    """Return the nodes with a failed check, in the order of the findings."""
    return list(dict.fromkeys(f.node for f in findings if f.status == "failed"))


def counts(findings: Sequence[Finding]) -> list[CheckCount]:
    """Return for each check, in the order of the checks, how many nodes have each status."""
    by_check: dict[str, Counter[str]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, Counter(dict.fromkeys(WORDS, 0)))[finding.status] += 1
    return [CheckCount(check=check, **counted) for check, counted in by_check.items()]


# --- text -------------------------------------------------------------------------------------------


def report_text(report: Report) -> str:
    """Return the report as text: how many nodes pass, the counts of every check, then failures and warnings."""
    verdict = f"{plural(len(report.passing), 'node passes', 'nodes pass')}, {len(report.failing)} fail"
    nodes = plural(len(report.nodes), "node", "nodes")
    title = f"preflight of {report.site}: {nodes} of partition {report.partition}"
    lines = [verdict, f"{title}, job {report.job_id}, {report.seconds:.0f} s", *_table(report)]
    lines.append(f"  NCCL: {WORDS[report.nccl.status]}: {report.nccl.text}")
    for heading, status in (("failed", "failed"), ("warnings", "warning")):
        found = [finding for finding in report.findings if finding.status == status]
        if found:
            lines += ["", heading, *_grouped(found)]
    if report.nccl.status == "failed":
        lines += ["", "NCCL failed on all nodes together: repeat with half of the nodes to find the faulty one"]
    return "\n".join(lines)


def _table(report: Report) -> list[str]:
    rows: list[tuple[str, ...]] = [("check", "ok", "failed", "warning", "not checked", "")]
    for count in report.checks:
        numbers = (str(n or "") for n in (count.ok, count.failed, count.warning, count.not_checked))
        unchecked = [f.text for f in report.findings if f.check == count.check and f.status == "not_checked"]
        rows.append((count.check, *numbers, ", ".join(list(dict.fromkeys(unchecked))[:2])))
    return columns(rows, numbers=range(1, 5))


def _grouped(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each text of a check, with all its nodes. The text with the most nodes comes first."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        by_text.setdefault((finding.check, finding.text), []).append(finding.node)
    lines = []
    for check in dict.fromkeys(check for check, _ in by_text):
        groups = [(nodes, text) for (name, text), nodes in by_text.items() if name == check]
        groups.sort(key=lambda group: -len(group[0]))
        lines += [f"  {check}: {node_list(nodes)}: {text}" for nodes, text in groups[:SHOWN_TEXTS]]
        more = [node for nodes, _ in groups[SHOWN_TEXTS:] for node in nodes]
        if more:
            count = plural(len(more), "more node", "more nodes with different results")
            lines.append(f"  {check}: and {count}: {node_list(more)} (see {REPORT})")
    return lines


def node_list(names: Iterable[str]) -> str:
    """Return node names in Slurm's form: node1, node2, node4 -> node[1-2,4]."""
    split = [(name, re.fullmatch(r"(.*?)([0-9]+)", name)) for name in names]
    # 01 and 1 are different names. If a prefix has numbers with leading zeros, keep their width.
    padded = {(m[1], len(m[2])) for _, m in split if m and m[2].startswith("0") and len(m[2]) > 1}
    parts = [name for name, match in split if match is None]
    numbered: dict[tuple[str, int], set[int]] = {}
    for match in (match for _, match in split if match):
        width = len(match[2]) if (match[1], len(match[2])) in padded else 0
        numbered.setdefault((match[1], width), set()).add(int(match[2]))
    for (prefix, width), numbers in numbered.items():
        text = spans_text(numbers, width)
        parts.append(prefix + (text if len(numbers) == 1 else f"[{text}]"))
    return ",".join(parts)
