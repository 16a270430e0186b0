"""The preflight checks that need no GPU: of each node, and of versions and ports across nodes. No I/O."""

from collections.abc import Sequence

from benchmarks.preflight.gpus import gpu_versions
from benchmarks.preflight.values import Answer, Command, Expectations, Finding, Problem, finding, outliers

GIB = 2**30
# NCCL's user guide ("Shared memory") recommends --shm-size=1g --ulimit memlock=-1 for containers. Data loaders also
# need shared memory, so this is the size per GPU.
SHM_BYTES_A_GPU = GIB
# Stepmark chose the following limits.
FREE_BYTES = 10 * GIB  # logs, profiles and TensorBoard of a few runs
OPEN_FILES = 4096  # rank 0 of 2,048 ranks has a connection to each other rank
LOAD_A_CORE = 0.5  # the load of an idle node is far lower


def findings(answers: Sequence[Answer], wanted: Expectations) -> list[Finding]:
    found = [*_same_versions(answers), *_ports(answers)]
    of_nodes = [(answer, _problems(answer, wanted)) for answer in answers]
    names = of_nodes[0][1] if of_nodes else {}
    return found + [finding(name, answer, problems[name]) for name in names for answer, problems in of_nodes]


# --- one node ---------------------------------------------------------------------------------------


def _problems(answer: Answer, wanted: Expectations) -> dict[str, Problem | None]:
    """Return check -> problem (or None) for the checks of a single node, in the order of the report."""
    free = f"{answer.free_bytes / GIB:.1f} GiB free, {FREE_BYTES / GIB:g} needed"
    stale = "its node_check.py differs from the launcher's: the node has an old or a different checkout"
    memlock, files = answer.limits.memlock_bytes, answer.limits.open_files
    is_low = files is not None and files < OPEN_FILES
    pinned = f"{(memlock or 0) / 2**20:.0f} MiB, but must be unlimited for RDMA"
    down = [f"{port} {state}" for port, state in answer.infiniband.items() if "ACTIVE" not in state]
    ports: Problem | None = ("warning", ", ".join(down)) if down else None
    # The text omits the load itself, so that the report can group overloaded nodes in one line.
    load = f"the load average is over {LOAD_A_CORE:.0%} of its {answer.cores} cores: another program is running"
    return {
        "shared folder": _shared_folder(answer, wanted),
        "free space": ("warning", free) if answer.free_bytes < FREE_BYTES else None,
        "checkout": ("failed", stale) if answer.program != wanted.program else None,
        "environments": _environments(answer, wanted),
        "/dev/shm": _shm(answer, wanted),
        "memlock": ("warning", pinned) if memlock is not None else None,
        "open files": ("warning", f"{files}, {OPEN_FILES} needed") if is_low else None,
        "container runtime": _container_runtime(answer, wanted),
        "InfiniBand": ports if answer.infiniband else ("not_checked", "the node has no InfiniBand adapter"),
        "idle": ("warning", load) if answer.load > LOAD_A_CORE * answer.cores else None,
    }


def _shared_folder(answer: Answer, wanted: Expectations) -> Problem | None:
    """Return a problem with the shared folders. The token proves that node and launcher see the same folder."""
    if answer.token != wanted.asked.token:
        return "failed", "the node sees a different folder at this path"
    missing = [path for path, access in answer.folders.items() if access == "missing"]
    if missing:
        return "failed", f"does not see {', '.join(missing)}"
    read_only = [path for path, access in answer.folders.items() if access == "readable"]
    return ("warning", f"cannot write in {', '.join(read_only)}") if read_only else None


def _environments(answer: Answer, wanted: Expectations) -> Problem | None:
    if wanted.asked.container:
        return "not_checked", "the site uses containers instead"
    if not wanted.asked.environments:
        return "not_checked", "no environment exists yet (the first run creates it)"
    missing = [path for path, there in answer.environments.items() if not there]
    return ("failed", f"does not see {', '.join(missing)}") if missing else None


def _shm(answer: Answer, wanted: Expectations) -> Problem | None:
    if answer.shm_bytes is None:
        return "failed", "/dev/shm is missing"
    least = SHM_BYTES_A_GPU * max([1, *(h.devices_per_node for h in wanted.hardware if h.kind != "cpu")])
    text = f"{answer.shm_bytes / GIB:.2f} GiB, {least / GIB:g} needed (1 per GPU)"
    return ("warning", text) if answer.shm_bytes < least else None


def _container_runtime(answer: Answer, wanted: Expectations) -> Problem | None:
    if not wanted.asked.container:
        return "not_checked", "the site does not use containers"
    if not wanted.pyxis:
        return "failed", "srun has no --container-image: pyxis is missing"
    enroot = answer.commands.get("enroot", Command(exit_code=None, output="enroot was not checked"))
    return ("failed", enroot.output.strip()) if enroot.exit_code != 0 else None


# --- nodes compared with each other ------------------------------------------------------------------


def _same_versions(answers: Sequence[Answer]) -> list[Finding]:
    """Return findings about nodes that differ from most nodes. One slow node slows down all nodes of a run."""
    facts = {answer.node: _facts(answer) for answer in answers}
    differences: dict[str, list[str]] = {node: [] for node in facts}
    for name in sorted({name for of_node in facts.values() for name in of_node}):
        seen = {node: of_node.get(name, "none") for node, of_node in facts.items()}
        for node, text in outliers(seen).items():
            differences[node].append(f"{name} {text}")
    return [
        finding(
            "same versions", answer, ("failed", "; ".join(texts)) if (texts := differences[answer.node]) else None
        )
        for answer in answers
    ]


def _facts(answer: Answer) -> dict[str, str]:
    facts = answer.versions | gpu_versions(answer.commands)
    # The kernel reserves a varying part of the memory, so the size is rounded.
    facts |= {"cores": str(answer.cores), "memory": f"{round(answer.memory_bytes / GIB / 4) * 4} GiB"}
    if answer.infiniband:
        facts["InfiniBand ports"] = str(len(answer.infiniband))
    return facts


def _ports(answers: Sequence[Answer]) -> list[Finding]:
    """Return findings about connections. Every node calls the first node; if all calls fail, the first node fails."""
    callers = [answer for answer in answers if answer.call.first_node not in (None, answer.node)]
    nobody = len(callers) > 1 and all(answer.call.offered and answer.call.error for answer in callers)
    return [finding("ports", answer, _port(answer, len(callers) if nobody else 0)) for answer in answers]


def _port(answer: Answer, all_cut_off: int) -> Problem | None:
    call = answer.call
    if call.first_node is None:
        return "not_checked", "the check has no other node to connect to"
    if all_cut_off and call.first_node == answer.node:
        return "failed", f"none of {all_cut_off} nodes could connect to this node"
    if all_cut_off:
        return "not_checked", f"no node could reach {call.first_node}"
    if not call.offered:
        return "not_checked", call.error or f"{call.first_node} opened no port"
    return ("failed", f"no connection to {call.first_node}: {call.error}") if call.error else None
