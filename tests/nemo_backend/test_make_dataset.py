"""The program that makes a dataset, without its frameworks: how it reads, cuts, ends and spreads documents.

It is loaded by path, as it runs. tests/end_to_end/test_dataset.py runs it inside NeMo's environment.
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from nemo_backend.inside import make_dataset as program

PROGRAM = Path(program.__file__)


def read(*paths: Path) -> list[tuple[str, bool]]:
    return [tuple(piece) for piece in program.pieces_of(list(paths), lambda _: None)]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- reading ----------------------------------------------------------------------------------


def test_a_txt_is_one_document_and_a_jsonl_one_a_line_packed_or_not(tmp_path: Path) -> None:
    text = write(tmp_path / "a.txt", "one\r\ntwo\n\n")
    lines = write(tmp_path / "b.jsonl", '{"text": "x", "more": 1}\n\n{"text": "y\\nz"}')
    assert read(text, lines) == [("one\r\ntwo\n\n", True), ("x", True), ("y\nz", True)]
    text = write(tmp_path / "a.txt.gz", gzip.compress("é".encode()) + gzip.compress(b" and more"))
    lines = write(tmp_path / "b.jsonl.gz", gzip.compress(b'{"text": "x"}\n'))
    assert read(text, lines) == [("é and more", True), ("x", True)]


def test_the_progress_counts_the_bytes_on_disk(tmp_path: Path) -> None:
    seen: list[int] = []
    paths = [write(tmp_path / "a.txt.gz", gzip.compress(b"word" * 1000)), write(tmp_path / "b.txt", "more")]
    assert len(list(program.pieces_of(paths, seen.append))) == 2
    assert seen[-1] == sum(path.stat().st_size for path in paths)


@pytest.mark.parametrize(
    ("name", "content", "what", "where"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "the line is no JSON", "a.jsonl:2"),
        ("a.jsonl", b'{"txt": "x"}\n', 'no text in a field "text"', "a.jsonl:1"),
        ("a.jsonl", b'{"text": 5}\n', 'no text in a field "text"', "a.jsonl:1"),
        ("a.jsonl", b'["text"]\n', 'no text in a field "text"', "a.jsonl:1"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "half a character", "a.jsonl:1"),
        ("a.jsonl", b'{"text": "\xff"}\n', "not UTF-8", "a.jsonl"),
        ("a.txt", b"good\xff", "not UTF-8", "a.txt"),
        ("a.txt", b"cut off \xc3", "not UTF-8", "a.txt"),
        ("a.txt.gz", gzip.compress(b"word" * 1000, mtime=0)[:-10], "cannot be unpacked", "a.txt.gz"),
        ("a.txt.gz", b"plain", "cannot be unpacked", "a.txt.gz"),
    ],
)
def test_a_bad_text_is_refused_with_its_place(
    tmp_path: Path, name: str, content: bytes, what: str, where: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(program.Refused) as caught:
        read(path)
    assert what in caught.value.event["refused"]
    assert caught.value.event["where"] == str(tmp_path / where)
    if what == "not UTF-8":
        assert "iconv -f ENCODING -t UTF-8" in caught.value.event["next"]


# --- cutting ----------------------------------------------------------------------------------


def test_a_long_document_comes_in_pieces_and_loses_nothing(tmp_path: Path) -> None:
    text = "".join(f"line {number} é\n" for number in range(200_000))
    pieces = read(write(tmp_path / "a.txt", text))
    assert "".join(piece for piece, _ in pieces) == text
    assert [ends for _, ends in pieces] == [False] * (len(pieces) - 1) + [True]
    assert len(pieces) > 2
    assert all(len(piece) <= program.PIECE_CHARACTERS for piece, _ in pieces)
    assert all(piece.endswith("\n") for piece, _ in pieces[:-1])


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("one\ntwo\nthree", len("one\ntwo\n")),
        ("one\ntwo\n\nthree", len("one\n")),  # a cut beside two line ends would change tokens
        ("one\n\n", len("one\n\n")),
        ("one two", len("one")),
        ("onetwo", len("onetwo")),
    ],
)
def test_the_cut_is_at_a_lone_line_end_where_there_is_one(text: str, end: int) -> None:
    assert program._cutting_place(text) == end


@pytest.mark.parametrize("text", ["x" * 5000, " " * 5000, "\n" * 5000, f"a {'é' * 700} b{' ' * 600}c\n" * 3])
def test_no_word_is_long_that_a_tokenizer_is_trained_on(text: str) -> None:
    parts = list(program._short_words(text))
    assert "".join(parts) == text
    runs = [run for part in parts for run in re.findall(r"\S+|\s+", part)]
    assert max(map(len, runs)) == program.LONGEST_WORD


# --- the end of a document --------------------------------------------------------------------


def tokenizer_with(*special: str) -> Any:
    tokens = {number: SimpleNamespace(content=name, special=True) for number, name in enumerate(special)}
    tokens[99] = SimpleNamespace(content="<eod>", special=False)
    return SimpleNamespace(get_added_tokens_decoder=lambda: tokens)


@pytest.mark.parametrize(
    ("special", "config", "expected"),
    [
        (["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], None, "<|end_of_text|>"),
        (["<|end_of_text|>", "<|eot_id|>"], {"eos_token": "<|eot_id|>"}, "<|end_of_text|>"),
        (["<s>", "</s>"], None, "</s>"),
        (["<fin>", "</s>"], {"eos_token": "<fin>"}, "<fin>"),
        (["<fin>"], {"eos_token": {"content": "<fin>", "lstrip": False}}, "<fin>"),
    ],
)
def test_a_tokenizers_own_end_of_document(
    tmp_path: Path, special: list[str], config: dict[str, Any] | None, expected: str
) -> None:
    if config:
        write(tmp_path / "tokenizer_config.json", json.dumps(config))
    assert program.end_of_document(tokenizer_with(*special), tmp_path / "tokenizer.json") == expected


@pytest.mark.parametrize("config", [{}, {"eos_token": None}, {"eos_token": "<not-a-token>"}])
def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    write(tmp_path / "tokenizer_config.json", json.dumps(config))
    with pytest.raises(program.Refused, match="names no end of a document"):
        program.end_of_document(tokenizer_with("<pad>"), tmp_path / "tokenizer.json")


# --- spreading --------------------------------------------------------------------------------


class FakeBuilder:
    """Megatron's builder, as far as a shard uses it."""

    def __init__(self, path: str, dtype: type) -> None:
        self.data_file = Path(path).open("wb")  # noqa: SIM115 - finalize closes it
        self.dtype = dtype
        self.sequence_lengths: list[int] = []
        self.document_indices = [0]

    def end_document(self) -> None:
        self.document_indices.append(len(self.sequence_lengths))

    def finalize(self, path: str) -> None:
        self.data_file.close()
        Path(path).write_text(json.dumps(self.sequence_lengths))


class FakeType:
    @staticmethod
    def optimal_dtype(cardinality: int) -> type:
        return numpy.uint16 if cardinality < 65500 else numpy.int32


@pytest.fixture
def megatron(put_modules: Any) -> None:
    fakes = {"DType": FakeType, "IndexedDatasetBuilder": FakeBuilder}
    put_modules({"megatron.core.datasets.indexed_dataset": fakes})


@pytest.mark.usefixtures("megatron")
def test_each_document_goes_to_the_emptiest_shard_and_ends_with_its_token(tmp_path: Path) -> None:
    writer = program.Writer(tmp_path, ["d_0", "d_1"], 500, end_id=9)
    for ids, ends in [([1] * 5, False), ([2], True), ([3], True), ([4, 4], True), ([], True), ([5], True)]:
        writer.add(program.Piece("", ends), ids)
    assert writer.close() == ["d_0", "d_1"]
    tokens = [numpy.fromfile(tmp_path / f"d_{number}.bin", dtype=numpy.uint16).tolist() for number in range(2)]
    assert tokens == [[1, 1, 1, 1, 1, 2, 9], [3, 9, 4, 4, 9, 5, 9]]
    assert json.loads((tmp_path / "d_0.idx").read_text()) == [7], "a document of two pieces is one sequence"
    assert json.loads((tmp_path / "d_1.idx").read_text()) == [2, 3, 2]
    assert (writer.documents, writer.empty_documents, writer.tokens) == (4, 1, 14)
    alone = program.Writer(tmp_path, ["e_0", "e_1"], 500, end_id=9)
    alone.add(program.Piece("", ends_document=True), [1])
    assert alone.close() == ["e_0"]
    assert not list(tmp_path.glob("e_1.*"))


@pytest.mark.usefixtures("megatron")
def test_a_document_too_long_for_the_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_TOKENS", 3)
    writer = program.Writer(tmp_path, ["d_00"], 500, end_id=9)
    writer.add(program.Piece("", ends_document=False), [1, 2])
    with pytest.raises(program.Refused, match="over 3 tokens"):
        writer.add(program.Piece("", ends_document=False), [3, 4])


# --- the command and the program --------------------------------------------------------------


def test_a_refusal_is_said_as_an_event(tmp_path: Path) -> None:
    flags = [f"--text={tmp_path / 'no'}", f"--folder={tmp_path}", "--name=n", "--shards=1", "--vocabulary_size=300"]
    done = subprocess.run(
        [sys.executable, "-P", str(PROGRAM), *flags], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["refused"] == "No such file or directory"
    assert "Traceback" not in done.stderr
