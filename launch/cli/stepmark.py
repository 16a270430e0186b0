"""The console command: `stepmark run ...` is `python launch/run.py ...`.

stepmark --help                             the commands
stepmark report --help                      the help of one command
stepmark completion bash|zsh                a script for the shell that completes commands, flags and values
"""

import ast
import importlib
import re
import sys
from pathlib import Path
from typing import NoReturn

from benchmarks import VERSION
from benchmarks.errors import RequestError, nearest
from benchmarks.text import aligned
from launch.cli.command import JSON_WORD, Command, run_command, script, wants_help
from launch.cli.subcommands import COMMANDS, SCRIPTS
from launch.terminal.output import text_only

TITLE = "Stepmark measures how fast a machine or a cluster trains an LLM."
HELP = "stepmark COMMAND --help shows what a command does and its flags."
SCRIPT = re.compile(rf"(?<![\w/.-])python launch/({'|'.join(COMMANDS)})\.py")


def main() -> NoReturn:
    # An installed package has no checkout: print `stepmark NAME` for each `python launch/NAME.py` in a text.
    run_command(lambda: chosen(sys.argv[1:]), lambda text: SCRIPT.sub(r"stepmark \1", text))


def chosen(words: list[str]) -> Command:
    rest = [word for word in words if not JSON_WORD.fullmatch(word)]
    if not rest or rest[0] == "help" or wants_help(rest[:1]):
        rows = [(name, summary(SCRIPTS / f"{name}.py")) for name in COMMANDS]
        rows.append(("completion", summary(SCRIPTS / "cli/completion.py")))
        text_only("\n".join([TITLE, "", "Commands:", *aligned(rows), "", HELP]))
        sys.exit(0)
    if rest[0] == "--version":
        text_only(f"stepmark {VERSION}")
        sys.exit(0)
    name, place = rest[0], words.index(rest[0])
    arguments = [*words[place + 1 :], *words[:place]]  # --json may come first
    if name == "completion":
        from launch.cli import completion

        return script(completion.main, completion, "stepmark completion", arguments)
    if name not in COMMANDS:
        what = f"unknown command '{name}': {nearest(name, [*COMMANDS, 'completion'])}"
        raise RequestError(what, next_command="stepmark --help")
    sys.argv = [str(SCRIPTS / f"{name}.py"), *arguments]  # provenance records this command
    module = importlib.import_module(f"launch.{name}")
    if hasattr(module, "SUBCOMMANDS"):
        found: Command = module.SUBCOMMANDS.chosen(f"stepmark {name}", arguments)
        return found
    return script(module.main, module, f"stepmark {name}", arguments)


def summary(path: Path) -> str:
    """Return the first line of a module's docstring, without importing it."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
