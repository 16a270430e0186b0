"""Stands for a worker's event file."""

from typing import Any


class Events:
    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def write(self, event: str, **fields: Any) -> None:
        self.written.append({"event": event, **fields})

    def all(self, name: str) -> list[Any]:
        """A field of every step."""
        return [event[name] for event in self.written if event["event"] == "step"]
