"""TensorBoard's own messages, without TensorFlow: charts of Custom Scalars, the table of HParams, pages of Text.

The modules of TensorBoard that offer this as functions import TensorFlow; its messages do not.
"""

from collections.abc import Mapping, Sequence

from benchmarks.dashboards.points import Category, Chart, Charts, Row, Table, Text
from benchmarks.dashboards.runs import FIRST_COLUMNS, METRICS, metric_tag
from benchmarks.rendering.columns import wrapped
from benchmarks.rendering.markdown import fenced

TEXT_COLUMNS = 108  # of a page of text: what a window of 1,300 pixels has room for
MOST_OPEN = 6  # categories that are unfolded at first: TensorBoard asks for every line of every chart it shows


def summary_event(told: Charts | Table | Row | Text, when: float) -> bytes:
    """As a record of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event

    if isinstance(told, Charts):
        summary = _charts(told.categories)
    elif isinstance(told, Table):
        summary = _table(told.rows)
    elif isinstance(told, Text):
        summary = _text(told)
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

    names = dict.fromkeys([*FIRST_COLUMNS, *(name for row in rows for name in row)])
    columns = [_column(name, [row[name] for row in rows if name in row]) for name in names]
    figures = [
        api_pb2.MetricInfo(name=api_pb2.MetricName(tag=metric_tag(one)), display_name=one.title) for one in METRICS
    ]
    made = api_pb2.Experiment(hparam_infos=columns if rows else [], metric_infos=figures)
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


def _text(text: Text) -> object:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text import metadata
    from tensorboard.util import tensor_util

    shown = metadata.create_summary_metadata(display_name="", description="")
    tensor = tensor_util.make_tensor_proto([fenced(text.heading, wrapped(text.lines, TEXT_COLUMNS)).encode()])
    return Summary(value=[Summary.Value(tag=text.tag, metadata=shown, tensor=tensor)])
