"""Format a night as JUnit XML, which Jenkins, GitLab and GitHub Actions can read. No I/O.

Each metric of each cell is a test case. A regression is a failure, a run without a valid result is an error, and a
metric with too few nights is a skipped test. A watched metric always passes; its test case shows its verdict.
"""

import re
import xml.etree.ElementTree as ET
from datetime import datetime

from benchmarks.nightly.report_text import (
    blind_rows,
    change_text,
    first_verdicts,
    headline,
    refused_text,
    slowed_text,
    verdict_text,
)
from benchmarks.nightly.values import CellReport, MetricJudgement, NightReport
from benchmarks.text import reasons_text
from benchmarks.verdict import Verdict

_FORBIDDEN = re.compile(
    r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)  # XML 1.0 forbids all other characters, and logs contain many of them


def junit_xml(report: NightReport) -> str:
    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", name=f"stepmark.{report.suite}")
    properties = ET.SubElement(suite, "properties")
    for name in ("night", "verdict", "exit_code", "site", *(["slowed_by"] if report.slowed_by else [])):
        ET.SubElement(properties, "property", name=name, value=_clean(str(getattr(report, name))))
    if blind := blind_rows(report):
        case = ET.SubElement(suite, "testcase", classname=report.suite, name="sensitivity", time="0")
        tag, kind = ("failure", {"type": "blind"}) if report.must_detect else ("skipped", {})
        ET.SubElement(case, tag, {"message": _clean(f"{headline(report)}: {blind[0][1]}"), **kind})
    for cell in report.cells:
        _add_cell(suite, report, cell)
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    started = datetime.fromisoformat(report.started)
    ended = datetime.fromisoformat(report.finished) if report.finished else started
    suite.set("time", f"{(ended - started).total_seconds():.3f}")
    suite.set("timestamp", report.started.removesuffix("Z"))
    refused = map(refused_text, report.budget.refused)
    notes = [*first_verdicts(report), *report.could_not_see, *report.notes]
    lines = [headline(report), slowed_text(report), *refused, *notes]
    ET.SubElement(suite, "system-out").text = _clean("\n".join(filter(None, lines)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_cell(suite: ET.Element, report: NightReport, cell: CellReport) -> None:
    name = f"{report.suite}.{cell.cell}"
    if not cell.judgements:
        case = ET.SubElement(suite, "testcase", classname=name, name="run", time="0")
        text = _clean(reasons_text(cell.reasons) or f"the run is {cell.status}")
        kind = "not comparable" if cell.status == "valid" else cell.status
        ET.SubElement(case, "error", message=text, type=kind).text = text
    for one in cell.judgements:
        case = ET.SubElement(suite, "testcase", classname=name, name=one.metric.name, time="0")
        if not cell.is_control:
            _add_verdict(case, one, slowed_text(report))
        verdict = verdict_text(one) if one.gates else f"{one.verdict} (watched)"
        ET.SubElement(case, "system-out").text = _clean(f"{verdict}: {one.why}")


def _add_verdict(case: ET.Element, one: MetricJudgement, slowed: str) -> None:
    if one.gates and one.is_regression:
        message = f"{one.metric.title} {change_text(one)}" + (f", {slowed}" if slowed else "")
        ET.SubElement(case, "failure", message=_clean(message), type="regression").text = _clean(one.why)
    elif one.gates and one.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_TESTED):
        ET.SubElement(case, "skipped", message=_clean(one.why))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
