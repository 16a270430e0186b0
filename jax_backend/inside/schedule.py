"""Convert the HLO of a compiled step to its schedule: the operations in the order of their execution.

This module imports only the standard library and can be loaded by path. `schedule` returns dictionaries that decode
as Schedule of benchmarks/compilation/compiled.py. They have the FLOPs and bytes of one execution on one device, but
no times.
"""

import re
import sys
from math import isqrt, prod
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

hlo = kit.load(HERE / "hlo.py")

# Opcodes that run no kernel.
FREE = {
    "add-dependency", "after-all", "async-update", "bitcast", "constant", "get-tuple-element", "opt-barrier",
    "parameter", "partition-id", "replica-id", "tuple",
}  # fmt: skip
# Opcodes that run a memory-bound kernel if they are not inside a fusion.
KERNELS = {
    "broadcast", "concatenate", "convert", "dynamic-slice", "dynamic-update-slice", "gather", "iota", "pad", "reduce",
    "reduce-window", "reverse", "rng-bit-generator", "scatter", "select-and-scatter", "slice", "sort", "transpose",
}  # fmt: skip
# Opcodes that keep the values of their operand, perhaps in another order or type.
KEEPS = {"bitcast", "convert", "copy", "reshape", "transpose"}
DEPTH = 6  # how many such instructions in a row to follow
DTYPES = {"bf16": "bf16", "f16": "bf16", "f32": "fp32"}  # f16 is as fast as bf16
MATMUL = re.compile(r"__cublas\$(?:lt\$matmul(?:\$f8)?|gemm)")
GROUPED = re.compile(r"mosaic_gpu\w*")  # tokamax's kernel for the matmuls of experts
ATTENTION = re.compile(r"__cudnn\$fmha\w*")
CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\[([^\]]*)\]')
SCORES = re.compile(r'"intermediate_tensor_shape":\{[^{}]*"dimensions":\[([^\]]*)\]')
SLIDING_WINDOW = re.compile(r'"sliding_window_length":[1-9]')
FORWARD_MATMULS, BACKWARD_MATMULS = 2, 5  # in attention; forward: Q K', P V; backward: Q K', dV, dP, dQ, dK


def schedule(text, mesh, words, node_of, expert_rows=0):
    """Return the schedule. `mesh`: axis -> size; `words`: axis -> Stepmark's name; `node_of`: device -> its node.

    `expert_rows`: how many rows the experts of one device process, if all experts get the same number of tokens.
    """
    return Reader(hlo.parse(text.splitlines()), hlo.layers(text), mesh, words, node_of, expert_rows).schedule()


class Reader:
    def __init__(self, program, layers, mesh, words, node_of, expert_rows):
        self._program, self._layers = program, layers
        self._mesh, self._words = mesh, words
        self._node_of = node_of
        self._expert_rows = expert_rows
        self._computations = {}
        self._not_counted = []

    def schedule(self):
        self._read(self._program.entry)
        return {
            "entry": self._program.entry,
            "computations": self._computations,
            "not_counted": list(dict.fromkeys(self._not_counted)),
        }

    def _read(self, name):
        if name in self._computations:
            return
        operations = self._computations[name] = []
        lines = self._program.computations[name]
        for line in lines.values():
            if line.opcode in FREE or line.target == "AllocateBuffer":
                continue
            operation = self._done(line, operations) if line.opcode.endswith("-done") else self._begun(line, lines)
            if operation:
                layer, part = self._layers.get(line.frame, ""), hlo.part_of(line.op_name)
                operations.append({"name": line.name, "op": line.op_name, "layer": layer, "part": part} | operation)

    # --- asynchronous pairs -----------------------------------------------------------------------

    def _begun(self, line, lines):
        """Return the operation that an instruction runs, or starts on another stream."""
        if not line.opcode.endswith("-start"):
            return self._operation(line, lines)
        event = {"event": "run" if '"is_sync":true' in line.attributes.replace(" ", "") else "start"}
        if line.opcode != "async-start":
            return self._operation(line, lines) | event
        inner, within = self._wrapped(line)
        return self._operation(inner, within) | event

    def _wrapped(self, line):
        within = self._program.computations[line.called_as["calls"]]
        return list(within.values())[-1], within

    def _done(self, line, operations):
        """Return the end of an asynchronous operation; None if it runs synchronously or its start is unknown."""
        started = next((one for one in operations if one["name"] == line.operands[0]), None)
        if started is None:
            self._not_counted.append(f"{line.name} ({line.opcode}; its start is in another computation)")
            return None
        if started.get("event") != "start":
            return None
        return {"what": started["what"], "kind": started.get("kind", ""), "event": "done", "of": started["name"]}

    # --- operations -------------------------------------------------------------------------------

    def _operation(self, line, lines):
        if line.opcode in ("while", "call", "conditional"):
            return self._loop(line)
        if line.opcode == "fusion":
            return self._fusion(line)
        return self._known(line, lines) or self._kernel(line, lines)

    def _known(self, line, lines):
        if line.opcode.removesuffix("-start") in hlo.SENT:
            return self._collective(line, lines)
        if MATMUL.fullmatch(line.target) and CONTRACTED.search(line.attributes):
            return matmul(line, lines)
        if GROUPED.fullmatch(line.target):
            return self._grouped_matmul(line, lines)
        if ATTENTION.fullmatch(line.target):
            return self._attention(line, lines)
        if line.opcode == "dot":
            left = hlo.shapes_named(line.operands[0], lines)[0]
            summed = prod(left.sizes[axis] for axis in line.dims("lhs_contracting_dims"))
            flops = 2.0 * prod(line.shapes[0].sizes) * summed
            return {"what": "matmul", "flops": flops, "dtype": dtype_of(left), "bytes": touched(line, lines)}
        return None

    def _loop(self, line):
        called = line.called_as.get("body") or line.called[-1]
        self._read(called)
        trips = self._program.trips(line) if line.opcode == "while" else 1
        if trips is None:
            self._not_counted.append(f"{line.name} (a loop of unknown trip count, counted as one trip)")
        if line.opcode == "conditional":
            self._not_counted.append(f"{line.name} (a conditional; only its branch {called} is counted)")
        return {"what": "loop", "body": called, "trips": trips or 1}

    def _fusion(self, line):
        """Return the operation of a fusion: its matmul, attention or collective, otherwise a memory-bound kernel."""
        body = self._program.computations[line.called_as["calls"]]
        moved = fusion_bytes(body)
        found = [one for one in (self._known(inner, body) for inner in body.values()) if one]
        if not found:
            return {"what": "fusion", "bytes": moved}
        if found[0]["what"] == "collective":
            return found[0]
        return found[0] | {"flops": sum(one.get("flops", 0.0) for one in found), "bytes": moved}

    def _kernel(self, line, lines):
        if line.opcode in ("copy", "copy-start"):
            return {"what": "copy", "bytes": 2 * line.shapes[0].bytes}
        if line.opcode not in KERNELS:
            self._not_counted.append(f"{line.name} ({line.target or line.opcode}; counted as bound by memory)")
        return {"what": "fusion", "bytes": touched(line, lines)}

    def _attention(self, line, lines):
        """Return the operation of an attention. cuDNN states the scores' shape: batch, heads, queries, keys."""
        scores = SCORES.search(line.attributes)
        if not scores:
            self._not_counted.append(f"{line.name} ({line.target}: no shape of the scores)")
            return {"what": "attention", "kind": direction(line), "bytes": touched(line, lines)}
        if SLIDING_WINDOW.search(line.attributes):
            self._not_counted.append(f"{line.name} ({line.target}: its sliding window is not counted)")
        query = hlo.shapes_named(line.operands[0], lines)[0]
        matmuls = BACKWARD_MATMULS if direction(line) == "backward" else FORWARD_MATMULS
        masked = 0.5 if '"CAUSAL"' in line.attributes else 1.0
        return {
            "what": "attention",
            "kind": direction(line),
            "flops": masked * matmuls * 2.0 * prod(numbers(scores[1])) * query.sizes[-1],
            "dtype": dtype_of(query),
            "bytes": touched(line, lines),
        }

    def _grouped_matmul(self, line, lines):
        """Return the operation of a matmul of sorted rows with the matrix of each row's expert, or of its gradient.

        Two of its arrays have a row per token and expert, and one has a matrix per expert. With expert parallelism,
        there are rows for the worst case, but the kernel processes only those that arrive.
        """
        shapes = [*line.shapes, *(one for operand in line.operands for one in hlo.shapes_named(operand, lines))]
        rows = [shape for shape in shapes if len(shape.sizes) == 2 and shape.dtype in DTYPES]
        matrices = [shape for shape in shapes if len(shape.sizes) == 3 and shape.dtype in DTYPES]
        if len(rows) != 2 or len(matrices) != 1:
            return None
        both = prod(
            matrices[0].sizes[1:]
        )  # inputs x outputs; one array of rows has the inputs, the other the outputs
        count = isqrt(prod(rows[0].sizes) * prod(rows[1].sizes) // both)  # either array may be transposed
        return {
            "what": "matmul",
            "kind": "experts",
            "flops": 2.0 * min(count, self._expert_rows or count) * both,
            "dtype": dtype_of(rows[0]),
            "bytes": touched(line, lines),
        }

    def _collective(self, line, lines):
        kind = line.opcode.removesuffix("-start")
        group = hlo.first_group(line.attributes, self._program.devices)
        given = [shape for operand in line.operands for shape in hlo.shapes_named(operand, lines)]
        buffer = sum(shape.bytes for shape in given) * (len(group) if kind == "all-gather" else 1)
        if kind == "ragged-all-to-all":  # input, output, offsets and sizes: one of the two has only the rows in use
            buffer = min(shape.bytes for shape in given[:2])
        axes = (self._words.get(axis, axis) for axis in hlo.axes_along(group, self._mesh))
        return {
            "what": "collective",
            "kind": kind,
            "dtype": given[0].dtype if given else "",
            "axes": list(dict.fromkeys(axes)),
            "group_size": len(group),
            "group_nodes": len({self._node_of[device] for device in group}),
            "bytes": buffer,
            "wire_bytes": buffer * hlo.SENT[kind](len(group)) if len(group) > 1 else 0.0,
        }


# --- matmuls ------------------------------------------------------------------------------------


def matmul(line, lines):
    """Return the operation of a cuBLAS matmul. The call states the summed axes; its first output is the result."""
    left, right = (hlo.shapes_named(operand, lines)[0] for operand in line.operands[:2])
    result = line.shapes[0]
    summed = prod(left.sizes[axis] for axis in numbers(CONTRACTED.search(line.attributes)[1]))
    added = 0.0 if re.search(r'"beta":0(?:\.0)?[,}]', line.attributes) else result.bytes
    return {
        "what": "matmul",
        "flops": 2.0 * prod(result.sizes) * summed,
        "dtype": dtype_of(left),
        "bytes": left.bytes + right.bytes + result.bytes + added,
    }


def direction(line):
    return "backward" if line.target.endswith("Backward") else "forward"


def dtype_of(shape):
    return "fp8" if shape.dtype.startswith("f8") else DTYPES.get(shape.dtype, shape.dtype)


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


# --- bytes --------------------------------------------------------------------------------------


def size(line):
    return sum(shape.bytes for shape in line.shapes)


def touched(line, lines):
    """Return the number of bytes that an instruction reads (all its operands) and writes (all its results)."""
    known = [operand for operand in line.operands if operand.partition("#")[0] in lines]
    return size(line) + sum(shape.bytes for operand in known for shape in hlo.shapes_named(operand, lines))


def fusion_bytes(body):
    """Return the bytes that a fusion reads and writes. For a slice or in-place update, count the accessed part."""
    users = {}
    for line in body.values():
        for operand in line.operands:
            users.setdefault(operand.partition("#")[0], []).append(line)
    root = list(body.values())[-1]
    results = [body[name] for name in root.operands if name in body] if root.opcode == "tuple" else [root]
    parameters = [line for line in body.values() if line.opcode == "parameter"]
    return sum(written(line, body) for line in results) + sum(read(line, users) for line in parameters)


def read(line, users, depth=0):
    """Return how many bytes of a value the instructions in `users` read."""
    whole = size(line)
    if not users.get(line.name) or depth > DEPTH:
        return whole
    return min(whole, sum(read_by(user, line, users, depth) for user in users[line.name]))


def read_by(user, line, users, depth):
    if user.opcode in ("slice", "dynamic-slice"):
        return size(user)
    if user.opcode == "gather" and user.operands[0] == line.name:
        return size(user)
    if user.opcode == "dynamic-update-slice" and user.operands[0] == line.name:
        return 0.0  # the update is written in place, so the array is not read
    if user.opcode in KEEPS:
        return read(user, users, depth + 1) * size(line) / max(size(user), 1)  # converted to the type of `line`
    return size(line)


def written(line, body, depth=0):
    inner = body.get(line.operands[0]) if line.operands else None
    if line.opcode == "dynamic-update-slice":
        update = body.get(line.operands[1])
        return size(update) if update else size(line)
    passes_on = inner and line.opcode in ("bitcast", "convert", "copy") and depth < DEPTH
    if passes_on and inner.opcode in ("bitcast", "convert", "dynamic-update-slice"):
        return written(inner, body, depth + 1) * size(line) / max(size(inner), 1)
    return size(line)
