"""What a dataset on disk is: the folder that launch/setup.py makes from text, and its manifest, dataset.json."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from benchmarks import files
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


def read_dataset(folder: Path) -> Dataset:
    """The manifest of a folder whose files are all there, whole."""
    make_one = f"python launch/setup.py --backend=nemo --dataset --text=FILE --out={folder}"
    if not folder.is_dir():
        raise RequestError("there is no such folder", where=f"--data={folder}", next_command=make_one)
    path = folder / MANIFEST
    try:
        dataset = files.read_json(path, Dataset)
    except FileNotFoundError:
        raise RequestError(
            f"the folder has no {MANIFEST}: it is no dataset of Stepmark, or one that was not finished",
            where=f"--data={folder}",
            next_command=make_one,
        ) from None
    except OSError as error:
        raise files.cannot_read(error, path) from None
    except ValueError as error:
        raise RequestError(f"{MANIFEST} cannot be read: {error}", where=str(path), next_command=make_one) from None
    parts = [f"{prefix}{ending}" for prefix in dataset.prefixes for ending in (".bin", ".idx")]
    for name in (*dataset.files, *parts, dataset.tokenizer):
        file = folder / name
        size = dataset.files.get(name)
        if size is None or not file.is_file() or file.stat().st_size != size:
            found = f"{file.stat().st_size:,} bytes" if file.is_file() else "nothing"
            raise RequestError(
                f"{name} is not what was made: {size} bytes were written, {found} is there",
                where=f"--data={folder}",
                next_command=make_one,
            )
    return dataset


def estimated_bytes(texts: list[Path]) -> int:
    """About what the dataset of these texts takes on disk, rather more than less."""
    factors = {True: BYTES_A_COMPRESSED_BYTE, False: BYTES_A_TEXT_BYTE}
    return round(sum(path.stat().st_size * factors[path.suffix == ".gz"] for path in texts))


def tokenizer_size(path: Path) -> int:
    """How many token numbers a Hugging Face tokenizer.json can give: its largest and one."""
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
