"""A night as JUnit XML, as Jenkins, GitLab and GitHub's actions read it. Pure.

One test suite, one test case a cell and figure: a regression is a failure, a run that proves nothing an error, too
little history a test that was skipped. What is only watched passes, with its verdict in the output.
"""

import re
import xml.etree.ElementTree as ET
from datetime import datetime

from benchmarks.gate.report_text import change_text, refused_text, slowed_text, value_text
from benchmarks.gate.values import CellReport, MetricJudgement, NightReport

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: NightReport) -> str:
    suite = ET.Element("testsuite", name=f"stepmark.{report.suite}")
    properties = ET.SubElement(suite, "properties")
    for name, value in _facts(report):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    for cell in report.cells:
        _add_cell(suite, report, cell)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("time", f"{_seconds(report):.3f}")
    suite.set("timestamp", report.started.removesuffix("Z"))
    ET.SubElement(suite, "system-out").text = _clean("\n".join(_said(report)))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _said(report: NightReport) -> list[str]:
    refused = map(refused_text, report.budget.refused)
    return [*filter(None, [slowed_text(report)]), *refused, *report.could_not_see, *report.notes]


def _facts(report: NightReport) -> list[tuple[str, str]]:
    facts = [
        ("night", report.night),
        ("verdict", report.verdict),
        ("exit_code", str(report.exit_code)),
        ("site", report.site),
        ("reruns", f"{report.budget.used} of {report.budget.allowed}"),
        ("false_alarms", report.false_alarms),
    ]
    facts += [("slowed_by", f"{report.slowed_by:g}")] if report.slowed_by else []
    for cell in report.cells:
        facts.append((f"{cell.cell}.run", cell.run_id or ""))
        for one in cell.judgements:
            seen = one.smallest_detectable_percent
            facts.append((f"{cell.cell}.{one.metric.name}.change", change_text(one)))
            facts.append((f"{cell.cell}.{one.metric.name}.seen_from_percent", "" if seen is None else f"{seen:.3g}"))
    return facts


def _add_cell(suite: ET.Element, report: NightReport, cell: CellReport) -> None:
    name = report.suite
    if not cell.judgements:
        case = ET.SubElement(suite, "testcase", classname=f"{name}.{cell.cell}", name="run", time="0")
        text = "; ".join(cell.reasons) or f"the run is {cell.status}"
        kind = "not comparable" if cell.status == "valid" else cell.status
        ET.SubElement(case, "error", message=_clean(text), type=kind).text = _clean(text)
    for one in cell.judgements:
        case = ET.SubElement(suite, "testcase", classname=f"{name}.{cell.cell}", name=one.metric.name, time="0")
        _add_verdict(case, one, slowed_text(report))
        ET.SubElement(case, "system-out").text = _clean(_output(cell, one))


def _add_verdict(case: ET.Element, one: MetricJudgement, slowed: str) -> None:
    if not one.gates:
        return
    if one.verdict == "regression":
        message = f"{one.metric.title} {change_text(one)}" + (f", {slowed}" if slowed else "")
        ET.SubElement(case, "failure", message=_clean(message), type="regression").text = _clean(one.why)
    elif one.verdict == "inconclusive":
        ET.SubElement(case, "skipped", message=_clean(one.why))


def _output(cell: CellReport, one: MetricJudgement) -> str:
    lines = [
        f"{one.verdict}{'' if one.gates else ' (watched)'}: {one.why}",
        f"tonight {value_text(one.metric, one.tonight)}, baseline {value_text(one.metric, one.baseline)}",
        *(f"new baseline: {change}" for change in cell.new_baseline),
        *(f"note: {note}" for note in cell.notes),
    ]
    return "\n".join(lines)


def _seconds(report: NightReport) -> float:
    if report.finished is None:
        return 0.0
    return (datetime.fromisoformat(report.finished) - datetime.fromisoformat(report.started)).total_seconds()


def _clean(text: str) -> str:
    """XML 1.0 has no place for most control characters, which logs are full of."""
    return _FORBIDDEN.sub("?", text)
