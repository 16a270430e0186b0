"""Plain English in docs, messages, help, docstrings, comments and names: a count per file that may only fall.

english_patterns.tsv holds each pattern with its replacement, and english_counts.tsv the hits that a file still has.
`python -m tests.test_english PATH...` lists hits; with `--lower` it writes lower counts after a file has improved.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("benchmarks", "jax_backend", "nemo_backend", "launch", "configs")
PATTERNS = Path(__file__).with_name("english_patterns.tsv")
COUNTS = Path(__file__).with_name("english_counts.tsv")
FAMILIES = ("docs", "messages", "comments", "names")

LONGEST_SENTENCE = 30
# Accounts of dated measurements quote screens and are not edited later: patterns count there, lengths do not.
ANY_LENGTH = ("docs/measurements/",)
BANNED_WORDS = {"told", "said", "beside"}
BANNED_FUNCTIONS = {
    "about", "again", "alike", "alone", "behind", "enough", "found", "here", "how", "never", "nothing", "odd", "once",
    "ours", "own", "some", "sure", "there", "under", "what", "who", "why", "without", "wrong",
}  # fmt: skip
PARTICIPLE = re.compile(
    r"_?(?:[A-Z][a-z]+(?<!Spe)(?<!Fe)(?<!Ne)(?<!Se)ed|Done|Drawn|Found|Held|Kept|Known|Left|Made|Meant|Said|Seen|Sent|"
    r"Shown|Told|Written)"
)
# (file, words of a hit, exactly as in the text) -> why it stays.
EXCEPTIONS: dict[tuple[str, str], str] = {}


class Hit(NamedTuple):
    path: str
    line: int
    family: str
    words: str
    instead: str


class Text(NamedTuple):
    line: int
    family: str
    text: str


@cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    rows = [line.split("\t") for line in PATTERNS.read_text(encoding="utf-8").splitlines()]
    return [(re.compile(pattern), instead) for pattern, instead in rows]


def hits_of(path: Path) -> Iterator[Hit]:
    """Every hit of a file that no exception covers."""
    name = path.relative_to(ROOT).as_posix()
    for line, family, text in READERS[path.suffix](name, path.read_text(encoding="utf-8")):
        if family == "names":
            found = [(text, "a noun or a verb phrase")]
        else:
            found = [(match[0], instead) for pattern, instead in patterns() for match in pattern.finditer(text)]
        if family == "docs" and not name.startswith(ANY_LENGTH):
            found += lengths(text)
        yield from (Hit(name, line, family, *hit) for hit in found if (name, hit[0]) not in EXCEPTIONS)


def lengths(paragraph: str) -> Iterator[tuple[str, str]]:
    """Sentences that are too long, and more than one semicolon."""
    for sentence in re.split(r"(?<=[.!?:])[)*_]* +(?=[A-Z`\"(*\[])", paragraph):
        words = re.findall(r"\S*\w\S*", sentence)
        if len(words) > LONGEST_SENTENCE:
            yield " ".join(words[:5]) + " ...", f"{len(words)} words: at most {LONGEST_SENTENCE}"
    if paragraph.count(";") > 1:
        yield paragraph[:40] + " ...", "at most one semicolon in a paragraph"


# --- the texts of a file -------------------------------------------------------------------------


def documents(_: str, source: str) -> Iterator[Text]:
    """The paragraphs, list items and cells of a page, without its code."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    source = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->|<[^>\n]+>", blank, source)
    source = re.sub(r"(?s)(`+)[^\n].*?\1", lambda match: "`x`" + blank(match), source)
    source = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", source)
    for line, block in blocks(source.splitlines(), starts=r"[-*] |\d+\. |#+ |\|"):
        for cell in block.split("|") if block.startswith("|") else [block]:
            yield Text(line, "docs", re.sub(r"^(?:[-*]|\d+\.|#+|>) ", "", cell.strip()))


def python(name: str, source: str) -> Iterator[Text]:
    """Docstrings, comments and wrong names, and messages if the file is part of the product."""
    nodes = list(ast.walk(ast.parse(source)))
    no_messages: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0].value  # type: ignore[attr-defined]
            no_messages.add(id(text))
            shown = isinstance(node, ast.Module) and re.fullmatch(r"launch/\w+\.py", name)  # printed by --help
            for line, block in blocks(text.value.splitlines()):
                yield Text(text.lineno + line - 1, "messages" if shown else "comments", block)
    yield from comments(source)
    if name.startswith(PRODUCT):
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                no_messages.update(map(id, node.values))
                parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
                yield from message(node.lineno, "".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in no_messages:
                yield from message(node.lineno, node.value)
    yield from names(nodes)


def comments(source: str) -> Iterator[Text]:
    """The comments of a Python file; those of consecutive lines are one text."""
    lines: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string.lstrip("#: ")
    yield from (Text(line, "comments", text) for line, text in blocks(lines))


def message(line: int, text: str) -> Iterator[Text]:
    if len(re.findall(r"(?<!\S)[(\"'`]?[A-Za-z][a-z']*\b", text)) >= 3:
        yield from (Text(line + number - 1, "messages", block) for number, block in blocks(text.splitlines()))


def template(_: str, source: str) -> Iterator[Text]:
    source = re.sub(r"(?s)\{[{%#].*?[}%#]\}|<[^>]*>", lambda match: "x" + "\n" * match[0].count("\n"), source)
    yield from (Text(line, "messages", text) for line, text in blocks(source.splitlines()))


def data(_: str, source: str) -> Iterator[Text]:
    """The texts of a YAML file, and its comments."""
    waiting = [yaml.compose(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            yield from message(node.start_mark.line + 1, node.value)
        elif node is not None:
            waiting += (part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,)))
    yield from settings("", source)


def settings(_: str, source: str) -> Iterator[Text]:
    """The comments of a YAML file, a shell script, the Makefile or a list of requirements."""
    found = {
        number: match[1]
        for number, line in enumerate(source.splitlines(), 1)
        if (match := re.search(r"(?:^|\s)#+ (.*)", line))
    }
    yield from (Text(line, "comments", text) for line, text in blocks(found))


def blocks(lines: list[str] | dict[int, str], starts: str = r"\Z") -> Iterator[tuple[int, str]]:
    """Consecutive lines as one text, with the number of its first; an empty line or a `starts` begins another."""
    numbered = lines if isinstance(lines, dict) else dict(enumerate(lines, 1))
    first, words = 0, [""]
    for (before, _), (number, line) in pairwise([(-1, ""), *numbered.items(), (0, "")]):
        if not line.strip() or number != before + 1 or re.match(starts, line.strip()):
            if any(words):
                yield first, " ".join(words).strip()
            first, words = number, []
        words.append(line.strip())


READERS = {
    ".md": documents, ".py": python, ".j2": template, ".yml": data, ".sh": settings, ".in": settings, "": settings,
    ".toml": settings, ".cfg": settings,
}  # fmt: skip


def names(nodes: list[ast.AST]) -> Iterator[Text]:
    """Banned names that a file defines, each with its first line."""
    given: dict[str, int] = {}
    for node in nodes:
        name, is_wrong = "", False
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, is_wrong = node.name, node.name.strip("_") in BANNED_FUNCTIONS
        elif isinstance(node, ast.ClassDef):
            name, is_wrong = node.name, bool(PARTICIPLE.fullmatch(node.name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        if is_wrong or BANNED_WORDS & set(name.lower().split("_")):
            given[name] = min(node.lineno, given.get(name, node.lineno))  # type: ignore[attr-defined]
    yield from (Text(line, "names", name) for name, line in given.items())


# --- the counts ------------------------------------------------------------------------------------


def files() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    found += (path for folder in PRODUCT for end in READERS if end for path in (ROOT / folder).rglob(f"*{end}"))
    found += (ROOT / name for name in ("Makefile", "Dockerfile", "action.yml", "setup.cfg", "pyproject.toml"))
    found += (ROOT / "docs").glob("*.py")
    return sorted(set(found))


def counted(hits: Iterable[Hit]) -> Counter[tuple[str, str]]:
    return Counter((hit.path, hit.family) for hit in hits)


def allowed() -> Counter[tuple[str, str]]:
    rows = (line.split("\t") for line in COUNTS.read_text(encoding="utf-8").splitlines())
    return Counter({(path, family): int(count) for path, family, count in rows})


def write_counts(counts: Counter[tuple[str, str]]) -> None:
    rows = (f"{path}\t{family}\t{count}\n" for (path, family), count in sorted(counts.items()) if count)
    COUNTS.write_text("".join(rows), encoding="utf-8")


def shown(hits: Iterable[Hit]) -> str:
    return "\n".join(f"{hit.path}:{hit.line}: {hit.family}: '{hit.words}' -> {hit.instead}" for hit in hits)


def test_no_file_has_more_hits_than_before_and_a_better_file_keeps_its_gain() -> None:
    hits = [hit for path in files() for hit in hits_of(path)]
    now, before = counted(hits), allowed()
    more = {key for key, count in now.items() if count > before[key]}
    assert not more, "\n" + shown(hit for hit in hits if (hit.path, hit.family) in more)
    fewer = [path for (path, family), count in before.items() if count > now[path, family]]
    assert not fewer, "keep the gain: python -m tests.test_english --lower"


@pytest.mark.parametrize("text", ["# It is no GPU.", '"""Of a run, the log."""', "said = 1", "class Told: ..."])
def test_a_planted_hit_is_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "planted.py").write_text(text, encoding="utf-8")
    assert len(list(hits_of(tmp_path / "planted.py"))) == 1


def test_code_and_short_strings_are_no_prose() -> None:
    page = "Run this:\n```\nsaid; told; whatever\n```\nA `beside` and [a link](beside.md)."
    assert [text.text for text in documents("x.md", page)] == ["Run this:", "A `x` and a link."]
    assert list(python("launch/x.py", 'a = "told"')) == []
    assert [text.text for text in python("launch/x/y.py", 'a = f"{b} is beside {c}"')] == ["x is beside x"]


if __name__ == "__main__":
    every = [hit for path in files() for hit in hits_of(path)]
    if "--lower" in sys.argv:
        current, kept = counted(every), allowed() if COUNTS.exists() else counted(every)
        write_counts(Counter({key: min(count, current[key]) for key, count in kept.items()}))
    elif sys.argv[1:]:
        print(shown(hit for hit in every if hit.path.startswith(tuple(sys.argv[1:]))))
    else:
        for name in FAMILIES:
            print(f"{sum(hit.family == name for hit in every):7,}  {name}")
