"""Train a few steps with NeMo's own model, optimizer and data parallel wrapper, and report the results.

This program runs by path inside NeMo's environment (`python -P work_program.py --folder=DIR ... -- group.name=value`)
with only the standard library, numpy and NeMo. benchmarks/equivalence/work.py describes the request, the report, and
the neutral names of weights. One process uses one GPU or, if there is no GPU, the CPU.
"""

import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import work_kit as kit  # noqa: E402
from worker_kit import load  # noqa: E402

TOWARDS_EMBEDDING = "gradient towards the frozen embedding"
PACKAGES = ("nemo-toolkit", "megatron-core", "torch", "lightning", "numpy")


known = load(HERE / "weights.py")


# --- NeMo's objects ------------------------------------------------------------------------------


# Field of a case -> Megatron's group and name. NeMo calls the groups optim.config, model.config and peft.
OF_CASE = {
    "learning_rate": ("optimizer", "lr"),
    "adam_beta1": ("optimizer", "adam_beta1"),
    "adam_beta2": ("optimizer", "adam_beta2"),
    "adam_epsilon": ("optimizer", "adam_eps"),
    "weight_decay": ("optimizer", "weight_decay"),
    "clip_norm": ("optimizer", "clip_grad"),
    "attention_scale": ("model", "softmax_scale"),
    "rope_interleaved": ("model", "rotary_interleaved"),
    "rope_theta": ("model", "rotary_base"),
    "norm_epsilon": ("model", "layernorm_epsilon"),
    "active_experts": ("model", "moe_router_topk"),
    "balancing": ("model", "moe_router_load_balancing_type"),
    "adapter_alpha": ("peft", "alpha"),
}


def settings_in(case):
    """Return the settings of a case by their group and name."""
    return {place: case[field] for field, place in OF_CASE.items() if case.get(field) is not None}


def settings_for_case(words, case, build):
    """Return the benchmark's settings, with the case's values in place of the benchmark's."""
    settings, groups = build.grouped(words), {"optimizer": "optim.config", "model": "model.config", "peft": "peft"}
    for (group, name), value in settings_in(case).items():
        settings[groups[group]][name] = value
    return settings


class Training:
    """A model in Megatron's data parallel wrapper, as the framework makes it for a run, and its optimizer.

    A subclass for each framework defines optimizer_of_weights(), finalize() and set_rates(rate).
    """

    def __init__(self, ddp, case, *, adapters):
        self.ddp = ddp
        self.gpt = getattr(ddp.module, "module", ddp.module)  # a bf16 model has one more wrapper
        self._adapters = adapters
        self._case = case
        self._sizes = known.Sizes(self.gpt.config)

    def weights(self):
        """Return the weights as float32. For bf16 weights, return the optimizer's float32 copies if they exist."""
        own = self.gpt.named_parameters()
        return self.neutral({name: known.array_of(getattr(one, "main_param", one)) for name, one in own})

    def neutral(self, arrays):
        return known.neutral(arrays, self._sizes)

    def begin(self, weights, inputs, targets):
        """Load the weights and then make the optimizer, which copies bf16 weights. Return the batches."""
        import torch

        known.load_parameters(self.gpt, known.of_megatron(weights, self._sizes))
        self.optimizer = self.optimizer_of_weights()
        device = torch.cuda.current_device()
        placed = (torch.from_numpy(tokens.astype(np.int64)).to(device) for tokens in (inputs, targets))
        return list(zip(*placed, strict=True))

    def facts(self):
        parameters = sum(parameter.numel() for parameter in self.gpt.parameters())
        return {"parameters": parameters, "settings": settings_of(self.gpt)}

    def losses(self, model, inputs, targets=None):
        """Return the loss of each token, or the logits if there are no targets, as [batch, sequence, ...]."""
        import torch

        length = inputs.shape[1]
        future = torch.triu(torch.ones(length, length, dtype=torch.bool, device=inputs.device), 1)[None, None]
        positions = torch.arange(length, device=inputs.device)[None].expand(inputs.shape)
        return model(inputs, positions, future, labels=targets)

    def step(self, number, batch):
        """Run one training step and return its loss and gradient norm before clipping."""
        inputs, targets = batch
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()
        loss = self.losses(self.ddp, inputs, targets).mean()
        loss.backward()
        self.finalize()
        warmup = self._case["warmup_steps"]
        self.set_rates(self._case["learning_rate"] * (min(1.0, number / warmup) if warmup else 1.0))
        _, norm, _ = self.optimizer.step()
        return {"loss": loss.item(), "gradient_norm": float(norm)}

    def look(self, batch):
        """Return the logits, the loss, and parameter -> gradient, from a separate pass."""
        import torch

        with torch.no_grad():
            logits = known.array_of(self.losses(self.gpt, batch[0]))
        own = self.gpt.named_parameters()
        parameters = {name: each for name, each in own if not self._adapters or known.IN_AN_ADAPTER in name}
        loss, found = self._pass(*batch, parameters.values())
        gradients = {name: known.array_of(one) for name, one in zip(parameters, found, strict=True)}
        return logits, loss.item(), gradients

    def _pass(self, inputs, targets, parameters):
        import torch

        loss = self.losses(self.gpt, inputs, targets).mean()
        return loss, torch.autograd.grad(loss, parameters)

    def flops(self, batch):
        inputs, targets = batch
        trained = [parameter for parameter in self.gpt.parameters() if parameter.requires_grad]
        total = self._counted(inputs, targets, trained)
        found = {"total": total}
        below = list(self.gpt.embedding.parameters())
        if self._adapters and not below[0].requires_grad:
            # The embedding is frozen, so torch does not compute the gradient of the first layer's input, but JAX's
            # scan over layers does. Count its FLOPs by training the embedding, whose own gradient needs no matmul.
            self.gpt.embedding.requires_grad_(True)
            found["left_out"] = {TOWARDS_EMBEDDING: self._counted(inputs, targets, [*trained, *below]) - total}
            self.gpt.embedding.requires_grad_(False)
        return found

    def _counted(self, inputs, targets, parameters):
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            self._pass(inputs, targets, parameters)
        return counter.get_total_flops()


class NemoTraining(Training):
    """The model and the optimizer as NeMo's strategy makes them for a run."""

    def __init__(self, settings, case, tokenizer, build):
        from lightning.pytorch.trainer.states import TrainerFn

        model = build.model_of(settings, tokenizer)
        if case["decays_norms"]:
            model.optim.no_weight_decay_cond = lambda _name, _parameter: False
        trainer = build.trainer_of(settings, [])
        trainer.state.fn = TrainerFn.FITTING
        strategy = trainer.strategy
        strategy.connect(model)
        strategy.setup_environment()
        strategy.trainer = trainer
        model.configure_model()
        strategy._setup_optimizers = False  # `step` calls the optimizer instead of Lightning's loop
        strategy._init_model_parallel = not settings["peft"]  # add adapters before the model is wrapped
        strategy.setup_megatron_parallel(trainer)
        if settings["peft"]:
            in_order = case.get("adapters_in_order", True)
            adapters = build.adapters_of(settings, load(HERE / "adapters.py"), in_order=in_order)
            adapters(strategy.megatron_parallel)
            if case.get("trains_base"):
                strategy.megatron_parallel.unfreeze()
            strategy.init_model_parallel()
        strategy.configure_ddp()
        (wrapped,) = strategy.megatron_parallel
        super().__init__(wrapped.module, case, adapters=bool(settings["peft"]))
        self._module = model.optim
        self._parallel = strategy.megatron_parallel

    def optimizer_of_weights(self):
        (nemo_optimizer,) = self._module.optimizers(self._parallel)
        return nemo_optimizer.mcore_optimizer

    def finalize(self):
        self._module.finalize_model_grads([self.ddp])

    def set_rates(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def settings_of(gpt):
    """Return the settings that the built modules have."""
    import torch

    cores = [layer.self_attention.core_attention for layer in gpt.decoder.layers]
    rope, config = gpt.rotary_pos_emb, gpt.config
    gated = ["linear"] if config.gated_linear_unit else []
    return {
        "norm_epsilon": kit.common(module.eps for module in gpt.modules() if isinstance(module, torch.nn.RMSNorm)),
        **kit.rope_of(1.0 / rope.inv_freq.double().numpy()),
        "rope_interleaved": bool(rope.rotary_interleaved or config.rotary_interleaved),
        "activation": " x ".join([config.activation_func.__name__, *gated]),
        **({"experts": config.num_moe_experts} if config.num_moe_experts else {}),
        **({"active_experts": config.moe_router_topk} if config.num_moe_experts else {}),
        "tied_head": bool(gpt.share_embeddings_and_output_weights),
        "biases": any(name.endswith("bias") for name, _ in gpt.named_parameters()),
        "attention_scale": kit.common(core.softmax_scale * (core.scale_mask_softmax.scale or 1.0) for core in cores),
    }


# --- the cases --------------------------------------------------------------------------------------


def main(options):
    worker = load(HERE / "worker.py")
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        worker.kit.die_with_parent()
    options.coordinator, options.processes, options.rank, options.tasks_per_node = None, 1, 0, 1
    worker.join_processes(options)
    redirect = load(HERE / "cpu_redirect.py")
    on_cpu = redirect.install()
    if on_cpu:
        worker.share_the_cpu(options)
    redirect.fork_no_random_state()
    load(HERE / "adapters.py").without_transformer_engine()
    build = load(HERE / "build.py")
    tokenizer = build.tokenizer_of(options.vocabulary_size)

    def train(case, given):
        return kit.train_case(
            NemoTraining(settings_for_case(options.settings, case, build), case, tokenizer, build), case, given
        )

    versions = worker.kit.installed_versions(PACKAGES)
    kit.run(options.folder, versions, train, lambda: [redirect.NOTE] if on_cpu else [])


if __name__ == "__main__":
    main(kit.parse(sys.argv[1:], "--vocabulary_size"))
