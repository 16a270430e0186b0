"""Commands with subcommands: the first argument names a subcommand, which is a function in the command's script."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from absl import flags

from benchmarks.errors import RequestError, closest, nearest
from benchmarks.text import aligned
from launch.cli.command import JSON, Command, run_command, wants_help
from launch.terminal.output import text_only

SCRIPTS = Path(__file__).parents[1]
COMMANDS = sorted(path.stem for path in SCRIPTS.glob("[a-z]*.py"))
HELP = "Add --help to a subcommand to see its flags and examples."


class Subcommand(NamedTuple):
    main: Callable[[list[str]], int]  # its docstring is the help
    takes: tuple[Any, ...] = ()  # its flags: each a FlagHolder, or a module for all flags that the module defines
    as_words: Callable[[list[str]], list[str]] = list
    first: tuple[str, ...] = ()  # the flags that --help shows; empty: all

    def flags(self) -> dict[str, list[flags.Flag[Any]]]:
        """Return heading -> flags. The heading "" is for the subcommand's own flags."""
        own = [flags.FLAGS[one.name] for one in self.takes if isinstance(one, flags.FlagHolder)]
        modules = [one for one in self.takes if not isinstance(one, flags.FlagHolder)]
        defined = {one.HEADING: flags.FLAGS.get_flags_for_module(one.__name__) for one in modules}
        return {"": [*own, flags.FLAGS[JSON]], **defined}


class Subcommands(NamedTuple):
    command: str  # launch/NAME.py
    about: str
    by_name: Mapping[str, Subcommand]
    default: Callable[[list[str]], str]  # returns the subcommand for arguments that do not name a subcommand

    def run(self) -> NoReturn:
        run_command(lambda: self.chosen(f"python {sys.argv[0]}", sys.argv[1:]))

    def chosen(self, typed: str, arguments: list[str]) -> Command:
        if not arguments or arguments[0] not in self.by_name:
            if wants_help(arguments):
                text_only(self._help())
                sys.exit(0)
            self._refuse_misspelt(typed, arguments)
            arguments = [self.default(arguments), *arguments]
        name, *words = arguments
        one = self.by_name[name]
        every = {flag.name for other in self.by_name.values() for group in other.flags().values() for flag in group}
        own = one.flags()
        for flag in every - {flag.name for group in own.values() for flag in group}:
            delattr(flags.FLAGS, flag)  # a flag of another subcommand is unknown here
        return Command(
            one.main, inspect.getdoc(one.main) or "", own, f"{typed} {name}", one.as_words(words), one.first
        )

    def _refuse_misspelt(self, typed: str, arguments: list[str]) -> None:
        """Refuse a misspelt subcommand. Other words are files or folders for the default subcommand."""
        word = next(iter(arguments), "-")
        is_name = word.replace("_", "").isalpha()  # unlike node7, a.log and logs/a
        if is_name and not Path(word).exists() and closest(word, list(self.by_name)):
            what = f"{self.command} has no subcommand '{word}': {nearest(word, self.by_name)}"
            raise RequestError(what, next_command=f"{typed} --help")

    def _help(self) -> str:
        rows = [
            (f"  {name}", (inspect.getdoc(one.main) or "").partition("\n")[0]) for name, one in self.by_name.items()
        ]
        return "\n".join([self.about.strip(), "\nSubcommands:", *aligned(rows), f"\n{HELP}"])
