"""Commands with several jobs: the first word names a subcommand, a module with its own flags and `main`.

`report runs` is launch/cli/report/runs.py. The first line of its docstring is its line in `report --help`.
"""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

from benchmarks.errors import RequestError, closest, nearest
from benchmarks.text import aligned
from launch.cli.command import Command, run_command, wants_help
from launch.terminal.output import text_alone

FOLDER = Path(__file__).parent
SCRIPTS = FOLDER.parent
COMMANDS = sorted(path.stem for path in SCRIPTS.glob("[a-z]*.py"))
HELP = "With --help after it, a subcommand shows its flags and examples."


class Subcommands(NamedTuple):
    command: str  # launch/NAME.py, with a folder of its name here
    names: tuple[str, ...]
    default: Callable[[list[str]], str]  # the subcommand of arguments that name none

    def run(self) -> NoReturn:
        run_command(lambda: self.chosen(f"python {sys.argv[0]}", sys.argv[1:]))

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"launch.cli.{self.command}.{name}")

    def chosen(self, typed: str, arguments: list[str]) -> Command:
        if not arguments or arguments[0] not in self.names:
            if wants_help(arguments):
                text_alone(self._help())
                sys.exit(0)
            self._refuse_misspelt(typed, arguments)
            arguments = [self.default(arguments), *arguments]
        module = self.module(arguments[0])
        words = getattr(module, "as_words", list)(arguments[1:])
        return Command(module.main, module, f"{typed} {arguments[0]}", words)

    def _refuse_misspelt(self, typed: str, arguments: list[str]) -> None:
        """What is no subcommand is a file or a folder of the default one, unless there is none of that name."""
        word = next(iter(arguments), "-")
        is_name = word.replace("_", "").isalpha()  # node7, a.log and logs/a are none
        if is_name and not Path(word).exists() and closest(word, self.names):
            what = f"{self.command} has no subcommand '{word}': {nearest(word, self.names)}"
            raise RequestError(what, next_command=f"{typed} --help")

    def _help(self) -> str:
        rows = [(f"  {name}", summary(FOLDER / self.command / f"{name}.py")) for name in self.names]
        about = docstring(SCRIPTS / f"{self.command}.py")
        return "\n".join([about, "\nSubcommands:", *aligned(rows), f"\n{HELP}"])


def docstring(path: Path) -> str:
    """Without importing the module."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def summary(path: Path) -> str:
    return docstring(path).partition("\n")[0]
