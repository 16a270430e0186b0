"""Submit, query and cancel jobs with the commands of a site's Slurm. One command queries all jobs.

commands.py runs the commands, and parsing.py reads their output.
"""

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.errors import RequestError, RunError, StepmarkError, closest, nearest
from benchmarks.job_record import SchedulerEnd
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Site
from launch.machine.this_machine import name_of
from launch.slurm import parsing
from launch.slurm.commands import PATIENCE_SECONDS, WORDS_SHOWN, Commands, SlurmError, by_hand
from launch.slurm.parsing import SEPARATOR, Node, Partition, QueueState
from launch.terminal import places
from launch.terminal.progress import say

ASK_AGAIN_SECONDS = 0.5
ACCOUNTING_PATIENCE_SECONDS = 10.0  # short, because the controller can answer instead of the accounting
ALL_NODES = ["sinfo", "-h", "-a", "-N", "-o", parsing.NODE_FORMAT]
MESSAGE_SECONDS = 10  # Slurm's own MessageTimeout
# After these errors of sbatch, the controller may nevertheless have accepted the job.
PERHAPS_TAKEN = re.compile(r"socket timed out|zero bytes were transmitted|did not end within", re.IGNORECASE)
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|accounting_storage/none", re.IGNORECASE)


class Slurm:
    """The Slurm of one site."""

    def __init__(
        self, site: Site, patience_seconds: float = PATIENCE_SECONDS, on_wait: Callable[[str], None] = say
    ) -> None:
        """`on_wait` is called before each retry of a command that the controller did not answer."""
        self.site = site
        self._commands = Commands(site, patience_seconds, on_wait)
        self._described: dict[tuple[str, ...], str] = {}

    # --- jobs ---

    def submit(self, script: Path, environment: Mapping[str, str]) -> str:
        """Submit a job and return its number. sbatch and the job get only the variables in `environment`.

        The job's working folder is the run's folder, which has the script. `find` recognizes the job by this folder.
        If sbatch's answer is lost, Slurm may have the job. Then submit it again only if Slurm does not list it.
        """
        run_id, unanswered = script.parent.name, list[SlurmError]()

        def taken_after_all(error: SlurmError) -> str | None:
            if PERHAPS_TAKEN.search(error.words):
                unanswered.append(error)
                return self._await_job(run_id)
            return None

        try:
            job = self._commands.retry(lambda: self._sbatch(script, environment), taken_after_all)
            return self._cancel_surplus(run_id, job) if unanswered else job
        except SlurmError as error:
            if unanswered:
                if job_id := self._await_job(run_id):
                    return self._cancel_surplus(run_id, job_id)
                raise RunError(
                    "Slurm refused the job when it was submitted again",
                    where=f"site '{self.site.name}'; the run's folder is kept, because the first job may still start",
                    why=error.words,
                    next_command=f"python launch/status.py {shlex.quote(str(script.parent))}",
                ) from None
            there = by_hand(self.site, "sinfo -s; sacctmgr show associations user=$USER")
            raise RequestError(
                "Slurm refused the job",
                where=f"site '{self.site.name}'; the run's folder was removed",
                why=error.words,
                next_command="--segment=none" if "--segment" in error.words else there,
            ) from None

    def _await_job(self, run_id: str) -> str | None:
        """Return the job of a run. Look for the job until sbatch's message to the controller has timed out."""
        timeout = ""
        with contextlib.suppress(StepmarkError):
            timeout = self.settings().get("MessageTimeout", "").partition(" ")[0]
        deadline = time.monotonic() + (int(timeout) if timeout.isdecimal() else MESSAGE_SECONDS)
        while (job := self.find(run_id)) is None and time.monotonic() < deadline:
            time.sleep(ASK_AGAIN_SECONDS)
        return job

    def _cancel_surplus(self, run_id: str, job_id: str) -> str:
        """Return the first job of a run. Cancel any further job, which a repeated submission has created."""
        first, *surplus = self._jobs_of(run_id) or [job_id]
        for number in surplus:
            say(f"job {number} was cancelled, because it repeats the run of job {first}")
            self.cancel(number)
        return first

    def queue(self, job_ids: Sequence[str]) -> dict[str, QueueState]:
        """Return the state of each job that is still in the queue; jobs that have left it are absent."""
        if not job_ids:
            return {}
        command = ["squeue", "-h", "-a", "-j", ",".join(job_ids), "-o", parsing.QUEUE_FORMAT]
        return parsing.queue_states(self._commands.ask_about_jobs(command))

    def ends(self, job_ids: Sequence[str]) -> dict[str, list[SchedulerEnd]]:
        """Return how each attempt of each job ended, in order, from the accounting or, otherwise, the controller.

        For a job that has not ended, return its current state. For an unknown job, return UNKNOWN and the reason.
        """
        if not job_ids:
            return {}
        found, note = self._accounted(job_ids)
        # The accounting does not record why a job was removed from the queue before it started.
        lasts = {job: ends[-1] for job, ends in found.items()}
        never_ran = {
            job for job, end in lasts.items() if (end.state, end.started, end.reason) == ("CANCELLED", None, None)
        }
        asked = [job for job in job_ids if not _all_ended(found.get(job, [])) or job in never_ran]
        controlled: dict[str, SchedulerEnd] = {}
        if asked:  # `scontrol show job` takes one job number; without a number, it lists all jobs
            which = asked if len(asked) == 1 else []
            text = self._commands.ask_about_jobs(["scontrol", "-a", "show", "job", "-o", *which])
            controlled = parsing.controlled_ends(text)
        for job in asked:
            found[job] = _joined(job, found.get(job, []), controlled.get(job), note)
        return {job: [self._with_names(end) for end in found[job]] for job in job_ids}

    def _with_names(self, end: SchedulerEnd) -> SchedulerEnd:
        """Complete the end of a job: add the name of the user who cancelled it, or the failed nodes as the reason."""
        by = end.cancelled_by
        if by and by.isdecimal():
            end = msgspec.structs.replace(end, cancelled_by=name_of(int(by)))
        if end.state != "NODE_FAIL" or not end.nodes or end.reason:
            return end
        mine = set(parsing.node_names(end.nodes))
        with contextlib.suppress(RunError):
            every = parsing.nodes_by_partition(self._commands.ask(ALL_NODES))
            down = {node.name for nodes in every.values() for node in nodes if not node.up} & mine
            return msgspec.structs.replace(end, reason=f"down: {', '.join(sorted(down))}") if down else end
        return end

    def cancel(self, job_id: str) -> None:
        """Cancel a job. It may already have ended."""
        self._commands.ask_about_jobs(["scancel", job_id])

    def find(self, run_id: str) -> str | None:
        """Return the newest job of a run that is in the queue or has just left the queue."""
        return next(reversed(self._jobs_of(run_id)), None)

    def _jobs_of(self, run_id: str) -> list[str]:
        """Return the jobs of a run, oldest first; their comment or their working folder names the run."""
        user = str(os.getuid())
        queued = self._commands.ask(["squeue", "-h", "-a", "-t", "all", "-u", user, "-o", parsing.COMMENT_FORMAT])
        return parsing.jobs_of_run(queued, run_id)

    # --- the cluster: the answers are cached, because a sweep needs them for every cell ---

    def partition(self, name: str | None) -> Partition:
        """Return the partition with this name, or the default partition."""
        known = self.partitions()
        for partition in known:
            if partition.name == name or (name is None and partition.default):
                return partition
        names = [partition.name for partition in known]
        raise RequestError(
            f"unknown partition '{name}'" if name else "Slurm has no default partition, so --partition is needed",
            where=f"site '{self.site.name}'",
            why=nearest(name or "", names),
            next_command=f"--partition={closest(name or '', names) or next(iter(names), '')}",
        )

    def partitions(self) -> list[Partition]:
        return parsing.partitions(self._description("scontrol", "-a", "show", "partition", "-o"))

    def nodes(self, partition: str) -> list[Node]:
        return self.all_nodes().get(partition, [])

    def all_nodes(self) -> dict[str, list[Node]]:
        """Return the nodes of every partition, by the name of the partition."""
        return parsing.nodes_by_partition(self._description(*ALL_NODES))

    def has_pyxis(self) -> bool:
        """Return whether srun can start containers with pyxis. Slurm's own --container may silently do nothing."""
        return "--container-image" in self._description("srun", "--help")

    def settings(self) -> dict[str, str]:
        """Return the settings of slurm.conf that the controller uses."""
        return parsing.settings(self._description("scontrol", "show", "config"))

    def mpi_plugins(self) -> list[str]:
        return parsing.mpi_plugins(self._commands.ask(["srun", "--mpi=list"]))

    def why_no_mpi(self, plugin: str) -> str:
        """Return why srun cannot load an MPI plugin, such as a missing library; empty if it can."""
        command = ["srun", f"--mpi={plugin}", "--ntasks=1", "--test-only", "true"]
        try:
            self._commands.run(command, self._commands.asking_environment())
        except SlurmError as error:  # srun may also fail because it refuses the test job
            lines = (line.rpartition(": ")[2] for line in error.words.splitlines() if "pmi" in line.lower())
            return next(lines, "")
        return ""

    def accounts(self, user: str, cluster: str) -> list[str]:
        """Return the accounts of a user; empty without accounting."""
        asked = ["show", "associations", f"user={user}", f"cluster={cluster}", "format=account"]
        try:
            return parsing.accounts(self._commands.ask(["sacctmgr", "-n", "-P", *asked], ACCOUNTING_PATIENCE_SECONDS))
        except StepmarkError:  # without accounting sacctmgr fails, or is not installed
            return []

    def on_a_node(self, arguments: Sequence[str], program: Sequence[str], seconds: float) -> str:
        """Return the output of a small program that srun starts on one node, after a wait in the queue."""
        command = ["srun", "--nodes=1", "--ntasks=1", *arguments, *program]
        try:
            return self._commands.run(command, self._commands.asking_environment(), seconds=seconds)
        except SlurmError as error:
            raise RunError(
                "Slurm could not run a program on a node",
                where=f"srun {' '.join(arguments)}",
                why=error.words,
                next_command=by_hand(self.site, "sinfo -s; squeue --me"),
            ) from None

    def _description(self, *command: str) -> str:
        if command not in self._described:
            self._described[command] = self._commands.ask([*command])
        return self._described[command]

    # --- submission ---

    def _sbatch(self, script: Path, environment: Mapping[str, str]) -> str:
        command = ["sbatch", "--parsable", str(script)]
        text = self._commands.run(command, dict(environment) | self._commands.configuration(), script.parent)
        numbers = re.findall(r"^(\d+)(?:;.*)?$", text, re.MULTILINE)  # NUMBER, or NUMBER;CLUSTER
        if not numbers:
            raise SlurmError(command, f"it did not print a job number: {text.strip()[:WORDS_SHOWN]}")
        return str(numbers[-1])

    # --- ends ---

    def _accounted(self, job_ids: Sequence[str]) -> tuple[dict[str, list[SchedulerEnd]], str]:
        """Return job -> the accounting's records, and the reason why records are missing."""
        command = ["sacct", "-n", "-P", f"--delimiter={SEPARATOR}", "-D", "-X", "-o", parsing.ENDS_FIELDS]
        try:
            text = self._commands.ask([*command, "-j", ",".join(job_ids)], ACCOUNTING_PATIENCE_SECONDS)
        except RunError as error:  # the controller may still know how the jobs ended
            off = NO_ACCOUNTING.search(error.why)
            return {}, "accounting is off" if off else f"the accounting does not answer: {error.why.splitlines()[-1]}"
        return parsing.accounted_ends(text), "the accounting has no record of the job"


def slurm_of(
    folder: RunFolder, patience_seconds: float = PATIENCE_SECONDS, on_wait: Callable[[str], None] = say
) -> Slurm:
    """Return the Slurm of a run's site, with the configuration that the site had when the run was submitted."""
    site = folder.benchmark().site
    if site.slurm is None:
        raise RequestError(
            f"the run has no job, because it ran on site '{site.name}' without Slurm",
            where=str(folder.path),
            next_command=f"python launch/verify.py {shlex.quote(str(folder.path))}",
        )
    if site.slurm.configuration:
        _refuse_foreign(Path(site.slurm.configuration), site.name)
    return Slurm(site, patience_seconds, on_wait)


def _refuse_foreign(path: Path, site: str) -> None:
    """Refuse a run's slurm.conf that another user could have written, unless the user's own site names it."""
    configs = places.configs()
    own = configs.site(site).slurm if site in configs.names("sites") else None
    if own is not None and own.configuration == str(path):
        return
    if places.exposed(path):  # the command itself reports a missing file
        raise RequestError(
            "another user may have written the slurm.conf of this run",
            where=str(path),
            why="this file can make Slurm's commands run any program with your permissions",
            next_command=f"SLURM_CONF={shlex.quote(str(path))} python launch/setup.py "
            f"--new_site={shlex.quote(site)}  # if you trust it",
        )


def _all_ended(ends: Sequence[SchedulerEnd]) -> bool:
    """Return whether the last record is the job's end. REQUEUED is not an end, because another attempt follows."""
    return bool(ends) and ends[-1].state not in {*parsing.NOT_ENDED, "REQUEUED"}


def final_ends(slurm: Slurm, job_ids: Sequence[str], seconds: float) -> dict[str, list[SchedulerEnd]]:
    """Return the ends of jobs that have left the queue. Wait up to `seconds` until the accounting has them."""
    deadline = time.monotonic() + seconds
    while True:
        ends = slurm.ends(job_ids)
        if all(_all_ended(ends[job]) for job in job_ids) or time.monotonic() > deadline:
            return ends
        time.sleep(ASK_AGAIN_SECONDS)


def _joined(
    job_id: str, accounted: list[SchedulerEnd], controlled: SchedulerEnd | None, note: str
) -> list[SchedulerEnd]:
    """Return the accounting's rows, completed or replaced by the controller's record of the last attempt."""
    if accounted and _all_ended(accounted):  # the job never ran, and the controller may know why
        reason = controlled.reason if controlled else None
        return [*accounted[:-1], msgspec.structs.replace(accounted[-1], reason=reason)]
    if controlled is not None:
        last = accounted[-1] if accounted else None
        # The controller's record replaces the accounting's row of the same attempt; earlier attempts stay.
        is_earlier = last is None or (last.state not in parsing.NOT_ENDED and last.started != controlled.started)
        earlier = accounted if is_earlier else accounted[:-1]
        why = None if accounted else f"from scontrol ({note}); earlier attempts are unknown"
        return [*earlier, msgspec.structs.replace(controlled, note=why)]
    if accounted:
        gone = "the end is unknown, because the controller no longer knows the job"
        return [*accounted[:-1], msgspec.structs.replace(accounted[-1], note=gone)]
    why = f"{note}, and the controller no longer knows the job"
    return [SchedulerEnd(job_id=job_id, state="UNKNOWN", source="nobody", note=why)]
