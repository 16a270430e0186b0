"""Defines adapters with settings for every backend: --set=lora_rank, lora_alpha and lora_targets. No I/O.

With these settings, two backends train the same adapters. Each backend translates them into its own settings
(TrainsAdapters.lora_settings_for). The benchmark records the resulting adapters as a values.Lora.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from benchmarks.errors import RequestError, nearest
from benchmarks.request.settings import positive, typed
from benchmarks.values import Lora

RANK, ALPHA, TARGETS = "lora_rank", "lora_alpha", "lora_targets"
WORDS = (RANK, ALPHA, TARGETS)

# The short name of a matrix, as users type it -> its name in flops.ADAPTED_MATRICES
MATRICES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "qkv": "query_key_value",
    "o": "attention_output",
    "gate": "gate",
    "up": "up",
    "gate_up": "mlp_input",
    "down": "mlp_output",
}
SEPARATE = "q,k,v,o,gate,up,down"
FUSED = {"query_key_value": ("query", "key", "value"), "mlp_input": ("gate", "up")}


def sorted_out(settings: Mapping[str, str], task: str) -> tuple[dict[str, str], dict[str, str]]:
    """Split the settings of --set into the LoRA settings in WORDS and all others. Refuse the former without LoRA."""
    words = {name: text for name, text in settings.items() if name in WORDS}
    if words and task != "lora":
        name = next(iter(words))
        raise RequestError(f"{name} has no effect on task {task}", where=f"--set={name}", next_command="--task=lora")
    return words, {name: text for name, text in settings.items() if name not in WORDS}


def changed(lora: Lora, words: Mapping[str, str]) -> Lora:
    """Return the recipe's adapters, changed by the settings in `words`."""
    read: dict[str, tuple[str, Callable[[str], object]]] = {
        RANK: ("rank", _rank),
        ALPHA: ("alpha", _alpha),
        TARGETS: ("targets", _targets),
    }
    found = {read[word][0]: read[word][1](text) for word, text in words.items()}
    return msgspec.structs.replace(lora, **found)


def _rank(text: str) -> int:
    return positive(f"--set={RANK}", int(typed(RANK, text, "int")))


def _alpha(text: str) -> float:
    alpha = float(typed(ALPHA, text, "float"))
    if alpha <= 0:
        why = "the output of an adapter is multiplied by alpha / rank"
        raise RequestError(f"{ALPHA}={text} is not a number above 0", where=f"--set={ALPHA}", why=why)
    return alpha


def _targets(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    unknown = next((word for word in words if word not in MATRICES), None)
    found = [MATRICES[word] for word in words if word in MATRICES]
    parts_of = {part for one in found for part in FUSED.get(one, ())}
    twice = next((one for one in found if found.count(one) > 1 or one in parts_of), "")
    if unknown is not None or twice:
        what = f"'{unknown}' is not a matrix that adapters can train: {nearest(unknown or '', MATRICES)}"
        raise RequestError(
            f"{TARGETS}={text}: {twice} would have two adapters" if unknown is None else what,
            where=f"--set={TARGETS}",
            why=f"a layer's matrices are {', '.join(MATRICES)}; qkv and gate_up are fused and have one adapter each",
            next_command=f"--set={TARGETS}={SEPARATE}",
        )
    return ordered(found)


def ordered(targets: Iterable[str]) -> list[str]:
    """Return the targets in one fixed order, so that equal adapters are equal values in every backend."""
    named = set(targets)
    return [target for target in MATRICES.values() if target in named]


def target_names(lora: Lora) -> str:
    """Return the adapted matrices in the words that --set accepts."""
    names = {matrix: word for word, matrix in MATRICES.items()}
    return ",".join(names[target] for target in lora.targets)


def text(lora: Lora) -> str:
    """Describe the adapters in one line."""
    size = f"rank {lora.rank}, alpha {lora.alpha:g}" + (f", dropout {lora.dropout:g}" if lora.dropout else "")
    return f"{size}, on {target_names(lora)}"
