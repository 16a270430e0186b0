"""One run as a row: what queries filter by, and the figures that tables show. Pure."""

from benchmarks.values import Value


class Entry(Value, frozen=True):
    """A run's result, benchmark and provenance, as far as many runs are looked at together.

    A figure that is None is null in result.json, where the reason stands.
    """

    run_id: str
    path: str  # relative to the folder with the runs
    started: str  # UTC, such as 2026-11-22T03:45:11Z: from the name that the run was given
    status: str  # valid, invalid, failed; running: there is no result yet
    backend: str
    engine: str
    model: str
    task: str
    dtype: str
    hardware: str
    gpus: int
    nodes: int
    site: str
    host: str | None  # where the launcher ran, or the job's first node
    parallelism: str
    sequence_length: int
    global_batch_size: int
    steps: int
    window: str
    counted: int
    settled: bool
    profile: str
    pgle: str
    seconds_per_step: float | None  # the median
    seconds_low: float | None  # its 95% interval
    seconds_high: float | None
    seconds_mean: float | None
    excess: float | None
    tokens_per_second: float | None
    tokens_per_second_per_gpu: float | None
    mfu_percent: float | None  # the first of result.json: which one, the next three say
    mfu_convention: str | None
    mfu_precision: str | None
    mfu_peak_tflops: float | None
    last_loss: float | None
    memory_bytes: float | None  # the most that a device held (GPU), or the host (CPU)
    version: str | None  # of Stepmark
    commit: str | None  # of the checkout that ran it
    tags: list[str]
    suite: str | None
    cell: str | None
    night: str | None
    role: str | None  # night or rerun
    not_comparable: list[str]
    slowed_by: float
    # What the nights of a baseline share, by kind (benchmark, environment, machine): a digest or a name.
    identity: dict[str, str]
    reasons: list[str]
    # The same in words, to be held beside another run's; of benchmark the first digits of its digest.
    identity_text: dict[str, str] = {}
    changed_files: int | None = None  # of that checkout, against its commit
