"""Slurm's words read right, as a real Slurm (22.05.8) printed them.

The recorded outputs show "|" where the commands are asked for the unit separator.
"""

import time

import pytest

from benchmarks.job_record import SchedulerEnd
from launch.slurm import parsing


def recorded(text: str) -> str:
    return text.replace("|", parsing.SEPARATOR)


# --- sacct --------------------------------------------------------------------------------------------

SACCT = recorded("""\
1|COMPLETED|0:0|None|node1|1795291009|1795291009
2|FAILED|3:0|None|node1|1795291009|1795291009
3|FAILED|0:11|None|node1|1795291009|1795291009
4|CANCELLED by 0|0:0|None|node[1-4]|1795291009|1795291012
5|PENDING|0:0|DependencyNeverSatisfied|None assigned|Unknown|Unknown
6|CANCELLED|0:0|Dependency|None assigned|1795291009|1795291009
8|TIMEOUT|0:0|None|node[1-2]|1795291009|1795291098
10_2|COMPLETED|0:0|None|node1|1795291009|1795291009
9|COMPLETED|0:0|BeginTime|node1|1795291134|1795291154
9|REQUEUED|0:0|None|node1|1795291009|1795291012
39|NODE_FAIL|0:0|None|node[3-4]|1795291223|1795291258
40|PENDING|0:0|BeginTime|None assigned|Unknown|Unknown
40|NODE_FAIL|0:0|None|node4|1795291223|1795291258
41|RUNNING|0:0|None|node1|1795291300|Unknown
""")


def test_how_jobs_ended_by_the_accounting() -> None:
    found = parsing.accounted_ends(SACCT)
    states = {job: " ".join(end.state for end in ends) for job, ends in found.items()}
    assert states == {
        "1": "COMPLETED", "2": "FAILED", "3": "FAILED", "4": "CANCELLED", "5": "PENDING", "6": "CANCELLED",
        "8": "TIMEOUT", "9": "REQUEUED COMPLETED", "10_2": "COMPLETED", "39": "NODE_FAIL", "40": "NODE_FAIL PENDING",
        "41": "RUNNING",
    }  # fmt: skip
    at = 1795291009.0
    failed = {"job_id": "2", "state": "FAILED", "source": "sacct", "exit_code": "3:0", "nodes": "node1"}
    assert found["2"] == [SchedulerEnd(**failed, started=at, ended=at)]  # type: ignore[arg-type]
    assert (found["4"][0].cancelled_by, found["6"][0].cancelled_by) == ("0", None)
    assert (found["41"][0].started, found["41"][0].ended) == (1795291300.0, None)
    never_ran = found["6"][0]  # Slurm writes a start all the same
    assert (never_ran.started, never_ran.nodes, never_ran.reason) == (None, None, "Dependency")
    assert parsing.accounted_ends(recorded("sacct: something\n14|COMPLETED|nl\nline|x\n")) == {}


# --- squeue -------------------------------------------------------------------------------------------

SQUEUE = recorded("""\
5|PENDING|DependencyNeverSatisfied|N/A
12|PENDING|BeginTime|1795294609
40|PENDING|ReqNodeNotAvail, UnavailableNodes:node4|N/A
8|RUNNING|None|1795291009
9|COMPLETING|None|1795291009
""")


def test_the_queue() -> None:
    found = parsing.queue_states(SQUEUE)
    assert list(found) == ["5", "12", "40", "8", "9"]
    assert (found["5"].reason, found["5"].start) == ("DependencyNeverSatisfied", None)
    assert found["12"].start == time.strftime("%Y-%m-%d %H:%M", time.localtime(1795294609))
    assert found["40"].reason == "ReqNodeNotAvail, UnavailableNodes:node4"
    assert (found["8"].reason, found["8"].expected_start) == (None, None)


COMMENTS = recorded("""\
1|/shared/out|stepmark:r1 x
2|/shared/r2|(null)
30|/shared/out|mine; stepmark:r1
4|/shared/out|stepmark:r10
5|/shared/out|nl
line
""")


@pytest.mark.parametrize(("run_id", "job"), [("r1", "30"), ("r2", "2"), ("r10", "4"), ("r", None), ("r3", None)])
def test_the_job_of_a_run_is_found_by_its_comment_or_its_folder(run_id: str, job: str | None) -> None:
    assert parsing.job_of_run(COMMENTS, run_id) == job


# --- scontrol -----------------------------------------------------------------------------------------

REST = (
    " TimeLimit=01:00:00 TimeMin=N/A SubmitTime=1795291009 EligibleTime=Unknown AccrueTime=Unknown "
    "StartTime={start} EndTime={end} Deadline=N/A SuspendTime=None SecsPreSuspend=0 LastSchedEval=1795291009 "
    "Scheduler=Main Partition=batch AllocNode:Sid=localhost:3720 ReqNodeList=(null) ExcNodeList=(null) "
    "NodeList={nodes} NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=1,node=1,billing=1 "
    "Features=(null) WorkDir=/shared/r1 Comment=a JobState=RUNNING Reason=None Dependency=x "
    "StdErr=/shared/r1/slurm-1.out StdIn=/dev/null StdOut=/shared/r1/slurm-1.out Power= "
)
HEAD = (
    "JobId={job} JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0 Account=root "
    "QOS=normal JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 "
    "ExitCode={code} RunTime=00:00:00"
)


def shown(
    job: int, state: str, reason: str, code: str, start: str = "10", end: str = "20", nodes: str = "node1",
    name: str = "wrap",
) -> str:  # fmt: skip
    head = HEAD.format(job=job, name=name, state=state, reason=reason, code=code)
    return head + REST.format(start=start, end=end, nodes=nodes) + "\n"


def test_what_the_controller_remembers() -> None:
    text = (
        shown(2, "FAILED", "NonZeroExitCode", "3:0", name="a JobState=RUNNING b")
        + shown(6, "CANCELLED", "DependencyNeverSatisfied", "0:0", nodes="")
        + shown(8, "TIMEOUT", "TimeLimit", "0:15", nodes="node[1-2]")
        + shown(9, "RUNNING", "None", "0:0", end="99")
        + "JobId=14 JobName=na\nme UserId=root(0)\n\n"
    )
    found = parsing.controlled_ends(text)
    assert list(found) == ["2", "6", "8", "9"]
    assert found["2"] == SchedulerEnd(
        job_id="2",
        state="FAILED",
        source="scontrol",
        exit_code="3:0",
        reason="NonZeroExitCode",
        nodes="node1",
        started=10.0,
        ended=20.0,
    )
    assert (found["6"].started, found["6"].nodes) == (None, None)
    assert (found["8"].state, found["8"].nodes) == ("TIMEOUT", "node[1-2]")
    assert found["9"].ended is None  # the end of its time limit is no end


PARTITIONS = (
    "PartitionName=batch AllowGroups=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=01:00:00 "
    "MinNodes=0 Nodes=node[1-4] OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=64 TotalNodes=4\n"
    "PartitionName=long AllowGroups=ALL Default=NO MaxNodes=2 MaxTime=UNLIMITED Nodes=(null) State=DRAIN TotalCPUs=0 "
    "TotalNodes=0\n"
)


def test_partitions() -> None:
    batch, long = parsing.partitions(PARTITIONS)
    assert (batch.name, batch.state, batch.nodes, batch.max_nodes, batch.max_seconds, batch.default) == (
        "batch", "UP", 4, None, 3600, True,
    )  # fmt: skip
    assert (long.state, long.nodes, long.max_nodes, long.max_seconds, long.default) == ("DRAIN", 0, 2, None, False)


def test_who_may_use_a_partition() -> None:
    open_to_all, closed = parsing.partitions(
        "PartitionName=batch AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL TotalNodes=2 State=UP\n"
        "PartitionName=small AllowGroups=ALL AllowAccounts=ml,ops AllowQos=ALL TotalNodes=1 State=UP\n"
    )
    assert (open_to_all.accounts, closed.accounts) == (None, ["ml", "ops"])


def test_the_settings_of_a_cluster() -> None:
    text = "Configuration data as of 2026-11-24T03:06:18\nAccountingStorageEnforce = none\nClusterName = dev\n"
    assert parsing.settings(text) == {"AccountingStorageEnforce": "none", "ClusterName": "dev"}


@pytest.mark.parametrize(
    "text",
    [
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n",
        "srun: MPI types are...\nsrun: pmix\nsrun: none\nsrun: pmi2\n",  # to standard error, as in 20.11
    ],
)
def test_the_mpi_plugins(text: str) -> None:
    assert parsing.mpi_plugins(text) == ["pmix", "none", "pmi2"]


def test_accounts() -> None:
    assert parsing.accounts("ml|\nops|\nops|\n\n") == ["ml", "ops"]


def test_nodes_stand_in_every_partition_they_are_in() -> None:
    text = recorded(
        "node1|batch|mixed|gpu:h100:8\nnode1|all|mixed|gpu:h100:8\nnode4|batch|down*|gpu:8(S:0-1),tpu:4\n"
    )
    found = parsing.nodes_by_partition(text)
    assert {name: [node.name for node in nodes] for name, nodes in found.items()} == {
        "batch": ["node1", "node4"],
        "all": ["node1"],
    }
    down = found["batch"][1]
    assert (down.gpus, down.up) == (8, False)


@pytest.mark.parametrize(
    ("state", "up"),
    [
        ("idle", True), ("mixed-", True), ("allocated", True), ("idle~", True), ("reserved", True),
        ("idle*", False), ("down", False), ("drained*", False), ("draining", False), ("unknown", False),
    ],
)  # fmt: skip
def test_which_nodes_take_jobs(state: str, up: bool) -> None:
    assert parsing.Node(name="n", state=state, gpus=0).up is up


# --- single fields ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), ("30:30", 1830), ("1:30:00", 5400), ("01:00:00", 3600), ("2-0", 172_800), ("2-12", 216_000),
        ("1-01:30", 91_800), ("1-00:00:00", 86_400), ("UNLIMITED", None), ("", None), ("1:2:3:4", None),
        ("soon", None), ("-5", None), ("x-5", None),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: int | None) -> None:
    assert parsing.duration_seconds(text) == seconds


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("gpu:h100:8", 8), ("gpu:8", 8), ("gpu", 1), ("gpu:h100:8(S:0-1)", 8), ("gpu:a:2(S:0,1),gpu:b:4", 6),
        ("(null)", 0), ("", 0), ("tpu:4", 0), ("gpumem:80", 0), ("gpu:1g.10gb:7", 7), ("gpu:h100:no_consume:8", 8),
    ],
)  # fmt: skip
def test_gpus(gres: str, count: int) -> None:
    assert parsing.gpu_count(gres) == count


@pytest.mark.parametrize(
    ("gres", "kind"),
    [
        ("gpu:h100:8(S:0-1),tpu:4", "h100"),
        ("tpu:4,gpu:nvidia_h100_80gb_hbm3:8", "nvidia_h100_80gb_hbm3"),
        ("gpu:8", ""),
        ("gpu:8(S:0-1)", ""),
        ("gpu", ""),
        ("(null)", ""),
    ],
)
def test_what_slurm_calls_the_gpus(gres: str, kind: str) -> None:
    assert parsing.gpu_type(gres) == kind


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("node[08-10,12],login", ["node08", "node09", "node10", "node12", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("a,b", ["a", "b"]),
        ("", []),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert parsing.node_names(text) == names


# --- words ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("state", "reason", "text"),
    [
        ("PENDING", "PartitionNodeLimit", "can never start (PartitionNodeLimit)"),
        ("PENDING", "Resources", "waits (Resources)"),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:node4", "waits (ReqNodeNotAvail, Unav"),
        ("PENDING", None, "waits"),
        ("POWER_UP_NODE", None, "is power up node"),
    ],
)
def test_what_a_job_waits_for(state: str, reason: str | None, text: str) -> None:
    assert (parsing.never(reason) is not None) == ("never" in text)
    assert parsing.explain(state, reason).startswith(text)
