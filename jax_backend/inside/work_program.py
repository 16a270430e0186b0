"""Train a few steps with MaxText's own model, loss, optimizer and training step, and report the results.

This program runs by path inside MaxText's environment (`python -P work_program.py --folder=DIR -- key=value ...`), in
one process on one device, with only the standard library, numpy and MaxText. benchmarks/equivalence/work.py defines
its request, its report, and the names of weights that are common to all frameworks (neutral names).
"""

import os
import re
import sys
from collections import Counter
from math import prod
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import work_kit as kit  # noqa: E402
from worker_kit import load  # noqa: E402

RECOMPUTED = "/rematted_computation/"
EINSUMS = {"btkgd,bskd->bkgts": "attention scores", "bkgts,bskd->btkgd": "attention over values"}
TRAINS_ADAPTERS = "lora.enable_lora=true"
NOT_COUNTED = ("convolution", "ragged-dot", "scaled-dot")
KERNEL = re.compile("matmul|gemm|dot|conv", re.IGNORECASE)
PACKAGES = ("maxtext", "jax", "jaxlib", "flax", "optax", "numpy")


hlo = load(HERE / "hlo.py")


# --- MaxText's objects ---------------------------------------------------------------------------


def settings_for_case(words, case, steps):
    """Return the benchmark's settings with the changes of the case."""
    settings = dict(word.split("=", 1) for word in words)
    settings |= {
        "steps": steps,
        "learning_rate": case["learning_rate"],
        "warmup_steps_fraction": min(1.0, case["warmup_steps"] / steps),
        "learning_rate_final_fraction": 1.0,
        "adam_b1": case["adam_beta1"],
        "adam_b2": case["adam_beta2"],
        "adam_eps": case["adam_epsilon"],
        "adam_weight_decay": case["weight_decay"],
        "adamw_mask": "[]" if case["decays_norms"] else "['norm']",
        "gradient_clipping_threshold": case["clip_norm"],
    }
    return [f"{name}={value}" for name, value in settings.items()]


class Training:
    """MaxText's train state and its compiled training step, on one device."""

    def __init__(self, argv, worker):
        from flax import nnx
        from maxtext.trainers.pre_train import train
        from maxtext.utils import train_utils

        self.config, recorder = train.initialize(worker.argv_of(argv))
        _, _, self._shardings, _, self._mesh, _, _, _, _, _, self.state = train_utils.setup_train_loop(
            self.config, recorder
        )
        self._layers = self.config.num_decoder_layers
        self._trained = nnx.LoRAParam if TRAINS_ADAPTERS in argv else nnx.Param
        self._values = None  # the arrays of the state; None until the step is compiled

    def within(self):
        """Return the context in which MaxText's functions must run."""
        import contextlib

        import jax
        from flax.core.spmd import logical_axis_rules

        stack = contextlib.ExitStack()
        stack.enter_context(jax.set_mesh(self._mesh))
        stack.enter_context(logical_axis_rules(self.config.logical_axis_rules))
        return stack

    def parameters(self):
        from flax import nnx

        state = nnx.merge(self._graph, self._values, copy=True) if self._values is not None else self.state
        return flat(nnx.state(state.model, nnx.Param))

    def weights(self):
        return self.neutral(self.parameters())

    def neutral(self, arrays):
        return neutral(arrays, self._layers)

    def begin(self, weights, inputs, targets):
        load_parameters(self.state.model, of_maxtext(weights, self._layers, self.parameters()))
        return [self.batch(*batch) for batch in zip(inputs, targets, strict=True)]

    def batch(self, inputs, targets):
        """Return one batch in MaxText's format: one document per row."""
        import jax
        from maxtext.utils import sharding

        whole = np.ones(inputs.shape, np.int32)
        places = np.broadcast_to(np.arange(inputs.shape[1], dtype=np.int32), inputs.shape)
        batch = {"inputs": inputs, "inputs_position": places, "inputs_segmentation": whole}
        batch |= {"targets": targets, "targets_position": places, "targets_segmentation": whole}
        return jax.device_put(batch, sharding.get_input_data_sharding(self.config, self._mesh))

    def look(self, batch):
        """Return logits, loss and gradients from MaxText's own functions, then lower MaxText's step."""
        import jax
        from flax import nnx
        from maxtext.trainers.pre_train import train

        graph, weights, rest = nnx.split(self.state.model, self._trained, ...)

        def loss_of(weights, rest, data):
            return train.loss_fn(
                nnx.merge(graph, weights, rest, copy=True), self.config, data, None, None, is_train=True
            )

        def logits_of(weights, rest, data):
            return nnx.merge(graph, weights, rest, copy=True)(
                decoder_input_tokens=data["inputs"],
                decoder_positions=data["inputs_position"],
                decoder_segment_ids=data["inputs_segmentation"],
                enable_dropout=False,
                decoder_target_tokens=data["targets"],
                decoder_target_mask=data["targets_segmentation"],
            )

        (loss, _), gradients = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(weights, rest, dict(batch))
        logits = np.asarray(jax.jit(logits_of)(weights, rest, batch), np.float32)
        self._facts = {
            "parameters": int(sum(array.size for array in self.parameters().values())),
            "settings": settings_of(self),
        }
        self._program = self._compile(batch)
        return logits, float(loss), flat(gradients)

    def facts(self):
        return self._facts

    def flops(self, _batch):
        return count(self._program)

    def _compile(self, batch):
        """Make MaxText's own jitted training step, and return it lowered for a batch of this shape."""
        from flax import nnx
        from maxtext.trainers.pre_train import train
        from maxtext.utils import sharding, train_utils

        self._graph, self._values = nnx.split(self.state)
        parameters, shardings = sharding.maybe_update_params_sharding_with_opt(self.config, self._shardings)
        self._step, _ = train_utils.jit_train_and_eval_step(
            self.config,
            self._graph,
            self._mesh,
            self._values,
            shardings,
            train.train_step,
            train.eval_step,
            None,
            parameters,
        )
        return self._step.lower(self._values, batch)

    def step(self, _number, batch):
        self._values, metrics = self._step(self._values, batch)
        scalars = metrics["scalar"]
        return {"loss": float(scalars["learning/loss"]), "gradient_norm": float(scalars["learning/raw_grad_norm"])}


def settings_of(training):
    """Return the settings of the modules that MaxText has built."""
    from flax import nnx
    from maxtext.layers import attentions, embeddings, linears, moe, normalizations

    modules = [node for _, node in nnx.iter_graph(training.state.model) if isinstance(node, nnx.Module)]

    def of(kind):
        return [module for module in modules if isinstance(module, kind)]

    ropes, experts = of(embeddings.RotaryEmbedding), of(moe.RoutedMoE)
    activations = [training.config.mlp_activations] if experts else [mlp.activations for mlp in of(linears.MlpBlock)]
    names = training.parameters()
    return {
        "norm_epsilon": kit.common(norm.epsilon for norm in of(normalizations.RMSNorm)),
        **kit.rope_of(np.asarray(ropes[0].timescale, np.float64)),
        "rope_interleaved": kit.common(turns_neighbours(rope) for rope in ropes),
        "activation": kit.common(" x ".join(one) for one in activations),
        **({"experts": kit.common(one.num_experts for one in experts)} if experts else {}),
        **({"active_experts": kit.common(one.num_experts_per_tok for one in experts)} if experts else {}),
        "tied_head": WHOLE["head"][0] not in names,
        "biases": any(name.endswith("bias") for name in names),
        "attention_scale": kit.common(module.query_pre_attn_scalar or 1.0 for module in of(attentions.Attention)),
    }


def turns_neighbours(rope):
    """Return whether RoPE rotates pairs of neighbouring numbers, rather than one number from each half of a head."""
    head = np.zeros((1, 2, 1, rope.embedding_dims), np.float32)
    head[..., 0] = 1
    turned = np.asarray(rope(head, np.arange(2)[None]))[0, 1, 0]
    return bool(turned[1])


# --- weights by neutral names ------------------------------------------------------------------------

WHOLE = {  # neutral name -> MaxText's path, and the permutation of MaxText's axes
    "embedding": ("token_embedder/embedding", (0, 1)),
    "final_norm": ("decoder/decoder_norm/scale", (0,)),
    "head": ("decoder/logits_dense/kernel", (1, 0)),
}
IN_LAYER = {
    "attention_norm": ("pre_self_attention_layer_norm/scale", (0,)),
    "query": ("self_attention/query/kernel", (1, 2, 0)),
    "key": ("self_attention/key/kernel", (1, 2, 0)),
    "value": ("self_attention/value/kernel", (1, 2, 0)),
    "attention_output": ("self_attention/out/kernel", (2, 0, 1)),
    "mlp_norm": ("post_self_attention_layer_norm/scale", (0,)),
    "gate": ("mlp/wi_0/kernel", (1, 0)),
    "up": ("mlp/wi_1/kernel", (1, 0)),
    "down": ("mlp/wo/kernel", (1, 0)),
    "query_norm": ("self_attention/query_norm/scale", (0,)),
    "key_norm": ("self_attention/key_norm/scale", (0,)),
    "router": ("moe_block/gate/kernel", (1, 0)),
    "experts_gate": ("moe_block/wi_0", (0, 2, 1)),
    "experts_up": ("moe_block/wi_1", (0, 2, 1)),
    "experts_down": ("moe_block/wo", (0, 2, 1)),
}
# Each kernel's adapters are kernel_lora_a [in, r] and kernel_lora_b [r, out]. A scan stacks them along SCAN_AXIS.
IN_LAYER |= {
    f"{ours}{end}": (f"{path}_lora{end}", (1, 0))
    for ours, (path, _) in IN_LAYER.items()
    if path.endswith("kernel")
    for end in ("_a", "_b")
}
SCANNED = "decoder/layers/"
SCAN_AXIS = 1


def neutral(arrays, layers):
    """Return neutral name -> array. With a scan, one array of MaxText contains all layers along SCAN_AXIS."""
    found = {ours: arrays[path].transpose(axes) for ours, (path, axes) in WHOLE.items() if path in arrays}
    for ours, (path, axes) in IN_LAYER.items():
        stacked = arrays.get(SCANNED + path)
        for layer in range(layers):
            one = arrays.get(unscanned(layer, path)) if stacked is None else np.take(stacked, layer, SCAN_AXIS)
            if one is not None:  # None for a weight without an adapter, or a frozen weight without a gradient
                found[f"layers.{layer}.{ours}"] = one.transpose(axes)
    return found


def of_maxtext(weights, layers, paths):
    """Return MaxText's path -> array from weights with neutral names, for the paths that the model has."""
    found = {path: weights[ours].transpose(np.argsort(axes)) for ours, (path, axes) in WHOLE.items() if path in paths}
    for ours, (path, axes) in IN_LAYER.items():
        if f"layers.0.{ours}" not in weights:
            continue
        parts = [weights[f"layers.{layer}.{ours}"].transpose(np.argsort(axes)) for layer in range(layers)]
        if SCANNED + path in paths:
            found[SCANNED + path] = np.stack(parts, SCAN_AXIS)
        else:
            found |= {unscanned(layer, path): part for layer, part in enumerate(parts)}
    return found


def unscanned(layer, path):
    return f"decoder/layers_{layer}/{path}"


def flat(state):
    from flax import nnx

    return {
        "/".join(map(str, path)): np.array(leaf.get_value(), np.float32) for path, leaf in nnx.to_flat_state(state)
    }


def load_parameters(model, arrays):
    """Load the arrays into the model's parameters. End the program if a parameter or an array has no counterpart."""
    from flax import nnx

    nnx.update(model, nnx.from_flat_state(filled(nnx.to_flat_state(nnx.state(model, nnx.Param)), arrays)))


def filled(own, arrays):
    """Return the flat state `own` with these arrays. Each gets the type and devices of the parameter it replaces."""
    import jax

    names = {"/".join(map(str, path)) for path, _ in own}
    if names != arrays.keys():
        raise SystemExit(f"stepmark: weights without a parameter: {sorted(names ^ arrays.keys())}")
    found = []
    for path, leaf in own:
        old, new = leaf.get_value(), arrays["/".join(map(str, path))]
        found.append((path, leaf.replace(jax.device_put(new.astype(old.dtype), old.sharding))))
    return found


# --- one case --------------------------------------------------------------------------------------


def train_case(words, case, given, worker):
    training = Training(settings_for_case(words, case, len(given[kit.INPUTS])), worker)
    with training.within():
        return kit.train_case(training, case, given)


def count(program):
    """Return the FLOPs of all matmuls, and separately of the recomputed matmuls, which jax marks in their names."""
    module = hlo.parse(program.compiler_ir("hlo").get_hlo_module().to_string().splitlines())
    total, again = 0, Counter()
    for op_name, flops in matmuls(module):
        total += flops
        if flops and RECOMPUTED in op_name:
            # The name of an einsum contains its formula. The name of a matmul with weights does not.
            again[EINSUMS.get(op_name.split("/")[-2], "matmuls with weights")] += flops
    return {"total": total, "recomputed": dict(again)}


def matmuls(module):
    """Yield the name and FLOPs of every matmul of the program. The FLOPs include all iterations of its loops."""
    for line, lines, times, branch, _ in module.executed(module.entry):
        if line.opcode == "dot":
            if branch or not times:
                where = "a conditional" if branch else "a loop of unknown length"
                raise SystemExit(f"stepmark: this matmul is in {where} and cannot be counted: {line.name}")
            yield line.op_name, flops_of(line, lines) * times
        elif line.opcode in NOT_COUNTED or KERNEL.search(line.target):
            raise SystemExit(f"stepmark: this matmul cannot be counted: {line.name} ({line.opcode})")


def flops_of(dot, lines):
    """Return the FLOPs of a matmul; 0 for a product with a vector, which Stepmark's FLOPs formula does not count."""
    left, right = (hlo.shapes_named(operand, lines)[0].sizes for operand in dot.operands[:2])
    summed = prod(left[axis] for axis in dot.dims("lhs_contracting_dims"))
    batch = prod(left[axis] for axis in dot.dims("lhs_batch_dims"))
    rows, columns = (prod(sizes) // (summed * batch) for sizes in (left, right))
    return 0 if 1 in (rows, columns, summed) else 2 * batch * rows * columns * summed


def main(options):
    worker = load(HERE / "worker.py")
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        worker.kit.die_with_parent()
    worker.assert_platform()
    if TRAINS_ADAPTERS in options.settings:
        load(HERE / "adapters.py").install()
    kit.run(
        options.folder,
        worker.kit.installed_versions(PACKAGES),
        lambda case, given: train_case(options.settings, case, given, worker),
        list,
    )


if __name__ == "__main__":
    main(kit.parse(sys.argv[1:]))
