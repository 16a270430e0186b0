"""The checks of a preflight that hold the nodes against each other: versions, ports, clocks. Pure."""

import statistics
from collections.abc import Sequence

from benchmarks.preflight.gpus import gpu_versions
from benchmarks.preflight.values import Answer, Finding, Wanted, not_checked, outliers

GIB = 2**30
# Ours: telemetry and steps of several nodes are laid side by side by their clocks.
CLOCK_WARNING_SECONDS = 0.05
CLOCK_FAILED_SECONDS = 1.0


def findings(answers: Sequence[Answer], wanted: Wanted) -> list[Finding]:
    return [*same_versions(answers, wanted), *ports(answers), *clocks(answers)]


def same_versions(answers: Sequence[Answer], wanted: Wanted) -> list[Finding]:
    """Nodes that differ from most: another kernel, driver or size makes one node the slowest of all."""
    facts = {answer.node: answer.versions | _size(answer) | gpu_versions(answer) for answer in answers}
    for node, of_node in facts.items():
        if wanted.slurm_versions:
            of_node["Slurm"] = wanted.slurm_versions.get(node, "unknown")
    names = sorted({name for of_node in facts.values() for name in of_node})
    differences: dict[str, list[str]] = {node: [] for node in facts}
    for name in names:
        seen = {node: of_node.get(name, "none") for node, of_node in facts.items()}
        for node, text in outliers(seen).items():
            differences[node].append(f"{name} {text}")
    return [
        Finding(check="same versions", status="failed" if texts else "ok", node=node, text="; ".join(texts))
        for node, texts in differences.items()
    ]


def _size(answer: Answer) -> dict[str, str]:
    # The kernel keeps a little of the memory, not always as much.
    return {"cores": str(answer.cores), "memory": f"{round(answer.memory_bytes / GIB / 4) * 4} GiB"} | (
        {"InfiniBand ports": str(len(answer.infiniband))} if answer.infiniband else {}
    )


# --- ports and clocks --------------------------------------------------------------------------------


def ports(answers: Sequence[Answer]) -> list[Finding]:
    """Every node has called the first one; where none got through, it is the first that is at fault."""
    callers = [answer for answer in answers if answer.clock.server not in (None, answer.node)]
    cut_off = [answer for answer in callers if answer.clock.offered and answer.clock.error is not None]
    if len(cut_off) > 1 and len(cut_off) == len(callers):
        server = callers[0].clock.server
        why = f"nobody could reach {server}"
        return [
            _first_cut_off(answer, len(callers))
            if answer.node == server
            # One that had nobody to call has its own reason.
            else _port(answer)
            if answer.clock.server is None
            else not_checked("ports", answer, why)
            for answer in answers
        ]
    return [_port(answer) for answer in answers]


def _first_cut_off(answer: Answer, callers: int) -> Finding:
    text = f"none of {callers} nodes could connect to it"
    return Finding(check="ports", status="failed", node=answer.node, text=text)


def _port(answer: Answer) -> Finding:
    clock = answer.clock
    if clock.server is None:
        return not_checked("ports", answer, "there was no other node to call")
    if clock.server != answer.node and not clock.offered:
        return not_checked("ports", answer, clock.error or f"{clock.server} offered no port")
    if clock.error is not None:
        text = f"no connection to {clock.server}: {clock.error}"
        return Finding(check="ports", status="failed", node=answer.node, text=text)
    return Finding(check="ports", status="ok", node=answer.node)


def clocks(answers: Sequence[Answer]) -> list[Finding]:
    """Each clock against the middle one: the first node, which all asked, may itself be wrong."""
    offsets = [a.clock.offset_seconds for a in answers if a.clock.offset_seconds is not None]
    middle = statistics.median_low(offsets) if offsets else 0.0
    return [_clock(answer, middle) for answer in answers]


def _clock(answer: Answer, middle: float) -> Finding:
    clock = answer.clock
    if clock.offset_seconds is None or clock.round_trip_seconds is None:
        return not_checked("clock", answer, "no other node's time is known")
    # A node asks the first one how late it is: positive means that its own clock is behind.
    ahead = middle - clock.offset_seconds
    beyond_doubt = abs(ahead) - clock.round_trip_seconds / 2
    text = (
        f"{ahead * 1e3:+.0f} ms from the middle of all, within {CLOCK_WARNING_SECONDS * 1e3:.0f} wanted "
        f"(round trip {clock.round_trip_seconds * 1e3:.1f} ms)"
    )
    if beyond_doubt > CLOCK_FAILED_SECONDS:
        return Finding(check="clock", status="failed", node=answer.node, text=text)
    late = beyond_doubt > CLOCK_WARNING_SECONDS
    return Finding(check="clock", status="warning" if late else "ok", node=answer.node, text=text if late else "")
