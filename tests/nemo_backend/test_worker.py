"""The worker's own parts, without NeMo: joining, counting, the clock, the recording of nsys. Fake modules replace it.

What only a real NeMo shows (that only adapters train, that parameters are counted over real shards)
is in end_to_end/.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from nemo_backend.inside import peak_program, worker
from tests.megatron_dataset import write_dataset

PutModules = Callable[[Mapping[str, Mapping[str, Any]]], None]


def options(**changes: Any) -> Any:
    words = ["--events_dir=.", "--processes=1", "--devices=1", "--tasks_per_node=1", "--data=mock"]
    found = worker.parse([*words, "--vocabulary_size=512", "--tokens_per_step=512", "trainer.default_root_dir=/run"])
    vars(found).update(changes)
    return found


# --- files and arguments ------------------------------------------------------------------------------


# --- processes and devices ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_gpu", "wanted", "fits"),
    [
        (True, ["nvidia h100 80gb hbm3", "H100"], True),
        (True, ["NVIDIA H100"], False),  # compared whole: a PCIe card has another peak
        (True, ["cpu"], False),
        (True, [], True),
        (False, ["cpu"], True),
        (False, ["NVIDIA H100 80GB HBM3"], False),
    ],
)
def test_the_device_is_the_benchmarks(put_modules: PutModules, on_gpu: bool, wanted: list[str], fits: bool) -> None:
    cuda = SimpleNamespace(is_available=lambda: on_gpu, get_device_name=lambda: "NVIDIA H100 80GB HBM3")
    put_modules({"torch": {"cuda": cuda}})
    if fits:
        worker.assert_devices(options(device_name=wanted))
    else:
        with pytest.raises(SystemExit, match="the benchmark is for " + " or ".join(wanted)):
            worker.assert_devices(options(device_name=wanted))


def test_a_rank_that_trains_alone_is_an_error(put_modules: PutModules) -> None:
    put_modules({"torch.distributed": {"get_world_size": lambda: 1}})
    worker.assert_processes(options(processes=1))
    with pytest.raises(SystemExit, match="1 of 2 processes have joined"):
        worker.assert_processes(options(processes=2))


def test_a_rank_joins_by_torchs_own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.os, "environ", {})
    worker.join_processes(options(processes=8, rank=7, tasks_per_node=4, coordinator="node-1:29500"))
    place = {"MASTER_ADDR": "node-1", "MASTER_PORT": "29500", "NODE_RANK": "1", "LOCAL_RANK": "3"}
    assert worker.os.environ == {**place, "WORLD_SIZE": "8", "RANK": "7"}


# --- what was made ------------------------------------------------------------------------------------


class Gpt:
    """A part of a model: it calls its hook before each forward pass, as torch does."""

    def __init__(self, pre_process: bool = True) -> None:
        self.pre_process = pre_process
        self.hook: Any = None

    def register_forward_pre_hook(self, hook: Any, with_kwargs: bool) -> SimpleNamespace:
        assert with_kwargs
        self.hook = hook
        return SimpleNamespace(remove=lambda: setattr(self, "hook", None))

    def forward(self, *args: Any, **kwargs: Any) -> None:
        if self.hook:
            self.hook(self, args, kwargs)


def megatron(put_modules: PutModules, **sizes: int) -> None:
    state: dict[str, Callable[[], Any]] = {
        f"get_{axis}_parallel_world_size": partial(sizes.get, axis.split("_")[0], 1)
        for axis in ("tensor_model", "pipeline_model", "context", "data")
    }
    put_modules({"megatron.core.parallel_state": state, "megatron.core.models.gpt": {"GPTModel": Gpt}})


def ids(count: int) -> SimpleNamespace:
    return SimpleNamespace(numel=lambda: count)


def test_the_tokens_of_a_step_are_those_of_every_micro_step_and_replica(put_modules: PutModules) -> None:
    megatron(put_modules, data=3, context=2)
    first, later = Gpt(), Gpt(pre_process=False)
    count = worker.TokenCount(SimpleNamespace(modules=lambda: [object(), first, later]))
    first.forward(ids(128), None)
    first.forward(input_ids=ids(128), position_ids=ids(999))
    later.forward(ids(128))
    assert count.failures(2 * 128 * 3 * 2) == []
    assert count.failures(2048) == ["a step trained 1,536 tokens, but the benchmark has 2,048"]
    first.forward(ids(128))
    assert count.tokens == 256, "only one step is counted"


# --- the clock ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_step_ends_when_the_device_has_done_it(put_modules: PutModules, on_gpu: bool) -> None:
    def synchronize() -> None:
        assert on_gpu
        time.sleep(0.02)

    cuda = {"is_available": lambda: on_gpu, "synchronize": synchronize}
    put_modules({"torch.cuda": cuda, "lightning.pytorch.callbacks": {"Callback": object}})
    work = Mock()
    work.options.rank = 0
    work.recorder.started = False
    work.begin.side_effect = lambda _model: setattr(work.recorder, "started", True)
    clock = worker.step_clock(work)
    strategy = SimpleNamespace(megatron_parallel="model")
    measured = {"reduced_train_loss": 6.0, "grad_norm": 1.0, "train_step_timing in s": 0.5}
    trainer = SimpleNamespace(global_step=0, callback_metrics=measured, strategy=strategy)
    start = time.perf_counter()
    for step in range(2):
        clock.on_train_batch_start(trainer, None, None, step)
        trainer.global_step += 1
        clock.on_train_batch_end(trainer, None, None, None, step)
    clock.on_train_end(trainer, None)
    # A recording begins once the model exists, and ends once the step's time is recorded.
    assert [(name, arguments[0]) for name, arguments, _ in work.mock_calls] == [
        ("begin", "model"),
        *((name, step) for step in (0, 1) for name in ("profile.before", "end_of_step", "profile.after")),
        ("finish", "model"),
    ]
    ended = work.end_of_step.call_args_list
    (_, first, *_), (_, second, *_) = (call.args for call in ended)
    assert first - start >= (0.02 if on_gpu else 0)
    assert second <= time.perf_counter()
    assert ended[0].args[2:] == (6.0, 1.0)
    assert ended[0].kwargs["framework_seconds"] == 0.5


# --- a whole training ---------------------------------------------------------------------------------


def model_of(part: Gpt, **bits: int) -> SimpleNamespace:
    """A frozen weight and an adapter, each by the number that stands for its bits."""
    weights = {name: SimpleNamespace(requires_grad=name == "a", bits=n, grad=None) for name, n in bits.items()}
    return SimpleNamespace(modules=lambda: [part], named_parameters=weights.items)


def test_all_broken_modules_are_reported_at_the_end(put_modules: PutModules, monkeypatch: pytest.MonkeyPatch) -> None:
    megatron(put_modules)
    put_modules({"torch.distributed": {"get_world_size": lambda: 1}})
    monkeypatch.setattr(worker, "facts", lambda _options, _model, notes: {"rank": 0, "notes": notes})
    monkeypatch.setattr(worker, "fingerprint", lambda weight: weight.bits)
    work, part = worker.Work(options(task="lora"), Mock()), Gpt()
    work.begin(model_of(part, w=7, a=7))
    part.forward(ids(1))
    work.end_of_step(0, time.perf_counter(), 6.0, 0.0)
    work.finish(model_of(part, w=8, a=7))
    assert work.failures() == [
        "every gradient is zero: nothing was trained",
        "a step trained 1 tokens, but the benchmark has 512",
        "1 of 1 adapters receive no gradient (first: a)",
        "1 of 1 adapters did not change (first: a)",
        "1 of 1 frozen weights changed (first: w)",
    ]
    assert work.notes() == ["adapters on rank 0: 0 of 1 tensors changed; 1 of 1 frozen tensors changed"]


# --- what nsys records, and how torch multiplies ----------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "mine", "on_gpu", "asked"),
    [
        ((5, 6, 7), True, True, [("start", 5), ("ranges begin", 5), ("stop", 8), ("ranges end", 8)]),
        ((5, 6, 7), False, True, []),
        ((5, 6, 7), True, False, []),
        ((5, 6, 7), False, False, []),  # the first rank's notes are the result's, whichever ranks are recorded
        ((), True, True, []),
    ],
)
def test_a_recording_begins_before_its_first_step_and_ends_after_its_last(
    recorded: tuple[int, ...], mine: bool, on_gpu: bool, asked: list[tuple[str, int]]
) -> None:
    found: list[tuple[str, int]] = []  # what torch is asked, and how many steps were done before

    def call(what: str) -> Callable[..., None]:
        return lambda *_: found.append((what, step + done))

    runtime = SimpleNamespace(cudaProfilerStart=call("start"), cudaProfilerStop=call("stop"))
    ranges = type("Ranges", (), {"__enter__": call("ranges begin"), "__exit__": call("ranges end")})
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: on_gpu, cudart=lambda: runtime, check_error=lambda _: None),
        autograd=SimpleNamespace(profiler=SimpleNamespace(emit_nvtx=ranges)),
    )
    profile = worker.ProfiledSteps(recorded, mine=mine)
    for step in range(10):
        done = 0
        profile.before(step, torch)
        done = 1
        profile.after(step, torch)
    assert found == asked
    assert bool(profile.notes()) is not on_gpu


def test_fp32_is_no_tf32(put_modules: PutModules) -> None:
    asked: list[str] = []
    put_modules({"torch": {"set_float32_matmul_precision": asked.append, "set_num_threads": lambda _: None}})
    peak_program.Torch("cpu")
    assert asked == ["highest"]


def test_what_was_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "training.jsonl").write_text("{}")
    (note,) = worker.about_dataset(tmp_path)
    assert note.startswith(f"data: {tmp_path.name}/training.jsonl (44136fa355b3678a), each row is padded")
    monkeypatch.setattr(worker.importlib.util, "find_spec", lambda _: object())
    assert worker.about_dataset(tmp_path)[0].endswith("packed to whole sequences")
    digest = hashlib.sha256((write_dataset(tmp_path) / "t_0.idx").read_bytes()).hexdigest()[:16]
    (note,) = worker.about_dataset(tmp_path)
    assert note == f"data: {tmp_path.name}, 16 bytes of tokens, indexed by {digest}"
