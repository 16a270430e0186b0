"""What a dashboard is made of: folders of scalars, each a run of TensorBoard's, and the rows of its table."""

from benchmarks.values import Value


class Point(Value, frozen=True):
    step: int
    unix_seconds: float
    scalars: dict[str, float]  # tag -> value


class Table(Value, frozen=True, tag=True):
    """The columns of the tab HParams, from all rows: the values of each are its filter."""

    rows: list[dict[str, str | float]]


class Row(Value, frozen=True, tag=True):
    """One row of the tab HParams."""

    name: str
    unix_seconds: float
    cells: dict[str, str | float]


class Board(Value, frozen=True):
    """One run of TensorBoard's as it is to be."""

    name: str  # KIND/NAME: its folder below the log directory
    points: list[Point] = []
    table: Table | Row | None = None  # before the points
    links: dict[str, str] = {}  # name in the folder -> file elsewhere
    place: int | None = None  # among those whose colours must differ; None: after them, by its first point
