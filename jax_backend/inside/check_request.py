"""Asks the installed jaxlib whether it knows the XLA flags of a run.

Runs by path inside the framework's environment, on the standard library and jaxlib alone, in a second or two and
without a GPU: `python -P check_request.py --flags="--xla_a=b --xla_c=d"`. XLA reads its flags once,
when a client is made, and aborts on what it does not know; so a process of its own makes a CPU client for each set
of flags. The flags of GPUs are known to that client too.

Prints a line for each problem, which begins with the flag. Exit code 0: all is well; 2: something is unknown; 1:
jaxlib could not be asked.
"""

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

EXIT_BROKEN = 1
EXIT_REFUSED = 2
SECONDS = 120  # for one client; it takes about one, and its first import from a shared disk longer

MAKE_A_CLIENT = "from jaxlib import xla_client; xla_client.make_cpu_client()"
# The CPU client refuses these, the CUDA plugin of the same version takes them.
FALSE_ALARMS = frozenset({"xla_gpu_enable_libnvptxcompiler"})

UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS: (.*)")
BAD_VALUE = re.compile(r"Couldn't interpret value .* for flag (\w+)\.|Illegal value for --(\w+)")
USAGE = "Flag parsing failed"  # said too where the bad value is not named

# XLA splits at blanks, but for those in the quotes of a value.
WORD = re.compile(r"""--[\w-]+=(?:"(?:[^"\\]|\\.)*"|'[^']*')|\S+""")

IS_UNKNOWN = "unknown to"
IS_NO_FLAG = "it does not begin with --: XLA would leave it out in silence, or take it for a file of flags"
HAS_A_BAD_VALUE = "its value cannot be read by"
IS_REFUSED = "its value is refused by"


class CannotAskError(Exception):
    """jaxlib gave no answer, whatever the flags."""


class Answer(NamedTuple):
    accepted: bool
    text: str  # of stdout and stderr


# --- one question -------------------------------------------------------------------------------


def ask(words: list[str], python: str = sys.executable) -> Answer:
    """What a process that makes a CPU client with these flags says."""
    environment = {**os.environ, "XLA_FLAGS": " ".join(words), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        done = subprocess.run(
            [python, "-P", "-c", MAKE_A_CLIENT],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotAskError(f"no answer within {SECONDS} s") from None
    except OSError as error:
        raise CannotAskError(f"{python}: {error.strerror or error}") from None
    return Answer(accepted=done.returncode == 0, text=done.stdout.decode(errors="replace"))


def unknown_among(text: str, words: list[str]) -> list[str]:
    """The flags that are called unknown. 0.4.35 goes on after a double blank with whatever is left in its memory."""
    found = UNKNOWN.search(text)
    named = found[1].partition("  ")[0].split() if found else []
    return [word for word in words if word in named]


def with_a_bad_value(text: str, words: list[str]) -> list[str]:
    named = {name for names in BAD_VALUE.findall(text) for name in names if name}
    return [word for word in words if name_of(word) in named]


def name_of(word: str) -> str:
    return word.removeprefix("--").partition("=")[0]


# --- all that is wrong with some flags ------------------------------------------------------------


def problems(words: list[str], python: str = sys.executable) -> dict[str, str]:
    """flag -> what is wrong with it. A bad value hides all that is unknown, so what is found is left out, and the
    rest asked again until it is accepted.
    """
    found: dict[str, str] = {}
    left = list(dict.fromkeys(words))
    while left and not (answer := ask(left, python)).accepted:
        wrong = _named(answer.text, left) or _one_by_one(left, answer.text, python)
        found |= {word: why for word, why in wrong.items() if not is_false_alarm(word, why)}
        left = [word for word in left if word not in wrong]
    return {word: _wants_a_value(word, why, python) for word, why in found.items()}


def is_false_alarm(word: str, why: str) -> bool:
    return name_of(word) in FALSE_ALARMS and why != HAS_A_BAD_VALUE


def _named(text: str, words: list[str]) -> dict[str, str]:
    return {
        **dict.fromkeys(unknown_among(text, words), IS_UNKNOWN),
        **dict.fromkeys(with_a_bad_value(text, words), HAS_A_BAD_VALUE),
    }


def _one_by_one(words: list[str], text: str, python: str) -> dict[str, str]:
    """Each flag alone: a list with a wrong word in it is refused without saying whose."""
    alone = ask([], python)
    if not alone.accepted:
        raise CannotAskError(_last_line(alone.text))
    wrong: dict[str, str] = {}
    for word in words:
        answer = ask([word], python)
        if not answer.accepted:
            why = IS_REFUSED if USAGE in answer.text else f"{_last_line(answer.text)}: said by"
            wrong |= _named(answer.text, [word]) or {word: why}
    if not wrong:
        raise CannotAskError(f"each flag is accepted alone, all together are not: {_last_line(text)}")
    return wrong


def _wants_a_value(word: str, why: str, python: str) -> str:
    """A flag that is no switch is called unknown where it has no value."""
    if why != IS_UNKNOWN or "=" in word:
        return why
    with_one = f"{word}="
    return (
        why
        if unknown_among(ask([with_one], python).text, [with_one])
        else f"write {with_one}VALUE, which is known to"
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it ended without a word")[
        :300
    ]


# --- a whole request --------------------------------------------------------------------------


def look(options: argparse.Namespace) -> list[str]:
    """A line for each thing that is wrong."""
    texts = [WORD.findall(text) for text in dict.fromkeys(options.flags)]
    bare = dict.fromkeys(word for words in texts for word in words if not word.startswith("--"))
    wrong: dict[str, str] = {}
    for words in texts:
        wrong |= problems([word for word in words if word not in bare])
    return [
        *(f"{word}: {IS_NO_FLAG}" for word in bare),
        *(f"{word}: {why} {jaxlib()}" for word, why in wrong.items()),
    ]


def jaxlib() -> str:
    try:
        return f"jaxlib {version('jaxlib')}"
    except PackageNotFoundError:
        return "this jaxlib"


def verdict(options: argparse.Namespace, wrong: list[str]) -> str:
    count = len({word for text in options.flags for word in WORD.findall(text) if word.startswith("--")})
    flags = "1 flag" if count == 1 else f"{count} flags"
    return f"{jaxlib()} was asked about {flags}" + ("" if wrong or not count else " and knows all")


def main(options: argparse.Namespace) -> int:
    try:
        wrong = look(options)
    except CannotAskError as error:
        print(f"{jaxlib()} could not be asked: {error}")
        return EXIT_BROKEN
    for line in [*wrong, verdict(options, wrong)]:
        print(line)
    return EXIT_REFUSED if wrong else 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--flags", action="append", default=[], help="the whole of one XLA_FLAGS")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
