"""TensorBoard's own messages for the table of HParams, without TensorFlow.

The modules of TensorBoard that offer this as functions import TensorFlow; its messages do not.
"""

from collections.abc import Mapping, Sequence

from benchmarks.dashboard.points import Row, Table
from benchmarks.dashboard.runs import FIRST_COLUMNS


def summary_event(table: Table | Row, when: float) -> bytes:
    """As a record of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event

    summary = _table(table.rows) if isinstance(table, Table) else _row(table)
    data: bytes = Event(wall_time=when, step=0, summary=summary).SerializeToString()
    return data


def _table(rows: Sequence[Mapping[str, str | float]]) -> object:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    names = dict.fromkeys([*FIRST_COLUMNS, *(name for row in rows for name in row)])
    columns = [_column(name, [row[name] for row in rows if name in row]) for name in names]
    made = api_pb2.Experiment(hparam_infos=columns if rows else [])
    return _of_hparams(metadata.EXPERIMENT_TAG, plugin_data_pb2.HParamsPluginData(experiment=made))


def _key(name: str) -> str:
    """TensorBoard orders columns by these; what a person reads is the name."""
    return f"{FIRST_COLUMNS.index(name)} {name}" if name in FIRST_COLUMNS else name


def _column(name: str, values: Sequence[str | float]) -> object:
    from tensorboard.plugins.hparams import api_pb2

    numbers = [value for value in values if isinstance(value, float)]
    shown = name in FIRST_COLUMNS  # TensorBoard shows those that differ, before any click
    info = api_pb2.HParamInfo(name=_key(name), display_name=name, differs=shown)
    if numbers or not values:
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value = min(numbers, default=0.0)
        info.domain_interval.max_value = max(numbers, default=0.0)
    else:
        info.type = api_pb2.DATA_TYPE_STRING
        info.domain_discrete.extend(sorted({str(value) for value in values}))
    return info


def _row(row: Row) -> object:
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    info = plugin_data_pb2.SessionStartInfo(group_name=row.name, start_time_secs=row.unix_seconds)
    for key, value in row.cells.items():
        if isinstance(value, float):
            info.hparams[_key(key)].number_value = value
        else:
            info.hparams[_key(key)].string_value = value
    return _of_hparams(metadata.SESSION_START_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_start_info=info))


def _of_hparams(tag: str, content: object) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata

    value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(content), tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])
