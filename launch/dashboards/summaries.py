"""TensorBoard's own messages, without TensorFlow: the charts of Custom Scalars, the table of HParams.

The modules of TensorBoard that offer this as functions import TensorFlow; its messages do not.
"""

from collections.abc import Mapping, Sequence

from benchmarks.dashboards.points import Category, Chart, Charts, Row, Table
from benchmarks.dashboards.runs import FIGURES

# Of the columns before the figures, those that are seen at first; the others are a click away.
ALWAYS_SHOWN = ("model", "dtype", "backend", "hardware", "gpus", "status")
MOST_OPEN = 6  # categories that are unfolded at first: TensorBoard asks for every line of every chart it shows


def summary_event(told: Charts | Table | Row, when: float) -> bytes:
    """As a record of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event

    if isinstance(told, Charts):
        summary = _charts(told.categories)
    elif isinstance(told, Table):
        summary = _table(told.rows)
    else:
        summary = _row(told)
    data: bytes = Event(wall_time=when, step=0, summary=summary).SerializeToString()
    return data


def _charts(categories: Sequence[Category]) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata
    from tensorboard.util import tensor_util

    made = layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title=category.title, chart=[_chart(one) for one in category.charts], closed=place >= MOST_OPEN
            )
            for place, category in enumerate(categories)
        ]
    )
    value = Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG,
        metadata=metadata.create_summary_metadata(),
        tensor=tensor_util.make_tensor_proto(made.SerializeToString()),
    )
    return Summary(value=[value])


def _chart(chart: Chart) -> object:
    """Lines are named by regular expressions that must match from the begin, bands by plain names."""
    import re

    from tensorboard.plugins.custom_scalar import layout_pb2

    if chart.band:
        series = [
            layout_pb2.MarginChartContent.Series(value=value, lower=lower, upper=upper)
            for value, lower, upper in chart.band
        ]
        return layout_pb2.Chart(title=chart.title, margin=layout_pb2.MarginChartContent(series=series))
    tags = [f"^{re.escape(tag)}$" for tag in chart.tags]
    return layout_pb2.Chart(title=chart.title, multiline=layout_pb2.MultilineChartContent(tag=tags))


def _table(rows: Sequence[Mapping[str, str | float]]) -> object:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    columns = [_column(name, [row[name] for row in rows]) for name in (rows[0] if rows else ())]
    figures = [
        api_pb2.MetricInfo(name=api_pb2.MetricName(tag=f"result/{one.name}"), display_name=one.title)
        for one in FIGURES
    ]
    made = api_pb2.Experiment(hparam_infos=columns, metric_infos=figures)
    return _of_hparams(metadata.EXPERIMENT_TAG, plugin_data_pb2.HParamsPluginData(experiment=made))


def _column(name: str, values: Sequence[str | float]) -> object:
    from tensorboard.plugins.hparams import api_pb2

    numbers = [value for value in values if isinstance(value, float)]
    different = sorted({str(value) for value in values})
    shown = name in ALWAYS_SHOWN
    info = api_pb2.HParamInfo(name=name, differs=shown)  # TensorBoard shows those that differ, before any click
    if numbers:
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value, info.domain_interval.max_value = min(numbers), max(numbers)
    else:
        info.type = api_pb2.DATA_TYPE_STRING
        info.domain_discrete.extend(different)
    return info


def _row(row: Row) -> object:
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    info = plugin_data_pb2.SessionStartInfo(group_name=row.name, start_time_secs=row.unix_seconds)
    for key, value in row.cells.items():
        if isinstance(value, float):
            info.hparams[key].number_value = value
        else:
            info.hparams[key].string_value = value
    return _of_hparams(metadata.SESSION_START_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_start_info=info))


def _of_hparams(tag: str, content: object) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata

    value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(content), tensor=metadata.NULL_TENSOR)
    return Summary(value=[value])
