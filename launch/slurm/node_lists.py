"""The nodes that --nodelist and --exclude name: Slurm's list, or with a slash in it a file of names."""

from pathlib import Path

from benchmarks.errors import RequestError
from launch.slurm.parsing import node_names


def named(text: str | None) -> list[str]:
    """The nodes one by one; none where nothing is named."""
    if text is None or "/" not in text:
        return node_names(text or "")
    try:
        words = Path(text).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError("the list of nodes cannot be read", where=text, why=str(error)) from None
    return [name for word in words for name in node_names(word)]


def names_nobody(text: str) -> bool:
    """Whether it is a file without a name in it, which Slurm would refuse. One that cannot be read is not."""
    if "/" not in text:
        return False
    try:
        return not Path(text).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return False
