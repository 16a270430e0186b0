"""What a dashboard is made of: folders of scalars, each a run of TensorBoard's, and what is told beside them."""

from benchmarks.values import Value


class Point(Value, frozen=True):
    step: int
    unix_seconds: float
    scalars: dict[str, float]  # tag -> value


class Chart(Value, frozen=True):
    """One chart of the tab Custom Scalars: lines, or lines with a band around each."""

    title: str
    tags: list[str] = []  # lines
    band: list[tuple[str, str, str]] = []  # tags of the value, the lower and the upper end


class Category(Value, frozen=True):
    title: str
    charts: list[Chart]


# What TensorBoard has messages of its own for (launch/dashboards/summaries.py).


class Charts(Value, frozen=True, tag=True):
    """The tab Custom Scalars."""

    categories: list[Category]


class Table(Value, frozen=True, tag=True):
    """The columns of the tab HParams, from all rows: the values of each are its filter."""

    rows: list[dict[str, str | float]]


class Row(Value, frozen=True, tag=True):
    """One row of the tab HParams."""

    name: str
    unix_seconds: float
    cells: dict[str, str | float]


class Text(Value, frozen=True, tag=True):
    """A page of the tab Text: a heading, and lines as they are."""

    tag: str
    heading: str
    lines: list[str]


class Board(Value, frozen=True):
    """One run of TensorBoard's as it is to be."""

    name: str  # KIND/NAME: its folder below the log directory
    points: list[Point] = []
    told: list[Charts | Table | Row | Text] = []  # before the points
    links: dict[str, str] = {}  # name in the folder -> file elsewhere
    place: int | None = None  # among those whose colours must differ; None: after them, by its first point
