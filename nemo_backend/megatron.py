"""What both engines share because Megatron-core is below both: dimensions, fp8, pipeline schedules, data on disk."""

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import files
from benchmarks.configs import parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.framework import whole
from benchmarks.values import Benchmark, Model, Scalar

# Megatron's names of a model's dimensions. Stated in every run, so that they cannot be another's defaults.
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

# How fp8 numbers are scaled -> the GPUs that can.
HOPPER = frozenset({"h100", "h100_pcie", "h200"})
BLACKWELL = frozenset({"b200", "b300", "gb200", "gb300"})
FP8_SCALING_HARDWARE = {
    "tensorwise": HOPPER | BLACKWELL,
    "delayed": HOPPER | BLACKWELL,
    "blockwise": HOPPER,
    "mxfp8": BLACKWELL,
}


def dimensions(model: Model, place: str) -> dict[str, Scalar]:
    """The settings that state a model's dimensions, below the engine's place for them."""
    return {f"{place}.{theirs}": whole(getattr(model, ours)) for theirs, ours in DIMENSIONS.items()}


@cache
def _listed() -> dict[str, dict[str, list[str]]]:
    listed: dict[str, dict[str, list[str]]] = parse_yaml(Path(__file__).with_name("reserved_settings.yml"))
    return listed


def reserved(engine: str) -> dict[str, str]:
    """Settings that cannot be set -> what to use instead."""
    return {name: instead for instead, names in _listed()[engine].items() for name in names}


def fp8_scaling_refusals(benchmark: Benchmark, setting: str) -> Iterator[RequestError]:
    scaling = str(benchmark.settings.knobs.get(setting, ""))
    possible = [name for name, known in FP8_SCALING_HARDWARE.items() if benchmark.hardware.name in known]
    if scaling not in possible:
        yield RequestError(
            f"{benchmark.hardware.title} has no scaling of fp8 called '{scaling}'",
            where=f"--set={setting}",
            why=f"it has: {', '.join(possible) or 'none that is known'}; their speeds differ",
            next_command=f"--set={setting}={possible[0]}" if possible else "--dtype=bf16",
        )


# --- what Megatron's schedules ask for ------------------------------------------------------------


def schedule_refusals(benchmark: Benchmark, place: str) -> Iterator[RequestError]:
    """`place` is where the engine keeps the sizes: trainer.strategy or model."""
    share = benchmark.parallelism
    if share.virtual_pipeline > 1:
        yield from _interleaving(benchmark, place)
    if share.context > 1 and benchmark.batch.sequence_length % (2 * share.context):
        yield RequestError(
            f"sequence length ({benchmark.batch.sequence_length}) not divisible by 2 x context ({2 * share.context})",
            where="--set=sequence_length",
            why="each of the context shares gets a piece from the front and one from the back",
            next_command=f"--set=sequence_length=N with N a multiple of {2 * share.context}",
        )
    if benchmark.settings.knobs.get(f"{place}.sequence_parallel") and share.tensor == 1:
        yield RequestError(
            "sequence parallelism needs tensor parallelism",
            where=f"--set={place}.sequence_parallel",
            why="it shares a sequence among the GPUs that share a matrix; here one GPU has the whole of it",
            next_command=f"--set={place}.sequence_parallel=false, or "
            f"--set={place}.tensor_model_parallel_size=N with N over 1",
        )
    if benchmark.model.vocabulary_size % share.tensor:
        yield RequestError(
            f"vocabulary ({benchmark.model.vocabulary_size}) not divisible by tensor ({share.tensor})",
            where=f"model {benchmark.model.name}",
            why="each device of a tensor group holds the same share of the embedding",
        )


def _interleaving(benchmark: Benchmark, place: str) -> Iterator[RequestError]:
    share, micro_steps = benchmark.parallelism, benchmark.batch.gradient_accumulation
    if share.pipeline == 1:
        yield RequestError(
            f"a virtual pipeline of {share.virtual_pipeline} needs a pipeline",
            where=f"--set={place}.virtual_pipeline_model_parallel_size",
            why="it interleaves the parts of several stages; here there is one stage",
            next_command=f"--set={place}.virtual_pipeline_model_parallel_size=1, or "
            f"--set={place}.pipeline_model_parallel_size=N with N over 1",
        )
        return
    group = int(benchmark.settings.knobs.get(f"{place}.microbatch_group_size_per_vp_stage", share.pipeline))
    rest = micro_steps % group if group else 0
    if not share.pipeline <= group <= micro_steps or 0 < rest < share.pipeline:
        yield RequestError(
            f"gradient accumulation ({micro_steps}) does not fill the interleaved pipeline ({share.pipeline} stages)",
            where="--set=gradient_accumulation",
            why=f"Megatron schedules micro-steps in groups of {group} and refuses a rest that leaves stages empty; "
            "GA = GBS / (MBS x DP)",
            next_command=f"--set=gradient_accumulation=N with N a multiple of {max(group, share.pipeline)}",
        )


# --- data on disk ---------------------------------------------------------------------------------

TOKENIZER = "tokenizer.json"
INDEX_HEAD = struct.Struct("<9sQBQQ")  # magic, version, code of the type, sequences, documents
INDEX_MAGIC = b"MMIDIDX\x00\x00"
TOKEN_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}  # by the code of an integer type


def dataset_prefixes(folder: Path) -> list[str]:
    """Return the names of the folder's .bin and .idx pairs, without their endings."""
    if not folder.is_dir():
        raise _no_dataset("there is no such folder", folder, "")
    names = sorted(path.stem for path in folder.glob("*.idx"))
    if not names:
        raise _no_dataset("the folder has no .idx file", folder, "Megatron pretrains on pairs of .bin and .idx files")
    return names


def dataset_refusals(folder: Path, model: Model) -> Iterator[RequestError]:
    """Refuse a folder whose files are not whole, and one of more tokens than the model has."""
    try:
        for name in dataset_prefixes(folder):
            _refuse_other_size(folder / name)
        if (folder / TOKENIZER).is_file():
            yield from vocabulary_refusals("dataset", tokenizer_size(folder / TOKENIZER), model, folder)
    except RequestError as error:
        yield error


def _refuse_other_size(prefix: Path) -> None:
    """Refuse a .bin file that is not as long as its .idx file says."""
    tokens, index = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
    try:
        wanted, found = _indexed_bytes(index), tokens.stat().st_size
    except OSError as error:
        raise files.cannot_read(error, Path(error.filename)) from None
    except (struct.error, KeyError, ValueError) as error:
        raise _no_dataset(f"{index.name} is no index of Megatron's", prefix.parent, str(error)) from None
    if found != wanted:
        what = f"{tokens.name} has {found:,} bytes, {index.name} says {wanted:,}"
        raise _no_dataset(what, prefix.parent, "it was cut off, or belongs to another index")


def _indexed_bytes(index: Path) -> int:
    with index.open("rb") as stream:
        magic, version, code, sequences, _ = INDEX_HEAD.unpack(stream.read(INDEX_HEAD.size))
        if (magic, version) != (INDEX_MAGIC, 1):
            raise ValueError(f"it begins with {magic!r}, version {version}")
        if not sequences:
            return 0
        stream.seek(INDEX_HEAD.size + 4 * (sequences - 1))
        (length,) = struct.unpack("<i", stream.read(4))
        stream.seek(INDEX_HEAD.size + 4 * sequences + 8 * (sequences - 1))
        (start,) = struct.unpack("<q", stream.read(8))
    return int(start + length * TOKEN_BYTES[code])


def _no_dataset(what: str, folder: Path, why: str) -> RequestError:
    return RequestError(
        what,
        where=f"--data={folder}",
        why=why,
        next_command=f"python tools/preprocess_data.py --input=FILE.jsonl --output-prefix={folder}/NAME --append-eod"
        " --tokenizer-type=HuggingFaceTokenizer --tokenizer-model=FOLDER --workers=8     (in Megatron-LM)",
    )


def tokenizer_size(path: Path) -> int:
    """Return one more than the largest token number of a Hugging Face tokenizer.json."""
    try:
        data = files.read_json(path, dict[str, Any])
        vocabulary = data["model"]["vocab"]
        numbers = list(vocabulary.values()) if isinstance(vocabulary, dict) else list(range(len(vocabulary)))
        numbers += [token["id"] for token in data.get("added_tokens") or []]
        return int(max(numbers)) + 1
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RequestError(
            "the tokenizer cannot be read",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            next_command="a tokenizer.json as Hugging Face's tokenizers writes it",
        ) from None


def vocabulary_refusals(what: str, tokens: int, model: Model, folder: Path) -> Iterator[RequestError]:
    if tokens > model.vocabulary_size:
        yield RequestError(
            f"the {what} knows {tokens:,} tokens, {model.name} {model.vocabulary_size:,}",
            where=f"--data={folder}",
            why="a token without a row in the embedding ends the run",
            next_command="--data of the model's own tokenizer, or a smaller one",
        )
