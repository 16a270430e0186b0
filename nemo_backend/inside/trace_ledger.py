"""Record the tensors, matmuls and messages of one rank in a traced step. Loaded by path inside the framework.

Every tensor is fake: it has a shape, a type and a lifetime, but no data. `Ledger` sees every operator. After
`record_collectives`, torch.distributed's functions send nothing, and only count the bytes that they would send.
"""

import contextlib
import weakref
from collections import Counter
from math import prod

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

GRANULE = 512  # CUDA's allocator rounds sizes up to multiples of this many bytes
MATMULS = ("mm", "addmm", "bmm", "baddbmm")
FORWARD, BACKWARD, RECOMPUTED, END = "forward", "backward", "recomputed", "end of the step"
SMALLEST = 1 / 50_000  # smallest group in the report, as a share of the peak
OUTSIDE_LAYERS = ("", "output_layer")
ATTENTION = "self_attention.core_attention"
NEVER_SEARCHED = ("embedding", "mlp.experts")  # no matmul, or a stand-in that counts its own
SHORT_TYPES = {"bfloat16": "bf16", "float32": "f32", "int64": "s64", "uint8": "u8", "float64": "f64"}


def label_of(name):
    """Return one label for the same module of every layer, such as `mlp.linear_fc1`."""
    skipped = ("module", "decoder", "layers", "mtp", "mtp_model_layer", "to_wrap")
    return ".".join(part for part in name.split(".") if not part.isdigit() and part not in skipped)


class Ledger(TorchDispatchMode):
    """The bytes of all live tensors by group, and a copy of the groups at the peak.

    The tensors of a group have the same kind, creating module, creating operator, part of the step, and shape.
    torch's MemTracker fails if a module runs twice before its backward pass, as with pipelined micro-batches.
    """

    def __init__(self):
        super().__init__()
        self.groups, self.total, self.peak, self.at_peak = Counter(), 0, 0, None
        self.flops = Counter()  # (module, part) -> FLOPs of the traced micro-batches
        self.sent = Counter()  # (kind, axis, size of the group, part) -> bytes
        self.calls = Counter()
        self.operators = 0
        self.ends = False  # all micro-batches are finished
        self.dummies = {}  # weight shape -> Transformer Engine's dummy gradient if the gradient goes to a buffer
        self.vocabulary = None  # the width of the logits on this rank
        self._where, self._alive, self._counts, self._weights, self._shapes = [], {}, Counter(), {}, {}

    # --- the running module ----------------------------------------------------------------------

    def watch(self, model):
        for name, module in model.named_modules():
            label = label_of(name)
            module.register_forward_pre_hook(lambda _m, _a, label=label: self._where.append(label))
            module.register_forward_hook(self._left)
            for weight in module.parameters(recurse=False):
                self._weights[weight.untyped_storage()._cdata, weight.storage_offset()] = label
                if weight.dim() > 1 and not label.startswith(NEVER_SEARCHED):
                    shape = tuple(weight.shape)
                    self._shapes[shape] = label if self._shapes.get(shape, label) == label else "elsewhere"

    def _left(self, *_):
        self._where.pop()

    def part(self):
        if self.ends:
            return END
        if torch._C._current_graph_task_id() == -1:
            return FORWARD
        return RECOMPUTED if self._where else BACKWARD

    def module(self):
        return self._where[-1] if self._where else ""

    # --- memory ----------------------------------------------------------------------------------

    def hold(self, kind, tensors, module=""):
        for tensor in tensors:
            self._add(tensor, kind, module, "", "")

    def _add(self, tensor, kind, module, operator, part):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive:
            return
        size = -(-storage.nbytes() // GRANULE) * GRANULE
        kind_of_number = str(tensor.dtype).removeprefix("torch.")
        shape = f"{SHORT_TYPES.get(kind_of_number, kind_of_number)}{list(tensor.shape)}"
        if operator and tensor.shape[-1:] == (self.vocabulary,) and module in OUTSIDE_LAYERS:
            kind = "logits"
        group = (kind, module, operator, part, shape)
        self._alive[key] = weakref.ref(storage, lambda _: self._gone(key)), group, size
        self.groups[group] += size
        self._counts[group] += 1
        self.total += size
        if self.total > self.peak:
            self.peak, self.at_peak = self.total, None

    def _gone(self, key):
        self._free(*self._alive.pop(key, (None, None, 0))[1:])

    def release(self, storage):
        """Free a storage that remains as the place of a tensor that is recomputed later."""
        ref, group, size = self._alive.get(storage._cdata, (None, None, 0))
        if size:
            self._alive[storage._cdata] = ref, group, 0
            self._free(group, size)

    def _free(self, group, size):
        if size:
            self.look()
            self.groups[group] -= size
            self._counts[group] -= 1
            self.total -= size

    def look(self):
        """Copy the groups if this is the peak. Call this only before a tensor is freed and at the end of the step."""
        if self.at_peak is None and self.total == self.peak:
            self.at_peak = {group: (size, self._counts[group]) for group, size in self.groups.items() if size}

    def kept(self):
        """Return module -> bytes of the activations that forward passes have kept so far."""
        found = Counter()
        for (kind, module, *_), size in self.groups.items():
            if kind == "kept activations":
                found[module] += size
        return found

    # --- operators -------------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operators += 1
        name, part = func._schema.name.removeprefix("aten::"), self.part()
        if name in MATMULS:
            left, right = [one for one in args if isinstance(one, torch.Tensor)][-2:]
            made = 2 * prod(left.shape) * right.shape[-1]
            self.flops[self._module_of_matmul(left, right, out, name), part] += made
        kind = "kept activations" if part == FORWARD else "temporaries"
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor, kind, self.module(), name, part)
        return out

    def _module_of_matmul(self, left, right, out, name):
        if name.endswith("bmm"):
            return ATTENTION
        for one in (left, right):
            found = self._weights.get((one.untyped_storage()._cdata, one.storage_offset()))
            if found:
                return found
        return self.module() or self._shapes.get(tuple(out.shape), "elsewhere")

    def add_to_buffer(self, inputs, gradients, buffer):
        """Count the matmul of the fused kernel that adds a weight's gradient to a buffer."""
        made = 2 * prod(inputs.shape) * gradients.shape[-1]
        self.flops[self._shapes.get(tuple(buffer.shape), "elsewhere"), self.part()] += made
        shape = tuple(buffer.shape)
        if shape in self.dummies and self.dummies[shape] is None:
            self.dummies[shape] = torch.empty(shape, dtype=inputs.dtype)

    def count_sent(self, kind, axis, size, sent_bytes):
        key = (kind, axis, size, self.part())
        self.sent[key] += sent_bytes
        self.calls[key] += 1

    # --- the report ------------------------------------------------------------------------------

    def report(self, repeated):
        """Return the findings. `repeated` scales the traced micro-batches to all micro-batches of the step."""
        rows = sorted(self.at_peak.items(), key=lambda row: -row[1][0])
        return {
            "peak_bytes": self.peak,
            "held": [
                dict(zip(("kind", "layer", "op", "part", "shape"), group, strict=True), bytes=size, count=count)
                for group, (size, count) in rows
                if size >= SMALLEST * self.peak
            ],
            "matmuls": [
                {"layer": module, "part": part, "flops": flops * repeated}
                for (module, part), flops in sorted(self.flops.items())
            ],
            "collectives": [
                dict(
                    zip(("kind", "axis", "group_size", "part"), key, strict=True),
                    sent_bytes=sent * (1 if key[-1] == END else repeated),
                    times=round(self.calls[key] * (1 if key[-1] == END else repeated)),
                )
                for key, sent in sorted(self.sent.items())
            ],
        }


# --- collectives ----------------------------------------------------------------------------------


class FinishedWork:
    """The handle that the replaced collectives return."""

    def wait(self, *_, **__):
        return True

    def is_completed(self):
        return True


# Function of torch.distributed -> kind of collective, and position of its full-size tensor in the arguments.
COLLECTIVES = {
    "all_reduce": ("all-reduce", 0),
    "all_gather_into_tensor": ("all-gather", 0),
    "_all_gather_base": ("all-gather", 0),
    "reduce_scatter_tensor": ("reduce-scatter", 1),
    "_reduce_scatter_base": ("reduce-scatter", 1),
    "broadcast": ("broadcast", 0),
    "isend": ("send", 0),
    "send": ("send", 0),
}
SILENT = ("irecv", "recv", "barrier")  # not counted, because the sender counts the bytes


def record_collectives(ledger_of_now, axis_of):
    """Replace torch.distributed's functions. Call this before Megatron-core imports some of them by name."""

    def replaced(kind, place):
        def collective(*args, **kwargs):
            tensor = args[place] if len(args) > place else next(iter(kwargs.values()))
            size_bytes, (axis, size) = tensor.numel() * tensor.element_size(), axis_of(kwargs.get("group"))
            if kind == "send":
                ledger_of_now().count_sent(kind, axis, 2, size_bytes)
            elif size > 1:
                ring = (2 if kind == "all-reduce" else 1) * (size - 1) / size
                ledger_of_now().count_sent(kind, axis, size, size_bytes * ring)
            return FinishedWork()

        return collective

    for name, (kind, place) in COLLECTIVES.items():
        setattr(dist, name, replaced(kind, place))
    for name in SILENT:
        setattr(dist, name, lambda *_, **__: FinishedWork())
    dist.all_gather_object = lambda found, mine, *_, **__: found.__setitem__(slice(None), [mine] * len(found))
    dist._coalescing_manager = lambda *_, **__: contextlib.nullcontext(FinishedWork())
