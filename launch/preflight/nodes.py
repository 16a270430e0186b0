"""Run a preflight: choose nodes and checks, run the job, judge the answers, and list the passing and failing nodes.

Everything that can be refused is refused before the job is submitted.
"""

import re
import secrets
import shlex
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import files
from benchmarks.configs import Configs
from benchmarks.errors import RequestError, RunError
from benchmarks.job_record import SchedulerEnd
from benchmarks.preflight.nccl_tests import NcclResult, nccl_result
from benchmarks.preflight.report import FAILING, PASSING, REPORT, Report, counts, failing, judge, node_list
from benchmarks.preflight.values import Answer, Expectations, Finding, ProbeSpec
from benchmarks.runs.runfolder import write_atomically
from benchmarks.text import plural
from benchmarks.values import Hardware, JobOptions, Site, Value, json_text
from launch.environments import venvs
from launch.environments.wanted import specs, wanted_images
from launch.machine.processes import REPOSITORY
from launch.slurm.client import Slurm
from launch.slurm.commands import by_hand
from launch.slurm.helper_job import directives, job_environment, new_folder, render, shell_word
from launch.slurm.options import parse_node_list
from launch.slurm.parsing import Node
from launch.slurm.refusals import refuse_unseen
from launch.slurm.waiting import Limits, Progress, wait
from launch.terminal import places

TEMPLATE = Path(__file__).with_name("preflight.sbatch.j2")
MOST_ASKED_AGAIN = 16  # if more nodes are silent, they have a common cause, and a second check would not help
AGAIN_SECONDS = 30
JOB_NAME = "stepmark-preflight"
NCCL_PROGRAM = "all_reduce_perf"
# Start at a size that keeps the network busy, so that the average over all sizes is meaningful.
NCCL_ARGUMENTS = "-b 1G -e 8G -f 2 -g 1"
CALL_SECONDS = 30
NCCL_MINUTES = 15
NCCL_QUIET_SECONDS = 600.0  # the start and run of one program on thousands of GPUs take minutes
# Files and a folder that the job writes in the folder of the preflight:
ANSWERS, NODES, CHECKED, MEASURED = "answers", "nodes", "checked", "measured"


class PreflightJob(Value, frozen=True):
    """The inputs for a preflight's script."""

    site: Site
    options: JobOptions
    folder: Path
    nodes: int
    minutes: int
    hardware: Hardware | None  # the GPUs on which to measure NCCL; None: do not measure it
    image: Path | None = None  # the image that contains nccl-tests


@dataclass(frozen=True)
class Preflight:
    """One preflight, ready to be submitted."""

    job: PreflightJob
    partition: str
    wanted: Expectations
    down: dict[str, str]  # unchecked node -> why it is not checked

    @property
    def folder(self) -> Path:
        return self.job.folder


# --- the request ------------------------------------------------------------------------------------


def prepare(
    site: Site, options: JobOptions, nodes: int | None, output_dir: Path, limit_seconds: float, configs: Configs
) -> Preflight:
    """Return a preflight that is ready to be submitted. Write nothing."""
    slurm = Slurm(site)
    planned = sketch(site, options, nodes, output_dir, limit_seconds, configs)
    shared = next(iter(site.slurm.shared_folders if site.slurm else []), "DIR")
    refuse_unseen(site, "--output_dir", planned.folder, f"--output_dir={shared}/results")
    refuse_unseen(site, "the checkout", REPOSITORY, f"git clone {REPOSITORY} {shared}/stepmark")
    partition = slurm.partition(options.partition)
    hardware = _hardware(site, configs)
    found, options = with_gpus(slurm.nodes(partition.name), options, hardware)
    options, count, down = choose(site, found, options, nodes)
    minutes = planned.minutes
    if partition.max_seconds:
        minutes = max(1, min(minutes, partition.max_seconds // 60))
    there = [node.gpus for node in found if node.gpus]
    of_all = as_counted(planned.hardware, min(there, default=0)) if planned.hardware else None
    job = msgspec.structs.replace(planned, options=options, nodes=count, minutes=minutes, hardware=of_all)
    if planned.image is not None and not planned.image.is_file():
        job = msgspec.structs.replace(job, image=None, hardware=None)
    asked = _asked(site, planned, configs)
    wanted = Expectations(
        asked=asked,
        hardware=[as_counted(device, max(there, default=0)) for device in hardware],
        program=f"{zlib.crc32((REPOSITORY / 'launch/inside/node_check.py').read_bytes()):08x}",
        pyxis=slurm.has_pyxis() if site.runtime == "container" else None,
    )
    return Preflight(job=job, partition=partition.name, wanted=wanted, down=down)


def sketch(
    site: Site, options: JobOptions, nodes: int | None, output_dir: Path, limit_seconds: float, configs: Configs
) -> PreflightJob:
    """Return the job that the site's file and the flags describe, without asking Slurm.

    Without a number or names of nodes, the job has one node, because only Slurm knows how many nodes are up.
    """
    gpus = next((d for d in _hardware(site, configs) if d.kind == "gpu" and d.platform == "cuda"), None)
    named_nodes = set(parse_node_list(options.nodelist)) - set(parse_node_list(options.exclude))
    image = None
    if site.runtime == "container":
        paths = [wanted.path for wanted in wanted_images(site)]
        image = next((path for path in paths if path.is_file()), next(iter(paths), None))
    return PreflightJob(
        site=site,
        options=options,
        folder=new_folder(output_dir.absolute(), f"preflight-{site.name}"),
        nodes=nodes or len(named_nodes) or 1,
        minutes=2 + int(2 * limit_seconds / 60) + (NCCL_MINUTES if gpus else 0),
        hardware=gpus,
        image=image,
    )


def _hardware(site: Site, configs: Configs) -> list[Hardware]:
    return [configs.hardware(name) for name in site.slurm.hardware] if site.slurm else []


def as_counted(hardware: Hardware, gpus: int) -> Hardware:
    """Return the hardware with Slurm's number of GPUs per node. If that is 0, it is unknown: change nothing."""
    if hardware.kind != "gpu" or gpus not in range(1, hardware.devices_per_node):
        return hardware
    return msgspec.structs.replace(hardware, devices_per_node=gpus)


def with_gpus(
    found: Sequence[Node], options: JobOptions, hardware: Sequence[Hardware]
) -> tuple[Sequence[Node], JobOptions]:
    """For a site with GPUs, exclude the partition's nodes without GPUs, unless the user names nodes."""
    without = [node.name for node in found if not node.gpus]
    of_gpus = any(device.kind == "gpu" for device in hardware) and options.gpus != "none"
    if options.nodelist or not of_gpus or not 0 < len(without) < len(found):
        return found, options
    exclude = node_list([*parse_node_list(options.exclude), *without])
    return [node for node in found if node.gpus], msgspec.structs.replace(options, exclude=exclude)


def choose(
    site: Site, found: Sequence[Node], options: JobOptions, count: int | None
) -> tuple[JobOptions, int, dict[str, str]]:
    """Choose all nodes that are up, the named nodes, or `count` nodes. Also return node -> why it is not checked."""
    names = [node.name for node in found]
    asked = parse_node_list(options.nodelist) if options.nodelist else names
    unknown = [name for name in asked if name not in names]
    if unknown:
        raise RequestError(
            f"the partition does not have {node_list(unknown)}",
            where="--nodelist",
            why=f"it has {node_list(names)}",
            next_command=by_hand(site, "sinfo -N"),
        )
    excluded = set(parse_node_list(options.exclude))
    wanted = [node for node in found if node.name in asked and node.name not in excluded]
    up = [node.name for node in wanted if node.up]
    down = {node.name: f"Slurm reports {node.state}, so it was not checked" for node in wanted if not node.up}
    if len(up) < (count or 1):
        raise RequestError(
            f"{plural(len(up), 'node is', 'nodes are')} up, but the check needs {count or 'at least 1'}",
            where="--nodes" if count else "the partition",
            why=f"down: {node_list(down)}"
            if down
            else f"the partition has {plural(len(names), 'node')}, {len(excluded)} excluded",
            next_command=by_hand(site, "sinfo -R"),
        )
    if options.nodelist:
        options = msgspec.structs.replace(options, nodelist=node_list(up))
    return options, count or len(up), {} if count else down


def _asked(site: Site, planned: PreflightJob, configs: Configs) -> ProbeSpec:
    """Return the request that the nodes read from asked.json."""
    pythons: list[Path] = []
    if site.python is not None:  # check the site's Pythons, otherwise those of Stepmark's environments
        pythons = [Path(path) for path in ([site.python] if isinstance(site.python, str) else site.python.values())]
    elif site.runtime != "container":
        found = [venvs.python_of(spec) for spec in specs(configs, ("cpu", "cuda")).values() if spec.locks]
        pythons = list(dict.fromkeys(path for path in found if path is not None))
    # Folders that jobs write to: the results, and the folder of images or environments once it exists.
    images = site.container.images if site.runtime == "container" and site.container else None
    more = Path(images) if images else places.stepmark_home()
    return ProbeSpec(
        token=secrets.token_hex(8),
        shared_folders=list(site.slurm.shared_folders) if site.slurm else [],
        environments=[] if site.runtime == "container" else [str(path) for path in pythons],
        gpus=planned.hardware is not None,
        container=site.runtime == "container",
        call_seconds=CALL_SECONDS,
        written_folders=[str(planned.folder.parent), *([str(more)] if more.is_dir() else [])],
    )


# --- the job -----------------------------------------------------------------------------------------


def render_preflight(job: PreflightJob) -> str:
    gpus = job.hardware.devices_per_node if job.hardware else 0
    lines = directives(job.options, JOB_NAME, job.nodes, job.minutes, job.folder, gpus)
    nccl_options = [f"--mpi={shell_word(job.options.mpi)}"] if job.options.mpi else []
    container = job.site.container
    if job.image is not None and container is not None:
        nccl_options.append(f"--container-image={shell_word(str(job.image))}")
        nccl_options.append(f"--{'' if container.mount_home else 'no-'}container-mount-home")
        if container.mounts:
            nccl_options.append(f"--container-mounts={shell_word(','.join(container.mounts))}")
    return render(
        TEMPLATE,
        job.folder,
        site=job.site.name,
        nodes=plural(job.nodes, "node", "nodes"),
        directives=[*lines, "--no-kill"],
        most_asked_again=MOST_ASKED_AGAIN,
        again_seconds=AGAIN_SECONDS,
        nccl=job.hardware is not None,
        gpus=gpus,
        environment=[(name, shell_word(value)) for name, value in job.site.environment.items()],
        nccl_program=NCCL_PROGRAM,
        nccl_arguments=NCCL_ARGUMENTS,
        nccl_options=nccl_options,
    )


# --- while it runs ----------------------------------------------------------------------------------


def run(preflight: Preflight, slurm: Slurm, limits: Limits) -> Report:
    """Run the job until every node has answered or timed out. Write and return the report."""
    started, folder = time.time(), preflight.folder

    def is_asked() -> bool:
        is_last = preflight.job.hardware is None and _progress(preflight).news >= preflight.job.nodes
        return is_last or (folder / CHECKED).exists()

    job_id = slurm.submit(_write(preflight), job_environment())
    ended = wait(slurm, job_id, lambda: _progress(preflight), is_asked, limits)
    asked = " ".join(_lines(folder / NODES)).split()
    if not asked or (ended is not None and ended.state not in ("COMPLETED", "NODE_FAIL")):
        raise _failed(preflight.job.site, folder, job_id, ended)
    if preflight.job.hardware is not None and (folder / CHECKED).exists():
        quiet = Limits(queue_seconds=limits.queue_seconds, quiet_seconds=NCCL_QUIET_SECONDS)
        wait(slurm, job_id, lambda: Progress(0, "NCCL is measured"), (folder / MEASURED).exists, quiet)
    report = _report(preflight, job_id, asked, started, limits)
    write_atomically(folder / REPORT, json_text(report).encode())
    for name, nodes in ((PASSING, report.passing), (FAILING, report.failing)):
        write_atomically(folder / name, "".join(f"{node}\n" for node in nodes).encode())
    return report


def _write(preflight: Preflight) -> Path:
    """Write the folder with the files that the job reads. Return the path of the script."""
    text = render_preflight(preflight.job)
    script = preflight.folder / "preflight.sbatch"
    preflight.folder.mkdir(parents=True)  # fails if another user has just made it
    (preflight.folder / ANSWERS).mkdir()
    write_atomically(preflight.folder / "asked.json", json_text(preflight.wanted.asked).encode())
    write_atomically(script, text.encode())
    return script


def _progress(preflight: Preflight) -> Progress:
    came = len(list((preflight.folder / ANSWERS).glob("*.json")))
    nodes = preflight.job.nodes
    return Progress(came, f"{came} of {nodes} nodes have answered", came, nodes)


# --- after it has ended -----------------------------------------------------------------------------


def _failed(site: Site, folder: Path, job_id: str, ended: SchedulerEnd | None) -> RunError:
    output = folder / f"slurm-{job_id}.out"
    words = _lines(output)[-5:]
    state = f"{ended.state} {ended.exit_code or ''}".strip() if ended else "cancelled; the nodes stopped answering"
    return RunError(
        f"the preflight's job {job_id} ended before it checked its nodes: {state}",
        where=str(folder),
        why="\n         ".join(words) or "this machine cannot read its output; check that the nodes see this folder",
        next_command=f"cat {shlex.quote(str(output))}" if words else by_hand(site, f"scontrol show job {job_id}"),
    )


def _report(preflight: Preflight, job_id: str, asked: list[str], started: float, limits: Limits) -> Report:
    answers, silent = [], {}
    output = _lines(preflight.folder / f"slurm-{job_id}.out")
    for number, node in enumerate(asked):
        try:
            answers.append(msgspec.json.decode(files.read(preflight.folder / ANSWERS / f"{node}.json"), type=Answer))
        except FileNotFoundError:
            # Find the reason in the job's output: lines with the node's name, or from its task.
            own = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])|^\s*0*{number}: ")
            words = list(dict.fromkeys(line.strip() for line in output if own.search(line)))[-3:]
            silent[node] = "; ".join(words) or f"no answer within {limits.quiet_seconds:g} s"
        except (*files.NOT_JSON, OSError) as error:
            silent[node] = f"the answer cannot be read: {error}"
    findings = judge(answers, preflight.down | silent, preflight.wanted)
    failed = failing(findings)
    return Report(
        site=preflight.job.site.name,
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


def _nccl(preflight: Preflight, findings: list[Finding]) -> NcclResult:
    job = preflight.job
    if job.hardware is None or job.site.slurm is None:
        reasons = (f.text for f in findings if f.check == "GPUs" and f.status == "not_checked")
        return NcclResult(status="not_checked", text=next(reasons, "the container image does not exist yet"))
    wanted, source = job.site.slurm.bus_bandwidth_gb_s, job.site.slurm.bus_bandwidth_source
    ranks = job.nodes * job.hardware.devices_per_node
    return nccl_result("\n".join(_lines(job.folder / "nccl.log")), ranks, wanted, source)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def next_steps(report: Report, folder: Path) -> str:
    """Return the files of the preflight, and the next commands."""
    text = f"  files  {folder}"
    if report.failing and report.passing:
        # Slurm reads a value with a slash as a file of names.
        exclude = f"--exclude={shlex.quote(str(folder / FAILING))}"
        return f"{text}\n  next   python launch/run.py --site={report.site} ... {exclude}"
    if report.failing:
        path = places.configs().path("sites", report.site)
        return f"{text}\n  no node passes: compare {path} with the cluster"
    return text
