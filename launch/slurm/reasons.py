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
STATES: Mapping[str, str] = {
    "PENDING": "waits",
    "CONFIGURING": "its nodes are being prepared",
    "RUNNING": "runs",
    "COMPLETING": "is ending",
    "SUSPENDED": "is suspended",
    "REQUEUED": "is requeued",
    "REQUEUE_HOLD": "is requeued and held: scontrol release lets it go",
}
LIMITS = ("Assoc", "QOS", "MaxJobs", "User", "Group", "Job")

# A part of sbatch's words -> what it means, and what to change.
REFUSED: Mapping[str, tuple[str, str]] = {
    "invalid partition": ("the partition is not known", "sinfo -s"),
    "invalid account": ("the account is not known, or not this user's", "sacctmgr show associations user=$USER"),
    "account/partition combination": (
        "this account may not use this partition",
        "sacctmgr show associations user=$USER",
    ),
    "invalid qos": ("the quality of service is not known, or not this user's", "sacctmgr show qos"),
    "requested reservation is invalid": ("the reservation is not known or not active", "scontrol show reservation"),
    "reservation access": ("this user or account is not in the reservation", "scontrol show reservation"),
    "invalid feature": ("no node has the feature that --constraint names", 'sinfo -o "%N %f"'),
    "invalid node name": ("a node of --nodelist or --exclude is not in the cluster", "sinfo -N"),
    "memory specification": ("no node has so much memory", 'sinfo -o "%N %m"'),
    "gres": ("no node has such devices", 'sinfo -o "%N %G"'),
    "invalid --time": ("the time is not one that Slurm reads: minutes, H:MM:SS or D-HH:MM:SS", "the time as 1:00:00"),
    "time limit": ("the time is above the partition's limit", 'sinfo -o "%P %l"'),
    "unrecognized option '--segment": ("this Slurm does not know --segment", "--segment=none"),
    "unrecognized option": ("this Slurm does not know the option", "sbatch --help"),
    "node configuration is not available": (
        "no nodes of the partition are as the job asks: devices a node, memory, processors, or nodes",
        'sinfo -o "%P %D %c %m %G"',
    ),
    "node count": ("the partition does not give so many nodes to one job", 'sinfo -o "%P %D %s"'),
    "violates accounting": ("a limit of the account or quality of service is reached", "sacctmgr show qos"),
    "policy limit": ("a limit of the account or quality of service is reached", "sacctmgr show qos"),
    "access/permission denied": ("this user may not submit there", "sinfo -s"),
    "dependency": ("the job it is to wait for is not known", "squeue --me"),
    "no space left": ("a disk is full: the controller cannot keep the job", "df -h"),
}


def never(reason: str | None) -> str | None:
    """Why the job can never start, or None where it waits."""
    return NEVER.get(_word(reason))


def explain(state: str, reason: str | None) -> str:
    """What a job in the queue does, in words."""
    word = _word(reason)
    if state != "PENDING" or not word:
        return STATES.get(state, f"is {state.lower().replace('_', ' ')}")
    impossible = never(reason)
    if impossible:
        return f"can never start: {impossible} ({word})"
    if word in WAITS:
        return f"{WAITS[word]} ({reason})"
    if word.startswith(LIMITS) and ("Limit" in word or "Max" in word or "Grp" in word):
        return f"waits: a limit of the account or quality of service is reached ({word})"
    return f"waits ({reason})"


def why_refused(words: str) -> tuple[str, str]:
    """What sbatch's words mean, and the command to look further; ("", "") where they are not known."""
    lower = words.lower()
    return next((meaning for part, meaning in REFUSED.items() if part in lower), ("", ""))


def _word(reason: str | None) -> str:
    """The reason without what Slurm adds to it: "ReqNodeNotAvail, UnavailableNodes:node4"."""
    return (reason or "").strip("()").partition(",")[0].strip()
