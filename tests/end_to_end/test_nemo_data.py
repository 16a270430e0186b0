"""Real text through real NeMo: a folder of Megatron's files, and one of questions and answers."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.runs import LLAMA3, NEMO, Run, Start, finish, verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("runs")]

LORA = "--task=lora"

# Runs in NeMo's environment: a tokenizer for the texts on its standard input, as a folder of transformers.
MAKE_TOKENIZER = """
import os, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
special = ["<s>", "</s>", "<pad>"]
trainer = trainers.BpeTrainer(
    vocab_size=int(sys.argv[2]), special_tokens=special, initial_alphabet=alphabet, show_progress=False)
tokenizer.train_from_iterator(sys.stdin.read().splitlines(), trainer)
whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
whole.save_pretrained(sys.argv[1])
"""


# --- token numbers ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained_on_text(start_nemo: Start, text_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("on_text")
    return finish(start_nemo(place, NEMO, LLAMA3, f"--data={text_dataset}", "--steps=30"), place)


def test_a_model_learns_the_text_of_a_dataset(trained_on_text: Run, nemo_pretrain: Run) -> None:
    run = trained_on_text
    assert run.code == 0, run.err
    assert run.result["status"] == "valid"
    assert run.losses[-1] < run.losses[0] / 2
    assert run.losses[0] != pytest.approx(nemo_pretrain.losses[0], abs=1e-6), "other tokens than the mock ones"
    assert verify(str(run.folder)).returncode == 0


def test_a_run_on_text_says_which_and_leaves_it_as_it_was(trained_on_text: Run, text_dataset: Path) -> None:
    assert not [note for note in trained_on_text.result["notes"] if "mock" in note]
    assert json.loads((trained_on_text.folder / "benchmark.json").read_text())["data"] == str(text_dataset)
    assert {path.name for path in text_dataset.iterdir()} == {"a.bin", "a.idx", "b.bin", "b.idx", "tokenizer.json"}


# --- questions and answers --------------------------------------------------------------------


def question(number: int) -> dict[str, str]:
    city = f"city {number % 40}"
    asked = f"Context: The {city} has {number * 7 % 100} towers. Question: how many has {city}? Answer:"
    return {"input": asked, "output": str(number * 7 % 100)}


@pytest.fixture(scope="module")
def questions(nemo_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as SQuAD's would be: short questions about what is said before them."""
    folder = tmp_path_factory.mktemp("questions")
    chance = random.Random(1)
    for name, count in (("training", 200), ("validation", 20), ("test", 20)):
        lines = [json.dumps(question(chance.randrange(1000))) for _ in range(count)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    make_tokenizer(nemo_python, folder, 500)
    return folder


def make_tokenizer(nemo_python: Path, folder: Path, vocabulary: int) -> None:
    done = subprocess.run(
        [str(nemo_python), "-P", "-c", MAKE_TOKENIZER, str(folder / "tokenizer"), str(vocabulary)],
        input=(folder / "training.jsonl").read_text(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "tokenizer/tokenizer.json").is_file()


@pytest.fixture(scope="module")
def tuned(start_nemo: Start, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("tuned")
    flags = (LORA, f"--data={questions}", "--set=sequence_length=64", "--steps=30")
    return finish(start_nemo(place, NEMO, LLAMA3, *flags), place)


def test_adapters_learn_questions_and_answers(tuned: Run) -> None:
    assert tuned.code == 0, tuned.err
    assert tuned.result["status"] == "valid"
    assert {step["tokens"] for step in tuned.steps} == {2 * 64}
    assert min(tuned.losses[-5:]) < tuned.losses[0] - 0.1
    assert (tuned.result["parameters"], tuned.result["trainable_parameters"]) == (453_248, 26_624)
    assert not [note for note in tuned.result["notes"] if "mock" in note]
    assert verify(str(tuned.folder)).returncode == 0
