"""What differs between two sides, the most likely cause first: differences planted in copies of a real run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.comparing.compare import compare
from benchmarks.comparing.explain import Explained, causes
from benchmarks.comparing.kinds import KINDS, SPECIAL
from benchmarks.comparing.runs import ComparedRun, read_run
from benchmarks.comparing.values import Cause
from benchmarks.measuring.summary import Pgle
from benchmarks.values import PgleProfile, PgleSeen
from tests.benchmarks.comparing.made import REAL_RUN, Document, Edit, folder, on_gpu, run, side

SLOWER = 0.05


def worker(document: Document) -> Document:
    found: Document = document["worker"][-1]
    return found


def phase(document: Document) -> Document:
    found: Document = document["phases"]["perf"]
    return found


def replaced(words: list[str], old: str, new: str) -> None:
    words[:] = [new if word == old else word for word in words]


def of_plan(change: Callable[[Document], object]) -> Edit:
    return lambda plan: change(plan["phases"][0])


PLANTED: dict[str, tuple[dict[str, Edit], tuple[str, str, str | None, str | None]]] = {
    "framework": (
        {"provenance": lambda d: worker(d)["versions"].update(maxtext="0.2.6")},
        ("version", "maxtext", "0.2.5", "0.2.6"),
    ),
    "compiler": (
        {"provenance": lambda d: worker(d)["versions"].update(jaxlib="0.13.0")},
        ("version", "jaxlib", "0.12.0.1", "0.13.0"),
    ),
    "NCCL": (
        {"provenance": lambda d: worker(d)["versions"].update(nccl="2.28.3")},
        ("version", "nccl", None, "2.28.3"),
    ),
    "XLA flag": (
        {"provenance": lambda d: worker(d).update(xla_flags=worker(d)["xla_flags"] + " --xla_cpu_use_onednn=true")},
        ("XLA flag", "xla_cpu_use_onednn", None, "true"),
    ),
    "XLA flag, as handed over": (
        {"provenance": lambda d: phase(d)["environment"].update(XLA_FLAGS="--xla_a=1 --xla_b")},
        ("XLA flag", "xla_a", None, "1"),
    ),
    "argument": (
        {"provenance": lambda d: replaced(phase(d)["argv"], "log_period=1", "log_period=100")},
        ("argument", "log_period", "1", "1 (seen by the worker; 100 was planned)"),
    ),
    "setting": (
        {
            "benchmark": lambda d: d["knobs"].update(remat_policy="full"),
            "provenance": lambda d: replaced(phase(d)["argv"], "remat_policy=minimal", "remat_policy=full"),
        },
        ("setting", "remat_policy", "minimal", "full"),
    ),
    "lock file": (
        {"provenance": lambda d: d["environment"].update(lock_sha256="f" * 64)},
        ("image", "lock_sha256", "e4c92fe39ca2", "f" * 12),
    ),
    "container": (
        {"provenance": lambda d: d["environment"].update(image="ghcr.io/nvidia/jax:2026-11-20")},
        ("image", "image", None, "ghcr.io/nvidia/jax:2026-11-20"),
    ),
    "program": (
        {"provenance": lambda d: worker(d).update(program="sha256:" + "b" * 64)},
        ("program", "sha256 of the step's program", "a" * 12, "b" * 12),
    ),
    "node": (
        {"provenance": lambda d: d["machine"].update(hostname="node7")},
        ("node", "hosts", "node1", "node1 node7"),
    ),
    "variable": (
        {"provenance": lambda d: phase(d)["environment"].update(OMP_NUM_THREADS="1")},
        ("environment", "OMP_NUM_THREADS", None, "1"),
    ),
    "variable of the shell": (
        {"provenance": lambda d: d["shell"].update(NCCL_ALGO="Ring")},
        ("environment", "NCCL_ALGO", None, "Ring"),
    ),
    "processor": (
        {"provenance": lambda d: d["machine"].update(cpu="Intel Xeon")},
        ("machine", "cpu", "AMD EPYC", "Intel Xeon"),
    ),
    "kernel": (
        {"provenance": lambda d: d["machine"].update(system="Linux 7.0")},
        ("machine", "system", "Linux 6.18.44-fc-v509", "Linux 7.0"),
    ),
    "memory": (
        {"provenance": lambda d: d["machine"].update(memory_bytes=1000)},
        ("machine", "memory_bytes", "25276518400", "1000"),
    ),
    "load": (
        {"provenance": lambda d: d["machine"].update(load_average=[2.4, 2.0, 1.0])},
        ("load", "at the start, a processor", "0.2234", "1.2"),
    ),
    "batch": (
        {"benchmark": lambda d: d.update(gradient_accumulation=2)},
        ("request", "gradient accumulation", "1", "2"),
    ),
    "precision": ({"benchmark": lambda d: d.update(dtype="fp32")}, ("request", "dtype", "bf16", "fp32")),
    "layout": (
        {"provenance": lambda d: worker(d).update(mesh={"fsdp": 2})},
        ("layout", "mesh", "one device", "fsdp 2"),
    ),
    "recipe": (
        {"benchmark": lambda d: d["recipe"].update(name="another")},
        ("recipe", "name", "jax_tiny_pretrain", "another"),
    ),
    "data": (
        {"benchmark": lambda d: d.update(data="/shared/c4")},
        ("request", "data", "synthetic", "/shared/c4"),
    ),
    "Stepmark": ({"provenance": lambda d: d.update(stepmark="0.7.0")}, ("Stepmark", "version", "0.6.0", "0.7.0")),
    "commit": (
        {"provenance": lambda d: d["git"].update(commit="c" * 40)},
        ("Stepmark", "commit", "185ebab9085b", "c" * 12),
    ),
    "telemetry": ({"result": lambda d: d.update(telemetry=None)}, ("telemetry", "sampled", "yes", "no")),
    "launcher": (
        {"provenance": lambda d: d["launcher"].update(numpy="3.0")},
        ("launcher", "numpy", "2.4.6", "3.0"),
    ),
    "slowdown": (
        {"result": lambda d: d.update(slowed_by=0.5), "benchmark": lambda d: d.update(inject_slowdown=0.5)},
        ("slowdown", "inject_slowdown", "0%", "50%"),
    ),
}  # fmt: skip


def pair(place: Path, **edits: Edit) -> tuple[ComparedRun, ComparedRun]:
    """The real run and a copy with something planted; both know their program."""

    def with_program(document: Document) -> None:
        worker(document)["program"] = "sha256:" + "a" * 64
        if "provenance" in edits:
            edits["provenance"](document)

    before = folder(place, "before", provenance=lambda d: worker(d).update(program="sha256:" + "a" * 64))
    after = folder(place, "after", **{**edits, "provenance": with_program})
    return read_run(before), read_run(after)


def named(cause: Cause) -> tuple[str, str, str | None, str | None]:
    return cause.kind, cause.name, cause.a, cause.b


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_found_and_named_first(tmp_path: Path, what: str) -> None:
    edits, expected = PLANTED[what]
    a, b = pair(tmp_path, **edits)
    found = causes([a], [b], SLOWER)
    assert named(found.causes[0]) == expected
    assert found.causes[0].rank == 1
    others = {cause.kind for cause in found.causes} - {expected[0]}
    assert others <= ({"argument"} if what in ("precision", "batch") else set())


def test_as_many_kinds_are_planted_as_there_are() -> None:
    planted = {expected[0] for _, expected in PLANTED.values()}
    assert KINDS.keys() - planted == {"device", "clock", "profile for PGLE"}  # those of a GPU are below
    assert {special.kind for special in SPECIAL} <= KINDS.keys()


def test_runs_that_differ_in_nothing_say_so(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    found = causes([a], [b], 0.0)
    assert found.causes == []
    assert found.not_known == []
    assert "program of the step (aaaaaaaaaaaa: the same program)" in found.same
    assert len(found.same) == len(KINDS) - 1  # a CPU has no GPU's clock


def test_two_real_runs_elsewhere_at_another_time_differ_in_nothing(tmp_path: Path) -> None:
    """Places, names, times and ports are no cause."""
    other = "20270101T000000Z-jax-llama2_tiny-pretrain-bf16-1xcpu-ffff"

    def move(document: Document) -> None:
        text = json.dumps(document)
        for old, new in (
            (REAL_RUN.result.run_id, other),
            ("/data/results", "/elsewhere/of/mine"),
            ("/home/user/stepmark", "/opt/stepmark"),
            ("/home/user/.cache", "/scratch"),
        ):
            text = text.replace(old, new)
        document.clear()
        document.update(json.loads(text))
        document["shell"] |= {"SLURM_JOB_ID": "77", "STEPMARK_HOME": "/x", "MASTER_PORT": "31337"}
        phase(document)["environment"] |= {"COORDINATOR": "node1:31337"}

    def here(document: Document) -> None:
        phase(document)["environment"] |= {"COORDINATOR": "node1:29500"}

    shell = {"TF_CLI_CONFIG_FILE": "/home/user/.terraformrc"}
    first = read_run(folder(tmp_path, "first", provenance=here))
    second = read_run(folder(tmp_path, "second", provenance=move))
    assert second.provenance["shell"].items() >= shell.items()
    found = causes([first], [second], SLOWER)
    assert found.causes == []
    assert found.not_known == []


def test_a_value_that_looks_like_a_port_and_is_none_is_a_difference(tmp_path: Path) -> None:
    a, b = pair(tmp_path, provenance=lambda d: phase(d)["environment"].update(CUBLAS_WORKSPACE_CONFIG=":4096:8"))
    assert named(causes([a], [b], None).causes[0])[:2] == ("environment", "CUBLAS_WORKSPACE_CONFIG")
    for value in (":2048:8", ":4096:16384", ":4096"):
        c = a._replace(provenance=json.loads(json.dumps(b.provenance).replace(":4096:8", value)))
        assert named(causes([c], [b], None).causes[0])[2:] == (value, ":4096:8")


# --- the order ------------------------------------------------------------------------------------


def test_the_order_of_many_differences(tmp_path: Path) -> None:
    def all_at_once(document: Document) -> None:
        worker(document)["versions"] |= {"jax": "9.9", "numpy": "9.9"}
        worker(document)["program"] = "b" * 64
        worker(document)["xla_flags"] += " --xla_new=1"
        document["environment"]["lock_sha256"] = "f" * 64
        document["machine"]["hostname"] = "node7"
        document["git"]["commit"] = "c" * 40
        document["launcher"]["rich"] = "99"
        phase(document)["environment"] |= {"NCCL_DEBUG": "INFO", "EDITOR_MODE": "x"}

    a, b = pair(
        tmp_path,
        provenance=all_at_once,
        benchmark=lambda d: (d["knobs"].update(scan_layers=False), d.update(dtype="fp32")),
    )
    found = causes([a], [b], SLOWER).causes
    assert [(cause.kind, cause.name) for cause in found if cause.kind != "argument"] == [
        ("request", "dtype"), ("setting", "scan_layers"), ("XLA flag", "xla_new"), ("version", "jax"),
        ("image", "lock_sha256"), ("environment", "NCCL_DEBUG"), ("program", "sha256 of the step's program"),
        ("node", "hosts"), ("version", "numpy"), ("environment", "EDITOR_MODE"), ("Stepmark", "commit"),
        ("launcher", "rich"),
    ]  # fmt: skip
    assert [cause.rank for cause in found] == list(range(1, len(found) + 1))


def test_a_setting_that_did_not_change_the_program_falls_back(tmp_path: Path) -> None:
    def change(document: Document) -> None:
        worker(document)["versions"]["jaxlib"] = "9.9"

    knob: Edit = lambda d: d["knobs"].update(scan_layers=False)  # noqa: E731
    a, b = pair(tmp_path, provenance=change, benchmark=knob)
    same = causes([a], [b], SLOWER)
    assert [cause.kind for cause in same.causes] == ["version", "setting"]
    assert "the step's program is the same all the same" in same.causes[1].why
    other = b._replace(provenance=json.loads(json.dumps(b.provenance).replace("a" * 64, "b" * 64)))
    assert [cause.kind for cause in causes([a], [other], SLOWER).causes] == ["setting", "version", "program"]


def test_an_argument_that_hands_over_a_setting_is_named_once(tmp_path: Path) -> None:
    edits, _ = PLANTED["setting"]
    a, b = pair(tmp_path, **edits)
    assert len(causes([a], [b], SLOWER).causes) == 1


def version(name: str, **versions: str) -> ComparedRun:
    provenance = json.loads(json.dumps(REAL_RUN.provenance))
    worker(provenance)["versions"] |= versions
    return run(name, provenance=provenance)


def test_a_change_that_parts_the_sides_outranks_one_that_varies_within_them() -> None:
    a = [version("a1", jax="1", torch="1"), version("a2", jax="2", torch="1"), version("a3", jax="1", torch="1")]
    b = [version("b1", jax="3", torch="2"), version("b2", jax="2", torch="2"), version("b3", jax="3", torch="2")]
    first, second = causes(a, b, SLOWER).causes
    assert named(first) == ("version", "torch", "1", "2")
    assert "in all 3 runs of B and none of A" in first.why
    assert named(second) == ("version", "jax", "1 (2), 2 (1)", "3 (2), 2 (1)")
    assert "some runs of both sides have it alike" in second.why


def test_a_change_that_varies_within_a_side_stands_between() -> None:
    a = [version("a1", torch="1", jax="1"), version("a2", torch="1", jax="2"), version("a3", torch="1", jax="1")]
    b = [version("b1", torch="2", jax="3"), version("b2", torch="2", jax="4"), version("b3", torch="2", jax="3")]
    assert [cause.name for cause in causes(a, b, SLOWER).causes] == ["torch", "jax"]
    assert "it varies within a side too" in causes(a, b, SLOWER).causes[1].why


def test_a_change_in_a_part_of_the_runs_is_named_and_one_that_both_sides_share_is_not() -> None:
    a = [version(f"a{n}", jax="1", torch=str(n)) for n in range(3)]
    b = [version(f"b{n}", jax="1" if n == 0 else "2", torch=str(2 - n)) for n in range(3)]
    assert [named(cause) for cause in causes(a, b, SLOWER).causes] == [("version", "jax", "1", "1 (1), 2 (2)")]


def test_what_a_side_does_not_record_is_not_known_and_no_difference() -> None:
    provenance = json.loads(json.dumps(REAL_RUN.provenance))
    del provenance["worker"]
    old = run("old", provenance=provenance)
    found = causes([old], [run("new")], SLOWER)
    assert found.causes == []
    assert "versions: A does not say" in found.not_known
    assert not any(text.startswith("versions") for text in found.same)


@pytest.mark.parametrize("provenance", [{}, {"worker": [7], "phases": [], "git": "x", "shell": 3, "machine": []}])
def test_provenance_of_another_shape_is_no_error(provenance: dict[str, Any]) -> None:
    found = causes([run("a", provenance=provenance)], [run("b")], SLOWER)
    assert isinstance(found, Explained)
    assert "versions: A does not say" in found.not_known


# --- clocks, power, load --------------------------------------------------------------------------


def first_of(a: ComparedRun, b: ComparedRun, slower: float | None) -> Cause:
    return causes([a], [b], slower).causes[0]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"sm_clock_mhz_median": 1880.0}, "SM clock, median"),
        ({"power_limit_watts": 600.0}, "power limit"),
        ({"throttled": {"hardware_thermal": 0.4, "software_power_cap": 0.1}}, "throttled: hardware thermal"),
        ({"temperature_c_max": 85}, "highest temperature"),
        ({"ecc_uncorrected": 3}, "uncorrected ECC errors"),
    ],
)
def test_what_the_gpus_did_is_found(change: dict[str, Any], name: str) -> None:
    cause = first_of(on_gpu("a", 1.0), on_gpu("b", 1.05, **change), SLOWER)
    assert (cause.kind, cause.name) == ("clock", name)
    assert "it fits" in cause.why


def test_a_clock_5_percent_lower_beside_a_step_5_percent_slower_ranks_first() -> None:
    a = on_gpu("a", 1.0)
    b = on_gpu("b", 1.05, benchmark={"knobs": {"remat_policy": "full"}}, sm_clock_mhz_median=1881.0, driver="581.0")
    found = compare(side("A", a), side("B", b), explained=True)
    assert found.causes is not None
    assert found.causes[0].name == "SM clock, median"
    assert found.causes[0].why == "5.0% lower beside a step 5.0% slower: it fits"
    assert ("version", "GPU driver") in {(cause.kind, cause.name) for cause in found.causes}


@pytest.mark.parametrize(
    ("clock", "slower", "words"),
    [
        (1881.0, -0.05, "points the other way"),
        (2079.0, 0.05, "points the other way"),
        (1960.0, 0.10, "a part at most"),
        (1881.0, 0.0, "no difference in speed to speak of"),
        (1881.0, None, "no difference in speed to speak of"),
    ],
)
def test_a_clock_that_does_not_explain_the_step_stands_below_a_version(
    clock: float, slower: float | None, words: str
) -> None:
    a, b = on_gpu("a", 1.0), on_gpu("b", 1.0, sm_clock_mhz_median=clock, driver="581.0")
    found = causes([a], [b], slower).causes
    assert [cause.name for cause in found] == ["GPU driver", "SM clock, median"]
    assert words in found[1].why


def test_clocks_that_differ_by_less_than_they_do_anyhow_are_alike() -> None:
    found = causes([on_gpu("a", 1.0)], [on_gpu("b", 1.0, sm_clock_mhz_median=1978.0)], SLOWER)
    assert found.causes == []
    assert "GPU clocks, power, throttling" in found.same


def test_clocks_that_vary_within_the_sides_as_much_fall_back() -> None:
    a = [on_gpu(f"a{n}", 1.0, sm_clock_mhz_median=clock) for n, clock in enumerate((1980.0, 1850.0, 1990.0))]
    clocks = enumerate((1880.0, 1985.0, 1870.0))
    b = [on_gpu(f"b{n}", 1.05, sm_clock_mhz_median=clock, driver="581.0") for n, clock in clocks]
    driver, clock = causes(a, b, SLOWER).causes
    assert (driver.kind, clock.kind) == ("version", "clock")
    assert "varies within the sides as much" in clock.why


def test_a_step_of_another_batch_is_slower_by_its_tokens() -> None:
    """Where seconds a step can't be compared, tokens/s say which side is slower."""
    a = on_gpu("a", 1.0)
    b = on_gpu("b", 1.05, benchmark={"global_batch_size": 4}, sm_clock_mhz_median=1881.0)
    found = compare(side("A", a), side("B", b), explained=True)
    assert found.causes is not None
    assert next(cause for cause in found.causes if cause.kind == "clock").why.endswith("5.0% slower: it fits")


def test_gpus_that_were_not_sampled_are_not_known() -> None:
    a, b = on_gpu("a", 1.0), on_gpu("b", 1.0)
    b = b._replace(result=msgspec.structs.replace(b.result, telemetry=None))
    assert "GPU clocks, power, throttling: a side was not sampled" in causes([a], [b], SLOWER).not_known


def test_a_busy_machine_explains_a_slow_run_on_a_cpu_and_hardly_one_on_gpus() -> None:
    def busy(one: ComparedRun) -> ComparedRun:
        machine = {**one.provenance["machine"], "load_average": [3.0, 1.0, 1.0]}
        return one._replace(provenance={**one.provenance, "machine": machine})

    beside = {"jaxlib": "9.9"}
    cpu = causes([version("a")], [busy(version("b", **beside))], SLOWER).causes
    assert [cause.kind for cause in cpu] == ["load", "version"]
    b = on_gpu("b", 1.05)._replace(provenance=busy(version("b", **beside)).provenance)
    assert [cause.kind for cause in causes([on_gpu("a", 1.0)], [b], SLOWER).causes] == ["version", "load"]


def test_a_machine_that_was_as_busy_before_both_explains_nothing() -> None:
    def at(load: float) -> ComparedRun:
        machine = {**REAL_RUN.provenance["machine"], "load_average": [load, 1.0, 1.0]}
        return run(f"at {load}", provenance={**REAL_RUN.provenance, "machine": machine})

    assert causes([at(12.0)], [at(13.0)], SLOWER).causes == []
    assert causes([at(0.1)], [at(0.4)], SLOWER).causes == []
    assert [cause.kind for cause in causes([at(4.0)], [at(6.0)], SLOWER).causes] == ["load"]


def test_another_device_and_another_profile_are_named() -> None:
    provenance = json.loads(json.dumps(REAL_RUN.provenance))
    worker(provenance)["device_kind"] = "NVIDIA B200"
    made = PgleProfile(key="k", sha256="d" * 64, instructions=1, collectives=1, covered=1, made_by={})
    b = run(
        "b",
        provenance=provenance,
        result={"pgle": Pgle(way="nsys", seen=PgleSeen(applied=True, reason="", profile=made))},
    )
    kinds = {(cause.kind, cause.name) for cause in causes([run("a")], [b], SLOWER).causes}
    assert kinds == {("device", "device_kind"), ("profile for PGLE", "applied"), ("profile for PGLE", "sha256")}


def test_another_framework_is_one_cause_and_not_a_hundred() -> None:
    b = run("b", benchmark={"backend": "nemo", "engine": "nemo", "knobs": {"optim.lr": 1}})
    found = causes([run("a")], [b], SLOWER)
    assert [cause.name for cause in found.causes[:2]] == ["backend", "engine"]
    assert {cause.name for cause in found.causes[2:]} == {"(all)"}
    assert len(found.causes) < 12
