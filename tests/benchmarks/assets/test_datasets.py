"""A dataset's folder and manifest: what reads as whole, and what does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.assets.datasets import (
    MANIFEST,
    Dataset,
    SourceText,
    estimated_bytes,
    read_dataset,
    tokenizer_size,
)
from benchmarks.errors import RequestError
from benchmarks.values import json_text

TEXTS = [SourceText(name="a.txt", bytes=10, sha256="aa"), SourceText(name="b.txt", bytes=20, sha256="bb")]
FILES = {"d_00_text_document.bin": 6, "d_00_text_document.idx": 3, "tokenizer.json": 1}


def dataset(**fields: Any) -> Dataset:
    whole = {
        "name": "d",
        "format": "megatron",
        "prefixes": ["d_00_text_document"],
        "tokenizer": "tokenizer.json",
        "tokenizer_sha256": "cc",
        "trained_vocabulary_size": 512,
        "vocabulary_size": 500,
        "end_of_document": "<|end_of_text|>",
        "end_of_document_id": 0,
        "documents": 1,
        "empty_documents": 0,
        "tokens": 3,
        "texts": TEXTS,
        "files": FILES,
        "sha256": {},
    }
    return Dataset(**{**whole, **fields})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in FILES.items():
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / MANIFEST).write_text(json_text(dataset()))
    return tmp_path


def test_a_whole_folder_is_read(folder: Path) -> None:
    assert read_dataset(folder) == dataset()


def refusal(folder: Path) -> str:
    with pytest.raises(RequestError) as caught:
        read_dataset(folder)
    assert "python launch/setup.py --backend=nemo --dataset" in str(caught.value)
    return str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "nowhere")


def test_without_its_manifest_a_folder_is_not_whole(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    assert "was not finished" in refusal(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "d"}', "\xff"])
def test_a_manifest_that_is_none(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_bytes(text.encode("latin-1"))
    assert "cannot be read" in refusal(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_or_gone_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"x" * (FILES[name] + 1))
    assert f"{name} is not what was made: {FILES[name]} bytes were written, {FILES[name] + 1} bytes" in refusal(
        folder
    )
    (folder / name).unlink()
    assert f"{name} is not what was made" in refusal(folder)


@pytest.mark.parametrize("name", ["../a/x", "/etc/x", "..", ".hidden", "", "x\n"])
@pytest.mark.parametrize("field", ["prefixes", "tokenizer", "files", "sha256"])
def test_a_manifest_names_files_of_its_own_folder_alone(folder: Path, field: str, name: str) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest[field] = {"prefixes": [name], "tokenizer": name, "files": {**FILES, name: 1}, "sha256": {name: "x"}}[
        field
    ]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert "cannot be read" in refusal(folder)


@pytest.mark.parametrize(
    "fields", [{"prefixes": ["d_00_text_document", "e"]}, {"tokenizer": "other.json"}, {"files": {"more": 1}}]
)
def test_an_edited_manifest_is_refused(folder: Path, fields: dict[str, Any]) -> None:
    (folder / MANIFEST).write_text(json_text(dataset(**fields)))
    assert "is not what was made" in refusal(folder)


def test_the_estimate_is_rather_more_than_the_text(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    for path in (plain, packed):
        path.write_bytes(b"x" * 1000)
    assert estimated_bytes([plain]) == 1250
    assert estimated_bytes([plain, packed]) == 6250


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 7}}, "added_tokens": [{"id": 9, "content": "<x>"}]}', 10),
        ('{"model": {"type": "Unigram", "vocab": [["a", -1.0], ["b", -2.0]]}}', 2),
    ],
)
def test_a_tokenizers_size_is_its_largest_number_and_one(tmp_path: Path, text: str, size: int) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    assert tokenizer_size(tmp_path / "tokenizer.json") == size


@pytest.mark.parametrize("text", ["", "{}", '{"model": {"vocab": {}}}', '{"model": {"vocab": 3}}', "[]"])
def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(RequestError, match="the tokenizer cannot be read"):
        tokenizer_size(tmp_path / "tokenizer.json")
