"""Slurm's words for why a job waits or was refused, in words for people. Pure."""

from collections.abc import Mapping

# What can never be met while the job and the cluster are as they are. Limits of accounts (Assoc*, QOS*) are not
# among them: they end when other jobs do.
NEVER: Mapping[str, str] = {
    "DependencyNeverSatisfied": "it depends on a job that did not end as it had to",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives to one job",
    "PartitionTimeLimit": "it asks for more time than the partition gives to one job",
    "PartitionConfig": "it asks for what the partition does not have",
    "BadConstraints": "no node is as it asks",
    "InvalidAccount": "the account is not known",
    "InvalidQOS": "the quality of service is not known",
    "AccountNotAllowed": "the account may not use the partition",
    "QOSNotAllowed": "the quality of service may not be used in the partition",
    "JobHoldMaxRequeue": "it was requeued too often",
    "launch_failed_requeued_held": "it could not be started, and is held",
    "DeadLine": "it cannot end before its deadline",
    "ReservationDeleted": "its reservation was deleted",
}

WAITS: Mapping[str, str] = {
    "Resources": "waits for nodes",
    "Priority": "waits for jobs before it",
    "Dependency": "waits for a job it depends on",
    "Singleton": "waits for a job of the same name: one at a time",
    "BeginTime": "waits for its time to begin",
    "JobHeldUser": "is held: scontrol release lets it go",
    "JobHeldAdmin": "is held by an administrator",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "waits for nodes that are down or reserved",
    "PartitionDown": "waits: the partition is down",
}

# A part of sbatch's words -> where to look, or what to change.
REFUSED: Mapping[str, str] = {
    "invalid partition": "sinfo -s",
    "invalid account": "sacctmgr show associations user=$USER",
    "account/partition combination": "sacctmgr show associations user=$USER",
    "invalid qos": "sacctmgr show qos",
    "reservation": "scontrol show reservation",
    "invalid feature": 'sinfo -o "%N %f"',
    "invalid node name": "sinfo -N",
    "memory specification": 'sinfo -o "%N %m"',
    "gres": 'sinfo -o "%N %G"',
    "invalid --time": "--time=1:00:00, or minutes, or D-HH:MM:SS",
    "time limit": 'sinfo -o "%P %l"',
    "unrecognized option '--segment": "--segment=none",
    "unrecognized option": "sbatch --help",
    "node configuration is not available": 'sinfo -o "%P %D %c %m %G"',
    "node count": 'sinfo -o "%P %D %s"',
    "violates accounting": "sacctmgr show qos",
    "policy limit": "sacctmgr show qos",
    "permission denied": "sinfo -s",
    "dependency": "squeue --me",
    "no space left": "df -h",
}


def never(reason: str | None) -> str | None:
    """Why the job can never start, or None where it waits."""
    return NEVER.get(_word(reason))


def explain(state: str, reason: str | None) -> str:
    """What a job in the queue does, in words."""
    word = _word(reason)
    if state != "PENDING":
        return f"is {state.lower().replace('_', ' ')}"
    if not word:
        return "waits"
    impossible = never(reason)
    return f"can never start: {impossible} ({word})" if impossible else f"{WAITS.get(word, 'waits')} ({reason})"


def after_refusal(words: str) -> str:
    """The command to look further after these words of sbatch."""
    lower = words.lower()
    found = (command for part, command in REFUSED.items() if part in lower)
    return next(found, "the same command with --dry_run shows the job")


def _word(reason: str | None) -> str:
    """The reason without what Slurm adds to it: "ReqNodeNotAvail, UnavailableNodes:node4"."""
    return (reason or "").strip("()").partition(",")[0].strip()
