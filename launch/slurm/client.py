"""A site's Slurm by its own commands: submit, ask, cancel. One command, whatever the number of jobs.

commands.py runs them, parsing.py reads what they print, reasons.py knows their words.
"""

import contextlib
import os
import pwd
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.errors import RequestError, RunError, nearest
from benchmarks.jobs.job_record import SchedulerEnd
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Site
from launch.slurm import parsing
from launch.slurm.commands import PATIENCE_SECONDS, WORDS_SHOWN, Commands, Failed
from launch.slurm.parsing import SEPARATOR, Node, Partition, QueueState
from launch.slurm.reasons import why_refused

ACCOUNTING_PATIENCE_SECONDS = 10.0  # the controller may know as much
SACCT = ["sacct", "-n", "-P", f"--delimiter={SEPARATOR}"]
JOBS_A_COMMAND = 500  # a command line holds so many with ease
# After these the controller may have taken the job all the same.
PERHAPS_TAKEN = re.compile(r"socket timed out|zero bytes were transmitted|did not end within", re.IGNORECASE)
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|accounting_storage/none", re.IGNORECASE)


class Slurm:
    """The Slurm of one site."""

    def __init__(
        self,
        site: Site,
        patience_seconds: float = PATIENCE_SECONDS,
        on_wait: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`on_wait` is told when a controller does not answer and is asked again."""
        self._site = site
        self._commands = Commands(site, patience_seconds, on_wait)

    # --- jobs ---

    def submit(self, script: Path, environment: Mapping[str, str]) -> str:
        """The number of the new job. `environment` is all that sbatch, and so the job, gets of this shell.

        The run's folder, in which the script lies, is its working folder: a job can be found by it.
        """
        try:
            return self._commands.patiently(
                lambda: self._sbatch(script, environment),
                lambda error: self.find(script.parent.name) if PERHAPS_TAKEN.search(error.words) else None,
            )
        except Failed as error:
            raise self._refused(error.words) from None

    def queue(self, job_ids: Sequence[str]) -> dict[str, QueueState]:
        """The jobs that are in the queue still; those that have left it are absent."""
        found: dict[str, QueueState] = {}
        for some in _chunks(job_ids):
            text = self._commands.ask_about_jobs(["squeue", "-h", "-j", ",".join(some), "-o", parsing.QUEUE_FORMAT])
            found |= parsing.queue_states(text)
        return {job: state for job, state in found.items() if job in set(job_ids)}

    def ends(self, job_ids: Sequence[str]) -> dict[str, list[SchedulerEnd]]:
        """How each attempt of each job ended, in order, by the accounting; where that does not know it (yet), by the
        controller. A job that has not ended has its last state; one that nobody knows is UNKNOWN, with why.
        """
        found, note = self._accounted(job_ids)
        # Why a job was taken out of the queue before it started, the accounting does not say.
        asked = [job for job in job_ids if not _all_ended(found.get(job, [])) or _never_ran(found[job])]
        controlled = self._controlled(asked) if asked else {}
        for job in asked:
            found[job] = _joined(job, found.get(job, []), controlled.get(job), note)
        return {job: [self._with_lost_nodes(_with_name(end)) for end in found[job]] for job in job_ids}

    def _with_lost_nodes(self, end: SchedulerEnd) -> SchedulerEnd:
        """Which of its nodes are down: where the node died that the job's script ran on, nothing else says so."""
        if end.state != "NODE_FAIL" or not end.nodes or end.reason:
            return end
        mine = set(parsing.node_names(end.nodes))
        with contextlib.suppress(RunError):
            down = {node.name for nodes in self.all_nodes().values() for node in nodes if not node.up} & mine
            return msgspec.structs.replace(end, reason=f"down: {', '.join(sorted(down))}") if down else end
        return end

    def cancel(self, job_id: str) -> None:
        """End a job or take it out of the queue; one that has ended already is none to cancel."""
        self._commands.ask_about_jobs(["scancel", job_id])

    def find(self, run_id: str) -> str | None:
        """The job of a run, by its comment stepmark:<run_id> or by the run's folder, in which it works."""
        return self.find_all([run_id]).get(run_id)

    def find_all(self, run_ids: Sequence[str]) -> dict[str, str]:
        """The jobs of several runs: one look into the queue, and one into the accounting for those not in it."""
        user = str(os.getuid())
        queued = self._commands.ask(["squeue", "-h", "-t", "all", "-u", user, "-o", parsing.COMMENT_FORMAT])
        found = parsing.jobs_of_runs(queued, run_ids)
        left = [run_id for run_id in run_ids if run_id not in found]
        if not left:
            return found
        command = [*SACCT, "-X", "-o", parsing.COMMENT_FIELDS, "-u", user, "-S", "now-30days"]
        try:
            return found | parsing.jobs_of_runs(self._commands.ask(command, ACCOUNTING_PATIENCE_SECONDS), left)
        except RunError as error:
            if NO_ACCOUNTING.search(error.why):
                return found
            raise

    # --- the cluster ---

    def partition(self, name: str | None) -> Partition:
        """A partition by its name, or the one that jobs go to by default."""
        known = parsing.partitions(self._commands.ask(["scontrol", "show", "partition", "-o"]))
        for partition in known:
            if partition.name == name or (name is None and partition.default):
                return partition
        names = [partition.name for partition in known]
        raise RequestError(
            f"the partition '{name}' is not known" if name else "no partition is named, and Slurm has no default one",
            where=f"site '{self._site.name}'",
            why=nearest(name or "", names),
            next_command="the same command with --partition=NAME",
        )

    def nodes(self, partition: str) -> list[Node]:
        return self.all_nodes().get(partition, [])

    def all_nodes(self) -> dict[str, list[Node]]:
        """The nodes of every partition."""
        return parsing.nodes_by_partition(self._commands.ask(["sinfo", "-h", "-a", "-N", "-o", parsing.NODE_FORMAT]))

    def has_pyxis(self) -> bool:
        """Whether srun can start containers; Slurm's own --container is another thing, and silently does nothing."""
        return "--container-image" in self._commands.ask(["srun", "--help"])

    # --- how a command is run ---

    def _sbatch(self, script: Path, environment: Mapping[str, str]) -> str:
        command = ["sbatch", "--parsable", str(script)]
        text = self._commands.run(command, dict(environment) | self._commands.configuration(), script.parent)
        numbers = re.findall(r"^(\d+)(?:;.*)?$", text, re.MULTILINE)  # NUMBER, or NUMBER;CLUSTER
        if not numbers:
            raise Failed(command, f"it printed no job number but: {text.strip()[:WORDS_SHOWN]}")
        return str(numbers[-1])

    def _refused(self, words: str) -> RequestError:
        meaning, further = why_refused(words)
        return RequestError(
            f"Slurm refused the job: {meaning}".removesuffix(": "),
            where=f"site '{self._site.name}'; the run's folder was removed",
            why=words,
            next_command=further or "the same command with --dry_run shows the job",
        )

    # --- ends ---

    def _accounted(self, job_ids: Sequence[str]) -> tuple[dict[str, list[SchedulerEnd]], str]:
        """What the accounting knows, and why it knows no more."""
        found: dict[str, list[SchedulerEnd]] = {}
        try:
            for some in _chunks(job_ids):
                command = [*SACCT, "-D", "-X", "-o", parsing.ENDS_FIELDS, "-j", ",".join(some)]
                found |= parsing.accounted_ends(self._commands.ask(command, ACCOUNTING_PATIENCE_SECONDS))
        except RunError as error:  # the controller may still know; what cannot be known then says why
            if NO_ACCOUNTING.search(error.why):
                return found, "accounting is off"
            return found, f"the accounting cannot be asked: {error.why.splitlines()[-1]}"
        return found, "the accounting has no record of it"

    def _controlled(self, job_ids: Sequence[str]) -> dict[str, SchedulerEnd]:
        """What the controller remembers; it shows one job, or all."""
        which = [job_ids[0]] if len(job_ids) == 1 else []
        text = self._commands.ask_about_jobs(["scontrol", "show", "job", "-o", *which])
        return parsing.controlled_ends(text)


class AskedOnce:
    """The answers of a Slurm about itself, remembered for the many cells of a sweep."""

    def __init__(self, slurm: Slurm) -> None:
        self.partition = cache(slurm.partition)
        self.all_nodes = cache(slurm.all_nodes)
        self.has_pyxis = cache(slurm.has_pyxis)


def slurm_at(site: Site) -> Slurm:
    """The Slurm of a site; a wait for its controller is shown."""
    return Slurm(site, on_wait=lambda text: print(text, file=sys.stderr, flush=True))


def slurm_of(folder: RunFolder, patience_seconds: float | None = None) -> Slurm:
    """The cluster of a run, as it was configured when the run was submitted."""
    site = folder.benchmark().site
    if site.slurm is None:
        raise RequestError(
            f"the run was not submitted to a queue: it ran on site '{site.name}'",
            where=str(folder.path),
            next_command=f"python launch/verify.py {folder.path}",
        )
    if patience_seconds is None:
        return slurm_at(site)
    return Slurm(site, patience_seconds)  # who asks again and again says so itself


def _chunks(job_ids: Sequence[str]) -> list[Sequence[str]]:
    return [job_ids[first : first + JOBS_A_COMMAND] for first in range(0, len(job_ids), JOBS_A_COMMAND)]


def _all_ended(ends: Sequence[SchedulerEnd]) -> bool:
    """A requeued job has one row that has ended, and soon a second: the last row must be an end of the job."""
    return bool(ends) and ends[-1].state not in {*parsing.NOT_ENDED, "REQUEUED"}


def _never_ran(ends: Sequence[SchedulerEnd]) -> bool:
    return ends[-1].state == "CANCELLED" and ends[-1].started is None and ends[-1].reason is None


def _joined(
    job_id: str, accounted: list[SchedulerEnd], controlled: SchedulerEnd | None, note: str
) -> list[SchedulerEnd]:
    """The accounting's rows, the last of them as the controller knows it."""
    if accounted and _all_ended(accounted):  # it never ran: the controller may know why
        reason = controlled.reason if controlled else None
        return [*accounted[:-1], msgspec.structs.replace(accounted[-1], reason=reason)]
    if controlled is not None:
        earlier = accounted if not accounted or _is_earlier(accounted[-1], controlled) else accounted[:-1]
        why = None if accounted else f"from the controller: {note}; earlier attempts are not known"
        return [*earlier, msgspec.structs.replace(controlled, note=why)]
    if accounted:
        gone = "the controller no longer knows the job: it has ended, how is unknown"
        return [*accounted[:-1], msgspec.structs.replace(accounted[-1], note=gone)]
    why = f"{note}, and the controller has forgotten it"
    return [SchedulerEnd(job_id=job_id, state="UNKNOWN", source="nobody", note=why)]


def _is_earlier(accounted: SchedulerEnd, controlled: SchedulerEnd) -> bool:
    """Whether the row is of an attempt before the one that the controller has in mind."""
    return accounted.state not in parsing.NOT_ENDED and accounted.started != controlled.started


def _with_name(end: SchedulerEnd) -> SchedulerEnd:
    """Who cancelled, by name where this machine knows it."""
    if end.cancelled_by and end.cancelled_by.isdecimal():
        with contextlib.suppress(KeyError):
            name = pwd.getpwuid(int(end.cancelled_by)).pw_name
            return msgspec.structs.replace(end, cancelled_by=name)
    return end
