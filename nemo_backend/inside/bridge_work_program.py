"""Train a few steps with Megatron-Bridge's own model and optimizer, and report the results.

This program runs by path inside Megatron-Bridge's environment, with the options of bridge_worker.py. work_program.py
has the code shared with NeMo's program. benchmarks/equivalence/work.py describes the request and the report.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

shared = kit.load(HERE / "work_program.py")
worker = kit.load(HERE / "bridge_worker.py")

# With these settings, the process has the whole optimizer, and the backward pass does not overlap with communication.
PLAIN = {
    ("optimizer", "min_lr"): 0.0,
    ("optimizer", "use_distributed_optimizer"): False,
    ("ddp", "use_distributed_optimizer"): False,
    ("ddp", "overlap_grad_reduce"): False,
    ("ddp", "overlap_param_gather"): False,
}


class BridgeTraining(shared.Training):
    """The model and the optimizer as Bridge's setup makes them for a run."""

    def __init__(self, options, case, interleave):
        from megatron.bridge.data.utils import get_dataset_provider
        from megatron.bridge.peft.canonical_lora import LoRALinearSplitQKV
        from megatron.bridge.training import setup
        from megatron.bridge.training.config import runtime_config_update
        from megatron.bridge.training.initialize import destroy_global_state
        from megatron.bridge.training.state import GlobalState
        from megatron.core import parallel_state

        if parallel_state.model_parallel_is_initialized():
            destroy_global_state()  # from the previous case
        found = worker.configuration(options)
        for (group, name), value in (PLAIN | shared.settings_in(case)).items():
            setattr(getattr(found, group), name, value)
        if found.peft:
            worker.begin_with_random_weights(found, trains_base=case.get("trains_base", False))
        in_order = case.get("adapters_in_order", True)
        LoRALinearSplitQKV._interleave_qkv = interleave if in_order else one_after_the_other
        runtime_config_update(found)
        state = GlobalState()
        state.cfg = found
        made = setup.setup(state, get_dataset_provider(found.dataset))
        (ddp,) = made.model
        super().__init__(ddp, case, adapters=found.peft is not None)
        self._made = made.optimizer

    def optimizer_of_weights(self):
        self._made.reload_model_params()
        return self._made

    def finalize(self):
        from megatron.core.distributed import finalize_model_grads

        finalize_model_grads([self.ddp])

    def set_rates(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
            spared = 1.0 if self._case["decays_norms"] else group.get("wd_mult", 1.0)
            group["weight_decay"] = self._case["weight_decay"] * spared


def one_after_the_other(_wrapper, query, key, value):
    """Join all queries, then all keys, then all values, as NeMo's CanonicalLoRA does. Megatron uses another order."""
    import torch

    return torch.cat([query, key, value], dim=-1)


def main(options):
    if os.environ.get("STEPMARK_DIE_WITH_PARENT"):
        kit.die_with_parent()
    options.coordinator, options.rank = None, 0
    work = worker.Work(options, None)
    on_cpu = work.imported()
    work.redirect.adapt_bridge(on_cpu)
    from megatron.bridge.peft.canonical_lora import LoRALinearSplitQKV

    interleave = LoRALinearSplitQKV._interleave_qkv

    def train(case, given):
        return shared.kit.train_case(BridgeTraining(options, case, interleave), case, given)

    versions = kit.installed_versions(worker.shared.PACKAGES)
    shared.kit.run(Path(options.events_dir), versions, train, lambda: [work.redirect.NOTE] if on_cpu else [])


if __name__ == "__main__":
    main(worker.parse(sys.argv[1:]))
