"""Makes docs/reference/commands.md: the --help=all of every command and subcommand.

.venv/bin/python docs/make_command_reference.py
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "reference" / "commands.md"
INTRODUCTION = """\
# Commands

<!-- Made by docs/make_command_reference.py from --help. -->

Each command is a script in `launch/`. After `make install`, `.venv/bin/stepmark run` is the same as `python
launch/run.py`. `stepmark completion bash` and `stepmark completion zsh` print a completion for your shell.

- **Exit codes** are the same for all commands: [exit codes](exit_codes.md).
- **Run names.** You can name a run by any unique part of its name with four or more characters.
- **JSON.** With `--json`, a command prints one JSON document to stdout, also for an error (`{"error": ...}`). All
  other output goes to stderr. [schemas.json](../schemas.json) has the schema of each document.
- **Colours.** A terminal shows colours and progress bars. Pipes, `NO_COLOR=1` and `TERM=dumb` give plain text.
"""


def page(help_of: Callable[[list[str]], str]) -> str:
    """Return the page. `help_of` returns what a script prints, such as of ["launch/run.py", "--help=all"]."""
    parts = [INTRODUCTION]
    for script in sorted(path.name for path in (REPOSITORY / "launch").glob("[a-z]*.py")):
        parts += [f"## {title}\n\n```text\n{text.strip()}\n```\n" for title, text in sections(script, help_of)]
    return "\n".join(parts)


def sections(script: str, help_of: Callable[[list[str]], str]) -> Iterator[tuple[str, str]]:
    """Yield the title and the help of a command, then those of its subcommands."""
    first = help_of([f"launch/{script}", "--help=all"])
    yield script, first
    listed = first.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
    for name in re.findall(r"^ +(\w+)  ", listed, re.MULTILINE):
        yield f"{script} {name}", help_of([f"launch/{script}", name, "--help=all"])


def printed(words: list[str]) -> str:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout


if __name__ == "__main__":
    PAGE.write_text(page(printed))
