"""A script for bash or zsh that completes Stepmark's commands, subcommands, flags and values.

    stepmark completion bash > ~/.local/share/bash-completion/completions/stepmark
    stepmark completion zsh > ~/.zfunc/_stepmark        a folder of $fpath

The script contains all words and does not start Python. Run the command again after an update, and after you add a
site or a suite.
"""

import importlib
import multiprocessing
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from absl import flags

from benchmarks.backend import backends
from benchmarks.configs import Kind
from benchmarks.errors import RequestError, nearest
from launch.cli.command import flags_of, only_argument
from launch.cli.subcommands import COMMANDS
from launch.terminal.output import text_only
from launch.terminal.places import configs

FOLDERS: dict[str, Kind] = {
    "model": "models",
    "hardware": "hardware",
    "site": "sites",
    "recipe": "recipes",
    "suite": "suites",
}

BASH = """\
_stepmark() {
    local line=${COMP_LINE:0:COMP_POINT} current='' typed last
    read -ra typed <<<"$line"
    if [[ $line != *' ' ]]; then
        last=$((${#typed[@]} - 1))
        current=${typed[last]}
        unset "typed[last]"
    fi
    COMPREPLY=($(compgen -W "$(_stepmark_words "${typed[1]-}" "${typed[2]-}")" -- "$current"))
    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null
    # bash replaces only the text after the =
    [[ $current != *=* || $COMP_WORDBREAKS != *=* ]] || COMPREPLY=("${COMPREPLY[@]#"${current%%=*}="}")
}
complete -o default -F _stepmark stepmark
"""

ZSH = """\
_stepmark() {
    setopt localoptions nullglob
    local command='' subcommand='' current=$words[CURRENT]
    (( CURRENT > 2 )) && command=$words[2]
    (( CURRENT > 3 )) && subcommand=$words[3]
    local -a matching=(${(M)${(f)"$(_stepmark_words "$command" "$subcommand")"}:#${(b)current}*})
    if (( $#matching )); then
        compadd -S '' -- ${(M)matching:#*=}
        compadd -- ${matching:#*=}
    else
        _files
    fi
}
if [[ $funcstack[1] == _stepmark ]]; then _stepmark; else compdef _stepmark stepmark; fi
"""


def main(argv: list[str]) -> int:
    shells = {"bash": BASH, "zsh": ZSH}
    shell = only_argument(argv[1:], "stepmark completion bash")
    if shell not in shells:
        raise RequestError(f"unknown shell '{shell}': {nearest(shell, shells)}")
    text_only(("#compdef stepmark\n" if shell == "zsh" else "") + _words_function() + shells[shell])
    return 0


def _words_function() -> str:
    """Return a shell function that prints the words that may follow a command and its subcommand."""
    # Import each command in a separate process, because several commands define flags with the same name.
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        cases = pool.map(_cases, COMMANDS, chunksize=1)
    return "\n".join(
        [
            "_stepmark_words() {",
            '    case "$1 $2" in',
            f"    ' '*) {_print([*COMMANDS, 'completion', '--help'])} ;;",
            f"    'completion '*) {_print(['bash', 'zsh'])} ;;",
            *(case for found in cases for case in found),
            "    esac",
            "}\n",
        ]
    )


def _cases(command: str) -> list[str]:
    """Return the case of each subcommand and, last, the case of the command without a subcommand."""
    module = importlib.import_module(f"launch.{command}")
    subcommands = getattr(module, "SUBCOMMANDS", None)
    if subcommands is None:
        return [_case(f"'{command} '*", getattr(module, "COMMANDS", ()), flags_of(module))]
    by_name = subcommands.by_name
    cases = [_case(f"'{command} {name}'", (), one.flags()) for name, one in by_name.items()]
    return [*cases, _case(f"'{command} '*", by_name, by_name[subcommands.default([])].flags())]


def _case(pattern: str, first_words: Iterable[str], groups: Mapping[str, list[flags.Flag[Any]]]) -> str:
    words = [word for group in groups.values() for flag in group for word in _words(flag)]
    return f"    {pattern}) {_print([*first_words, '--help', *words])} ;;"


def _words(flag: flags.Flag[Any]) -> list[str]:
    if flag.boolean:
        return [f"--{flag.name}", *([f"--no{flag.name}"] if flag.default is not False else [])]
    values = getattr(flag.parser, "enum_values", None) or [""]
    if flag.name == "backend":
        values = sorted(backends())
    elif flag.name in FOLDERS:
        values = configs().names(FOLDERS[flag.name])
    return [f"--{flag.name}={value}" for value in values]


def _print(words: list[str]) -> str:
    return "printf '%s\\n' " + " ".join(map(shlex.quote, words))
