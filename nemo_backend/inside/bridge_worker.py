"""Run Megatron-Bridge's own pretrain(), and write one JSON line per event.

This program runs by path inside Megatron-Bridge's environment (`python -P bridge_worker.py --recipe=NAME ... --
key=value ...`) with only the standard library and Megatron-Bridge. It resolves a recipe with the run's overrides, as
Bridge's own scripts/training/run_recipe.py does, and adds a clock, which that script does not support. worker.py has
the code that both engines share. cpu_redirect.py replaces what a CPU or a virtual environment lacks.
"""

import importlib
import importlib.util
import math
import os
import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

shared = kit.load(HERE / "worker.py")

PRETRAINED = "checkpoint.pretrained_checkpoint="
# For each fused matrix, the names of the targets that are parts of it.
SEPARATE_TARGETS = ({"linear_q", "linear_k", "linear_v"}, {"linear_fc1_gate", "linear_fc1_up"})

FAMILIES = ("llama", "qwen", "deepseek", "gpt_oss", "kimi")  # packages of recipes, whose names begin so
# A part of the Hugging Face repository that a recipe reads -> the plain configuration of the same family.
PLAIN_MODELS = (
    ("Qwen3-", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", {"norm_topk_prob": True}),
    ("DeepSeek-V3", "DeepseekV3Config", "DeepseekV3ForCausalLM", {"n_group": 1, "topk_group": 1}),
    ("Kimi-K2", "DeepseekV3Config", "KimiK2ForCausalLM", {"n_group": 1, "topk_group": 1, "scoring_func": "sigmoid"}),
    ("gpt-oss", "GptOssConfig", "GptOssForCausalLM", {}),
    ("", "LlamaConfig", "LlamaForCausalLM", {}),
)


# --- the configuration ------------------------------------------------------------------------


def configuration(options):
    """Return the recipe's configuration with the run's data and overrides."""
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    recipe = recipe_function(options)()
    if options.dataset:
        recipe.dataset = dataset(recipe, options.dataset)
    targets = "".join(word for word in options.settings if word.startswith("++peft.target_modules="))
    parts = [one & {*re.split(r"[=\[\],]", targets)} for one in SEPARATE_TARGETS]
    if any(parts):
        from megatron.bridge.peft import canonical_lora

        recipe.peft = canonical_lora.CanonicalLoRA()
    found = process_config_with_overrides(recipe, cli_overrides=options.settings)
    if any(0 < len(some) < len(one) for some, one in zip(parts, SEPARATE_TARGETS, strict=True)):
        # Bridge calls the adapters of all parts of a matrix, even if only some parts have a requested adapter.
        kit.load(HERE / "adapters.py").put_right(found.peft, canonical_lora)
    if not importlib.util.find_spec("transformer_engine"):
        from megatron.bridge.models.gpt_provider import local_layer_spec

        found.model.transformer_layer_spec = local_layer_spec
        if found.model.num_moe_experts:
            found.model.transformer_layer_spec = kit.load(HERE / "local_layers.py").layer_specs(found.model)
    return found


def recipe_function(options):
    """Return the recipe of the requested name, from Bridge's library or from its benchmark recipes."""
    if options.stated_model:
        begin_with_a_plain_model()
    family = next((name for name in FAMILIES if options.recipe.startswith(name)), "llama")
    recipes = importlib.import_module(f"megatron.bridge.{'recipes' if options.library else 'perf_recipes'}.{family}")
    found = getattr(recipes, options.recipe, None)
    if found is None:
        raise SystemExit(f"stepmark worker: this Megatron-Bridge has no recipe '{options.recipe}'")
    return found


def begin_with_a_plain_model():
    """Make recipes begin with a plain model of their family instead of a downloaded configuration.

    The overrides set all dimensions.
    """
    import transformers
    from megatron.bridge import AutoBridge

    def plain(cls, repository, **_named):
        kind, architecture, values = next(row for word, *row in PLAIN_MODELS if word in repository)
        return cls.from_hf_config(getattr(transformers, kind)(architectures=[architecture], **values))

    AutoBridge.from_hf_pretrained = classmethod(plain)


def dataset(recipe, preset):
    """Return the preset's dataset, with the loader settings of the recipe's own dataset."""
    from megatron.bridge.recipes.utils.dataset_utils import build_dataset_config

    made = build_dataset_config(recipe, preset)
    for name in ("num_workers", "pin_memory", "persistent_workers"):
        if hasattr(recipe.dataset, name):
            setattr(made, name, getattr(recipe.dataset, name))
    return made


def begin_with_random_weights(found, *, trains_base=False):
    """Make Bridge add adapters to the model's random weights. By default, Bridge first reads a checkpoint."""
    from megatron.bridge.training import setup

    def adapted(model):
        made = setup._apply_peft_transformation(found.peft, model)
        for chunk in made if trains_base else ():
            chunk.requires_grad_(True)
        return made

    found.checkpoint.pretrained_checkpoint = os.devnull  # any path that exists
    setup._create_peft_pre_wrap_hook = lambda _found, _state: adapted


# --- the clock --------------------------------------------------------------------------------


def step_clock(work):
    """Return a callback that records the end of each step after the device has finished it."""
    import torch
    from megatron.bridge.training.callbacks import Callback

    class StepClock(Callback):
        def on_train_step_start(self, context):
            if not work.recorder.started:
                work.begin(torch.nn.ModuleList(context.model))
            work.profile.before(context.state.train_state.step, torch)

        def on_train_step_end(self, context):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            end, step = time.perf_counter(), context.state.train_state.step
            loss = context.loss_dict.get("lm loss")  # only the last pipeline stage has it
            norm = math.nan if context.grad_norm is None else float(context.grad_norm)
            work.end_of_step(step, end, None if loss is None else float(loss), norm)
            work.profile.after(step, torch)

        def on_train_end(self, context):
            work.finish(torch.nn.ModuleList(context.model))

    return StepClock()


# --- training ---------------------------------------------------------------------------------


class Work(shared.Work):
    """Runs Bridge's own training loop with timed steps."""

    def train(self):
        found = self.prepared(self.imported())
        from megatron.bridge.training.gpt_step import forward_step
        from megatron.bridge.training.pretrain import pretrain

        pretrain(found, forward_step, callbacks=[step_clock(self)])

    def imported(self):
        """Join the processes, import Bridge, and return whether the run uses a CPU."""
        self.redirect = kit.load(HERE / "cpu_redirect.py")
        on_cpu = self.join(self.redirect)
        self.redirect.before_bridge()
        import megatron.bridge.perf_recipes  # noqa: F401  (older versions do not have it)

        return on_cpu

    def prepared(self, on_cpu):
        """Return the run's configuration, and adapt Bridge to the packages and devices of this environment."""
        found = configuration(self.options)
        self.redirect.adapt_bridge(on_cpu)
        if self.proof and not any(word.startswith(PRETRAINED) for word in self.options.settings):
            self.said.append(kit.RANDOM_WEIGHTS)
            begin_with_random_weights(found)
        return found


def parse(argv):
    parser = shared.parser_for(__doc__)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--library", action="store_true", help="take the recipe from megatron.bridge.recipes")
    parser.add_argument("--dataset", default="", help="data to use instead of the recipe's, such as mock")
    parser.add_argument("--stated_model", action="store_true", help="do not read a configuration from Hugging Face")
    return parser.parse_args(argv)


if __name__ == "__main__":
    kit.leave(shared.run(parse(sys.argv[1:]), Work, "bridge_check.py"))
