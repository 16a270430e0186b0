"""The one way a launch script starts and ends: flags in, exit code out, never a traceback for bad input."""

import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from absl import app, flags

from benchmarks.errors import EXIT_FAILED, EXIT_REFUSED, StepmarkError, nearest
from benchmarks.secret_rules import hidden

EXIT_INTERRUPTED = 130


def run_main(main: Callable[[list[str]], int]) -> NoReturn:
    """Parse the flags, run `main` with what is left, and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no "·" is no reason to fail
    sys.exit(_guarded(main))


def _guarded(main: Callable[[list[str]], int]) -> int:
    try:
        return main(_parse(sys.argv))
    except StepmarkError as error:
        print(hidden(f"stepmark: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stepmark: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) went away: nothing is wrong, and nothing can be printed any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        print(f"stepmark: {error.strerror or error}{place}", file=sys.stderr)
        _traceback_if_wanted()
        return EXIT_FAILED


def _parse(argv: list[str]) -> list[str]:
    # absl's own --help lists its dozens of internal flags; a script's --help shows the script's.
    if any(word in ("--help", "-h", "-help", "--helpfull", "-?") for word in argv[1:]):
        _print_help(full="--helpfull" in argv)
        sys.exit(0)
    try:
        return list(flags.FLAGS(argv))
    except flags.UnrecognizedFlagError as error:
        name = error.flagname
        hint = nearest(name, _own_flag_names())
        print(f"stepmark: unknown flag --{name}: {hint}\n  next:  {_command()} --help", file=sys.stderr)
    except flags.Error as error:
        print(hidden(f"stepmark: {error}\n  next:  {_command()} --help"), file=sys.stderr)
    sys.exit(EXIT_REFUSED)


def _own_flag_names() -> list[str]:
    return [flag.name for flag in [*_own_flags(), *(flag for group in _adopted_flags().values() for flag in group)]]


def _own_flags() -> list[flags.Flag[Any]]:
    by_module = flags.FLAGS.flags_by_module_dict()
    return list(by_module.get(sys.argv[0], []) or by_module.get("__main__", []))


def _adopted_flags() -> dict[str, list[flags.Flag[Any]]]:
    """Flags of other modules that the script has made its own (flags.adopt_module_key_flags), by their heading."""
    found: dict[str, list[flags.Flag[Any]]] = {}
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        heading = getattr(sys.modules.get(module), "HEADING", None)
        key_flags = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0])}
        adopted = [flag for flag in defined if flag.name in key_flags]
        if heading and adopted:
            found[heading] = adopted
    return found


def _command() -> str:
    return f"python {sys.argv[0]}"


def _print_help(full: bool) -> None:
    main = sys.modules["__main__"]
    print((main.__doc__ or "").strip())
    print("\nFlags:")
    for flag in _own_flags():
        print(_flag_help(flag))
    for heading, group in _adopted_flags().items():
        print(f"\n{heading}:")
        for flag in group:
            print(_flag_help(flag))
    if full:
        app.usage(shorthelp=False, writeto_stdout=True)


def _flag_help(flag: flags.Flag[Any]) -> str:
    choices = getattr(flag.parser, "enum_values", None)
    no = "[no]" if flag.boolean and flag.default is None else ""  # left open: either may be meant
    form = f"--{no}{flag.name}" if flag.boolean else f"--{flag.name}={'|'.join(choices) if choices else _form(flag)}"
    # absl writes the choices before a flag's help, and how to repeat a flag after it.
    words = (flag.help or "").rpartition(">: ")[2].partition(";\n")[0]
    default = "" if flag.default in (None, False, [], "") else f" (default: {flag.default})"
    return f"  {form}\n      {words}{default}"


def _form(flag: flags.Flag[Any]) -> str:
    if isinstance(flag, flags.MultiFlag) and flag.name in ("set", "slurm_arg"):
        return "KEY=VALUE"
    return {"int": "N", "float": "X"}.get(flag.parser.flag_type(), "TEXT")


def _traceback_if_wanted() -> None:
    if os.environ.get("STEPMARK_DEBUG"):
        traceback.print_exc()
