"""The variables of a submission -> what a configuration asks for, in common words. Pure."""

import math
import re
from collections.abc import Mapping

from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import global_batch_size, wall_minutes
from benchmarks.mlperf.submission import CLOSED, DIVISION, Submission
from benchmarks.values import Value

# config_<SYSTEM>_<nodes>x<gpus>x<MINIBS>xtp<TP>pp<PP>cp<CP>.sh, as NVIDIA names its files; flux1 has no pp and cp.
_FILE_NAME = re.compile(
    r"config_(?P<system>.+)_0*(?P<nodes>\d+)x0*(?P<gpus>\d+)x0*(?P<minibatch>\d+)"
    r"(?:xtp(?P<tensor>\d+)(?:pp(?P<pipeline>\d+))?(?:cp(?P<context>\d+))?)?(?P<rest>\w*)\.sh"
)


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
    learning_rate: float | None
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
    reader = _Reader(variables)
    knobs = submission.knobs
    return Configuration(
        variables=dict(variables),
        nodes=reader.whole("DGXNNODES", 1),
        gpus_per_node=reader.whole("DGXNGPU", 8),
        tensor=reader.whole(knobs.tensor, 1),
        pipeline=reader.whole(knobs.pipeline, 1),
        context=reader.whole(knobs.context, 1),
        minibatch=reader.positive(knobs.minibatch),
        micro_batch=reader.whole(knobs.micro_batch, 1),
        stated_batch=reader.positive(knobs.global_batch),
        max_steps=reader.positive(knobs.max_steps),
        evaluation_interval=reader.positive(knobs.evaluation_interval),
        learning_rate=reader.number(knobs.learning_rate),
        experiments=reader.whole("NEXP", 1),
        minutes_of_one=reader.minutes("WALLTIME_RUNANDTIME"),
        minutes=reader.minutes("WALLTIME"),
        division=variables.get(DIVISION, CLOSED).lower(),
        clears_caches=variables.get("CLEAR_CACHES", "1").lower() not in ("0", "false"),
        vboost=reader.maybe("VBOOST_VALUE") or 0,
    )


class _Reader:
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def whole(self, name: str | None, default: int) -> int:
        found = self.positive(name)
        return default if found is None else found

    def positive(self, name: str | None) -> int | None:
        found = self.maybe(name)
        if found is not None and found < 1:
            raise RequestError(f"{name}={found}: it must be 1 or more", where=str(name))
        return found

    def maybe(self, name: str | None) -> int | None:
        text = self._variables.get(name, "") if name else ""
        if text in ("", "null", "None"):
            return None
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise RequestError(f"{name}={text[:40]}: a whole number is expected", where=str(name))
        return int(text)

    def number(self, name: str) -> float | None:
        text = self._variables.get(name, "")
        try:
            found = float(text) if text else None
        except ValueError:
            raise RequestError(f"{name}={text[:40]}: a number is expected", where=name) from None
        if found is not None and not 0 < found < math.inf:
            raise RequestError(f"{name}={text[:40]}: it must be over 0, and finite", where=name)
        return found

    def minutes(self, name: str) -> int | None:
        """UNLIMITED is no limit; a job must have one, and the site's is taken."""
        return None if self._variables.get(name, "").upper() == "UNLIMITED" else self.maybe(name)


def named_by_file(name: str) -> dict[str, int]:
    """What a configuration's file name states; nothing where it is named otherwise."""
    found = _FILE_NAME.fullmatch(name)
    if found is None:
        return {}
    numbers = ("nodes", "gpus", "minibatch", "tensor", "pipeline", "context")
    return {key: int(text) for key in numbers if (text := found[key]) is not None}


def config_name(system: str, config: Configuration) -> str:
    """As NVIDIA would name the file."""
    batch = config.minibatch or config.micro_batch
    return (
        f"config_{system}_{config.nodes}x{config.gpus_per_node}x{batch}"
        f"xtp{config.tensor}pp{config.pipeline}cp{config.context}.sh"
    )
