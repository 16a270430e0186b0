"""Reads NVIDIA's config_*.sh: `export NAME=VALUE` lines, the files they source, and their arithmetic. Nothing is
executed: what is more than that (a command, a condition) is named and left out. Pure; files come from a caller.
"""

import ast
import re
from collections.abc import Callable, Mapping

from benchmarks.values import Value

MOST_SOURCES = 20
NOT_BESIDE = "is not beside the configuration"
LARGEST_NUMBER = 2**63 - 1
SHOWN = 200  # letters of what is no arithmetic
LONGEST_VALUE = 1 << 16  # letters; a value that is made from itself grows without end
DEEPEST = 50  # expansions within each other

_EXPORT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_DEFAULT_LINE = re.compile(r"\s*:\s+\"?(\$\{[A-Za-z_]\w*:?=.*\})\"?\s*$")
_SOURCE = re.compile(r"\s*(?:source|\.)\s+(.+?)\s*$")
_UNSET = re.compile(r"\s*unset\s+(.+)$")
_IGNORED = re.compile(r"\s*(?:#.*|set\s+[-+]\S+.*|)$")
_BRACED = re.compile(r"([A-Za-z_]\w*)(?:(:?[-=+?])(.*))?$", re.DOTALL)
_BESIDE = re.compile(r"\$\(\s*dirname\s+\"?\$\{BASH_SOURCE\[\d\]\}\"?\s*\)/")
_OPENS = re.compile(r"\s*(?:if|for|while|until|case)\b|.*\(\)\s*\{|\s*function\b")
_CLOSES = re.compile(r"\s*(?:fi|done|esac)\b|\s*\}\s*$")
_TOKEN = re.compile(
    r"'(?P<single>[^']*)'|\\(?P<escaped>.)|(?P<double>\")|(?P<command>`|\$\((?!\())|(?P<sum>\$\(\()|(?P<braced>\$\{)"
    r"|\$(?P<name>[A-Za-z_]\w*)|(?P<special>\$[\d'?$@*#!-])|(?P<other>.)",
    re.DOTALL,
)
# What a line that is left out may set all the same.
_MAY_SET = re.compile(
    r"(?<![\w$./+-])(?:read\s+(?:-\w+\s+)*|printf\s+-v\s+)?([A-Za-z_]\w*)(?:\[[^]]*\])?(?:[-+*/%]?=(?!=)|\+\+|--)"
    r"|\b(?:read\s+(?:-\w+\s+)*|printf\s+-v\s*|(?:export|declare|typeset)\s+[-+]\w+\s+)([A-Za-z_]\w*)"
)
_HEREDOC = re.compile(r"(?<!<)<<(-?)\s*[\"'\\]?([A-Za-z_]\w*)")
_INSIDE = re.compile(r"\s*(?:then|else|elif|do)\b\s*")


class Unread(Value, frozen=True):
    """A line that was left out, and why."""

    file: str
    line: int
    why: str
    text: str


class ShellConfig(Value, frozen=True):
    """What a configuration exports, in the end."""

    variables: dict[str, str]
    unknown: dict[str, str]  # a variable whose value only a shell knows -> why
    unread: list[Unread]
    files: list[str]  # that were read, in order


ReadFile = Callable[[str], str | None]  # a file's name -> its text; None: it is not there


class CannotKnow(Exception):
    """A value that only a shell that executes the file would know."""


class AssignmentNotKnown(CannotKnow):
    """Of a line whose names are all known, and each of which has been dealt with."""


def read(name: str, text: str, beside: ReadFile, given: Mapping[str, str]) -> ShellConfig:
    """A configuration's exports; `beside` reads what it sources, by the name alone; `given` is set before."""
    reader = _Reader(beside, dict(given))
    reader.read(name, text)
    own = {key: value for key, value in reader.variables.items() if given.get(key) != value or key in reader.seen}
    return ShellConfig(variables=own, unknown=reader.unknown, unread=reader.unread, files=reader.files)


class _Reader:
    def __init__(self, beside: ReadFile, variables: dict[str, str]) -> None:
        self._beside = beside
        self.variables = variables
        self.seen: set[str] = set()
        self.unknown: dict[str, str] = {}
        self.unread: list[Unread] = []
        self.files: list[str] = []
        self._depth = 0  # of conditions and loops around a line
        self._deep = 0  # in expansions within each other

    def read(self, name: str, text: str) -> None:
        self.files.append(name)
        for number, line in _logical_lines(text):
            self._deep = 0
            try:
                self._line(line)
            except CannotKnow as why:
                self.unread.append(Unread(file=name, line=number, why=str(why), text=line.strip()))
                if not isinstance(why, AssignmentNotKnown):
                    self._forget(line)

    def _line(self, line: str) -> None:
        if _IGNORED.fullmatch(line):
            return
        if self._in_block(line):
            raise CannotKnow("in a condition or a loop: only a shell knows what becomes of it")
        if found := _SOURCE.fullmatch(line):
            self._source(found[1])
        elif found := _DEFAULT_LINE.fullmatch(line):
            self._value(found[1])
        elif found := _UNSET.fullmatch(line):
            for name in found[1].split("#")[0].strip(" ;").split():
                self.variables.pop(name, None)
                self.unknown.pop(name, None)
        elif found := _EXPORT.fullmatch(line):
            self._exports(found[1], found[2])
        else:
            raise CannotKnow("a command: nothing is executed")

    def _in_block(self, line: str) -> bool:
        inside = self._depth > 0
        if _OPENS.match(line):
            self._depth += 1
        elif _CLOSES.match(line):
            self._depth = max(0, self._depth - 1)
        return inside or self._depth > 0

    def _forget(self, line: str) -> None:
        """What a line that was left out may set is not known any more."""
        for found in _MAY_SET.finditer(line):
            name = found[1] or found[2]
            self.variables.pop(name, None)
            self.unknown.setdefault(name, f"it may be set by: {line.strip()[:80]}")

    def _exports(self, name: str, text: str) -> None:
        """`A=1 B=2` are two; all of them are looked at, whatever becomes of the first."""
        word, rest = _first_word(text)
        further = _EXPORT.fullmatch(rest) if rest else None
        if rest and not further:
            raise CannotKnow("a command with variables of its own: nothing is executed")
        why_not = None
        try:
            self._export(name, word)
        except CannotKnow as why:
            why_not = why
        if further:
            self._exports(further[1], further[2])
        if why_not:
            raise AssignmentNotKnown(str(why_not))

    def _export(self, name: str, word: str) -> None:
        self.seen.add(name)
        try:
            if word.startswith("("):
                raise CannotKnow("an array: only a shell knows it")
            self.variables[name] = self._value(word)
            self.unknown.pop(name, None)
        except CannotKnow as why:
            self.variables.pop(name, None)
            self.unknown[name] = str(why)
            raise

    def _source(self, word: str) -> None:
        path = self._value(_BESIDE.sub("", word.strip("\"'")))
        name = path.rpartition("/")[2]
        if len(self.files) >= MOST_SOURCES:
            raise CannotKnow(f"more than {MOST_SOURCES} files source each other")
        text = self._beside(name)
        if text is None:
            raise CannotKnow(f"{name} {NOT_BESIDE}: what it sets is not known")
        self.read(name, text)

    def _value(self, text: str) -> str:
        """A word as bash would expand it, as far as no command is needed."""
        out: list[str] = []
        at, quoted = 0, False
        self._deep += 1
        if self._deep > DEEPEST:
            raise CannotKnow(f"more than {DEEPEST} expansions within each other")
        while found := _TOKEN.match(text, at):
            at = found.end()
            if found.lastgroup == "single" and quoted:  # between double quotes it is a letter like others
                out.append("'")
                at = found.start() + 1
            elif found.lastgroup == "double":
                quoted = not quoted
            elif found.lastgroup in ("sum", "braced"):
                piece, at = self._expansion(text, found)
                out.append(piece)
            else:
                out.append(self._plain(found))
        self._deep -= 1
        value = "".join(out)
        if len(value) > LONGEST_VALUE:
            raise CannotKnow(f"a value of more than {LONGEST_VALUE} letters")
        return value

    def _plain(self, found: "re.Match[str]") -> str:
        if found["command"]:
            raise CannotKnow("a command gives its value: nothing is executed")
        if found["name"]:
            return self._variable(found["name"])
        if found["special"]:
            raise CannotKnow(f"{found['special']}: only a shell knows it")
        return next(text for text in (found["single"], found["escaped"], found["other"]) if text is not None)

    def _expansion(self, text: str, found: "re.Match[str]") -> tuple[str, int]:
        """What `$((...))` or `${...}` stands for, and the place after it."""
        opening = found.start() + 1
        if found.lastgroup == "sum":
            end = _closing(text, opening, "(", ")")
            return str(self._arithmetic(text[opening + 2 : end - 1])), end + 1
        end = _closing(text, opening, "{", "}")
        return self._braced(text[opening + 1 : end]), end + 1

    def _braced(self, text: str) -> str:
        found = _BRACED.fullmatch(text)
        if found is None:
            raise CannotKnow(f"${{{text}}}: only a shell knows it")
        name, operator, rest = found[1], found[2] or "", found[3] or ""
        if name in self.unknown:
            raise CannotKnow(f"it is made from {name}, which is not known")
        there = name in self.variables and (":" not in operator or self.variables[name] != "")
        if not operator:
            return self._variable(name)
        kind = operator[-1]
        if kind == "+":
            return self._value(rest) if there else ""
        if there:
            return self.variables[name]
        if kind == "?":
            raise CannotKnow(f"{name} must be set before")
        value = self._value(rest)
        if kind == "=":
            self.variables[name] = value
            self.seen.add(name)
        return value

    def _variable(self, name: str) -> str:
        if name in self.unknown:
            raise CannotKnow(f"it is made from {name}, which is not known")
        return self.variables.get(name, "")

    def _arithmetic(self, text: str) -> int:
        """Whole numbers with + - * / % and brackets, as bash computes: a division cuts towards zero."""
        expanded = re.sub(r"(?<![\w$])[A-Za-z_]\w*", lambda found: self._variable(found[0]) or "0", self._value(text))
        try:
            number = _compute(ast.parse(expanded.strip(), mode="eval").body)
            if abs(number) > LARGEST_NUMBER:
                raise ValueError("more than a shell's 64 bits")
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as error:
            shown = f"$(({text.strip()[:SHOWN]})) is {expanded.strip()[:SHOWN]}"
            raise CannotKnow(f"{shown}: {error or 'no arithmetic'}") from None
        return number


def _quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _quotient,
    ast.Mod: lambda left, right: left - right * _quotient(left, right),
}


def _compute(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _compute(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_compute(node.left), _compute(node.right))
    raise ValueError("more than whole numbers with + - * / % and brackets")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines as bash joins them: a backslash at the end continues one. `a; b` are two."""
    found: list[tuple[int, str]] = []
    joined, first = "", 0
    ends: list[tuple[str, bool]] = []  # of here-documents: their words, and whether blanks may stand before them
    for number, line in enumerate(text.splitlines(), start=1):
        if ends:
            word, indented = ends[0]
            if (line.lstrip("\t") if indented else line) == word:
                ends.pop(0)
            continue
        first = first or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        if _open_quote(joined + line):
            joined += line + "\n"
            continue
        parts = _split_commands(joined + line)
        ends = [(word, bool(dash)) for part in parts for dash, word in _HEREDOC.findall(part) if "((" not in part]
        found += [(first, part) for part in parts]
        joined, first = "", 0
    return [*found, (first, joined)] if joined else found


def _open_quote(text: str) -> bool:
    """Whether a quotation goes on in the next line."""
    quote, skip, before = "", False, " "
    for character in text:
        if skip:
            skip = False
        elif character == "\\" and quote != "'":
            skip = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and before.isspace():
            return False
        before = character
    return bool(quote)


def _split_commands(line: str) -> list[str]:
    parts: list[str] = []
    depth, quote, start = 0, "", 0
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "({":
            depth += 1
        elif character in ")}":
            depth -= 1
        elif character == "#" and depth == 0 and (at == 0 or line[at - 1].isspace()):
            return [*parts, line[start:at]]
        elif character == ";" and depth == 0:
            parts.append(line[start:at])
            start = at + 1
    return [*parts, line[start:]]


def _first_word(text: str) -> tuple[str, str]:
    """The word that is assigned, and what follows it after a blank."""
    depth, quote = 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character in "({":
            depth += 1
        elif character in ")}":
            depth -= 1
        elif character.isspace() and depth <= 0:
            return text[:at], text[at:].strip()
    return text, ""


def _closing(text: str, at: int, opening: str, closing: str) -> int:
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
    raise CannotKnow(f"a '{opening}' that nothing closes")
