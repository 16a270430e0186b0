"""The checks of a preflight that look at one node by itself, each a small function. Pure."""

from collections.abc import Callable

from benchmarks.preflight.values import Answer, Command, Finding, Status, Wanted, not_checked

GIB = 2**30
# NCCL's own advice for containers is --shm-size=1g --ulimit memlock=-1 (its user guide, "Shared memory"); data
# loaders need some as well, hence so much for each GPU.
SHM_BYTES_A_GPU = GIB
FREE_BYTES = 10 * GIB  # ours: logs, profiles and TensorBoard of a few runs
OPEN_FILES = 4096  # ours: the first rank of 2,048 holds a connection to each of them
LOAD_A_CORE = 0.5  # ours: an idle node is far below

NodeCheck = Callable[[Answer, Wanted], Finding]


def _finding(check: str, answer: Answer, *, ok: bool, text: str, otherwise: Status = "failed") -> Finding:
    return Finding(check=check, status="ok" if ok else otherwise, node=answer.node, text="" if ok else text)


def shared_folder(answer: Answer, wanted: Wanted) -> Finding:
    """That the launcher reads the answer proves that the node writes there; the token, that it reads there."""
    if answer.token != wanted.asked.token:
        return _finding("shared folder", answer, ok=False, text="it read another folder of the same name")
    missing = [path for path, access in answer.folders.items() if access == "missing"]
    if missing:
        return _finding("shared folder", answer, ok=False, text=f"does not see {', '.join(missing)}")
    read_only = [path for path, access in answer.folders.items() if access == "readable"]
    text = f"cannot write in {', '.join(read_only)}"
    return _finding("shared folder", answer, ok=not read_only, text=text, otherwise="warning")


def free_space(answer: Answer, wanted: Wanted) -> Finding:  # noqa: ARG001
    text = f"{answer.free_bytes / GIB:.1f} GiB free, {FREE_BYTES / GIB:g} wanted"
    return _finding("free space", answer, ok=answer.free_bytes >= FREE_BYTES, text=text, otherwise="warning")


def checkout(answer: Answer, wanted: Wanted) -> Finding:
    text = "its copy of node_check.py is another than the launcher's: a stale or second checkout"
    return _finding("checkout", answer, ok=answer.program == wanted.program, text=text)


def environments(answer: Answer, wanted: Wanted) -> Finding:
    if wanted.asked.container:
        return not_checked("environments", answer, "the site runs containers")
    if not wanted.asked.environments:
        return not_checked("environments", answer, "none has been made yet (python launch/setup.py --site=NAME)")
    missing = [path for path, there in answer.environments.items() if not there]
    return _finding("environments", answer, ok=not missing, text=f"does not see {', '.join(missing)}")


def shm(answer: Answer, wanted: Wanted) -> Finding:
    if answer.shm_bytes is None:
        return _finding("/dev/shm", answer, ok=False, text="there is none")
    least = SHM_BYTES_A_GPU * max([1, *(h.devices_per_node for h in wanted.hardware if h.kind != "cpu")])
    text = f"{answer.shm_bytes / GIB:.2f} GiB, {least / GIB:g} wanted (1 for each GPU)"
    return _finding("/dev/shm", answer, ok=answer.shm_bytes >= least, text=text, otherwise="warning")


def memlock(answer: Answer, wanted: Wanted) -> Finding:  # noqa: ARG001
    limit = answer.limits.memlock_bytes
    text = f"{(limit or 0) / 2**20:.0f} MiB, unlimited wanted: RDMA pins what it sends"
    return _finding("memlock", answer, ok=limit is None, text=text, otherwise="warning")


def open_files(answer: Answer, wanted: Wanted) -> Finding:  # noqa: ARG001
    limit = answer.limits.open_files
    text = f"{limit}, {OPEN_FILES} wanted"
    return _finding("open files", answer, ok=limit is None or limit >= OPEN_FILES, text=text, otherwise="warning")


def container_runtime(answer: Answer, wanted: Wanted) -> Finding:
    if not wanted.asked.container:
        return not_checked("container runtime", answer, "the site has no containers")
    if not wanted.pyxis:
        return _finding("container runtime", answer, ok=False, text="srun has no --container-image: pyxis is missing")
    enroot = answer.commands.get("enroot", Command(exit_code=None, output="enroot was not asked for"))
    return _finding("container runtime", answer, ok=enroot.exit_code == 0, text=enroot.output.strip()[:200])


def idle(answer: Answer, wanted: Wanted) -> Finding:  # noqa: ARG001
    # Without the figure, so that nodes in the same state share a line; it is in the node's answer.
    text = f"load average above {LOAD_A_CORE:.0%} of its {answer.cores} cores: something runs beside the preflight"
    return _finding("idle", answer, ok=answer.load <= LOAD_A_CORE * answer.cores, text=text, otherwise="warning")


def infiniband(answer: Answer, wanted: Wanted) -> Finding:  # noqa: ARG001
    if not answer.infiniband:
        return not_checked("InfiniBand", answer, "the node has no adapter")
    down = [f"{port} {state}" for port, state in answer.infiniband.items() if "ACTIVE" not in state]
    return _finding("InfiniBand", answer, ok=not down, text=", ".join(down), otherwise="warning")


CHECKS: tuple[NodeCheck, ...] = (
    shared_folder,
    free_space,
    checkout,
    environments,
    shm,
    memlock,
    open_files,
    container_runtime,
    infiniband,
    idle,
)
