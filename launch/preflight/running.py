"""One preflight: submitted, waited for, its answers read and judged, its lists written."""

import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.errors import RunError
from benchmarks.jobs.job_record import SchedulerEnd
from benchmarks.preflight.report import (
    FAILING,
    PASSING,
    REPORT,
    NcclResult,
    Report,
    counts,
    failing,
    judge,
    nccl_result,
)
from benchmarks.preflight.values import Answer, Finding
from benchmarks.runs.runfolder import write_atomically
from benchmarks.values import json_text
from launch.command_line import places
from launch.preflight import asking
from launch.preflight.asking import Preflight
from launch.preflight.job import NCCL_PROGRAMS, job_environment
from launch.preflight.waiting import Limits, wait
from launch.slurm.client import Slurm

CHECKED, MEASURED, NODES = "checked", "measured", "nodes"
NCCL_QUIET_SECONDS = 600.0  # one program over thousands of GPUs takes minutes, its start included


def run(preflight: Preflight, slurm: Slurm, limits: Limits) -> Report:
    """Until every node has answered or has had its time; the report is written, too."""
    started = time.time()
    script = asking.write(preflight)
    job_id = slurm.submit(script, job_environment())
    ended = wait(slurm, job_id, lambda: _progress(preflight), lambda: _all_asked(preflight), limits)
    asked = _asked_nodes(preflight.folder)
    if not asked or (ended is not None and ended.state not in ("COMPLETED", "NODE_FAIL")):
        raise _failed(preflight, job_id, ended)
    if preflight.job.hardware is not None and (preflight.folder / CHECKED).exists():
        quiet = Limits(queue_seconds=limits.queue_seconds, quiet_seconds=NCCL_QUIET_SECONDS)
        wait(slurm, job_id, lambda: _nccl_progress(preflight), (preflight.folder / MEASURED).exists, quiet)
    report = _report(preflight, job_id, asked, started, limits)
    _write(preflight.folder, report)
    return report


# --- while it runs ----------------------------------------------------------------------------------


def _progress(preflight: Preflight) -> tuple[int, str]:
    came = len(list((preflight.folder / asking.ANSWERS).glob("*.json")))
    return came, f"{came} of {preflight.job.nodes} nodes have answered"


def _all_asked(preflight: Preflight) -> bool:
    all_came = preflight.job.hardware is None and _progress(preflight)[0] >= preflight.job.nodes
    return all_came or (preflight.folder / CHECKED).exists()


def _nccl_progress(preflight: Preflight) -> tuple[int, str]:
    came = sum((preflight.folder / f"nccl-{program}.log").exists() for program in NCCL_PROGRAMS)
    return came, f"NCCL program {came} of {len(NCCL_PROGRAMS)} runs" if came else "NCCL is about to be measured"


# --- after it has ended -----------------------------------------------------------------------------


def _asked_nodes(folder: Path) -> list[str]:
    try:
        return (folder / NODES).read_text().split()
    except FileNotFoundError:
        return []


def _failed(preflight: Preflight, job_id: str, ended: SchedulerEnd | None) -> RunError:
    output = preflight.folder / f"slurm-{job_id}.out"
    words = _lines(output)[-5:]
    state = f"{ended.state} {ended.exit_code or ''}".strip() if ended else "gave no sign, and was cancelled"
    return RunError(
        f"the preflight's job {job_id} ended before its nodes had been asked: {state}",
        where=str(preflight.folder),
        why="\n         ".join(words) or "its output cannot be seen from here: do the nodes see this folder?",
        next_command=f"cat {output}" if words else f"scontrol show job {job_id}",
    )


def _report(preflight: Preflight, job_id: str, asked: list[str], started: float, limits: Limits) -> Report:
    answers, unreadable = _read_answers(preflight.folder)
    output = _lines(preflight.folder / f"slurm-{job_id}.out")
    came = {answer.node for answer in answers}
    silent = {
        node: unreadable.get(node) or why_silent(output, node, number, limits.quiet_seconds)
        for number, node in enumerate(asked)
        if node not in came
    }
    missing = preflight.down | silent
    findings = judge(answers, missing, preflight.wanted)
    failed = failing(findings)
    return Report(
        site=preflight.site.name,
        partition=preflight.partition,
        job_id=job_id,
        started=started,
        seconds=time.time() - started,
        nodes=[*asked, *preflight.down],
        passing=[node for node in asked if node not in failed],
        failing=failed,
        checks=counts(findings),
        findings=[finding for finding in findings if finding.status != "ok"],
        nccl=_nccl(preflight, findings),
    )


def _read_answers(folder: Path) -> tuple[list[Answer], dict[str, str]]:
    answers, unreadable = [], {}
    for path in sorted((folder / asking.ANSWERS).glob("*.json")):
        try:
            answers.append(msgspec.json.decode(path.read_bytes(), type=Answer))
        except (msgspec.DecodeError, OSError) as error:
            unreadable[path.stem] = f"its answer could not be read: {error}"
    return answers, unreadable


def why_silent(output: list[str], node: str, number: int, seconds: float) -> str:
    """What the job's output says of a node that wrote no answer: lines with its name, or of its task."""
    own = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])|^\s*0*{number}: ")
    words = list(dict.fromkeys(line.strip() for line in output if own.search(line)))[-3:]
    return "; ".join(words)[:400] or f"it did not answer within {seconds:g} s"


def _nccl(preflight: Preflight, findings: list[Finding]) -> list[NcclResult]:
    if preflight.job.hardware is None:
        reasons = [f.text for f in findings if f.check == "GPUs" and f.status == "not_checked"]
        why = reasons[0] if reasons else "no container image is there yet"
        return [NcclResult(program=program, status="not_checked", text=why) for program in NCCL_PROGRAMS]
    slurm = preflight.site.slurm
    wanted, source = (slurm.bus_bandwidth_gb_s, slurm.bus_bandwidth_source) if slurm else (None, None)
    ranks = preflight.job.nodes * preflight.job.hardware.devices_per_node
    outputs: Mapping[str, str] = {
        program: "\n".join(_lines(preflight.folder / f"nccl-{program}.log")) for program in NCCL_PROGRAMS
    }
    return [nccl_result(program, output, ranks, wanted, source) for program, output in outputs.items()]


def _write(folder: Path, report: Report) -> None:
    write_atomically(folder / REPORT, json_text(report).encode())
    for name, nodes in ((PASSING, report.passing), (FAILING, report.failing)):
        write_atomically(folder / name, "".join(f"{node}\n" for node in nodes).encode())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


# --- what to do then --------------------------------------------------------------------------------


def next_steps(report: Report, folder: Path) -> str:
    """Which files the preflight left, and what to type next."""
    lines = [f"  files  {folder}"]
    if report.failing and not report.passing:
        lines += _none_passes(report)
    elif report.failing:
        # Slurm takes a value with a slash for a file of names.
        lines.append(
            f"  next   python launch/run.py --site={report.site} ... --exclude={shlex.quote(str(folder / FAILING))}"
        )
        lines.append("         (sbatch and srun take the same flag)")
    return "\n".join(lines)


# The check that every node fails -> the field of the site's file that then does not fit the cluster.
FIELDS = {
    "GPUs": "slurm: hardware",
    "shared folder": "slurm: shared_folders",
    "container runtime": "runtime",
    "environments": "slurm: shared_folders (STEPMARK_HOME must lie in one)",
}


def _none_passes(report: Report) -> list[str]:
    """To exclude every node helps nobody."""
    check = report.failed_everywhere
    if check is None:
        return ["  next   no node passes, each for reasons of its own: see above"]
    if check not in FIELDS:
        return [f"  next   every node fails '{check}': one cause in common, see above"]
    path = places.configs().path("sites", report.site)
    return [
        f"  next   every node fails '{check}': does the site's file fit the cluster?",
        f"         {path}: {FIELDS[check]}",
    ]
