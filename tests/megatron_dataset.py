"""A dataset as Megatron's tools/preprocess_data.py writes it: .bin and .idx files, with a tokenizer next to them."""

import json
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

INT32 = 4  # Megatron's code of the type, and its bytes


def write_dataset(
    folder: Path,
    prefixes: Sequence[str] = ("t_0",),
    documents: Sequence[Sequence[int]] = ((1, 2, 3, 0),),
    vocabulary_size: int = 512,
) -> Path:
    """Each pair of files holds all documents, one sequence each."""
    lengths = [len(tokens) for tokens in documents]
    starts = [0, *accumulate(INT32 * length for length in lengths)][:-1]
    count = len(documents)
    index = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, INT32, count, count + 1)
    index += struct.pack(f"<{count}i{count}q{count + 1}q", *lengths, *starts, *range(count + 1))
    tokens = [token for one in documents for token in one]
    folder.mkdir(parents=True, exist_ok=True)
    for prefix in prefixes:
        (folder / f"{prefix}.idx").write_bytes(index)
        (folder / f"{prefix}.bin").write_bytes(struct.pack(f"<{len(tokens)}i", *tokens))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"last": vocabulary_size - 1}}}))
    return folder
