"""`next:` is a command that can be pasted: a program's name first, or only flags, which the launcher completes.

Literal values are found without running anything: names are followed to what their module assigns to them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "cat", "chmod", "cp", "df", "export", "git", "grep", "ls", "make", "mkdir", "nsys", "python", "python3", "rm",
    "sacct", "sbatch", "scontrol", "sinfo", "ss", "stepmark", "sudo", "tail", "unset",
}  # fmt: skip
FLAG = r"--\w*(?:=(?:'[^']*'|\"[^\"]*\"|\S*))?"
FLAGS = re.compile(rf"{FLAG}(?: (?:{FLAG}|x))*")
# Words of a sentence: a command that continues in prose, or leaves a choice to the reader.
PROSE = re.compile(r", |; or |\bor --|<\w| {2,}(?!#)|\b(?:shows|with the|makes|another|which)\b")
# A literal -> why it is not a command to run as it is.
EXCEPTIONS = {
    "python tools/preprocess_data.py --input=FILE.jsonl --output-prefix={}/NAME --append-eod"
    " --tokenizer-type=HuggingFaceTokenizer --tokenizer-model=FOLDER": "only the user knows the files",
}


def values_of(node: ast.expr, named: dict[str, list[ast.expr]], depth: int = 0) -> Iterator[str]:
    """The texts that an expression may have, with `{}` for the value that is only known when it runs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(_part(one, named) for one in node.values)
    elif isinstance(node, ast.IfExp):
        yield from (text for one in (node.body, node.orelse) for text in values_of(one, named, depth))
    elif isinstance(node, ast.BoolOp):
        yield from (text for one in node.values for text in values_of(one, named, depth))
    elif isinstance(node, ast.Name) and depth < 2:
        yield from (text for one in named[node.id] for text in values_of(one, named, depth + 1))


def _part(node: ast.expr, named: dict[str, list[ast.expr]]) -> str:
    if isinstance(node, ast.FormattedValue):
        known = named[node.value.id] if isinstance(node.value, ast.Name) else []
        return next((one.value for one in known if isinstance(one, ast.Constant)), "{}")  # type: ignore[return-value]
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and value of every literal next_command."""
    nodes = list(ast.walk(ast.parse(source)))
    named: dict[str, list[ast.expr]] = defaultdict(list)
    for node in nodes:
        for target in node.targets if isinstance(node, ast.Assign) else []:
            pairs = [(target, node.value)]  # type: ignore[attr-defined]
            if isinstance(target, ast.Tuple) and isinstance(pairs[0][1], ast.Tuple):
                pairs = list(zip(target.elts, pairs[0][1].elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    named[name.id].append(value)
    for node in nodes:
        for keyword in node.keywords if isinstance(node, ast.Call) else []:
            if keyword.arg == "next_command":
                yield from ((keyword.value.lineno, text) for text in values_of(keyword.value, named))


def is_a_command(text: str) -> bool:
    text = re.sub(r"^\{\}(?==| )", "--x" if text.startswith("{}=") else "python", text)  # a flag, or a program
    text = re.sub(r"^[A-Z_]+=\S+ ", "", text.replace("{}", "x"))
    first = re.split("[ ;]", text)[0]
    return not PROSE.search(text) and bool(first in PROGRAMS or FLAGS.fullmatch(text))


def test_every_literal_next_is_a_command() -> None:
    found = []
    for folder in ("benchmarks", "jax_backend", "nemo_backend", "launch"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in literals(path.read_text(encoding="utf-8")):
                if text and text not in EXCEPTIONS and not is_a_command(text):
                    found.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("python launch/run.py --list", True),
        ("--set=a=1 --set=b --image=", True),
        ("--pattern='step {step} ... {seconds}s'", True),
        ("{} -m uv python install 3.12", True),
        ("leave --data out", False),
        ("--gpus=8, or fewer", False),
        ("python launch/status.py shows which", False),
        ("export HF_TOKEN=<your token>", False),
    ],
)
def test_what_a_command_is(text: str, good: bool) -> None:
    assert is_a_command(text) == good
