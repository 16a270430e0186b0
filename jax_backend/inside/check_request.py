"""Ask the installed jaxlib whether it knows the XLA flags of a run.

This program runs by path in the framework's environment, with only the standard library and jaxlib, without a GPU:
`python -P check_request.py --flags="--xla_a=b --xla_c=d"`. XLA reads its flags once, when a client is made, and
aborts on an unknown flag. So a separate process makes a CPU client for each set of flags. The CPU client also knows
the flags for GPUs, and jaxlib reads all flags even if the CUDA plugin compiles for a GPU.

The program prints one line per problem, and the line begins with the flag. Exit codes: 0: no problem; 1: jaxlib could
not check the flags; 2: jaxlib refuses a flag or its value.
"""

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

EXIT_BROKEN = 1
EXIT_REFUSED = 2
SECONDS = 120  # the limit for one client, which usually takes 1 s, but longer for a first import from a shared disk

MAKE_A_CLIENT = "from jaxlib import xla_client; xla_client.make_cpu_client()"

UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS: (.*)")
BAD_VALUE = re.compile(r"Couldn't interpret value .* for flag (\w+)\.|Illegal value for --(\w+)")


class CannotAskError(Exception):
    """jaxlib could not check any flag."""


def ask(words: list[str], python: str = sys.executable) -> tuple[bool, str]:
    """Start a process that makes a CPU client with these flags. Return whether it succeeded, and its output."""
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
    except (subprocess.TimeoutExpired, OSError) as error:
        raise CannotAskError(str(error)) from None
    return done.returncode == 0, done.stdout.decode(errors="replace")


def named(text: str, words: list[str]) -> dict[str, str]:
    """Return flag -> problem for the flags that jaxlib's output names.

    After the names of the flags, jaxlib 0.4.35 prints two spaces and arbitrary bytes of its memory.
    """
    found = UNKNOWN.search(text)
    unknown = found[1].partition("  ")[0].split() if found else []
    bad = {name for names in BAD_VALUE.findall(text) for name in names if name}
    return {
        **{word: "unknown to" for word in words if word in unknown},
        **{word: "its value is invalid for" for word in words if word.removeprefix("--").partition("=")[0] in bad},
    }


def problems(words: list[str], python: str = sys.executable) -> dict[str, str]:
    """Return flag -> problem for all flags that jaxlib does not accept.

    jaxlib does not report unknown flags if a value is bad. So remove the reported flags, and check the rest again.
    """
    found: dict[str, str] = {}
    left = list(dict.fromkeys(words))
    while left:
        accepted, text = ask(left, python)
        if accepted:
            break
        wrong = named(text, left) or _one_by_one(left, text, python)
        found |= wrong
        left = [word for word in left if word not in wrong]
    return found


def _one_by_one(words: list[str], text: str, python: str) -> dict[str, str]:
    """Check each flag separately, because jaxlib may refuse a list of flags without naming the invalid flag."""
    wrong: dict[str, str] = {}
    for word in words:
        accepted, answer = ask([word], python)
        wrong |= {} if accepted else named(answer, [word]) or {word: "its value is refused by"}
    if not wrong or not ask([], python)[0]:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed no message")
        raise CannotAskError(last[:300])
    return wrong


def jaxlib() -> str:
    try:
        return f"jaxlib {version('jaxlib')}"
    except PackageNotFoundError:
        return "this jaxlib"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--flags", default="", help="the value of XLA_FLAGS")
    flags = list(dict.fromkeys(parser.parse_args(argv).flags.split()))
    try:
        wrong = problems(flags)
    except CannotAskError as error:
        print(f"{jaxlib()} could not check the flags: {error}")
        return EXIT_BROKEN
    lines = [f"{word}: {why} {jaxlib()}" for word, why in wrong.items()]
    count = "1 flag" if len(flags) == 1 else f"{len(flags)} flags"
    summary = f"{jaxlib()} checked {count}" + ("" if lines or not flags else " and knows all flags")
    print("\n".join([*lines, summary]))
    return EXIT_REFUSED if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
