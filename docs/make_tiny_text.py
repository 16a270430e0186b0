"""Makes configs/mlperf/tiny_text: a small real text, as tokens, that tiny models train on until they know it.

.venv/bin/python docs/make_tiny_text.py

The text is that of Python's own help (pydoc_data.topics of the Python that runs this), one document a topic. Every
tenth piece is kept for evaluation, and none of it is trained on. launch/setup.py trains a byte-level BPE tokenizer of
512 tokens on the training text and writes both parts in Megatron's format, which MaxText and NeMo read.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "configs" / "mlperf" / "tiny_text"
VOCABULARY = 512  # of llama2_tiny and llama3_tiny
PIECE_CHARACTERS = 4000  # cut between paragraphs: some topics are fifteen times as long
EVALUATED = 10  # every tenth piece


def pieces(text: str) -> list[str]:
    """A topic in parts of some thousand characters, each of whole paragraphs."""
    found = [""]
    for paragraph in re.split(r"\n{2,}", text.strip()):
        if found[-1] and len(found[-1]) + len(paragraph) > PIECE_CHARACTERS:
            found.append("")
        found[-1] += ("\n\n" if found[-1] else "") + paragraph
    return found


def dataset(name: str, documents: list[str], tokenizer: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / f"{name}.jsonl"
        text.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
        command = [sys.executable, str(REPOSITORY / "launch" / "setup.py"), "--backend=nemo", "--dataset"]
        out = [f"--text={text}", f"--out={FOLDER / name}", f"--name={name}"]
        subprocess.run([*command, "--shards=1", *out, *tokenizer], check=True)


def main() -> None:
    every = [piece for name in sorted(topics) for piece in pieces(topics[name])]
    evaluated = every[EVALUATED - 1 :: EVALUATED]
    trained = [piece for at, piece in enumerate(every) if at % EVALUATED != EVALUATED - 1]
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    dataset("train", trained, [f"--vocabulary_size={VOCABULARY}"])
    dataset("validation", evaluated, [f"--tokenizer={FOLDER / 'train' / 'tokenizer.json'}"])


if __name__ == "__main__":
    main()
