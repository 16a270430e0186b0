"""What a person reads of a compiled step: what the program holds, and each figure beside its formula. Pure."""

from collections.abc import Sequence

import msgspec

from benchmarks.compilation.compiled import Collective, Compiled, Line, not_explained
from benchmarks.rendering import report
from benchmarks.rendering.columns import Rows, aligned, columns
from benchmarks.values import Benchmark, Value, json_text

BYTES, FLOPS = "bytes", "FLOPs"
SHOWN = 1e-4  # of all that travels: collectives that send less are counted together


class Comparison(Value, frozen=True):
    """For --json: what was compiled, the program, the lines with what is left over, and what is not explained."""

    benchmark: Benchmark
    compiled: Compiled
    lines: list[dict[str, object]]
    not_explained: list[str]


def comparison_json(benchmark: Benchmark, compiled: Compiled, lines: Sequence[Line]) -> str:
    held = [{**msgspec.to_builtins(line), "left_over": line.left_over, "explained": line.explained} for line in lines]
    problems = not_explained(lines, compiled)
    return json_text(Comparison(benchmark=benchmark, compiled=compiled, lines=held, not_explained=problems))


def comparison_text(benchmark: Benchmark, compiled: Compiled, lines: Sequence[Line], planned_bytes: float) -> str:
    """`planned_bytes` is what the plan says that a device holds."""
    problems = not_explained(lines, compiled)
    parts = [
        f"{report.title(benchmark)} · compiled here for {compiled.devices} {compiled.target or 'virtual devices'}",
        *aligned(_rows(compiled, planned_bytes)),
        "",
        "matmuls of a device and step",
        *_indented(columns(_matmul_table(compiled))),
        "",
        "collectives of a device and step",
        *_indented(columns(_collective_table(compiled))),
        "",
        "held against the formulas, for a device and step",
        *(text for line in lines for text in _line_texts(line)),
        *aligned([("not explained", "\n".join(problems) or verdict(lines))]),
    ]
    return "\n".join(parts)


def verdict(lines: Sequence[Line]) -> str:
    """Of a program in which nothing is left over beyond a line's tolerance: how much is within it, and unproven."""
    said = ["nothing beyond the tolerance of a line"]
    within = [f"{line.what} {_signed(line.left_over, line.unit)}" for line in lines if line.left_over]
    said.append(f"left over within it: {', '.join(within) or 'nothing'}")
    for unit in (BYTES, FLOPS):
        amount = sum(
            abs(cause.amount) for line in lines for cause in line.causes if cause.as_counted and line.unit == unit
        )
        if amount:
            said.append(f"as counted, without a formula: {_amount(amount, unit)}")
    return "\n".join(said)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# --- the program --------------------------------------------------------------------------------


def _rows(compiled: Compiled, planned_bytes: float) -> Rows:
    mesh = " x ".join(f"{axis} {size}" for axis, size in compiled.mesh.items()) or "one device"
    seconds = ", ".join(f"{part} {report.seconds_text(value)}" for part, value in compiled.seconds.items())
    memory = report.bytes_text(compiled.peak_memory_bytes)
    return [
        ("mesh", mesh),
        ("parameters", f"{compiled.parameters:,}"),
        ("state", f"{report.bytes_text(compiled.state_bytes)} a device"),
        ("matmuls", f"{compiled.dot_flops:.5g} FLOPs a device and step"),
        ("traffic", f"{report.bytes_text(compiled.wire_bytes)} a device and step, sent in rings"),
        *_memory(compiled, planned_bytes),
        *_finished_program(compiled),
        ("loops", ", ".join(f"{name} x {trips}" for name, trips in compiled.loops.items()) or "none"),
        ("took", f"{seconds}; {memory} of memory"),
        ("versions", _lines_of([f"{name} {number}" for name, number in compiled.versions.items()])),
        *((f"{name} stands in", text) for name, text in compiled.replaced.items()),
        *(("note", note) for note in compiled.notes),
    ]


def _lines_of(words: Sequence[str], each: int = 5) -> str:
    return "\n".join(", ".join(words[start : start + each]) for start in range(0, len(words), each))


def _memory(compiled: Compiled, planned_bytes: float) -> Rows:
    if not compiled.target:
        text = f"{report.bytes_text(compiled.program_bytes)} a device, as a CPU runs it: no estimate for a GPU"
        return [("its memory", text)]
    peak = f"{report.bytes_text(compiled.peak_bytes)} a device at the peak, without NCCL's buffers and CUDA's own"
    off = planned_bytes / compiled.peak_bytes - 1
    return [("its memory", peak), ("the plan's memory", f"{report.bytes_text(planned_bytes)} ({off:+.1%})")]


# What a custom call of XLA:GPU is called -> what it is.
KERNELS = {
    "__cublas$lt$matmul": "cuBLASLt matmuls",
    "__cublas$lt$matmul$f8": "cuBLASLt matmuls in fp8",
    "__cublas$gemm": "cuBLAS matmuls",
    "__cudnn$fmhaSoftmax": "cuDNN attention forward",
    "__cudnn$fmhaSoftmaxBackward": "cuDNN attention backward",
}


def _finished_program(compiled: Compiled) -> Rows:
    """Of a GPU's: its instructions, each once however often a loop runs it."""
    if not compiled.target:
        return []
    kernels = ", ".join(
        f"{compiled.kernels[name]} {text}" for name, text in KERNELS.items() if name in compiled.kernels
    )
    beside = f"{compiled.overlapped} of {compiled.asynchronous} have a matmul or attention scheduled beside them"
    return [("kernels", kernels or "none of a library"), ("overlap", f"asynchronous collectives: {beside}")]


def _matmul_table(compiled: Compiled) -> list[list[str]]:
    rows = [
        [
            group.part,
            group.dtype,
            "by a vector" if group.by_a_vector else "",
            f"{group.count:,}",
            f"{group.flops:.5g}",
        ]
        for group in compiled.matmuls
    ]
    return [["part", "types", "", "times", "FLOPs"], *rows]


def _collective_table(compiled: Compiled) -> list[list[str]]:
    shown = [group for group in compiled.collectives if group.wire_bytes > SHOWN * compiled.wire_bytes]
    rest = [group for group in compiled.collectives if group not in shown]
    rows = [
        [
            group.kind,
            group.dtype,
            f"{group.group_size} ({' x '.join(group.axes)})",
            f"{group.part}: {group.what}{', in a loop' if group.in_a_loop else ''}",
            f"{group.count:,}",
            report.bytes_text(group.buffer_bytes),
            report.bytes_text(group.wire_bytes),
        ]
        for group in shown
    ]
    head = ["kind", "type", "group", "of", "times", "buffers", "on the wire"]
    return [head, *rows, *([_rest_row(rest)] if rest else [])]


def _rest_row(rest: Sequence[Collective]) -> list[str]:
    count, wire = sum(group.count for group in rest), sum(group.wire_bytes for group in rest)
    buffers = sum(group.buffer_bytes for group in rest)
    return ["others", "", "", "", f"{count:,}", report.bytes_text(buffers), report.bytes_text(wire)]


# --- beside the formulas ------------------------------------------------------------------------


def _line_texts(line: Line) -> list[str]:
    state = "" if line.explained else "   NOT EXPLAINED"
    rows = [
        ("at most" if line.at_most else "formula", f"{_amount(line.expected, line.unit)}   {line.formula}"),
        *(
            (_signed(cause.amount, line.unit), f"{cause.text}{' (as counted)' if cause.as_counted else ''}")
            for cause in line.causes
        ),
        ("program", _amount(line.counted, line.unit)),
        ("left over", f"{_signed(line.left_over, line.unit)}{state}"),
    ]
    return [f"  {line.what}", *aligned(rows, indent="    ")]


def _amount(number: float, unit: str) -> str:
    if unit == BYTES:
        return report.bytes_text(number)
    return f"{number:.7g} {unit}" if unit == FLOPS else f"{number:,.0f}"


def _signed(number: float, unit: str) -> str:
    sign = "-" if number < 0 else "+"
    return f"{sign}{_amount(abs(number), unit)}" if number else "0"
