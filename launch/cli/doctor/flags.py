"""XLA's flags: what each is for, whether the installed jaxlib knows it, what to use instead.

    python launch/doctor.py flags "--xla_gpu_graph_level=0 --xla_gpu_enable_command_buffer="

The flags are checked on this machine; a job checks its own in its first phase. Exit code 2: a flag is refused.
"""

from launch.checks.flags_check import report
from launch.terminal.output import answer


def as_words(arguments: list[str]) -> list[str]:
    """XLA's flags, which begin like ours, as arguments."""
    of_xla = [word for word in arguments if not word.strip() or word.lstrip().startswith("--xla")]
    return [*(word for word in arguments if word not in of_xla), "--", *of_xla]


def main(argv: list[str]) -> int:
    data, text, code = report(" ".join(argv[1:]))
    answer(data, text)
    return code
