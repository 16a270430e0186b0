"""Reads NVIDIA's config_*.sh: `export NAME=VALUE` lines, the files they source, and their arithmetic. Nothing is
executed: what is more than that (a command, a condition) is named and left out. Pure; files come from a caller.
"""

import ast
import re
from collections.abc import Callable, Mapping

from benchmarks.values import Value

MOST_SOURCES = 20

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
    r"|\$(?P<name>[A-Za-z_]\w*)|(?P<other>.)",
    re.DOTALL,
)
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

    def read(self, name: str, text: str) -> None:
        self.files.append(name)
        for number, line in _logical_lines(text):
            try:
                self._line(line)
            except CannotKnow as why:
                self.unread.append(Unread(file=name, line=number, why=str(why), text=line.strip()))

    def _line(self, line: str) -> None:
        if _IGNORED.fullmatch(line):
            return
        if self._in_block(line):
            self._forget(line)
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
            self._export(found[1], found[2])
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
        """What a condition may set is not known any more."""
        if found := _EXPORT.fullmatch(_INSIDE.sub("", line, count=1)):
            self.variables.pop(found[1], None)
            self.unknown[found[1]] = "it is set in a condition or a loop"

    def _export(self, name: str, text: str) -> None:
        self.seen.add(name)
        try:
            self.variables[name] = self._value(_first_word(text))
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
            raise CannotKnow(f"{name} is not beside the configuration: what it sets is not known")
        self.read(name, text)

    def _value(self, text: str) -> str:
        """A word as bash would expand it, as far as no command is needed."""
        out: list[str] = []
        at, quoted = 0, False
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
        return "".join(out)

    def _plain(self, found: "re.Match[str]") -> str:
        if found["command"]:
            raise CannotKnow("a command gives its value: nothing is executed")
        if found["name"]:
            return self._variable(found["name"])
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
            return _compute(ast.parse(expanded.strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError) as error:
            raise CannotKnow(f"$(({text.strip()})) is {expanded.strip()}: {error or 'no arithmetic'}") from None


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
    for number, line in enumerate(text.splitlines(), start=1):
        first = first or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        found += [(first, part) for part in _split_commands(joined + line)]
        joined, first = "", 0
    return [*found, (first, joined)] if joined else found


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


def _first_word(text: str) -> str:
    """The word that is assigned; what follows it after a blank is another command's."""
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
            rest = text[at:].strip()
            if rest and not _EXPORT.fullmatch(rest):
                raise CannotKnow("a command with variables of its own: nothing is executed")
            return text[:at]
    return text


def _closing(text: str, at: int, opening: str, closing: str) -> int:
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
    raise CannotKnow(f"a '{opening}' that nothing closes")
