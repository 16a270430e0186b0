"""Reads NVIDIA's config_*.sh: plain `export NAME=VALUE` lines, and the files beside it that it sources.

Any other line is named and not interpreted; what it mentions is unknown from there on. Pure: a caller reads files.
"""

import ast
import math
import operator
import re
from collections.abc import Callable

from benchmarks.values import Value

MOST_FILES = 20
LONGEST_VALUE = 1 << 16  # a value that is made from itself grows without end
NOT_PLAIN = "no plain export NAME=VALUE"
NOT_SOURCED = "a file that it sources was not read"

_NAME = r"[A-Za-z_]\w*"
_REFERENCE = rf"\$(?:{_NAME}|\{{{_NAME}(?::-(?:\"[^\"$`\\]*\"|[^{{}}\"'$`\\\s]*))?\}})"
_WORD = rf"(?:'[^']*'|\"(?:{_REFERENCE}|[^\"$`\\])*\"|{_REFERENCE}|[^\s'\"$`\\;&|<>(){{}}~])*"
_SUM = r"\$\(\(([^'\"`;&|<>#]{1,200}?)\)\)"
_EXPORT = re.compile(rf"export\s+({_NAME})=(?:{_SUM}|({_WORD}))(?:\s*;\s*(?:#.*)?|\s+#.*|$)")
_PIECE = re.compile(rf"'([^']*)'|\"((?:{_REFERENCE}|[^\"])*)\"|((?:{_REFERENCE}|[^'\"])+)")
_PARTS = re.compile(rf"\$(?:({_NAME})|\{{({_NAME})(?::-(.*?))?\}})")
_SOURCE = re.compile(
    r"(?:source|\.)\s+(?:\$\(dirname \"?\$\{BASH_SOURCE\[0\]\}\"?\)/|\./)?\"?([\w.+-]+)\"?\s*;?\s*(?:#.*)?"
)
_SOURCES = re.compile(r"(?:^|[;&|({]|\bthen\b|\bdo\b|\belse\b)\s*(?:source|\.)\s")
_MENTIONED = re.compile(rf"(?<![\w$])(?<!\$\{{){_NAME}|(?<=\$\{{){_NAME}(?=:?=)")
_OPENS = re.compile(r"(?:^|;)\s*(?:if|for|while|until|case|select)\b|[({]\s*$")
_CLOSES = re.compile(r"(?:^|;)\s*(?:(?:fi|done|esac)\b|[)}])")
_HERE = re.compile(r"(?<!<)<<(?!<)")
_COMMENT = re.compile(r"(?:^|\s)#.*")


class Unread(Value, frozen=True):
    """A line that was not read, and why."""

    file: str
    line: int
    why: str
    text: str


ReadFile = Callable[[str], str | None]  # a file's name -> its text; None: it is not there


class _CannotRead(Exception):
    """Why a line cannot be read."""


def read(name: str, text: str, beside: ReadFile) -> "ShellConfig":
    """A configuration's exports; `beside` reads what it sources, by the name alone."""
    found = ShellConfig(beside)
    found.read(name, text)
    return found


class ShellConfig:
    """What a configuration exports, in the end."""

    def __init__(self, beside: ReadFile) -> None:
        self._beside = beside
        self.variables: dict[str, str] = {}
        self.unknown: dict[str, str] = {}  # every name that an unread line may have set -> that line
        self.unread: list[Unread] = []
        self._files = 0  # that were read
        self._depth = 0.0  # of the unread blocks around a line; infinite where their end cannot be told

    def read(self, name: str, text: str) -> None:
        self._files += 1
        continued = False
        for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
            if not line or line.startswith("#"):
                continued = False
                continue
            try:
                self._line(line, alone=not self._depth and not continued)
            except _CannotRead as why:
                self.unread.append(Unread(file=name, line=number, why=str(why), text=line))
                self._leave_out(line, f"{name}:{number}")
            continued = line.endswith("\\")

    def _line(self, line: str, *, alone: bool) -> None:
        """`alone`: it is no part of a command of several lines."""
        if not alone:
            raise _CannotRead(NOT_SOURCED if _SOURCES.search(line) else "part of a command of several lines")
        if found := _SOURCE.fullmatch(line):
            self._source(found[1])
            return
        exports, at = [], 0
        while found := _EXPORT.match(line, at):
            exports.append(found)
            at = found.end()
        if at < len(line):
            raise _CannotRead(NOT_SOURCED if _SOURCES.search(line) else NOT_PLAIN)
        for name, total, word in (found.groups() for found in exports):
            self.variables[name] = self._word(word) if total is None else self._total(total)
            self.unknown.pop(name, None)

    def _source(self, name: str) -> None:
        text = self._beside(name) if self._files < MOST_FILES else None
        if text is None:
            raise _CannotRead(f"{NOT_SOURCED}: {name} is not in the same folder, or sources itself")
        self.read(name, text)

    def _leave_out(self, line: str, where: str) -> None:
        for name in _MENTIONED.findall(line):
            self.variables.pop(name, None)
            self.unknown[name] = f"{where} mentions it: {line[:80]}"
        command = _COMMENT.sub("", line)
        if _HERE.search(command) or command.count("'") % 2 or command.count('"') % 2:
            self._depth = math.inf  # a here-document, or a quotation that goes on
        self._depth = max(0, self._depth + len(_OPENS.findall(command)) - len(_CLOSES.findall(command)))

    # --- values -----------------------------------------------------------------------------------

    def _word(self, text: str) -> str:
        pieces = (found.groups() for found in _PIECE.finditer(text))
        value = "".join(
            self._filled(quoted or bare or "") if literal is None else literal for literal, quoted, bare in pieces
        )
        if len(value) > LONGEST_VALUE:
            raise _CannotRead(f"a value of more than {LONGEST_VALUE} letters")
        return value

    def _filled(self, text: str) -> str:
        return _PARTS.sub(lambda found: self._variable(found[1] or found[2], found[3]), text)

    def _variable(self, name: str, default: str | None = None) -> str:
        if name in self.unknown or (default is None and name not in self.variables):
            raise _CannotRead(f"made from {name}, which is not known")
        return self.variables.get(name) or (default or "").strip('"')

    def _total(self, text: str) -> str:
        try:
            total = self._computed(ast.parse(self._filled(text).strip(), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            raise _CannotRead("no sum of whole numbers, with + - * / alone") from None
        return str(total)

    def _computed(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                return number
            case ast.Name(id=name):
                return int(self._variable(name))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATIONS:
                number = _OPERATIONS[type(sign)](self._computed(left), self._computed(right))
                if 0 <= number < 2**63:
                    return number
        raise ValueError


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # of whole numbers that are not negative, as bash has it
}
