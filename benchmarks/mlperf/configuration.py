"""The variables of a submission -> what a configuration asks for, in common words. Pure."""

import math
import re
from collections.abc import Mapping

from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import global_batch_size, wall_minutes
from benchmarks.mlperf.submission import CLOSED, DIVISION, Submission
from benchmarks.values import Value


class Configuration(Value, frozen=True):
    """What a configuration asks for; None: it says nothing of it."""

    variables: dict[str, str]
    nodes: int
    gpus_per_node: int
    tensor: int
    pipeline: int
    context: int
    minibatch: int | None  # sequences a replica and step
    micro_batch: int
    stated_batch: int | None  # where the whole batch is stated
    max_steps: int | None
    evaluation_interval: int | None
    experiments: int
    minutes_of_one: int | None
    minutes: int | None  # of the whole job
    division: str
    clears_caches: bool
    vboost: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def model_share(self) -> int:
        """How many GPUs hold one replica."""
        return self.tensor * self.pipeline * self.context

    @property
    def batch(self) -> int:
        """The global batch size as the submission computes it; 0 where the GPUs are too few."""
        if self.stated_batch is not None:
            return self.stated_batch
        return global_batch_size(self.minibatch or 1, self.gpus, self.tensor, self.pipeline, self.context)

    def batch_text(self) -> str:
        """The arithmetic of the batch, for people."""
        if self.stated_batch is not None:
            return f"BATCHSIZE = {self.stated_batch}"
        return (
            f"MINIBS {self.minibatch or 1} x ({self.gpus} GPUs // (TP {self.tensor} x PP {self.pipeline}))"
            f" // CP {self.context} = {self.batch}"
        )

    def time_text(self) -> str:
        """The arithmetic of the job's time, for people; nothing where the time of one experiment is not stated."""
        if self.minutes_of_one is None:
            return ""
        needed = wall_minutes(self.experiments, self.minutes_of_one)
        return f"5 + NEXP {self.experiments} x (WALLTIME_RUNANDTIME {self.minutes_of_one} + 5) = {needed}"


def configuration_of(variables: Mapping[str, str], submission: Submission) -> Configuration:
    """RequestError where a number is none."""

    def number(name: str | None, least: int = 1) -> int | None:
        text = variables.get(name, "") if name else ""
        if text in ("", "null", "None", "UNLIMITED"):
            return None
        if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < least:
            what = f"{name}={text[:40]}: a whole number of {least} or more is expected"
            raise RequestError(what, where=str(name))
        return int(text)

    knobs = submission.knobs
    _refuse_rate(knobs.learning_rate, variables.get(knobs.learning_rate, ""))
    return Configuration(
        variables=dict(variables),
        nodes=number("DGXNNODES") or 1,
        gpus_per_node=number("DGXNGPU") or 8,
        tensor=number(knobs.tensor) or 1,
        pipeline=number(knobs.pipeline) or 1,
        context=number(knobs.context) or 1,
        minibatch=number(knobs.minibatch),
        micro_batch=number(knobs.micro_batch) or 1,
        stated_batch=number(knobs.global_batch),
        max_steps=number(knobs.max_steps),
        evaluation_interval=number(knobs.evaluation_interval),
        experiments=number("NEXP") or 1,
        minutes_of_one=number("WALLTIME_RUNANDTIME", 0),
        minutes=number("WALLTIME", 0),
        division=variables.get(DIVISION, CLOSED).lower(),
        clears_caches=variables.get("CLEAR_CACHES", "1").lower() not in ("0", "false"),
        vboost=number("VBOOST_VALUE", 0) or 0,
    )


def _refuse_rate(name: str, text: str) -> None:
    try:
        good = not text or 0 < float(text) < math.inf
    except ValueError:
        good = False
    if not good:
        raise RequestError(f"{name}={text[:40]}: a finite number over 0 is expected", where=name)


def system_name(system: str, config: Configuration) -> str:
    """As NVIDIA names its config_*.sh, and tells the program inside."""
    batch = config.minibatch or config.micro_batch
    return (
        f"{system}_{config.nodes}x{config.gpus_per_node}x{batch}"
        f"xtp{config.tensor}pp{config.pipeline}cp{config.context}"
    )
