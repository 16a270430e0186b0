"""Start and end every command: parse its flags, show errors without a traceback, and return the exit code."""

import io
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TextIO, cast

from absl import flags

from benchmarks import errors
from benchmarks.errors import EXIT_FAILED, EXIT_INTERRUPTED, RequestError, StepmarkError, nearest
from launch.terminal import output
from launch.terminal.output import RED, Harmless, coloured, has_colours, in_colour, own_stderr

JSON = "json"
KEY_VALUE = ("set", "slurm_arg")  # flags whose values are KEY=VALUE
JSON_WORD = re.compile(r"--?json(=(true|t|1))?", re.IGNORECASE)
flags.DEFINE_boolean(JSON, False, "Print one JSON document instead of text, also for an error: docs/schemas.json.")


def run_main(main: Callable[[list[str]], int]) -> NoReturn:
    """Run a script: parse its flags, call `main` with the remaining arguments, and exit with its code."""
    run_command(lambda: script(main, sys.modules["__main__"], f"python {sys.argv[0]}", sys.argv[1:]))


class Command(NamedTuple):
    main: Callable[[list[str]], int]
    about: str
    flags: dict[str, list[flags.Flag[Any]]]  # heading -> flags; "" is for the command's own flags
    typed: str  # the command as the user types it, without the arguments
    arguments: list[str]
    first: Sequence[str] = ()  # the flags that --help shows; empty: all
    topics: Mapping[str, str] = {}  # TOPIC of --help=TOPIC -> examples, and then a line "Flags: NAME NAME"


def script(main: Callable[[list[str]], int], module: ModuleType, typed: str, arguments: list[str]) -> Command:
    first, topics = getattr(module, "FIRST_FLAGS", ()), getattr(module, "TOPICS", {})
    return Command(main, module.__doc__ or "", flags_of(module), typed, arguments, first, topics)


def run_command(chosen: Callable[[], Command], *made: Callable[[str], str]) -> NoReturn:
    """Run the command that `chosen` returns, and exit. Apply the functions in `made` to every printed text."""
    os.umask(os.umask(0o022) | 0o002)  # with any umask, never make a file that all users can write
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # None after `>&-`
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # some terminals cannot show "·"
    colours = [coloured] if has_colours(sys.stdout) else []
    sys.stdout = cast("TextIO", Harmless(sys.stdout, *made, *colours))
    sys.stderr = cast("TextIO", Harmless(sys.stderr, *made))
    sys.exit(_guarded(chosen))


def wants_help(arguments: list[str]) -> bool:
    return any(re.fullmatch("-h|-[?]|--?help(full|=.*)?", word) for word in arguments)


def refuse_more(arguments: list[str], usage: str) -> None:
    if arguments:
        raise RequestError(f"unexpected argument '{arguments[0]}'", next_command=usage)


def only_argument(arguments: list[str], usage: str) -> str:
    refuse_more(arguments[1:], usage)
    if not arguments or not arguments[0]:  # also an empty variable of a shell script
        raise RequestError("an argument is missing", next_command=usage)
    return arguments[0]


class Words(flags.ArgumentParser[str]):
    """The parser of a flag that may have a list of values. --help shows its choices; later code checks the values."""

    def __init__(self, enum_values: tuple[str, ...]) -> None:
        super().__init__()
        self.enum_values = enum_values


def flags_of(module: ModuleType) -> dict[str, list[flags.Flag[Any]]]:
    """Return heading -> the command's flags, including flags adopted from other modules; "" is for its own flags."""
    name = sys.argv[0] if module.__name__ == "__main__" else module.__name__  # as absl names modules
    by_module = flags.FLAGS.flags_by_module_dict()
    adopted = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(name)}
    own = by_module.get(name, []) or by_module.get(module.__name__, [])
    common = [flags.FLAGS[one] for one in (output.VERBOSE, JSON) if one in adopted or one == JSON]
    found = {"": [*own, *common]}
    for other, defined in by_module.items():
        heading = getattr(sys.modules.get(other), "HEADING", None)
        key_flags = [flag for flag in defined if flag.name in adopted]
        if heading and key_flags:
            found[heading] = key_flags
    return found


def _guarded(chosen: Callable[[], Command]) -> int:
    command = None
    if any(map(JSON_WORD.fullmatch, sys.argv[1:])):  # before parsing, because an error in the flags is also JSON
        output.keep_for_json()
    try:
        command = chosen()
        errors.complete = lambda wanted: _completed(command, wanted)
        code = command.main(_parse(command))
        return _answered(code)
    except StepmarkError as error:
        if command is not None and not error.next_command and isinstance(error, RequestError):
            error.next_command = f"{command.typed} --help"
        return _ended(error, error.exit_code)
    except KeyboardInterrupt:
        return _ended(StepmarkError("interrupted"), EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The program that reads the output, such as head, has ended. Nothing more can be printed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        if os.environ.get("STEPMARK_DEBUG"):
            import traceback

            traceback.print_exc()
        from benchmarks.files import failed

        return _ended(failed(error), EXIT_FAILED)


def _ended(error: StepmarkError, code: int) -> int:
    """Print the error to stderr, and with --json also in the document. Return the exit code."""
    from benchmarks.secret_rules import hidden

    print(in_colour("stepmark", RED) if has_colours(sys.stderr) else "stepmark", end="", file=own_stderr())
    print(hidden(f": {error}"), file=sys.stderr)
    return _answered(code, {name: hidden(word) for name, word in error.words().items()})


def _answered(code: int, error: Mapping[str, str] | None = None) -> int:
    """With --json, print the error or the exit code if the command has not printed a document. Return the code."""
    if output.json_pending():
        from launch.terminal.documents import Error, ExitDocument, Why

        output.document(ExitDocument(exit_code=code) if error is None else Error(error=Why(**error), exit_code=code))
    return code


def _parse(command: Command) -> list[str]:
    # absl's --help would list dozens of absl's own flags. This help shows only the flags of the command.
    if wants_help(command.arguments):
        output.text_only(_help(command))
        sys.exit(0)
    try:
        words = list(flags.FLAGS([sys.argv[0], *command.arguments]))
    except flags.UnrecognizedFlagError as error:
        known = [flag.name for group in command.flags.values() for flag in group]
        raise RequestError(f"unknown flag --{error.flagname}: {nearest(error.flagname, known)}") from None
    except flags.Error as error:
        raise RequestError(_refused_value(str(error))) from None
    for name, value in flags.FLAGS.flag_values_dict().items():
        if isinstance(value, float) and math.isnan(value):  # absl's range checks accept nan
            raise RequestError(f"--{name}=nan is not a number")
    _refuse_empty()
    return words


def _refused_value(text: str) -> str:
    """Return a message about a wrong value: the nearest choices of the flag, or absl's text."""
    found = re.match(r"flag --(\w+)=(.*?): ", text)
    choices = getattr(flags.FLAGS[found[1]].parser, "enum_values", None) if found else None
    return f"--{found[1]}={found[2]}: {nearest(found[2], choices)}" if found and choices else text


def _completed(command: Command, wanted: str) -> str:
    """Return the typed command with the flags of `wanted`. In `wanted`, `--flag=` and `--set=KEY=` remove a flag."""
    from benchmarks.secret_rules import hidden_in_reason

    known, rest = flags.FLAGS, iter(command.arguments)
    words = [f"{one}={next(rest, '')}" if one[2:] in known and not known[one[2:]].boolean else one for one in rest]
    for flag in shlex.split("" if wanted == errors.SAME_COMMAND else wanted):
        name, equals, value = flag[2:].partition("=")
        if name not in known:
            return wanted  # the flag belongs to another command
        key, has_value, _ = value.partition("=") if name in KEY_VALUE else ("", value or not equals, "")
        same = re.compile(f"--?{name}={re.escape(key)}=" if key else f"--?(no)?{name}(=|$)")
        words = [word for word in words if not same.match(word)] + ([flag] if has_value else [])
    return hidden_in_reason(f"{command.typed} {shlex.join(words)}")


def _refuse_empty() -> None:
    """Refuse flags without a value, such as from an empty variable in a shell script."""
    for name, flag in ((name, flags.FLAGS[name]) for name in flags.FLAGS):
        if flag.present and (flag.value in ("", []) or (isinstance(flag.value, list) and "" in flag.value)):
            raise RequestError(f"--{name}= has no value", where=f"--{name}=", next_command=f"--{name}=")


def _help(command: Command) -> str:
    """Return the help text: the main flags, for --help=TOPIC the flags of the topic, or for --help=all every flag."""
    asked = next((word.partition("=")[2] for word in command.arguments if word.startswith("--help=")), "")
    if asked not in (known := ["", *command.topics, "all"]):
        raise RequestError(f"--help={asked}: {nearest(asked, known[1:])}", next_command="--help=all")
    every = {flag.name: flag for group in command.flags.values() for flag in group}
    about, names = command.about.strip(), command.first
    if asked in command.topics:
        about, _, words = command.topics[asked].strip().partition("\nFlags: ")
        names = words.split()
    if names and asked != "all" and "--helpfull" not in command.arguments:
        rows = [_flag_help(every[name]) for name in names if name in every]
        more = f"More flags: {command.typed} --help={'|'.join(known[1:])}"
        width = max(len(form) for form, _ in rows)
        return "\n".join([about, "\nFlags:", *(f"  {form:{width}}  {words}" for form, words in rows), "", more])
    lines = [about]
    for heading, group in command.flags.items():
        shown = (f"  {form}\n      {words}" for form, words in map(_flag_help, group))
        lines += [f"\n{heading or 'Flags'}:", *shown] if group else []
    lines += [flags.FLAGS.get_help()] if "--helpfull" in command.arguments else []
    return "\n".join(lines)


def _flag_help(flag: flags.Flag[Any]) -> tuple[str, str]:
    choices = getattr(flag.parser, "enum_values", None)
    no = "[no]" if flag.boolean and flag.default is None else ""  # without a default, the user may want either
    value = {"int": "N", "float": "X"}.get(flag.parser.flag_type(), "TEXT")
    if isinstance(flag, flags.MultiFlag) and flag.name in KEY_VALUE:
        value = "KEY=VALUE"
    form = f"--{no}{flag.name}" if flag.boolean else f"--{flag.name}={'|'.join(choices) if choices else value}"
    # absl writes the choices before a flag's help, and how to repeat a flag after it.
    words = (flag.help or "").rpartition(">: ")[2].partition(";\n")[0]
    default = "" if flag.default in (None, False, [], "") else f" (default: {flag.default})"
    return form, f"{words}{default}"
