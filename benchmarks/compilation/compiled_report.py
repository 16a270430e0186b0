"""What a person reads of a compiled step: what the program holds, and each figure beside its formula. Pure."""

from collections.abc import Sequence

import msgspec

from benchmarks.compilation.compiled import Compiled, Line, not_explained
from benchmarks.planning import capacity
from benchmarks.rendering import report
from benchmarks.rendering.columns import Rows, aligned
from benchmarks.values import Benchmark, json_text

# What a custom call of XLA:GPU is called -> what it is.
KERNELS = {
    "__cublas$lt$matmul": "cuBLASLt matmuls",
    "__cublas$lt$matmul$f8": "cuBLASLt matmuls in fp8",
    "__cublas$gemm": "cuBLAS matmuls",
    "__cudnn$fmhaSoftmax": "cuDNN attention forward",
    "__cudnn$fmhaSoftmaxBackward": "cuDNN attention backward",
}


def comparison_json(benchmark: Benchmark, compiled: Compiled, lines: Sequence[Line]) -> str:
    """What was compiled, the program with every matmul and collective, the lines, and what is not explained."""
    held = [{**msgspec.to_builtins(line), "left_over": line.left_over, "explained": line.explained} for line in lines]
    problems = not_explained(lines, compiled)
    return json_text({"benchmark": benchmark, "compiled": compiled, "lines": held, "not_explained": problems})


def comparison_text(
    benchmark: Benchmark, storage: capacity.Storage, compiled: Compiled, lines: Sequence[Line]
) -> str:
    problems = not_explained(lines, compiled)
    within = [f"{line.what} {_signed(line.left_over, line.unit)}" for line in lines if line.left_over]
    rest = f"nothing beyond the tolerance of a line\nleft over within it: {', '.join(within) or 'nothing'}"
    parts = [
        f"{report.title(benchmark)} · compiled here for {compiled.devices} {compiled.target}",
        *aligned(_rows(benchmark, storage, compiled)),
        "",
        "held against the formulas, for a device and step",
        *(text for line in lines for text in _line_texts(line)),
        *aligned([("not explained", "\n".join(problems) or rest)]),
    ]
    return "\n".join(parts)


def _rows(benchmark: Benchmark, storage: capacity.Storage, compiled: Compiled) -> Rows:
    mesh = " x ".join(f"{axis} {size}" for axis, size in compiled.mesh.items()) or "one device"
    seconds = ", ".join(f"{part} {report.seconds_text(value)}" for part, value in compiled.seconds.items())
    traffic = f"{report.bytes_text(compiled.wire_bytes)} a device and step, sent in rings"
    if benchmark.parallelism.tensor * benchmark.parallelism.context > 1:
        traffic += "; beside a tensor or context axis it is not compared"
    return [
        ("mesh", mesh),
        ("parameters", f"{compiled.parameters:,}"),
        ("state", f"{report.bytes_text(compiled.state_bytes)} a device"),
        ("matmuls", f"{compiled.dot_flops:.5g} FLOPs a device and step"),
        ("traffic", traffic),
        *_finished_program(benchmark, storage, compiled),
        ("loops", ", ".join(f"{name} x {trips}" for name, trips in compiled.loops.items()) or "none"),
        ("took", f"{seconds}; {report.bytes_text(compiled.peak_memory_bytes)} of memory"),
        ("versions", ", ".join(f"{name} {number}" for name, number in list(compiled.versions.items())[:5])),
        *((f"{name} stands in", text) for name, text in compiled.replaced.items()),
        *(("note", note) for note in compiled.notes),
    ]


def _finished_program(benchmark: Benchmark, storage: capacity.Storage, compiled: Compiled) -> Rows:
    """Its memory and its instructions, each once however often a loop runs it."""
    peak = f"{report.bytes_text(compiled.peak_bytes)} a device at the peak, without NCCL's buffers and CUDA's own"
    planned_bytes, usable_bytes = capacity.total_bytes(benchmark, storage), capacity.usable_bytes(benchmark, storage)
    off = planned_bytes / compiled.peak_bytes - 1
    kernels = [f"{compiled.kernels[name]} {text}" for name, text in KERNELS.items() if name in compiled.kernels]
    beside = f"{compiled.overlapped} of {compiled.asynchronous} have a matmul or attention scheduled beside them"
    return [
        ("its memory", peak),
        *_too_large(compiled.peak_bytes, usable_bytes),
        ("the plan's memory", f"{report.bytes_text(planned_bytes)} ({off:+.1%})"),
        ("kernels", ", ".join(kernels) or "none of a library"),
        ("overlap", f"asynchronous collectives: {beside}"),
    ]


def _too_large(peak_bytes: float, usable_bytes: float | None) -> Rows:
    if usable_bytes is None or peak_bytes <= usable_bytes:
        return []
    text = f"{report.bytes_text(peak_bytes)} of {report.bytes_text(usable_bytes)} that a device has for a step"
    return [("DOES NOT FIT", text)]


def _line_texts(line: Line) -> list[str]:
    state = "" if line.explained else "   NOT EXPLAINED"
    rows = [
        ("at most" if line.at_most else "formula", f"{_amount(line.expected, line.unit)}   {line.formula}"),
        *((_signed(cause.amount, line.unit), cause.text) for cause in line.causes),
        ("program", _amount(line.counted, line.unit)),
        ("left over", f"{_signed(line.left_over, line.unit)}{state}"),
    ]
    return [f"  {line.what}", *aligned(rows, indent="    ")]


def _amount(number: float, unit: str) -> str:
    if unit == "bytes":
        return report.bytes_text(number)
    return f"{number:.7g} {unit}" if unit == "FLOPs" else f"{number:,.0f}"


def _signed(number: float, unit: str) -> str:
    sign = "-" if number < 0 else "+"
    return f"{sign}{_amount(abs(number), unit)}" if number else "0"
