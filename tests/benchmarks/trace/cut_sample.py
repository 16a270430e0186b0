"""Cuts a real trace down to what is read of it, so that it can lie here: python cut_sample.py TRACE.xplane.pb OUT.gz

Left out are calls of Python functions and of the profiler itself, stats and fields of programs that nothing reads,
and programs other than the training step. What stays is as the profiler wrote it.
"""

import gzip
import sys
from pathlib import Path
from typing import Any

from benchmarks.trace.schema import messages

STATS = {b"hlo_op", b"hlo_module", b"run_id", b"device_ordinal", b"_p", b"_c", b"step_num", b"Hlo Proto"}
KEPT_TIMES = {b"profile_start_time", b"profile_stop_time"}


def cut(data: bytes) -> bytes:
    made = messages()
    space = made["XSpace"].FromString(data)
    planes = [made["XPlane"].FromString(plane) for plane in space.planes]
    for plane in planes:
        _cut_plane(plane)
    del space.planes[:]
    space.planes.extend(plane.SerializeToString() for plane in planes)
    space.DiscardUnknownFields()
    return bytes(space.SerializeToString())


def _cut_plane(plane: Any) -> None:
    wanted = {entry.key for entry in plane.stat_metadata if entry.value.name in STATS | KEPT_TIMES}
    names = {entry.key: entry.value.name for entry in plane.event_metadata}
    lines = [messages()["XLine"].FromString(line) for line in plane.lines]
    used: set[int] = set()
    referred: set[int] = set(wanted)
    for line in lines:
        events = [event for event in line.events if _is_read(event, names.get(event.metadata_id, b""), wanted)]
        del line.events[:]
        for event in events:
            kept = [stat for stat in event.stats if stat.metadata_id in wanted]
            del event.stats[:]
            event.stats.extend(kept)
            referred.update(stat.ref_value for stat in kept)
            used.add(event.metadata_id)
        line.events.extend(events)
        line.DiscardUnknownFields()
    del plane.lines[:]
    plane.lines.extend(line.SerializeToString() for line in lines if line.events)
    _keep(plane.event_metadata, lambda entry: entry.key in used or b"train_step" in entry.value.name)
    _keep(plane.stat_metadata, lambda entry: entry.key in referred)
    _keep(plane.stats, lambda stat: stat.metadata_id in wanted)
    for stat in (stat for entry in plane.event_metadata for stat in entry.value.stats if stat.bytes_value):
        program = messages()["HloProto"].FromString(stat.bytes_value)
        program.DiscardUnknownFields()
        stat.bytes_value = program.SerializeToString()
    plane.DiscardUnknownFields()


def _is_read(event: Any, name: bytes, wanted: set[int]) -> bool:
    if name.startswith(b"$") or name.startswith(b"ThreadpoolListener"):
        return False
    return any(stat.metadata_id in wanted for stat in event.stats)


def _keep(repeated: Any, is_kept: Any) -> None:
    kept = [one for one in repeated if is_kept(one)]
    del repeated[:]
    repeated.extend(kept)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(gzip.compress(cut(Path(sys.argv[1]).read_bytes()), mtime=0))
