"""Text -> tokens -> .bin/.idx pairs by the real script in NeMo's real environment, read back by Megatron itself."""

import filecmp
import gzip
import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.assets.datasets import Dataset, read_dataset
from tests.end_to_end.runs import LIMIT_SECONDS, Setup

pytestmark = pytest.mark.slow

POEM = "Whose woods these are\nI think I know.\n\n  é ü 東京 🎉 <|end_of_text|> is no end here\n"
WORDS = ("the", "a", "of", "tokens", "step", "trains", "cluster", "loss", "and", "measures", "second", "fast")

# Runs in NeMo's environment: what Megatron and transformers make of a dataset's folder.
READER = """
import json, os, sys
sys.stdout, out = sys.stderr, sys.stdout
import torch
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from transformers import AutoTokenizer
folder, cache = sys.argv[1:]
manifest = json.load(open(os.path.join(folder, "dataset.json")))
prefixes = [os.path.join(folder, prefix) for prefix in manifest["prefixes"]]
tokenizer = AutoTokenizer.from_pretrained(folder)
tokenizer.unique_identifiers = {"folder": folder}
tokenizer.eod = tokenizer.eos_token_id
documents = [[document.tolist() for document in IndexedDataset(prefix)] for prefix in prefixes]
config = GPTDatasetConfig(
    random_seed=1, sequence_length=32, blend=(prefixes, None), split="1,0,0", path_to_cache=cache,
    tokenizer=tokenizer, reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
    create_attention_mask=False)
train, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [20, 0, 0], lambda: True, config).build()
samples = [train[index]["tokens"].tolist() for index in range(20)]
texts = [[tokenizer.decode(ids[:-1], clean_up_tokenization_spaces=False) for ids in shard] for shard in documents]
backend = tokenizer.backend_tokenizer
backend.encode_special_tokens = True
again = [[backend.encode(text, add_special_tokens=False).ids for text in shard] for shard in texts]
json.dump({"documents": documents, "texts": texts, "again": again, "samples": samples, "eos": tokenizer.eos_token_id,
           "vocabulary": len(tokenizer)}, out)
"""


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A poem, 300 short documents, and packed ones of which one is long and one empty."""
    folder = tmp_path_factory.mktemp("texts")
    chance = random.Random(1)
    poem, lines, packed = folder / "poem.txt", folder / "lines.jsonl", folder / "packed.jsonl.gz"
    poem.write_text(POEM)
    lines.write_text("".join(json.dumps({"text": sentence(chance, 30)}) + "\n" for _ in range(300)))
    long = "\n".join(sentence(chance, 12) for _ in range(40_000))
    assert len(long) > 2 << 20, "more than one piece"
    packed.write_bytes(gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in (long, "")).encode()))
    return [poem, lines, packed]


def sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words)) + "."


def flags_of(texts: list[Path]) -> list[str]:
    return [f"--text={path}" for path in texts]


@pytest.fixture(scope="session")
def folder(setup: Setup, texts: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "set"
    done = setup(*flags_of(texts), f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(".bin") == done.stdout.count(".idx") == 2
    return out


@pytest.fixture(scope="session")
def dataset(folder: Path) -> Dataset:
    return read_dataset(folder)


def read_back(nemo_python: Path, folder: Path, cache: Path) -> Any:
    done = subprocess.run(
        [str(nemo_python), "-P", "-c", READER, str(folder), str(cache)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def read(nemo_python: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return read_back(nemo_python, folder, tmp_path_factory.mktemp("cache"))


def originals(texts: list[Path]) -> list[str]:
    lines = texts[1].read_text().splitlines() + gzip.decompress(texts[2].read_bytes()).decode().splitlines()
    return [POEM, *(text for line in lines if (text := json.loads(line)["text"]))]


# --- what was made ----------------------------------------------------------------------------


def test_the_folder_is_as_the_recipe_says(folder: Path, dataset: Dataset) -> None:
    assert dataset.prefixes == ["my-llama_00_text_document", "my-llama_01_text_document"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*dataset.files, "dataset.json"])
    assert sorted(path.name for path in folder.parent.iterdir()) == ["set"]
    assert dataset.vocabulary_size <= 512
    assert (dataset.end_of_document, dataset.end_of_document_id) == ("<|end_of_text|>", 0)


def test_megatron_reads_every_document_back(read: Any, texts: list[Path], dataset: Dataset) -> None:
    assert sorted(text for shard in read["texts"] for text in shard) == sorted(originals(texts))
    assert dataset.documents == 302
    assert dataset.empty_documents == 1
    assert dataset.tokens == sum(len(ids) for shard in read["documents"] for ids in shard)


def test_each_document_ends_once(read: Any, dataset: Dataset) -> None:
    assert read["eos"] == dataset.end_of_document_id
    for ids in (ids for shard in read["documents"] for ids in shard):
        assert ids[-1] == dataset.end_of_document_id
        assert dataset.end_of_document_id not in ids[:-1], "a text that names the token ends nothing"
        assert max(ids) < dataset.vocabulary_size == read["vocabulary"]


def test_a_document_in_pieces_has_the_tokens_of_the_whole(read: Any) -> None:
    assert max(len(ids) for shard in read["documents"] for ids in shard) > 100_000
    for documents, again in zip(read["documents"], read["again"], strict=True):
        assert [ids[:-1] for ids in documents] == again


def test_megatron_cuts_samples_for_training(read: Any) -> None:
    assert [len(sample) for sample in read["samples"]] == [32] * 20
    assert len({tuple(sample) for sample in read["samples"]}) > 10


def test_tokens_are_spread_over_the_shards(read: Any) -> None:
    first, second = (sum(len(ids) for ids in shard) for shard in read["documents"])
    longest = max(len(ids) for shard in read["documents"] for ids in shard)
    assert abs(first - second) <= longest


# --- again ------------------------------------------------------------------------------------


def test_the_same_again_is_verified(setup: Setup, folder: Path, texts: list[Path]) -> None:
    done = setup(*flags_of(texts), f"--out={folder}")
    assert done.returncode == 0, done.stderr
    assert "there already, every file as it was made" in done.stderr


def test_elsewhere_it_becomes_the_same_bytes(setup: Setup, folder: Path, texts: list[Path], tmp_path: Path) -> None:
    assert setup(*flags_of(texts), f"--out={tmp_path / 'again'}").returncode == 0
    names = [path.name for path in folder.iterdir()]
    assert filecmp.cmpfiles(folder, tmp_path / "again", names, shallow=False)[0] == names


def test_a_given_tokenizer_makes_the_same_tokens(
    setup: Setup, folder: Path, dataset: Dataset, texts: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "given"
    done = setup(*flags_of(texts), f"--tokenizer={folder}", "--name=other", f"--out={out}")
    assert done.returncode == 0, done.stderr
    made = read_dataset(out)
    assert made.tokenizer_sha256 == dataset.tokenizer_sha256
    assert made.trained_vocabulary_size is None
    for number in range(2):
        for ending in (".bin", ".idx"):
            ours, theirs = (f"{name}_{number:02d}_text_document{ending}" for name in ("my-llama", "other"))
            assert (folder / ours).read_bytes() == (out / theirs).read_bytes()


def test_one_document_without_spaces_is_trained_on_in_seconds_and_fills_one_shard(
    setup: Setup, tmp_path: Path
) -> None:
    text = tmp_path / "x.txt"
    text.write_text("x" * 5_000_000)
    started = time.monotonic()
    done = setup(f"--text={text}", f"--out={tmp_path / 'x'}")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 60
    assert "no progress is known until it is done" in done.stderr
    assert "1 documents fill 1 shards of 2" in done.stderr
    made = read_dataset(tmp_path / "x")
    assert (made.documents, made.prefixes) == (1, ["my-llama_00_text_document"])


def test_a_bad_line_is_refused_and_nothing_is_left(setup: Setup, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "good"}\n{"text": 5}\n')
    done = setup(f"--text={bad}", f"--out={tmp_path / 'out'}")
    assert done.returncode == 2
    assert f"{bad}:2" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]
