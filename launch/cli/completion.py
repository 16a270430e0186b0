"""A script for bash or zsh that completes Stepmark's commands, subcommands, flags and values.

    stepmark completion bash > ~/.local/share/bash-completion/completions/stepmark
    stepmark completion zsh > ~/.zfunc/_stepmark        a folder of $fpath

The script holds the words and starts no Python; names of models, devices, sites, recipes and suites are read from
the folders of the configs at each TAB. Print it again after an update.
"""

import importlib
import multiprocessing
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from absl import flags

from benchmarks.backend import backends
from benchmarks.configs import DEFAULT_ROOT, ROOT_VARIABLE
from benchmarks.errors import RequestError, nearest
from launch.cli.command import flags_of, only_argument
from launch.cli.subcommands import COMMANDS
from launch.terminal.output import text_alone
from launch.terminal.places import sites_folder, suites_folder

FOLDERS = {"model": "models", "hardware": "hardware", "site": "sites", "recipe": "recipes", "suite": "suites"}

NAMES = """\
_stepmark_names() {  # the names of files, each after a prefix
    local prefix=$1 file
    shift
    for file in "$@"; do
        file=${file##*/}
        case "$file" in '*'*) ;; *) echo "$prefix${file%.yml}" ;; esac
    done
}
"""

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
    # bash replaces what follows the = alone
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
    shell = only_argument(argv[1:], "stepmark completion bash|zsh")
    if shell not in shells:
        raise RequestError(f"unknown shell '{shell}': {nearest(shell, shells)}")
    text_alone(("#compdef stepmark\n" if shell == "zsh" else "") + NAMES + _words_function() + shells[shell])
    return 0


def _words_function() -> str:
    """The words that may follow a command and its subcommand, as a function of the shell."""
    # Each in a process of its own: commands have flags of the same names.
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
        cases = pool.map(_cases, COMMANDS, chunksize=1)
    return "\n".join(
        [
            "_stepmark_words() {",
            f"    local configs=${{{ROOT_VARIABLE}:-{shlex.quote(str(DEFAULT_ROOT))}}}",
            '    case "$1 $2" in',
            f"    ' '*) {_print([*COMMANDS, 'completion', '--help'])} ;;",
            f"    'completion '*) {_print(['bash', 'zsh'])} ;;",
            *(case for found in cases for case in found),
            "    esac",
            "}\n",
        ]
    )


def _cases(command: str) -> list[str]:
    """Of each subcommand and, last, of the command where none was typed."""
    module = importlib.import_module(f"launch.{command}")
    subcommands = getattr(module, "SUBCOMMANDS", None)
    if subcommands is None:
        return [_case(f"'{command} '*", getattr(module, "COMMANDS", ()), flags_of(module))]
    by_name = subcommands.by_name
    cases = [_case(f"'{command} {name}'", (), one.flags()) for name, one in by_name.items()]
    return [*cases, _case(f"'{command} '*", by_name, by_name[subcommands.default([])].flags())]


def _case(pattern: str, first_words: Iterable[str], groups: Mapping[str, list[flags.Flag[Any]]]) -> str:
    words = [*first_words, "--help"]
    listed = []
    for flag in [flag for group in groups.values() for flag in group]:
        if flag.name in FOLDERS:
            listed.append(_listed(flag.name))
        else:
            words += _words(flag)
    return "; ".join([f"    {pattern}) {_print(words)}", *listed]) + " ;;"


def _listed(flag: str) -> str:
    folder = {"site": sites_folder, "suite": suites_folder}.get(flag)
    own = f" {shlex.quote(str(folder()))}/*.yml" if folder else ""
    return f'_stepmark_names --{flag}= "$configs"/{FOLDERS[flag]}/*.yml{own}'


def _words(flag: flags.Flag[Any]) -> list[str]:
    if flag.boolean:
        return [f"--{flag.name}", *([f"--no{flag.name}"] if flag.default is not False else [])]
    values = getattr(flag.parser, "enum_values", None) or [""]
    if flag.name == "backend":
        values = sorted(backends())
    return [f"--{flag.name}={value}" for value in values]


def _print(words: list[str]) -> str:
    return "printf '%s\\n' " + " ".join(map(shlex.quote, words))
