"""What a dataset on disk is: the folder that launch/setup.py makes from text, and its manifest, dataset.json."""

from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from benchmarks.errors import RequestError
from benchmarks.values import Value

MANIFEST = "dataset.json"
TEXT_ENDINGS = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")

# For the refusal of a disk that is too small. With Llama 3's tokenizer a token takes 4 bytes and stands for some
# 4.4 of English text; with a small vocabulary it takes 2 and stands for about 2: either way as much as the text.
BYTES_A_TEXT_BYTE = 1.25
BYTES_A_COMPRESSED_BYTE = 4 * BYTES_A_TEXT_BYTE  # gzip takes English to a third or a fourth


# A file of the folder itself: a manifest that someone edited leads nowhere else.
FileName = Annotated[str, msgspec.Meta(pattern=r"^(?!\.)[^/\\\x00-\x1f]+\Z")]

SMALL_VOCABULARY = 65_500  # below it Megatron writes a token in two bytes, else in four


class DatasetJob(Value, frozen=True):
    """Text to be made into a dataset."""

    texts: list[Path]  # .txt: one document a file; .jsonl: one a line, in the field "text"; either may be .gz
    tokenizer: Path | None  # a tokenizer.json, or a folder that holds one; None: one is trained on the texts
    vocabulary_size: int | None  # of the tokenizer that is trained; None where one is given
    folder: Path
    name: str
    shards: int  # at most so many: none is left without a document


class SourceText(Value, frozen=True):
    """One text a dataset was made from."""

    name: str  # without its folder: a manifest names no path of one machine
    bytes: int
    sha256: str


class Dataset(Value, frozen=True):
    """dataset.json: what a folder holds and where it is from; written last, so that what has one is whole."""

    name: str
    format: str  # megatron: .bin/.idx pairs
    prefixes: list[FileName]  # file names without .bin and .idx
    tokenizer: FileName  # the tokenizer's file in the folder
    tokenizer_sha256: str
    trained_vocabulary_size: int | None  # what was asked of a tokenizer trained on the texts; None: it was given
    vocabulary_size: int  # of the tokenizer: its largest id and one
    end_of_document: str  # the token after each document
    end_of_document_id: int
    documents: int
    empty_documents: int  # left out: they hold no text
    tokens: int  # with one end_of_document a document
    texts: list[SourceText]
    files: dict[FileName, int]  # name -> bytes, of every file but this one
    sha256: dict[FileName, str]  # name -> SHA-256, of the same files


class Inputs(NamedTuple):
    """What decides the bytes of a dataset: the same inputs give the same files."""

    name: str
    shards: int
    tokenizer_sha256: str | None  # None: trained on the texts
    vocabulary_size: int | None
    texts: list[SourceText]


def read_dataset(folder: Path) -> Dataset:
    """The manifest of a folder whose files are all there, whole."""
    make_one = f"python launch/setup.py --backend=nemo --dataset --text=FILE --out={folder}"
    if not folder.is_dir():
        raise RequestError("there is no such folder", where=f"--data={folder}", next_command=make_one)
    dataset = _read_manifest(folder, make_one)
    for name, size in dataset.files.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            found = f"{file.stat().st_size:,} bytes" if file.is_file() else "nothing"
            raise RequestError(
                f"{name} is not what was made: {size:,} bytes were written, {found} is there",
                where=f"--data={folder}",
                next_command=make_one,
            )
    fault = _fault_of(dataset)
    if fault:
        raise RequestError(
            f"{MANIFEST} contradicts itself: {fault}",
            where=str(folder / MANIFEST),
            why="it was changed after it was made",
            next_command=make_one,
        )
    return dataset


def _fault_of(dataset: Dataset) -> str:
    """Where the manifest contradicts itself; nothing, where its format is not known here."""
    if dataset.format != "megatron":
        return ""
    pairs = [f"{prefix}{ending}" for prefix in dataset.prefixes for ending in (".bin", ".idx")]
    unlisted = [name for name in (*pairs, dataset.tokenizer) if name not in dataset.files]
    if unlisted:
        return f"{unlisted[0]} is not among its files"
    token_bytes = 2 if dataset.vocabulary_size < SMALL_VOCABULARY else 4
    written = sum(dataset.files[f"{prefix}.bin"] for prefix in dataset.prefixes)
    if written != dataset.tokens * token_bytes:
        return f"it says {dataset.tokens:,} tokens of {token_bytes} bytes, and {written:,} bytes are there"
    return ""


def _read_manifest(folder: Path, make_one: str) -> Dataset:
    path = folder / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Dataset)
    except FileNotFoundError:
        raise RequestError(
            f"the folder has no {MANIFEST}: it is no dataset of Stepmark, or one that was not finished",
            where=f"--data={folder}",
            next_command=make_one,
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{MANIFEST} cannot be read: {error}", where=str(path), next_command=make_one) from None


def differences(dataset: Dataset, inputs: Inputs) -> list[str]:
    """In what the dataset is not the one that these inputs would give; empty when it is."""
    found = []
    if dataset.name != inputs.name:
        found.append(f"its name is {dataset.name}, not {inputs.name}")
    if len(dataset.prefixes) != min(inputs.shards, dataset.documents):
        found.append(f"it has {len(dataset.prefixes)} shards, not {inputs.shards}")
    if inputs.tokenizer_sha256 is None:
        if dataset.trained_vocabulary_size != inputs.vocabulary_size:
            had = dataset.trained_vocabulary_size
            tokenizer = "one that was given" if had is None else f"trained for a vocabulary of {had}"
            found.append(f"its tokenizer is {tokenizer}, not trained for a vocabulary of {inputs.vocabulary_size}")
    elif dataset.trained_vocabulary_size is not None or dataset.tokenizer_sha256 != inputs.tokenizer_sha256:
        found.append("its tokenizer is another one")
    if [(text.bytes, text.sha256) for text in dataset.texts] != [(text.bytes, text.sha256) for text in inputs.texts]:
        found.append("it was made from other texts: " + ", ".join(text.name for text in dataset.texts))
    return found


def estimated_bytes(texts: list[Path]) -> int:
    """About what the dataset of these texts takes on disk, rather more than less."""
    factors = {True: BYTES_A_COMPRESSED_BYTE, False: BYTES_A_TEXT_BYTE}
    return round(sum(path.stat().st_size * factors[path.suffix == ".gz"] for path in texts))


def tokenizer_size(path: Path) -> int:
    """How many token numbers a Hugging Face tokenizer.json can give: its largest and one."""
    try:
        data = msgspec.json.decode(path.read_bytes())
        vocabulary = data["model"]["vocab"]
        numbers = list(vocabulary.values()) if isinstance(vocabulary, dict) else list(range(len(vocabulary)))
        numbers += [token["id"] for token in data.get("added_tokens") or []]
        return int(max(numbers)) + 1
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError) as error:
        raise RequestError(
            "the tokenizer cannot be read",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            next_command="a tokenizer.json as Hugging Face's tokenizers writes it",
        ) from None
