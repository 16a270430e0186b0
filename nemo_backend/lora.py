"""LoRA for both engines: convert the settings peft.* to adapters and back, and refuse what NeMo cannot adapt."""

from collections.abc import Iterator, Mapping

from benchmarks.errors import RequestError
from benchmarks.request.framework import refuse_unstated, without_effect
from benchmarks.request.lora_words import ordered
from benchmarks.request.settings import positive
from benchmarks.values import Benchmark, Lora, Scalar

# NeMo's name of an adapted matrix -> its name in flops.ADAPTED_MATRICES. Each part of a fused matrix can have a
# separate adapter.
FUSED_TARGETS = {"linear_qkv": "query_key_value", "linear_fc1": "mlp_input"}
SEPARATE_TARGETS = {
    "linear_q": "query",
    "linear_k": "key",
    "linear_v": "value",
    "linear_fc1_gate": "gate",
    "linear_fc1_up": "up",
}
LORA_TARGETS = {
    "linear_qkv": "query_key_value",
    "linear_proj": "attention_output",
    "linear_fc1": "mlp_input",
    "linear_fc2": "mlp_output",
    **SEPARATE_TARGETS,
}
AS_THEY_ARE = "linear_qkv,linear_proj,linear_fc1,linear_fc2"


def of_knobs(knobs: Mapping[str, Scalar]) -> Lora:
    """Return the adapters that the settings peft.* describe."""
    refuse_unstated(
        knobs,
        {
            "peft.dim": "peft.dim=N",
            "peft.alpha": "peft.alpha=N",
            "peft.target_modules": "peft.target_modules=linear_qkv",
        },
    )
    return Lora(
        rank=positive("--set=peft.dim", int(knobs["peft.dim"])),
        alpha=float(knobs["peft.alpha"]),
        dropout=float(knobs.get("peft.dropout", 0.0)),
        targets=ordered(LORA_TARGETS[name] for name in target_names(knobs)),
    )


def settings_for(wanted: Lora) -> dict[str, Scalar]:
    """Return the settings peft.* that describe these adapters."""
    if wanted.alpha != int(wanted.alpha):
        raise RequestError(
            f"NeMo needs a whole number for alpha, not {wanted.alpha:g}",
            where="--set=lora_alpha",
            next_command=f"--set=lora_alpha={max(1, round(wanted.alpha))}",
        )
    names = [name for name, target in LORA_TARGETS.items() if target in wanted.targets]
    return {
        "peft.dim": wanted.rank,
        "peft.alpha": int(wanted.alpha),
        "peft.dropout": wanted.dropout,
        "peft.target_modules": ",".join(names),
    }


def target_names(knobs: Mapping[str, Scalar]) -> list[str]:
    """Return Megatron's names of the adapted matrices. The setting may contain brackets and quotes."""
    text = str(knobs["peft.target_modules"])
    names = [name.strip().strip("'\"") for name in text.strip().strip("[]").split(",") if name.strip()]
    both = set(names) & set(FUSED_TARGETS) and set(names) & set(SEPARATE_TARGETS)
    if both or not names or len(set(names)) < len(names) or not set(names) <= LORA_TARGETS.keys():
        raise RequestError(
            f"peft.target_modules={text} must be a list of {', '.join(LORA_TARGETS)}",
            where="--set=peft.target_modules",
            why="no name can occur twice, and Megatron adapts either fused matrices or their parts, but not both",
            next_command=f"--set=peft.target_modules={AS_THEY_ARE}",
        )
    return names


def refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse settings of adapters in a run without adapters."""
    if benchmark.lora is None:
        for name in benchmark.settings.overrides:
            if name.startswith("peft."):
                yield without_effect(name, f"task {benchmark.task}", "--task=lora")
