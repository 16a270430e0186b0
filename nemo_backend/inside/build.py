"""Make the objects that NeMo trains with from a run's settings: model, data, trainer, optimizer and adapters.

The worker loads this module by path inside NeMo's environment. In a setting `group.name=value`, the group selects one
of NeMo's classes (GROUPS), and the name is an argument of that class. Other arguments keep NeMo's defaults.
"""

import importlib
import importlib.util
import json
from pathlib import Path

# Group of settings -> the class of NeMo or Megatron-core that takes them as arguments.
# list_settings.py lists the arguments of the same classes.
GROUPS = {
    "trainer": "nemo.lightning.Trainer",
    "trainer.strategy": "nemo.lightning.MegatronStrategy",
    "trainer.strategy.ddp": "megatron.core.distributed.DistributedDataParallelConfig",
    "trainer.plugins": "nemo.lightning.MegatronMixedPrecision",
    "model.config": "nemo.collections.llm.gpt.model.llama.Llama31Config",
    "optim.config": "megatron.core.optimizer.OptimizerConfig",
    "optim.lr_scheduler": "nemo.lightning.pytorch.optim.CosineAnnealingScheduler",
    "data": "nemo.collections.llm.MockDataModule",
    "peft": "nemo.collections.llm.peft.LoRA",
    "comm_overlap": "nemo.lightning.pytorch.callbacks.megatron_comm_overlap.MegatronCommOverlapCallback",
    "garbage_collection": "nemo.lightning.pytorch.callbacks.garbage_collection.GarbageCollectionCallback",
}
MODEL_CLASS = "model.config_class"  # the setting that names the model's own configuration class
OVERLAP_CONFIGS = "nemo.collections.llm.recipes.tp_overlap_configs.userbuffers"
MOCK = "mock"


def grouped(words):
    """Return {group: {name: value}} from words `group.name=value`. If several groups match, use the longest one."""
    found = {group: {} for group in GROUPS}
    for word in words:
        key, _, text = word.partition("=")
        if key == MODEL_CLASS:
            found[MODEL_CLASS] = text
            continue
        group = max((g for g in GROUPS if key.startswith(g + ".")), key=len)
        name = key.removeprefix(group + ".")
        found[group][name] = value_of(name, text)
    return found


def value_of(name, text):
    """Convert the text of a setting to its value: None, a boolean, a number, a dtype, a list (`a,b`), or text."""
    if text == "none":
        return None
    if name.endswith("dtype"):
        import torch

        return getattr(torch, text)
    if name == "target_modules":
        return text.split(",")
    if name == "tp_comm_overlap_cfg":
        return getattr(importlib.import_module(OVERLAP_CONFIGS), text)
    try:
        return json.loads(text)
    except ValueError:
        return text


def class_of(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def made(settings, group):
    """Return the object of a group; None if the group has no settings."""
    return class_of(GROUPS[group])(**settings[group]) if settings[group] else None


def adapters_of(settings, adapters, **order):
    """Return NeMo's LoRA for Megatron's own matrices, or adapters for parts of fused matrices (adapters.py)."""
    fields = settings["peft"]
    is_separate = any(name in adapters.SEPARATE for name in fields["target_modules"])
    return adapters.separate(fields, **order) if is_separate else made(settings, "peft")


def tokenizer_of(vocabulary_size):
    """Return a tokenizer with only a size, because the data are token numbers. The last number ends a document."""
    from nemo.collections.common.tokenizers.null_tokenizer import NullTokenizer

    return NullTokenizer(vocabulary_size - 1)


def model_of(settings, tokenizer):
    from nemo.collections.llm import LlamaModel
    from nemo.lightning.pytorch.optim.megatron import MegatronOptimizerModule

    family = GROUPS["model.config"].rpartition(".")[0]
    kind = class_of(f"{family}.{settings[MODEL_CLASS]}")
    optimizer = MegatronOptimizerModule(
        config=made(settings, "optim.config"), lr_scheduler=made(settings, "optim.lr_scheduler")
    )
    return LlamaModel(kind(**config_fields(settings, kind)), tokenizer=tokenizer, optim=optimizer)


def config_fields(settings, kind):
    """Return the configuration's fields. Megatron-core 0.15 refuses enable_cuda_graph, which it has renamed."""
    fields = dict(settings["model.config"])
    if hasattr(kind, "cuda_graph_impl") and fields.get("enable_cuda_graph"):
        del fields["enable_cuda_graph"]
        fields["cuda_graph_impl"] = "local"
    return fields


def trainer_of(settings, callbacks):
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from nemo.lightning import MegatronStrategy, Trainer
    from nemo.utils.exp_manager import TimingCallback

    # The worker has set the rendezvous, so Lightning must not use variables of Slurm or torchrun.
    strategy = {"cluster_environment": LightningEnvironment(), **settings["trainer.strategy"]}
    if settings["trainer.strategy.ddp"]:
        strategy["ddp"] = made(settings, "trainer.strategy.ddp")
    chosen = [made(settings, group) for group in ("comm_overlap", "garbage_collection")]
    return Trainer(
        strategy=MegatronStrategy(**strategy),
        plugins=made(settings, "trainer.plugins"),
        callbacks=[TimingCallback(), *(callback for callback in chosen if callback is not None), *callbacks],
        **settings["trainer"],
    )


# --- data -------------------------------------------------------------------------------------


def data_of(settings, data, task, tokenizer):
    if data == MOCK:
        return mock_data(settings, tokenizer)
    return squad_data(settings, Path(data)) if task == "lora" else text_data(settings, Path(data), tokenizer)


def mock_data(settings, tokenizer):
    """Return random tokens of the recipe's shape: one global batch that repeats, like MaxText's synthetic data."""
    from nemo.collections.llm import MockDataModule
    from nemo.collections.llm.gpt.data.mock import _MockGPTDataset

    batch = settings["data"]["global_batch_size"]

    class Repeating(_MockGPTDataset):
        def __getitem__(self, index):
            return super().__getitem__(index % batch)

    class OneBatch(MockDataModule):
        def setup(self, stage=""):  # noqa: ARG002 - Lightning's signature
            # NeMo 2.7.3's own setup passes create_attention_mask in the position of the seed, so it makes no mask.
            samples = {"train": self.num_train_samples, "valid": self.num_val_samples, "test": self.num_test_samples}
            self._train_ds, self._validation_ds, self._test_ds = (
                Repeating(tokenizer, name, count, self.seq_length, create_attention_mask=self.create_attention_mask)
                for name, count in samples.items()
            )

    return OneBatch(tokenizer=tokenizer, **settings["data"])


def text_data(settings, folder, tokenizer):
    """Return the data module for a folder of .bin and .idx pairs."""
    from nemo.collections.llm import PreTrainingDataModule

    return PreTrainingDataModule(
        paths=[str(path.with_suffix("")) for path in sorted(folder.glob("*.idx"))],
        tokenizer=tokenizer,
        split="1,0,0",
        index_mapping_dir=settings["trainer"]["default_root_dir"],
        create_attention_mask=not _has_transformer_engine(),
        **settings["data"],
    )


def squad_data(settings, folder):
    """Return the data module for training.jsonl and validation.jsonl, packed if Transformer Engine is installed."""
    from nemo.collections.common.tokenizers.huggingface.auto_tokenizer import AutoTokenizer
    from nemo.collections.llm.gpt.data import FineTuningDataModule
    from nemo.collections.llm.gpt.data.packed_sequence import PackedSequenceSpecs

    length = settings["data"]["seq_length"]
    packed = PackedSequenceSpecs(packed_sequence_size=length) if _has_transformer_engine() else None
    return FineTuningDataModule(
        dataset_root=folder,
        tokenizer=AutoTokenizer(str(folder / "tokenizer")),
        packed_sequence_specs=packed,
        dataset_kwargs={"pad_to_max_length": True},
        **settings["data"],
    )


def _has_transformer_engine():
    return importlib.util.find_spec("transformer_engine") is not None
