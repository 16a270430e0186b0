"""What many ranks say in nearly the same words is one thing. Pure."""

import re
from collections.abc import Iterable

HEX = re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b")
ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]*:[0-9a-f:]+\](?::\d+)?")
HOST = re.compile(r"\b[a-zA-Z][a-zA-Z-]*\d+(?:[-.][a-zA-Z0-9-]+)*\b")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def shape(text: str) -> str:
    """A line without what differs from rank to rank: numbers, addresses, names of hosts."""
    for pattern, instead in ((HEX, "X"), (ADDRESS, "A"), (HOST, "H"), (NUMBER, "N")):
        text = pattern.sub(instead, text)
    return text


def ranks_text(ranks: Iterable[int]) -> str:
    """0-3,7 for 0, 1, 2, 3 and 7."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
