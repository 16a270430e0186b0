"""Code that the engines on Megatron-core share: dimensions, fp8, pipeline schedules, data on disk."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError, nearest
from benchmarks.request.framework import whole
from benchmarks.values import Benchmark, Hardware, Model, Scalar

# Megatron's name of each model dimension. Every run states them all, so that no other model's defaults apply.
DIMENSIONS = {
    "num_layers": "layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "ffn_hidden_size",
    "num_attention_heads": "attention_heads",
    "num_query_groups": "query_groups",
    "kv_channels": "head_dim",
    "vocab_size": "vocabulary_size",
    "share_embeddings_and_output_weights": "tied_embeddings",
    "rotary_base": "rope_theta",
    "layernorm_epsilon": "norm_epsilon",
}

MADE_UP_DATA = ("mock", "synthetic")
TITLES = {"nemo": "NeMo", "bridge": "Megatron-Bridge"}
UNFUSED_ATTENTION = (
    "attention runs as unfused PyTorch matmuls, because a venv has no Transformer Engine (containers do)"
)

# Scaling of fp8 numbers -> the GPUs that support it. MXFP8 is a separate precision.
HOPPER = frozenset({"h100", "h100_pcie", "h200"})
BLACKWELL = frozenset({"b200", "b300", "gb200", "gb300"})
FP8_SCALING_HARDWARE = {
    "tensorwise": HOPPER | BLACKWELL,
    "delayed": HOPPER | BLACKWELL,
    "blockwise": HOPPER,
}


def dimensions(model: Model, place: str) -> dict[str, Scalar]:
    """Return the settings that state a model's dimensions, in the settings group `place`."""
    # Latent attention has separate sizes for the parts of a head.
    unused = () if model.attention.latent is None else ("kv_channels",)
    return {
        f"{place}.{theirs}": whole(getattr(model, ours))
        for theirs, ours in DIMENSIONS.items()
        if theirs not in unused
    }


@cache
def _listed() -> dict[str, dict[str, list[str]]]:
    listed: dict[str, dict[str, list[str]]] = parse_yaml(Path(__file__).with_name("reserved_settings.yml"))
    return listed


def reserved(engine: str) -> dict[str, str]:
    """Return each setting that --set refuses -> what to use instead."""
    return {name: instead for instead, names in _listed()[engine].items() for name in names}


def unknown_settings(benchmark: Benchmark, known: Mapping[str, str], why: str, other: str) -> Iterator[RequestError]:
    """Refuse settings that the engine does not have. The engine `other` may have them."""
    for key in benchmark.settings.knobs:
        if key not in known:
            yield RequestError(
                f"engine {benchmark.engine} has no setting '{key}': {nearest(key, known)}",
                where=f"--set={key}",
                why=why,
                next_command=f"--engine={other}",
            )


def fp8_scaling_refusals(benchmark: Benchmark, setting: str) -> Iterator[RequestError]:
    scaling = str(benchmark.settings.knobs.get(setting, ""))
    possible = [name for name, known in FP8_SCALING_HARDWARE.items() if benchmark.hardware.name in known]
    if scaling == "mxfp8" and "mxfp8" in benchmark.hardware.peaks:
        yield RequestError(
            "'mxfp8' is a separate precision, not a scaling of fp8",
            where=f"--set={setting}",
            why="it has its own peak, and only Megatron-Bridge has recipes for it",
            next_command="--engine=bridge --dtype=mxfp8",
        )
    elif scaling not in possible:
        yield RequestError(
            f"{benchmark.hardware.title} does not support the fp8 scaling '{scaling}'",
            where=f"--set={setting}",
            why=f"supported scalings: {', '.join(possible) or 'none'}; the speed depends on the choice",
            next_command=f"--set={setting}={possible[0]}" if possible else "--dtype=bf16",
        )


def lacks_transformer_engine(benchmark: Benchmark, needs: Mapping[str, str]) -> bool:
    """Return whether the run trains without Transformer Engine. Only containers have it; `needs` are its features
    that the run uses.
    """
    return benchmark.hardware.kind == "cpu" or (benchmark.site.runtime == "venv" and not needs)


# --- hardware -----------------------------------------------------------------------------------


def refuses_hardware(engine: str, hardware: Hardware) -> RequestError | None:
    if hardware.platform in ("cuda", "cpu"):
        return None
    return RequestError(
        f"{TITLES[engine]} does not run on {hardware.title}",
        where=f"--engine={engine} --hardware={hardware.name}",
        why=f"Stepmark runs it on CUDA or, with redirected GPU calls, on a CPU, but not on {hardware.platform}",
        next_command="--backend=jax",
    )


def cpu_refusals(benchmark: Benchmark, recompute: str, context: str) -> Iterator[RequestError]:
    """Refuse features that need CUDA. `recompute` and `context` are the engine's names of those settings."""
    dropout = benchmark.lora is not None and benchmark.lora.dropout > 0
    for asked, what, setting, why in (
        (
            recompute in benchmark.settings.knobs,
            "recomputation",
            recompute,
            "Megatron saves CUDA's random state to recompute",
        ),
        (benchmark.parallelism.context > 1, "context parallelism", context, "it needs Transformer Engine"),
        (dropout, "dropout", "peft.dropout", "Megatron's dropout uses CUDA's random state"),
    ):
        if asked:
            place = f"--set={setting}"
            yield RequestError(f"{what} needs a GPU", where=place, why=why, next_command=place)


# --- layouts and schedules ------------------------------------------------------------------------


def schedule_refusals(benchmark: Benchmark, place: str) -> Iterator[RequestError]:
    """Refuse layouts that Megatron cannot run. `place` is the group with the sizes: trainer.strategy or model."""
    share = benchmark.parallelism
    if share.virtual_pipeline > 1:
        yield from _interleaving(benchmark, place)
    length, pieces = benchmark.batch.sequence_length, 2 * share.context
    if share.context > 1 and length % pieces:
        yield RequestError(
            f"sequence length ({length}) is not divisible by 2 x context parallelism ({pieces})",
            where="--set=sequence_length",
            why="each context rank gets one piece from the front and one from the back of a sequence",
            next_command=f"--set=sequence_length={-(-length // pieces) * pieces}",
        )
    if benchmark.settings.knobs.get(f"{place}.sequence_parallel") and share.tensor == 1:
        yield RequestError(
            "sequence parallelism needs tensor parallelism",
            where=f"--set={place}.sequence_parallel",
            why=f"it splits each sequence across tensor ranks, but {place}.tensor_model_parallel_size is 1",
            next_command=f"--set={place}.sequence_parallel=false",
        )
    if benchmark.model.vocabulary_size % share.tensor:
        yield RequestError(
            f"vocabulary ({benchmark.model.vocabulary_size}) is not divisible by tensor parallelism ({share.tensor})",
            where=f"model {benchmark.model.name}",
            why="each tensor rank must hold an equal share of the embedding",
        )


def _interleaving(benchmark: Benchmark, place: str) -> Iterator[RequestError]:
    share, micro_steps = benchmark.parallelism, benchmark.batch.gradient_accumulation
    if share.pipeline == 1:
        yield RequestError(
            f"a virtual pipeline of {share.virtual_pipeline} needs a pipeline",
            where=f"--set={place}.virtual_pipeline_model_parallel_size",
            why=f"it interleaves the parts of several stages, but {place}.pipeline_model_parallel_size is 1",
            next_command=f"--set={place}.virtual_pipeline_model_parallel_size=1",
        )
        return
    size = f"{place}.microbatch_group_size_per_vp_stage"
    group = int(benchmark.settings.knobs.get(size, share.pipeline))
    rest, full = micro_steps % group if group else 0, max(group, share.pipeline)
    if not share.pipeline <= group <= micro_steps or 0 < rest < share.pipeline:
        cure = f"gradient_accumulation={-(-micro_steps // full) * full}" if group >= share.pipeline else size
        yield RequestError(
            f"gradient accumulation ({micro_steps}) does not fill the interleaved pipeline ({share.pipeline} stages)",
            where="--set=gradient_accumulation",
            why=f"Megatron schedules micro-steps in groups of {group} and refuses groups that leave stages idle",
            next_command=f"--set={cure}",
        )


def pair_refusals(benchmark: Benchmark, place: str, group: str, *, overlaps: bool) -> Iterator[RequestError]:
    """Refuse batched messages in an interleaved pipeline of two stages, which can confuse their two directions.

    `group` has the settings of the messages, and `overlaps` is the default: separate messages that overlap.
    """
    share, knobs = benchmark.parallelism, benchmark.settings.knobs
    overlapped, batched = f"{group}.overlap_p2p_comm", f"{group}.batch_p2p_comm"
    if share.pipeline != 2 or share.virtual_pipeline == 1:
        return
    if knobs.get(overlapped, overlaps) is not True or knobs.get(batched, not overlaps) is not False:
        yield RequestError(
            "with batched messages, an interleaved pipeline of two stages can train with wrong gradients",
            where=f"--set={place}.virtual_pipeline_model_parallel_size={share.virtual_pipeline}",
            why="both neighbours of a stage are the same process, which can confuse batched messages",
            next_command=f"--set={overlapped}=true --set={batched}=false",
        )


# --- data on disk ---------------------------------------------------------------------------------


def dataset_prefixes(folder: Path) -> list[str]:
    """Return the names of the folder's .bin and .idx pairs, without their endings."""
    return sorted(path.stem for path in folder.glob("*.idx"))


FINE_TUNING_FILES = ("training.jsonl", "validation.jsonl", "tokenizer/tokenizer.json")


def data_refusals(benchmark: Benchmark) -> Iterator[RequestError]:
    """Refuse a folder of --data if a file is missing or empty."""
    if benchmark.data in MADE_UP_DATA:
        return
    folder, names = Path(benchmark.data), list(FINE_TUNING_FILES)
    why = f"fine-tuning reads {', '.join(names)}; JSON lines have the fields input and output"
    next_command = "python launch/setup.py --model=llama3_70b --task=lora"
    if benchmark.task == "pretrain":
        names = [f"{name}{ending}" for name in dataset_prefixes(folder) for ending in (".idx", ".bin")]
        why = "Megatron pretrains on pairs of .bin and .idx files; run this command in Megatron-LM to make them"
        next_command = (
            f"python tools/preprocess_data.py --input=FILE.jsonl --output-prefix={folder}/NAME"
            " --append-eod --tokenizer-type=HuggingFaceTokenizer --tokenizer-model=FOLDER"
        )
    sizes = {name: (folder / name).stat().st_size if (folder / name).is_file() else None for name in names}
    missing, empty = ([name for name, size in sizes.items() if size == bad] for bad in (None, 0))
    if missing or empty or not names:
        what = f"{empty[0]} is empty" if empty else f"the folder has no {(missing or ['.idx file'])[0]}"
        yield RequestError(what, where=f"--data={folder}", why=why, next_command=next_command)
