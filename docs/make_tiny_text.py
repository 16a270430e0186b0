"""Makes configs/mlperf/tiny_text and tiny_docstrings: small real texts, as tokens, for tiny models to learn.

.venv/bin/python docs/make_tiny_text.py

Both come from the Python that runs this. tiny_text is its help (pydoc_data.topics), on which models are pretrained;
tiny_docstrings are the docstrings of some of its modules, for adapters. Every tenth piece is kept for evaluation.
launch/setup.py trains a byte-level BPE tokenizer of 512 tokens on the help, and writes all parts in the format of
Megatron, which MaxText and NeMo read.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIGS = REPOSITORY / "configs" / "mlperf"
HELP, DOCSTRINGS = CONFIGS / "tiny_text", CONFIGS / "tiny_docstrings"
VOCABULARY = 512  # of llama3_tiny and llama2_text_tiny
PIECE_CHARACTERS = 4000  # cut between paragraphs: some topics are fifteen times as long
EVALUATED = 10  # every tenth piece
MODULES = (
    "argparse", "ast", "calendar", "codecs", "collections", "concurrent", "configparser", "ctypes", "datetime",
    "decimal", "difflib", "doctest", "email", "fractions", "ftplib", "heapq", "html", "http", "imaplib", "importlib",
    "inspect", "ipaddress", "json", "logging", "mailbox", "multiprocessing", "optparse", "os", "pathlib", "pickle",
    "random", "shutil", "smtplib", "socket", "sqlite3", "statistics", "string", "subprocess", "tarfile",
    "tempfile", "textwrap", "threading", "typing", "unittest", "urllib", "xml", "zipfile",
)  # fmt: skip


def pieces(text: str) -> list[str]:
    """A topic in parts of some thousand characters, each of whole paragraphs."""
    found = [""]
    for paragraph in re.split(r"\n{2,}", text.strip()):
        if found[-1] and len(found[-1]) + len(paragraph) > PIECE_CHARACTERS:
            found.append("")
        found[-1] += ("\n\n" if found[-1] else "") + paragraph
    return found


def docstrings(module: str) -> str:
    """All docstrings of a module or package, in the order of its files."""
    place = Path(sysconfig.get_path("stdlib")) / module
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    found = []
    for file in files:
        if "test" in file.parts or "tests" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.append(ast.get_docstring(node) or "")
    return "\n\n".join(text for text in found if text)


def dataset(folder: Path, name: str, documents: list[str], tokenizer: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / f"{name}.jsonl"
        text.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
        command = [sys.executable, str(REPOSITORY / "launch" / "setup.py"), "--backend=nemo", "--dataset"]
        out = [f"--text={text}", f"--out={folder / name}", f"--name={name}"]
        subprocess.run([*command, "--shards=1", *out, *tokenizer], check=True)


def in_two_parts(folder: Path, documents: list[str], tokenizer: list[str]) -> None:
    """What is trained on, and every tenth piece to evaluate with."""
    every = [piece for document in documents for piece in pieces(document)]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    trained = [piece for at, piece in enumerate(every) if at % EVALUATED != EVALUATED - 1]
    dataset(folder, "train", trained, tokenizer)
    known = [f"--tokenizer={HELP / 'train' / 'tokenizer.json'}"]
    dataset(folder, "validation", every[EVALUATED - 1 :: EVALUATED], known)


def main() -> None:
    in_two_parts(HELP, [topics[name] for name in sorted(topics)], [f"--vocabulary_size={VOCABULARY}"])
    in_two_parts(
        DOCSTRINGS, [docstrings(name) for name in MODULES], [f"--tokenizer={HELP / 'train' / 'tokenizer.json'}"]
    )


if __name__ == "__main__":
    main()
