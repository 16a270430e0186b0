"""A dataset folder as launch/setup.py leaves it, with empty tokens: files of the right sizes and a manifest."""

from pathlib import Path
from typing import Any

from benchmarks.assets.datasets import Dataset
from benchmarks.values import json_text

TOKENS = 9


def write_dataset(folder: Path, prefixes: tuple[str, ...] = ("t_0",), **fields: Any) -> Path:
    """The tokens are all in the first pair."""
    vocabulary_size = fields.get("vocabulary_size", 512)
    token_bytes = 2 if vocabulary_size < 65_500 else 4
    sizes = {f"{prefix}.bin": 0 for prefix in prefixes} | {f"{prefix}.idx": 4 for prefix in prefixes}
    sizes |= {f"{prefixes[0]}.bin": TOKENS * token_bytes, "tokenizer.json": 2}
    for name, size in sizes.items():
        (folder / name).write_bytes(b"\0" * size)
    whole = {
        "name": "t",
        "format": "megatron",
        "prefixes": list(prefixes),
        "tokenizer": "tokenizer.json",
        "tokenizer_sha256": "",
        "trained_vocabulary_size": 10,
        "vocabulary_size": vocabulary_size,
        "end_of_document": "<|end|>",
        "end_of_document_id": 0,
        "documents": 1,
        "empty_documents": 0,
        "tokens": TOKENS,
        "texts": [],
        "files": sizes,
        "sha256": {},
    }
    (folder / "dataset.json").write_text(json_text(Dataset(**{**whole, **fields})))
    return folder
