"""What runs inside MaxText: clock, assertions, check, adapters and peak, with stand-ins for jax and a device."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.inside import worker_kit as kit
from benchmarks.runs.worker_events import read_phase
from jax_backend.inside import adapters, environment_check, peak_program, worker
from tests.benchmarks.inside.events import Events

TOLERANCE = 0.08  # for a process to wake up on a busy machine


class Pending:
    """A number that a device is still working on until a moment."""

    def __init__(self, value: float, ready_at: float = 0.0) -> None:
        self.value = value
        self.ready_at = ready_at
        self.seen_at = 0.0  # when it was first waited for to its end: on a busy machine later than it was ready

    def block_until_ready(self) -> "Pending":
        time.sleep(max(0.0, self.ready_at - time.perf_counter()))
        self.seen_at = self.seen_at or time.perf_counter()
        return self

    def __float__(self) -> float:
        self.block_until_ready()
        return self.value


def metrics_of(loss: float = 5.0, norm: float = 1.5, ready_at: float = 0.0, **more: float) -> dict[str, Any]:
    return {"scalar": {"learning/loss": Pending(loss, ready_at), "learning/raw_grad_norm": Pending(norm), **more}}


def silent(_metrics: dict[str, Any], _step: int, _metric_type: str = "train") -> None:
    """MaxText's own metric writer, with nothing to say."""


def begun(write_metrics: Any = silent) -> tuple[Any, Any, Events]:
    """A clock that was just started, MaxText's writer as it sees it, and what is written down."""
    events = Events()
    clock = worker.StepClock(events)
    clock.start()
    return clock, clock.around(write_metrics), events


# --- the clock ----------------------------------------------------------------------------------------


@pytest.mark.alone
def test_what_maxtext_does_with_a_step_is_not_in_that_steps_time() -> None:
    """The clock is read before MaxText's writer works, and the line is written after it."""
    seen: list[int] = []

    def slow(_metrics: dict[str, Any], step: int, _metric_type: str = "train") -> str:
        seen.append(len(events.all("step")))
        time.sleep(0.1)
        return f"wrote {step}"

    _, write, events = begun(slow)
    assert write(metrics_of(), 0) == "wrote 0"
    assert events.all("seconds")[0] < 0.05
    assert seen == [0]


def test_a_step_whose_loss_maxtext_refuses_is_kept_with_maxtexts_own_figures() -> None:
    def refuses(*_: Any) -> None:
        raise RuntimeError("aborted: the loss is NaN")

    clock, write, events = begun(refuses)
    with pytest.raises(RuntimeError, match="aborted"):
        write(metrics_of(float("nan"), **{"perf/step_time_seconds": 0.125}), 0)
    assert events.all("step") == [0]
    assert clock.failures() == ["the loss is not finite in 1 steps (first: 0)"]
    assert events.all("framework_seconds") == [0.125]
    assert events.all("framework_tflops_per_device") == [None]


def test_the_loss_excludes_load_balancing_and_mtp() -> None:
    _, write, events = begun()
    write(metrics_of(5.0, **{"learning/lm_loss": 5.0, "learning/moe_lb_loss": 0.0, "learning/mtp_loss": 0.0}), 0)
    write(metrics_of(6.5, **{"learning/lm_loss": 5.0, "learning/moe_lb_loss": 0.5, "learning/mtp_loss": 1.0}), 1)
    assert events.all("loss") == [5.0, 5.0]
    assert [event.get("other_losses") for event in events.written[-2:]] == [None, {"load_balancing": 0.5, "mtp": 1.0}]


# --- the hook -----------------------------------------------------------------------------------------


class Loop:
    """A training loop like MaxText's: it looks its iteration up for every step, dispatches a step and then
    writes the metrics of the step before, for which it waits; the last step is written at the end."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds
        self.returned: list[float] = []
        self.losses: list[Pending] = []
        self.training_loop_iteration = self._iteration
        self.logger = SimpleNamespace(write_metrics=silent)
        self._device_free_at = 0.0
        self._before: tuple[dict[str, Any], int] | None = None

    def _iteration(self, _state: Any, python_variables: dict[str, Any], _data: Any) -> None:
        step = python_variables["step"]
        begin = max(self._device_free_at, time.perf_counter())
        self._device_free_at = begin + self.seconds[step]
        self._flush()
        self._before = metrics_of(ready_at=self._device_free_at), step
        self.losses.append(self._before[0]["scalar"]["learning/loss"])

    def _flush(self) -> None:
        if self._before is not None:
            self.logger.write_metrics(*self._before)

    def run(self) -> None:
        for step in range(len(self.seconds)):
            variables = {"step": step, "metric_logger_instance": self.logger}
            self.training_loop_iteration("state", variables, {})
            self.returned.append(time.perf_counter())
        self._flush()


def hooked(loop: Loop, on_first_step: Any) -> tuple[Any, Events]:
    events = Events()
    clock = worker.StepClock(events)
    worker.hook_training_loop(loop, clock, on_first_step)
    return clock, events


@pytest.mark.alone
def test_an_uneven_loop_is_timed_rightly_and_keeps_its_pipeline() -> None:
    seconds = [0.15, 0.02, 0.10, 0.02, 0.10]
    loop, seen = Loop(seconds), []
    clock, events = hooked(loop, seen.append)
    start = time.perf_counter()
    loop.run()
    assert seen == ["state"], "facts are told once, before the first step"
    assert events.all("step") == list(range(5))
    assert clock.steps == 5
    ended = [start, *(loss.seen_at for loss in loop.losses)]
    assert events.all("seconds") == pytest.approx([b - a for a, b in pairwise(ended)], abs=TOLERANCE / 8)
    assert sum(events.all("seconds")) >= sum(seconds)
    assert sum(events.all("seconds")) == pytest.approx(events.all("elapsed_seconds")[-1], rel=1e-9)
    # The first step is still running when its iteration returns: the loop is one step ahead of the device.
    assert loop.returned[0] < loop.losses[0].ready_at


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (AssertionError(), "its cuda plugin is not installed or finds no device"),
        (RuntimeError("Unable to initialize backend 'cuda': no device\nmore"), "Unable to initialize backend 'cuda'"),
    ],
)
def test_a_jax_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch, error: Exception, why: str) -> None:
    def devices() -> None:
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=devices, __version__="0.12"))
    with pytest.raises(SystemExit) as ended:
        worker.assert_devices(SimpleNamespace(device_name=[], processes=1, devices=1))
    assert str(ended.value).startswith(f"stepmark worker: jax 0.12 has no cuda device: {why}")
    assert "more" not in str(ended.value)


# --- processes and devices ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "tasks_per_node", "processes", "devices", "mine"),
    [
        *((rank, 4, 8, 8, [device]) for rank, device in ((0, 0), (3, 3), (4, 0), (6, 2), (7, 3))),
        (1, 1, 2, 16, list(range(8))),  # alone on its node
    ],
)
def test_each_process_of_a_node_takes_its_own_device(
    monkeypatch: pytest.MonkeyPatch, rank: int, tasks_per_node: int, processes: int, devices: int, mine: list[int]
) -> None:
    calls: list[Any] = []
    distributed = SimpleNamespace(
        initialize=lambda *given, local_device_ids: calls.append((*given, local_device_ids))
    )
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(distributed=distributed))
    sizes = {"tasks_per_node": tasks_per_node, "processes": processes, "devices": devices}
    worker.join_processes(SimpleNamespace(coordinator="node-1:29500", rank=rank, **sizes))
    assert calls == [("node-1:29500", processes, rank, mine)]


# --- files and arguments ------------------------------------------------------------------------------


NEEDED = ["--events_dir=here", "--processes=1", "--devices=1", "--tasks_per_node=1"]


@pytest.mark.parametrize(
    ("options", "marked", "dumps"),
    [
        (["--disturbed_steps=2-4"], [None, None, "profiler", "profiler", "profiler", None], True),
        # Before jax has compiled again no step counts; the first of two reasons is recorded.
        (["--pgle_runs=3", "--disturbed_steps=0-1", "--rank=3"], ["profiler", *["pgle"] * 5], False),
    ],
)
def test_steps_that_cannot_count_are_marked_and_the_first_rank_writes_its_program_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], marked: list[str | None], dumps: bool
) -> None:
    def train_under_clock(_options: Any, clock: Any, *_: Any) -> None:
        clock.start()
        for step in range(6):
            clock.around(silent)(metrics_of(), step)

    monkeypatch.setattr(worker, "train_under_clock", train_under_clock)
    monkeypatch.setattr(worker.kit.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker.kit.faulthandler, "register", lambda *_args, **_named: None)
    monkeypatch.delenv("STEPMARK_DIE_WITH_PARENT", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")
    worker.main(worker.parse([*options, *NEEDED, f"--events_dir={tmp_path}", f"--hlo_dir={tmp_path}/hlo"]))
    assert [step.excluded_because for step in read_phase(tmp_path, 1).steps] == marked
    assert (f"--xla_dump_to={tmp_path}/hlo" in os.environ["XLA_FLAGS"].split()) == dumps


@pytest.mark.parametrize(
    ("rank", "profiler", "folder"),
    [
        ("0", "profiler=xplane", "/run/maxtext"),
        ("2", "profiler=xplane", "/run/maxtext/rank-2"),
        ("1", "profiler=", "/run/maxtext"),
    ],
)
def test_each_recorded_rank_has_a_folder_of_its_own_and_the_others_record_nothing(
    rank: str, profiler: str, folder: str
) -> None:
    """jax names a trace only by its host: two processes of a node would overwrite each other's."""
    argv = [*NEEDED, f"--rank={rank}", "--recorded_ranks=0,2-3"]
    options = worker.parse([*argv, "--", "profiler=xplane", "base_output_directory=/run/maxtext", "steps=4"])
    worker.record_of_this_rank(options)
    assert options.settings == [profiler, f"base_output_directory={folder}", "steps=4"]


def test_a_cuda_runtime_that_pip_installed_is_found_for_the_profiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MaxText looks for libcudart.so and continues without it; pip's has its version in its name."""
    place = tmp_path / "nvidia/cuda_runtime/lib/libcudart.so.12"
    place.parent.mkdir(parents=True)
    place.touch()
    profiler = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "maxtext", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "maxtext.common", SimpleNamespace(profiler=profiler))
    loaded: list[str] = []
    monkeypatch.setattr("ctypes.CDLL", lambda name: loaded.append(name) or name)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    worker.find_cuda_runtime()
    assert profiler.cdll.LoadLibrary("libcudart-that-is-not-there.so") == str(place)
    place.unlink()
    with pytest.raises(OSError, match="libcudart-that-is-not-there"):
        profiler.cdll.LoadLibrary("libcudart-that-is-not-there.so")


# --- what MaxText hides -------------------------------------------------------------------------------


@contextmanager
def yields_again() -> Iterator[None]:
    """As MaxText 0.2.5's transformer_engine_context does (utils/max_utils.py:1253)."""
    try:
        yield
    except Exception:
        yield


def test_an_error_inside_the_context_for_transformer_engine_is_the_one_that_ends_it() -> None:
    def out_of_memory() -> None:
        with yields_again():
            raise MemoryError("RESOURCE_EXHAUSTED")

    with pytest.raises(MemoryError, match="RESOURCE_EXHAUSTED"):
        worker.with_reason(out_of_memory)()


class Refusal(Exception):
    """As pydantic's, whose own words hold all of the input."""

    def errors(self) -> list[dict[str, Any]]:
        return [{"msg": "Value error, one thing"}, {"msg": "Input should be 'a' or 'b'"}]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ValueError("no such setting"), "ValueError: no such setting"),
        (Refusal("and all of the input"), "one thing; Input should be 'a' or 'b'"),
    ],
)
def test_an_exit_by_a_number_has_its_reason(reason: Exception, words: str) -> None:
    def refused() -> None:
        """As MaxText 0.2.5's pyconfig does."""
        try:
            raise reason
        except Exception:
            raise SystemExit(2)  # noqa: B904

    with pytest.raises(SystemExit) as ended:
        worker.with_reason(refused)()
    assert ended.value.code == f"stepmark worker: MaxText refuses: {words}"


# --- the check of a node --------------------------------------------------------------


devices_here: Any = environment_check.devices_here


class Product:
    """A matrix, and a product of two that is done."""

    def __matmul__(self, other: "Product") -> "Product":
        return other

    def block_until_ready(self) -> None:
        pass


def seen(monkeypatch: pytest.MonkeyPatch, count: int, *, alone: bool) -> Any:
    jax, numpy = ModuleType("jax"), ModuleType("jax.numpy")
    numpy.__dict__.update(ones=lambda *_: Product(), bfloat16=None)
    here = [SimpleNamespace(device_kind="NVIDIA H100 80GB HBM3", platform="gpu")] * count
    jax.__dict__.update(numpy=numpy, local_devices=lambda: here, device_put=lambda array, _: array)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.numpy", numpy)
    return devices_here(4, alone, ["NVIDIA H100 80GB HBM3"], kit)


def test_processes_with_a_gpu_each_may_be_on_a_node_with_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, 8, alone=False)["count"] == 8
    with pytest.raises(kit.CheckFailure, match="sees 3 devices"):
        seen(monkeypatch, 3, alone=False)


def test_a_process_that_is_alone_would_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, 4, alone=True)["count"] == 4
    with pytest.raises(kit.CheckFailure, match="sees 8 devices"):
        seen(monkeypatch, 8, alone=True)


# --- adapters -------------------------------------------------------------------------


def proven(monkeypatch: pytest.MonkeyPatch, states: list[Any]) -> Any:
    """Return the proof of a run whose state is replaced by each step, with the given states."""
    found = adapters.Adapters(kit, 0)
    monkeypatch.setattr(adapters, "looks_of", lambda state: states[state])
    device_state = {"state": {"model": 0}}
    found.begin(device_state)
    device_state["state"] = {"model": 1}
    found.finish()
    return found


def test_the_last_state_is_looked_at_not_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {"a": 1}, {"w": 2}
    found = proven(monkeypatch, [before, ({"a": 5}, {"w": 2})])
    assert found.proof.failures == []
    assert found.proof.notes == ["adapters on rank 0: 1 of 1 tensors changed; 0 of 1 frozen tensors changed"]
    assert proven(monkeypatch, [before, before]).proof.failures == ["1 of 1 adapters did not change (first: a)"]
    ended_early = adapters.Adapters(kit, 0)
    ended_early.finish()
    assert ended_early.proof.failures == ["training ended before the adapters were checked"]


# --- the peak program -----------------------------------------------------------------


class Array:
    def astype(self, _: str) -> "Array":
        return self

    def block_until_ready(self) -> "Array":
        return self


class JittedStep:
    """What jax.jit returns; it is compiled by calling it."""

    def __init__(self, function: Any) -> None:
        self.call = function

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def lower(self, *arguments: Any) -> Any:
        self.call(*arguments)
        return SimpleNamespace(compile=lambda: self.call)


@pytest.mark.parametrize(("dtype", "precision"), [("fp32", "highest"), ("bf16", None), ("fp8", None)])
def test_fp32_is_no_tf32(monkeypatch: pytest.MonkeyPatch, dtype: str, precision: str | None) -> None:
    asked: dict[str, Any] = {}
    jax = SimpleNamespace(
        jit=JittedStep,
        local_devices=lambda: ["the first"],
        numpy=SimpleNamespace(bfloat16="bfloat16"),
        random=SimpleNamespace(key=lambda *_, **__: None, uniform=lambda *_: Array()),
        lax=SimpleNamespace(
            Precision=SimpleNamespace(HIGHEST="highest"), dot_general=lambda *_, **named: asked.update(named)
        ),
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    peak_program.Jax("cpu").matmul(dtype, {"m": 2, "k": 3, "n": 4})
    assert asked["precision"] == precision
