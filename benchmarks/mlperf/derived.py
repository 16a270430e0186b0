"""The rules of a small copy of a benchmark: the package's own text, with nothing but the copy's values in place of
the real ones. Pure: text in, text out. What is derived so proves that a log is whole, not that a benchmark was met.
"""

import re
from typing import Any

from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import MlperfBenchmark

BLOCK = re.compile(r"^- KEY:\s*$", re.MULTILINE)
NAME = re.compile(r"^\s+NAME:\s*(\S+)\s*$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
DERIVED = "derived rules"


def derive_benchmark(text: str, real: MlperfBenchmark, small: MlperfBenchmark) -> str:
    """closed_REAL.yaml as closed_SMALL.yaml: each value that differs, in the block of its key."""
    blocks = BLOCK.split(text)
    return "- KEY:".join([blocks[0], *(_derived(block, _values(real), _values(small)) for block in blocks[1:])])


def derive_common(text: str, real: MlperfBenchmark, small: MlperfBenchmark, ruleset: str, folder: str) -> str:
    """common.yaml and closed_common.yaml: the small copy is a benchmark too, and the next file is the derived one."""
    listed = text.replace(f"'{real.name}'", f"'{real.name}', '{small.name}'")
    return listed.replace(f"training_{ruleset}/", f"{folder}/")


def _values(benchmark: MlperfBenchmark) -> dict[str, Any]:
    """What a rule may compare a key with."""
    optimizer = benchmark.optimizer
    return {
        "eval_accuracy": benchmark.target.at_most,
        "max_sequence_length": benchmark.sequence_length,
        "eval_samples": benchmark.eval_samples,
        "max_steps": benchmark.max_steps,
        "opt_name": optimizer.name,
        "opt_adamw_beta_1": optimizer.beta_1,
        "opt_adamw_beta_2": optimizer.beta_2,
        "opt_adamw_epsilon": optimizer.epsilon,
        "opt_adamw_weight_decay": optimizer.weight_decay,
        "opt_gradient_clip_norm": optimizer.gradient_clip_norm,
        "opt_learning_rate_decay_schedule": optimizer.schedule,
        "opt_learning_rate_decay_steps": optimizer.decay_and_warmup_steps,
        "lora_rank": benchmark.lora.rank if benchmark.lora else None,
        "evaluation_frequency": benchmark.evaluation.every_samples,
    }


def _derived(block: str, real: dict[str, Any], small: dict[str, Any]) -> str:
    named = NAME.search(block)
    key = named[1] if named else ""
    old, new = real.get(key), small.get(key)
    if old is None or old == new or "CHECK" not in block:
        return block
    if new is None:
        raise RequestError(
            f"the small copy gives no value for {key}, which the rules compare with {old}", where=f"{DERIVED}: {key}"
        )
    changed = block.replace(f"'{old}'", f"'{new}'") if isinstance(old, str) else _with_number(block, old, new)
    if changed == block:
        raise RequestError(
            f"the rule for {key} does not compare it with {old}: it cannot be derived",
            where=f"{DERIVED}: {key}",
            why="the package's rules are others than those that configs/mlperf was written for",
        )
    return changed


def _with_number(block: str, old: float, new: float) -> str:
    def one(found: "re.Match[str]") -> str:
        return repr(new) if float(found[0].replace("_", "")) == old else found[0]

    return "\n".join(NUMBER.sub(one, line) if "v['value']" in line else line for line in block.split("\n"))
