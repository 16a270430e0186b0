"""What the machine did while it trained: energy, clocks, throttling, memory; and which rank was slow. Pure.

attempt-N/telemetry/node-NAME.jsonl is written beside the training by benchmarks/node_sampler.py, one line a sample.
"""

from benchmarks.values import Value

FOLDER = "telemetry"


class Telemetry(Value, frozen=True):
    """A part of result.json: the samples within the window that is counted."""

    nodes: int


class RankSpread(Value, frozen=True):
    """A part of result.json: how the ranks' own step times differ."""

    ranks: int
