"""Parse the output of Slurm's commands and explain a job's state. These functions start no commands.

ASCII unit separators, which no name, comment or reason contains, separate the fields. A row with a wrong number of
fields, such as after a line break in a comment, is skipped. Times are Unix seconds (SLURM_TIME_FORMAT=%s).
"""

import re
import time
from collections.abc import Iterator

from benchmarks.job_record import SchedulerEnd
from benchmarks.values import Value

SEPARATOR = "\x1f"

QUEUE_FORMAT = SEPARATOR.join(("%i", "%T", "%r", "%S"))
COMMENT_FORMAT = SEPARATOR.join(("%i", "%Z", "%k"))
NODE_FORMAT = SEPARATOR.join(("%N", "%R", "%T", "%G"))
ENDS_FIELDS = "JobID,State,ExitCode,Reason,NodeList,Start,End"

# Slurm's notations for a missing value.
NOTHING = {"", "none", "n/a", "unknown", "(null)", "none assigned", "invalid", "unlimited", "infinite"}
NOT_ENDED = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUE_HOLD", "SIGNALING",
    "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "POWER_UP_NODE",
}  # fmt: skip
NODE_UP = {"idle", "mixed", "allocated", "completing", "planned", "reserved", "blocked", "perfctrs", "npc"}
NOT_RESPONDING = "*"

CANCELLED_BY = re.compile(r"^CANCELLED by (\S+)$")


class QueueState(Value, frozen=True):
    """A job in the queue, as squeue shows it."""

    job_id: str
    state: str  # PENDING, RUNNING, COMPLETING...
    reason: str | None = None
    expected_start: float | None = None  # Unix time, if the scheduler has planned a pending job

    @property
    def start(self) -> str | None:
        """The expected start as local time."""
        planned = self.expected_start
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(planned)) if planned is not None else None


class Partition(Value, frozen=True):
    name: str
    state: str  # UP, DOWN, DRAIN, INACTIVE
    nodes: int
    max_nodes: int | None = None  # the most nodes that one job may have; None: no limit
    max_seconds: int | None = None  # None: no limit
    default: bool = False
    accounts: list[str] | None = None  # the accounts that may use the partition; None: all


class Node(Value, frozen=True):
    name: str
    state: str
    gpus: int
    gpu_type: str = ""  # Slurm's name for the type of the node's GPUs; may be empty

    @property
    def up(self) -> bool:
        """Whether the node accepts jobs, now or when its current jobs have ended."""
        base = self.state.rstrip("*~#!%$@^+-").lower()
        return NOT_RESPONDING not in self.state and base in NODE_UP


# --- one field ----------------------------------------------------------------------------------


def field_or_none(text: str) -> str | None:
    """Return a field, or None for one of Slurm's notations of a missing value."""
    stripped = text.strip()
    return None if stripped.lower() in NOTHING else stripped


def unix_time(text: str) -> float | None:
    stripped = text.strip()
    return float(stripped) if stripped.isdecimal() and int(stripped) > 0 else None


def duration_seconds(text: str) -> int | None:
    """Parse D-HH:MM:SS, HH:MM:SS, MM:SS, MM, D-HH or D-HH:MM. Return None for no limit or an invalid duration."""
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if not all(re.fullmatch("[0-9]+", part) for part in [*parts, *([days] if dash else [])]) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:  # after the days, the first number is hours
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:  # MM, or MM:SS
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def clock_text(seconds: int) -> str:
    """Return a time limit in Slurm's notation: HH:MM:SS or D-HH:MM:SS."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def gpu_count(gres: str) -> int:
    """Return the number of GPUs in a node's generic resources: "gpu:h100:8(S:0-1),tpu:4" -> 8."""
    without_sockets = re.sub(r"\([^)]*\)", "", gres)
    counts = []
    for entry in without_sockets.split(","):
        name, *rest = entry.strip().split(":")
        if name == "gpu":
            number = re.match(r"(\d+)(K?)$", rest[-1]) if rest else None
            counts.append(int(number[1]) * (1024 if number[2] else 1) if number else 1)
    return sum(counts)


def gpu_type(gres: str) -> str:
    """Return the first GPU type in a node's generic resources: "gpu:h100:8(S:0-1)" -> h100, "gpu:8" -> ""."""
    found = re.search(r"(?:^|,)gpu:([^:,()]*[^\d:,()][^:,()]*):", gres)
    return found[1] if found else ""


def rows(text: str, fields: int) -> Iterator[list[str]]:
    for line in text.split("\n"):
        row = line.split(SEPARATOR)
        if len(row) == fields:
            yield row


# --- squeue, sacct, scontrol, sinfo ---------------------------------------------------------------


def queue_states(text: str) -> dict[str, QueueState]:
    return {
        job_id: QueueState(
            job_id=job_id,
            state=state,
            reason=field_or_none(reason),
            expected_start=unix_time(start) if state == "PENDING" else None,
        )
        for job_id, state, reason, start in rows(text, 4)
    }


def accounted_ends(text: str) -> dict[str, list[SchedulerEnd]]:
    """Parse `sacct -D`, which prints one row per attempt. Sort the attempts of a job by their start."""
    found: dict[str, list[SchedulerEnd]] = {}
    for job_id, state, exit_code, reason, nodes, start, end in rows(text, 7):
        cancelled = CANCELLED_BY.match(state)
        ran_on = field_or_none(nodes)
        found.setdefault(job_id, []).append(
            SchedulerEnd(
                job_id=job_id,
                state="CANCELLED" if cancelled else state.rstrip("+"),
                source="sacct",
                exit_code=exit_code or None,
                reason=field_or_none(reason),
                nodes=ran_on,
                started=unix_time(start) if ran_on else None,  # otherwise it is the time of the cancellation
                ended=unix_time(end),
                cancelled_by=cancelled[1] if cancelled else None,
            )
        )
    for ends in found.values():  # an attempt that never started is sorted by its end, or last if it has no end
        ends.sort(key=lambda end: end.started or end.ended or float("inf"))
    return found


# Names and comments are the user's text and could imitate fields: match only fields in the order that Slurm writes.
CONTROLLED = re.compile(
    r"^JobId=(?P<job_id>\d+).*? JobState=(?P<state>\S+) Reason=(?P<reason>.*?) Dependency=.*? Requeue=\d+ "
    r"Restarts=\d+ .*?\bExitCode=(?P<exit_code>\d+:\d+) .*? StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) .*? "
    r"NodeList=(?P<nodes>\S*)(?: |$)"
)


def controlled_ends(text: str) -> dict[str, SchedulerEnd]:
    """Parse `scontrol show job -o`. The controller remembers only the last attempt."""
    found = {}
    for line in text.split("\n"):
        fields = CONTROLLED.match(line)
        if fields is None:
            continue
        nodes = field_or_none(fields["nodes"])
        found[fields["job_id"]] = SchedulerEnd(
            job_id=fields["job_id"],
            state=fields["state"],
            source="scontrol",
            exit_code=fields["exit_code"],
            reason=field_or_none(fields["reason"]),
            nodes=nodes,
            started=unix_time(fields["start"]) if nodes else None,
            ended=unix_time(fields["end"]) if fields["state"] not in NOT_ENDED else None,
        )
    return found


def jobs_of_run(text: str, run_id: str) -> list[str]:
    """Parse squeue's rows of job, folder and comment. Return the jobs whose folder or comment names the run."""
    found = [
        job
        for job, folder, comment in rows(text, 3)
        if f"stepmark:{run_id}" in re.split(r"[\s;,]+", comment) or folder.rpartition("/")[2] == run_id
    ]
    return sorted(found, key=lambda job: int("0" + job.partition("_")[0]))


def partitions(text: str) -> list[Partition]:
    """Parse `scontrol show partition -o`."""
    found = []
    for line in text.split("\n"):
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in fields:
            most, nodes = fields.get("MaxNodes", ""), fields.get("TotalNodes", "")
            allowed = fields.get("AllowAccounts", "ALL")
            found.append(
                Partition(
                    name=fields["PartitionName"],
                    state=fields.get("State", "UNKNOWN"),
                    nodes=int(nodes) if nodes.isdecimal() else 0,
                    max_nodes=int(most) if most.isdecimal() else None,
                    max_seconds=duration_seconds(fields.get("MaxTime", "")),
                    default=fields.get("Default") == "YES",
                    accounts=None if allowed.upper() == "ALL" else allowed.split(","),
                )
            )
    return found


def nodes_by_partition(text: str) -> dict[str, list[Node]]:
    """Parse `sinfo -N`, which prints a row for each node of each partition."""
    found: dict[str, list[Node]] = {}
    for name, partition, state, gres in rows(text, 4):
        node = Node(name=name, state=state, gpus=gpu_count(gres), gpu_type=gpu_type(gres))
        found.setdefault(partition, []).append(node)
    return found


def settings(text: str) -> dict[str, str]:
    """Parse `scontrol show config`."""
    return {
        name.strip(): value.strip()
        for name, equals, value in (line.partition("=") for line in text.split("\n"))
        if equals
    }


def mpi_plugins(text: str) -> list[str]:
    """Parse `srun --mpi=list`, which prints one name per line after a heading."""
    words = [line.strip() for line in text.split("\n")]
    return [word for word in words if re.fullmatch(r"[a-z][a-z0-9_]*", word)]


def accounts(text: str) -> list[str]:
    """Return each account in a column of `sacctmgr -P` once. A line may end with a bar."""
    return sorted({line.strip(" |") for line in text.split("\n")} - {""})


# --- lists of nodes -------------------------------------------------------------------------------


def node_names(text: str) -> list[str]:
    """Expand Slurm's list of nodes: "node[01-03,7],login" -> node01, node02, node03, node7, login."""
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text):
        found += _expand(part.strip())
    return found


def _expand(text: str) -> list[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        return [text] if text else []
    inside, _, after = rest.partition("]")
    tails = _expand(after) or [""]
    return [f"{before}{number}{tail}" for number in _numbers(inside) for tail in tails]


def _numbers(text: str) -> list[str]:
    found = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            found.append(part.strip())
    return found


# --- Slurm's reasons why a job waits -----------------------------------------------------------

# With these reasons a job never starts unless the user changes the job or the cluster. Limits of accounts (Assoc*,
# QOS*) are not listed, because they no longer apply when other jobs end.
NEVER = {
    "DependencyNeverSatisfied", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints",
    "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "JobHoldMaxRequeue", "DeadLine",
    "launch_failed_requeued_held", "ReservationDeleted",
}  # fmt: skip


def permanent_reason(reason: str | None) -> str | None:
    """Return Slurm's reason why the job can never start; None if the job can start later."""
    word = (reason or "").strip("()").partition(",")[0].strip()  # "ReqNodeNotAvail, Unavailable..." -> the first word
    # squeue writes blanks where scontrol writes underscores
    return word if word.replace(" ", "_") in NEVER else None


def explain(state: str, reason: str | None) -> str:
    """Describe the state of a job in the queue."""
    if state != "PENDING":
        return f"is {state.lower().replace('_', ' ')}"
    what = "can never start" if permanent_reason(reason) else "waits"
    return f"{what} ({reason})" if reason else what
