"""The JSON documents of commands that are not values of the library. docs/schemas.json describes them all."""

from typing import Any, Literal

from benchmarks.assets import AssetStatus, Needs
from benchmarks.measuring.summary import Result
from benchmarks.nightly.values import CellReport
from benchmarks.preflight.report import Report
from benchmarks.values import Plan, Value


class Why(Value, frozen=True):
    """The parts of an error or a refusal. Unused parts are empty."""

    what: str
    where: str = ""
    why: str = ""
    next: str = ""


class Error(Value, frozen=True):
    """The document of a command that ends with an error."""

    error: Why
    exit_code: int


class ExitDocument(Value, frozen=True):
    """The document of a command that prints no other document."""

    exit_code: int


class Text(Value, frozen=True):
    """The document of output that is only text: --help, a completion or a job script."""

    text: str


# --- runs ---------------------------------------------------------------------------------------


class Run(Value, frozen=True):
    run_id: str
    path: str
    status: Literal["valid", "invalid", "failed", "not ended"]
    result: Result | None  # as in result.json; null until the run has ended


class Runs(Value, frozen=True):
    runs: list[Run]


class DryRun(Value, frozen=True):
    benchmark: dict[str, Any]  # as in benchmark.json
    plan: Plan
    preview: str  # a job script, the command of a container, or the environment that is created first
    refusals: list[Why]  # why the run would be refused now


class DrySweep(Value, frozen=True):
    repeats: int
    cells: dict[str, DryRun]  # by the flags that distinguish a cell from the others
    refused: dict[str, str]  # skipped by --skip_refused, with the reason


class State(Value, frozen=True):
    """A row of status.py."""

    run_id: str
    path: str
    site: str
    job_id: str | None
    state: str
    step: int | None
    steps: int | None
    seconds_per_step: float | None
    detail: str


class RunCheck(Value, frozen=True):
    """A run compared with its raw files."""

    path: str
    agrees: bool | None  # null: the run could not be read, or was repaired
    status: str = ""
    steps: int | None = None
    differences: list[str] = []
    error: Why | None = None


class CheckedRuns(Value, frozen=True):
    runs: list[RunCheck]


class CheckedArchive(Value, frozen=True):
    file: str
    whole: bool
    differences: list[str]
    runs: list[RunCheck]


class Archive(Value, frozen=True):
    file: str
    runs: list[str]
    sums_sha256: str  # the digest of SHA256SUMS, the first file of the archive


class Page(Value, frozen=True):
    file: str
    bytes: int


class Dashboard(Value, frozen=True):
    logdir: str
    address: str | None = None  # with --serve


# --- nights -------------------------------------------------------------------------------------


class NightPlan(Value, frozen=True):
    suite: str
    site: str
    rerun_budget: int
    cells: dict[str, dict[str, Any]]  # by name; each value as in benchmark.json


class RehearsedNight(Value, frozen=True):
    what: str
    cell: CellReport
    exit_code: int
    blind_below_percent: float | None


class Rehearsal(Value, frozen=True):
    suite: str
    nights: list[RehearsedNight]


# --- machines -----------------------------------------------------------------------------------


class Site(Value, frozen=True):
    site: str
    runtime: str
    ready: bool
    found: dict[str, str]


class NewSite(Value, frozen=True):
    site: str
    path: str
    preflight: Report  # the check of two nodes
    next: list[str]


class Files(Value, frozen=True):
    """The files that a run needs, and their state."""

    needs: Needs
    out: str | None
    found: list[AssetStatus]


class Cluster(Value, frozen=True):
    name: str
    up: bool
    nodes: list[str] = []
    missing: list[str] = []  # daemons that should run but do not
    slurm_conf: str | None = None
    logs: str | None = None
