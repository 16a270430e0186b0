"""How likely a difference of each kind is to change a step's time: the weights that rank causes, and their reasons.

Data. A weight is an order and no probability: what acts on the arithmetic and the communication of every step stands
above what acts on the host, and that above what only watches. Evidence in the runs themselves (explain.py) moves a
cause up or down.
"""

import re
from typing import NamedTuple


class Kind(NamedTuple):
    title: str  # several of it
    weight: float
    why: str


class Special(NamedTuple):
    """Names of a kind that weigh otherwise than the rest of it."""

    kind: str
    names: re.Pattern[str]
    weight: float
    why: str


KINDS: dict[str, Kind] = {
    "slowdown": Kind("slowdown on purpose", 130, "every step was slowed on purpose"),
    "request": Kind("request", 104, "another request is other work, or the same work done otherwise"),
    "setting": Kind(
        "settings of the backend", 90, "a setting of the backend changes what each step computes or sends"
    ),
    "profile for PGLE": Kind("profile for PGLE", 86, "it orders computing and sending in every step"),
    "XLA flag": Kind("XLA flags", 84, "it changes how XLA compiles the step"),
    "device": Kind("devices", 82, "another device"),
    "version": Kind("versions", 45, "a package that training uses"),
    "image": Kind("image or lock file", 76, "it holds every library that the step runs on"),
    "argument": Kind("arguments", 74, "it tells the framework how to train"),
    "layout": Kind("layout as the framework made it", 72, "it shares the work among devices otherwise"),
    "environment": Kind("environment variables", 40, "a variable that a library may read"),
    "program": Kind(
        "program of the step", 66, "the frameworks were given another program: a setting, an argument or code made it"
    ),
    "node": Kind("nodes", 60, "other nodes differ in clocks, in cooling and in their place in the network"),
    "machine": Kind("machines", 58, "another machine feeds the devices, or is the device"),
    "recipe": Kind("recipe", 25, "its settings are named above where they differ"),
    "Stepmark": Kind("version of Stepmark", 22, "the programs that train and measure"),
    "telemetry": Kind("telemetry", 12, "sampling takes some time of the host"),
    "launcher": Kind("packages of the launcher", 5, "it waits while the run trains"),
    # From measures.py: a number of each run.
    "clock": Kind("GPU clocks, power, throttling", 50, "it sets how fast the device computes"),
    "load": Kind("load of the machine", 30, "other programs take time of the processors"),
}

COMPUTES = (
    r"^(jax|jaxlib|jax-cuda.*|libtpu|torch|triton|transformer[-_]engine.*|maxtext|nemo[-_]toolkit|nemo|megatron.*|"
    r"lightning|nccl|cuda|cudnn|cublas|nvidia-(nccl|cudnn|cublas|cuda).*|GPU driver|CUDA of the driver|flax|qwix|"
    r"aqtp)$"
)
VARIABLES = r"^(NCCL_|XLA_|NVTE_|CUDA_|CUBLAS_|CUDNN_|TORCH_|PYTORCH_|JAX_|UB_|OMP_|MKL_|MALLOC_|LD_PRELOAD|NEMO_)"


def _special(kind: str, names: str, weight: float, why: str) -> Special:
    return Special(kind, re.compile(names, re.IGNORECASE), weight, why)


SPECIAL: tuple[Special, ...] = (
    _special("request", r"^(backend|engine)$", 112, "another framework does the work"),
    _special("request", r"^hardware$", 110, "another device does the work"),
    _special("request", r"^(dtype|model|task|lora)$", 108, "other arithmetic in every step"),
    _special("request", r"^(gpus|nodes|parallelism)$", 106, "the work is shared otherwise"),
    _special("request", r"^pgle$", 96, "it orders computing and sending in every step"),
    _special("request", r"^data$", 62, "other data is read otherwise, and gives another loss"),
    _special("request", r"^(window|steps)$", 48, "other steps are counted: step times settle as they go on"),
    _special("request", r"^site$", 55, "another place, with its network and its settings"),
    _special("version", COMPUTES, 80, "it computes, compiles or sends in every step"),
    _special("environment", VARIABLES, 70, "the libraries below the framework read it"),
    _special("argument", r"^(steps|trainer\.max_steps)$", 46, "how long it trains"),
    _special("argument", r"^(--events_dir|run_name|base_output_directory)$", 4, "where it writes"),
    _special(
        "image", r"^(name|file_written|file_bytes|lock_file)$", 64, "perhaps the same libraries from another file"
    ),
    _special("Stepmark", r"^changed files$", 15, "the checkout was changed beside its commit"),
)


def weight_of(kind: str, name: str) -> tuple[float, str]:
    for special in SPECIAL:
        if special.kind == kind and special.names.search(name):
            return special.weight, special.why
    return KINDS[kind].weight, KINDS[kind].why
