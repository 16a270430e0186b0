"""Runs inside NeMo's environment: makes texts into tokens in Megatron's .bin/.idx pairs, and writes dataset.json.

Standard library, megatron.core and tokenizers alone. It reads and writes as a stream: memory does not grow with the
texts, except by Megatron's 8 bytes a document.

Standard output carries one JSON object a line for launch/assets/making_dataset.py:
    {"progress": ..., "done": bytes, "total": bytes, "documents": N, "tokens": N}
    {"say": text}
    {"refused": what, "where": ..., "why": ..., "next": ...}     and exit code 2
The same inputs give the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

END_OF_DOCUMENT = "<|end_of_text|>"  # of a tokenizer that is trained here; it is Llama 3's too
# What tokenizers call the end of a document. Before their own eos: in one made for chats that ends a turn.
DOCUMENT_ENDS = ("<|end_of_text|>", "<|endoftext|>", "<eod>", "<|eod|>")
SENTENCE_ENDS = ("</s>", "<eos>", "[EOS]")
EOS_FILES = ("tokenizer_config.json", "special_tokens_map.json")

PIECE_CHARACTERS = 1 << 20  # of a document that are tokenised at once
BATCH_CHARACTERS = 8 << 20  # of many documents, which the tokenizer shares out among the cores
BATCH_PIECES = 4096
READ_CHARACTERS = 1 << 20
PROGRESS_SECONDS = 0.5
MOST_TOKENS = 2**31 - 1  # of one document: the index counts them in 32 bits
# A cut here changes no token: the common pre-tokenizers end a word before and after a lone line end.
LONE_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")
# The time to train grows with the square of a word's length, and without spaces a text is one word.
LONGEST_WORD = 256
LONG_RUN = re.compile(rf"(?<!\S)\S{{{LONGEST_WORD + 1},}}|(?<!\s)\s{{{LONGEST_WORD + 1},}}")

Event = Callable[..., None]


class Refused(Exception):
    """The texts or the tokenizer cannot be used; said to the launcher, which says it to the person."""

    def __init__(self, what: str, *, where: object = "", why: object = "", next_command: str = "") -> None:
        super().__init__(what)
        self.event = {"refused": what, "where": str(where), "why": str(why), "next": next_command}


class Piece(NamedTuple):
    """A part of a document small enough to be tokenised at once."""

    text: str
    ends_document: bool


# --- reading ----------------------------------------------------------------------------------


def pieces_of(paths: list[Path], on_bytes: Callable[[int], None]) -> Iterator[Piece]:
    """The texts in the order they were given, as a stream; `on_bytes` is told how much of the files was read."""
    before = 0
    for path in paths:
        with path.open("rb") as file:
            packed = path.name.endswith(".gz")
            plain: Any = gzip.GzipFile(fileobj=file) if packed else file
            text = io.TextIOWrapper(plain, encoding="utf-8-sig", newline="\n")
            lines = path.name.removesuffix(".gz").endswith(".jsonl")
            try:
                for piece in _records(text, path) if lines else _cut(iter(partial(text.read, READ_CHARACTERS), "")):
                    yield piece
                    on_bytes(before + file.tell())
            except UnicodeDecodeError as error:
                command = f"{'zcat' if packed else 'cat'} {path} | iconv -f ENCODING -t UTF-8"
                raise Refused("the text is not UTF-8", where=path, why=error, next_command=command) from error
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise Refused(f"the text cannot be unpacked: {error}", where=path) from error
        before += path.stat().st_size


def _records(lines: io.TextIOWrapper, path: Path) -> Iterator[Piece]:
    """One document a line, in the field "text"."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield from _cut(iter([_text_of(line, path, number)]))


def _text_of(line: str, path: Path, number: int) -> str:
    where = f"{path}:{number}"
    try:
        record = json.loads(line)
    except ValueError as error:
        raise Refused("the line is no JSON", where=where, why=f"{error}; .jsonl holds one object a line") from error
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise Refused('the line has no text in a field "text"', where=where)
    if HALF_A_CHARACTER.search(text):
        raise Refused("the text holds half a character", where=where)
    return text


def _cut(blocks: Iterator[str]) -> Iterator[Piece]:
    """One document in pieces: at a line end where there is one."""
    rest = ""
    for block in blocks:
        rest += block
        while len(rest) > PIECE_CHARACTERS:
            end = _cutting_place(rest[:PIECE_CHARACTERS])
            yield Piece(rest[:end], ends_document=False)
            rest = rest[end:]
    yield Piece(rest, ends_document=True)


def _cutting_place(text: str) -> int:
    tail = max(0, len(text) - 65_536)  # lines are shorter than this, as a rule
    lone = [match.end() for match in LONE_LINE_END.finditer(text, tail)]
    return lone[-1] if lone else text.rfind("\n") + 1 or max(text.rfind(" "), 0) or len(text)


# --- the tokenizer ----------------------------------------------------------------------------


def trained(texts: list[Path], on_bytes: Callable[[int], None], vocabulary_size: int) -> Any:
    """A byte-level BPE: the commonest pairs of the texts, as many as fit."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_DOCUMENT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    pieces = pieces_of(texts, on_bytes)
    tokenizer.train_from_iterator((part for piece in pieces for part in _short_words(piece.text)), trainer)
    return tokenizer


def _short_words(text: str) -> Iterator[str]:
    """The text, cut wherever more than LONGEST_WORD characters stand without a space, or are spaces alone."""
    start = 0
    for run in LONG_RUN.finditer(text):
        for end in range(run.start() + LONGEST_WORD, run.end(), LONGEST_WORD):
            yield text[start:end]
            start = end
    yield text[start:]


def loaded(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # what tokenizers raises for a file it cannot read
        raise Refused("the tokenizer cannot be read", where=path, why=error) from error


def end_of_document(tokenizer: Any, path: Path) -> str:
    """The token that ends a document: by its common names, or the eos that the tokenizer's folder names."""
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    for token in (*DOCUMENT_ENDS, *_named_eos(path.parent), *SENTENCE_ENDS):
        if token in special:
            return token
    raise Refused(
        "the tokenizer names no end of a document",
        where=path,
        why=f"it has none of {', '.join(DOCUMENT_ENDS + SENTENCE_ENDS)}, and no {' or '.join(EOS_FILES)} names one",
        next_command="a tokenizer's whole folder as --tokenizer, or none: then one is trained on the texts",
    )


def _named_eos(folder: Path) -> list[str]:
    found = []
    for path in (folder / name for name in EOS_FILES if (folder / name).is_file()):
        try:
            eos = json.loads(path.read_bytes()).get("eos_token")
        except (ValueError, AttributeError) as error:
            raise Refused("the file is no JSON object", where=path, why=error) from error
        found.append(eos.get("content") if isinstance(eos, dict) else eos)
    return [token for token in found if isinstance(token, str)]


def write_tokenizer(tokenizer: Any, given: Path | None, token: str, folder: Path) -> Path:
    """The tokenizer in the dataset's folder, with what transformers needs to load it from there."""
    path = folder / "tokenizer.json"
    if given is None:
        tokenizer.save(str(path))
    else:
        shutil.copyfile(given, path)
    settings = folder / EOS_FILES[0]
    if given is not None and (given.parent / settings.name).is_file():
        shutil.copyfile(given.parent / settings.name, settings)
    else:
        settings.write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": token}) + "\n")
    return path


# --- writing ----------------------------------------------------------------------------------


def nothing_to_compile() -> None:
    """Megatron compiles a piece of CUDA into the user's home when it is imported; a dataset needs none."""
    from torch.utils import cpp_extension

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("a dataset needs no CUDA")

    cpp_extension.load_inline = refuse


class Writer:
    """Spreads documents over .bin/.idx pairs: each begins in the pair that holds the fewest tokens.

    A document is written piece by piece, and is one sequence of the index.
    """

    def __init__(self, folder: Path, prefixes: list[str], vocabulary_size: int, end_id: int) -> None:
        from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

        self.documents = self.empty_documents = 0
        self._folder, self._end_id = folder, end_id
        self._type = DType.optimal_dtype(vocabulary_size)
        self._builders = {one: IndexedDatasetBuilder(f"{folder / one}.bin", dtype=self._type) for one in prefixes}
        self._sizes = dict.fromkeys(prefixes, 0)  # tokens of whole documents
        self._current = ""  # the pair that the document goes to, once it has a token
        self._length = 0  # tokens of that document

    @property
    def tokens(self) -> int:
        return sum(self._sizes.values())

    def add(self, piece: Piece, ids: list[int]) -> None:
        if ids:
            self._current = self._current or min(self._sizes, key=self._sizes.__getitem__)
            self._write(ids)
        if not piece.ends_document:
            return
        if not self._current:
            self.empty_documents += 1
            return
        self._write([self._end_id])
        builder = self._builders[self._current]
        builder.sequence_lengths.append(self._length)
        builder.end_document()
        self._sizes[self._current] += self._length
        self.documents += 1
        self._current, self._length = "", 0

    def _write(self, ids: list[int]) -> None:
        import numpy

        self._builders[self._current].data_file.write(numpy.array(ids, dtype=self._type).tobytes(order="C"))
        self._length += len(ids)
        if self._length > MOST_TOKENS:
            raise Refused(f"a document has over {MOST_TOKENS:,} tokens", next_command="cut it into several documents")

    def close(self) -> list[str]:
        """The pairs that hold anything; one that does not is taken away."""
        for prefix, builder in self._builders.items():
            stem = self._folder / prefix
            builder.finalize(f"{stem}.idx")
            if not self._sizes[prefix]:
                for ending in (".bin", ".idx"):
                    Path(f"{stem}{ending}").unlink()
        return [prefix for prefix, size in self._sizes.items() if size]


def tokenise(pieces: Iterator[Piece], tokenizer: Any, writer: Writer) -> None:
    """Every piece through the tokenizer, in order; many at once, because that uses all cores."""
    for batch in _batches(pieces):
        encoded = tokenizer.encode_batch_fast([piece.text for piece in batch], add_special_tokens=False)
        for piece, encoding in zip(batch, encoded, strict=True):
            writer.add(piece, encoding.ids)


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    characters = 0
    for piece in pieces:
        batch.append(piece)
        characters += len(piece.text)
        if characters >= BATCH_CHARACTERS or len(batch) >= BATCH_PIECES:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


# --- the whole --------------------------------------------------------------------------------


def make(request: argparse.Namespace, event: Event) -> None:
    folder: Path = request.folder
    total = sum(path.stat().st_size for path in request.text)
    writer: Writer | None = None
    doing, said = "", 0.0

    def show(done: int) -> None:
        """Some times a second, how far the reading is."""
        nonlocal said
        if done in (0, total) or time.monotonic() - said >= PROGRESS_SECONDS:
            said = time.monotonic()
            counts = {"documents": writer.documents, "tokens": writer.tokens} if writer else {}
            event(progress=doing, done=done, total=total, **counts)

    given = request.tokenizer
    if given is not None and given.is_dir():
        given /= "tokenizer.json"
    if given is None:
        event(say="a tokenizer is trained; once the texts are read, no progress is known until it is done")
        doing = "training a tokenizer"
        show(0)
        tokenizer, token = trained(request.text, show, request.vocabulary_size), END_OF_DOCUMENT
    else:
        tokenizer = loaded(given)
        token = end_of_document(tokenizer, given)
    tokenizer_path = write_tokenizer(tokenizer, given, token, folder)
    vocabulary_size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    end_id = cast(int, tokenizer.token_to_id(token))
    event(say=f"vocabulary of {vocabulary_size:,}; each document ends with {token} ({end_id})")
    tokenizer.encode_special_tokens = True  # a text that says "<|end_of_text|>" ends no document

    nothing_to_compile()
    names = [f"{request.name}_{number:02d}_text_document" for number in range(request.shards)]
    writer = Writer(folder, names, vocabulary_size, end_id)
    doing = "making tokens"
    show(0)
    tokenise(pieces_of(request.text, show), tokenizer, writer)
    prefixes = writer.close()
    if not writer.documents:
        raise Refused("the texts hold no document", why=f"{writer.empty_documents} were empty")
    if writer.empty_documents:
        event(say=f"{writer.empty_documents:,} documents without text were left out")
    if len(prefixes) < len(names):
        event(say=f"{writer.documents} documents fill {len(prefixes)} shards of {len(names)}")
    doing = "checksums"
    show(0)
    _write_manifest(
        folder,
        {
            "name": request.name,
            "format": "megatron",
            "prefixes": prefixes,
            "tokenizer": tokenizer_path.name,
            "tokenizer_sha256": _sha256(tokenizer_path),
            "trained_vocabulary_size": request.vocabulary_size if given is None else None,
            "vocabulary_size": vocabulary_size,
            "end_of_document": token,
            "end_of_document_id": end_id,
            "documents": writer.documents,
            "empty_documents": writer.empty_documents,
            "tokens": writer.tokens,
            "texts": [{"name": p.name, "bytes": p.stat().st_size, "sha256": _sha256(p)} for p in request.text],
        },
    )


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Last, and whole: a folder that has one is whole."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    manifest["files"] = {path.name: path.stat().st_size for path in files}
    manifest["sha256"] = {path.name: _sha256(path) for path in files}
    half_written = folder / "dataset.json.part"
    half_written.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    half_written.replace(folder / "dataset.json")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _request(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="texts -> Megatron .bin/.idx pairs; started by launch/setup.py")
    parser.add_argument("--text", type=Path, action="append", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--shards", type=int, required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--tokenizer", type=Path)
    which.add_argument("--vocabulary_size", type=int)
    return parser.parse_args(argv)


def _events() -> Event:
    """A writer of events. Whatever else is printed (Megatron's warnings too) goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def event(**fields: Any) -> None:
        print(json.dumps(fields), file=stream, flush=True)

    return event


def main() -> NoReturn:
    request = _request(sys.argv[1:])
    event = _events()
    try:
        make(request, event)
    except Refused as refused:
        event(**refused.event)
        sys.exit(2)
    except OSError as error:
        event(refused=error.strerror or str(error), where=str(error.filename or request.folder), why="", next="")
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
