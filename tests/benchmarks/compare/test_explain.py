"""What differs between two sides, ranked: differences planted in copies of a real run."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.compare.explain import causes
from benchmarks.compare.runs import ComparedRun, read_run
from benchmarks.compare.values import Cause
from tests.benchmarks.compare.made import REAL_RUN, Document, Edit, folder, on_gpu, run

SLOWER = 0.05


def worker(document: Document) -> Document:
    found: Document = document["worker"][-1]
    return found


Found = tuple[str, str, str | None, str | None]
PLANTED = yaml.safe_load(Path(__file__).with_name("planted.yml").read_text())


def edit_of(changes: dict[str, Any]) -> Edit:
    """The edit of a document that puts values in the places of others, as planted.yml has them."""

    def edit(document: Document) -> None:
        for path, new in changes.items():
            *parents, last = [int(word) if word.lstrip("-").isdigit() else word for word in path.split(".")]
            place: Any = document
            for word in parents:
                place = place[word]
            if isinstance(new, str):
                place[last] = new.replace("{}", str(place.get(last)))
            elif isinstance(place.get(last), list) and isinstance(new, dict):  # words of a command
                place[last] = [new.get(word, word) for word in place[last]]
            else:
                place[last] = new

    return edit


def pair(place: Path, **edits: Edit) -> tuple[ComparedRun, ComparedRun]:
    """The real run and a copy with something planted; both know their program."""

    def with_program(document: Document) -> None:
        worker(document)["program"] = "sha256:" + "a" * 64
        if "provenance" in edits:
            edits["provenance"](document)

    before = folder(place, "before", provenance=lambda d: worker(d).update(program="sha256:" + "a" * 64))
    after = folder(place, "after", **{**edits, "provenance": with_program})
    return read_run(before), read_run(after)


def named(cause: Cause) -> Found:
    return cause.kind, cause.name, cause.a, cause.b


@pytest.mark.parametrize(("expected", "planted"), PLANTED, ids=[expected[0] for expected, _ in PLANTED])
def test_a_planted_difference_is_found_and_ranked_first(
    tmp_path: Path, expected: list[str], planted: dict[str, dict[str, Any]]
) -> None:
    a, b = pair(tmp_path, **{file: edit_of(changes) for file, changes in planted.items()})
    found = causes([a], [b], SLOWER)
    assert named(found.causes[0]) == tuple(expected)
    others = {cause.kind for cause in found.causes} - {expected[0]}
    assert others <= ({"argument"} if expected[1] == "dtype" else set())


def test_places_names_times_and_ports_are_no_difference(tmp_path: Path) -> None:
    def move(document: Document) -> None:
        text = json.dumps(document)
        for old, new in (
            (REAL_RUN.result.run_id, "20270101T000000Z-jax-llama2_tiny-pretrain-bf16-1xcpu-ffff"),
            ("/data/results", "/elsewhere/of/mine"),
            ("/home/user/stepmark", "/opt/stepmark"),
            ("/home/user/.cache", "/scratch"),
        ):
            text = text.replace(old, new)
        document.clear()
        document.update(json.loads(text))
        document["shell"] |= {"SLURM_JOB_ID": "77", "STEPMARK_HOME": "/x", "MASTER_PORT": "31337"}
        document["shell"] |= {"COORDINATOR": "node1:31337"}

    def on_this_host(document: Document) -> None:
        document["shell"] |= {"COORDINATOR": "node1:29500"}

    first = read_run(folder(tmp_path, "first", provenance=on_this_host))
    second = read_run(folder(tmp_path, "second", provenance=move))
    found = causes([first], [second], SLOWER)
    assert (found.causes, found.not_known) == ([], [])


# --- the order ------------------------------------------------------------------------------------


def test_causes_are_ranked_by_weight(tmp_path: Path) -> None:
    def all_at_once(document: Document) -> None:
        worker(document)["versions"] |= {"jax": "9.9", "numpy": "9.9"}
        worker(document)["xla_flags"] += " --xla_new=1"
        document["environment"]["lock_sha256"] = "f" * 64
        document["machine"]["hostname"] = "node7"
        document["git"]["commit"] = "c" * 40
        document["shell"] |= {"NCCL_DEBUG": "INFO", "EDITOR_MODE": "x"}

    a, b = pair(
        tmp_path,
        provenance=all_at_once,
        benchmark=lambda d: (d["knobs"].update(scan_layers=False), d.update(dtype="fp32")),
    )
    found = causes([a], [b], SLOWER).causes
    assert [cause.name for cause in found if cause.kind != "argument"] == [
        "dtype", "scan_layers", "xla_new", "jax", "lock_sha256", "NCCL_DEBUG", "hosts", "numpy", "EDITOR_MODE",
        "commit",
    ]  # fmt: skip
    assert [cause.rank for cause in found] == list(range(1, len(found) + 1))
    assert [cause.weight for cause in found] == sorted((cause.weight for cause in found), reverse=True)


def version(name: str, **versions: str) -> ComparedRun:
    provenance = json.loads(json.dumps(REAL_RUN.provenance))
    worker(provenance)["versions"] |= versions
    return run(name, provenance=provenance)


def test_a_difference_that_varies_within_a_side_weighs_less() -> None:
    a = [version("a1", jax="1", torch="1"), version("a2", jax="2", torch="1"), version("a3", jax="1", torch="1")]
    b = [version("b1", jax="3", torch="2"), version("b2", jax="2", torch="2"), version("b3", jax="3", torch="2")]
    first, second = causes(a, b, SLOWER).causes
    assert named(first) == ("version", "torch", "1", "2")
    assert named(second) == ("version", "jax", "1 (2), 2 (1)", "3 (2), 2 (1)")
    assert second.weight < first.weight


def test_what_a_side_does_not_record_is_not_known_and_no_difference() -> None:
    found = causes([run("a", provenance={})], [run("b")], SLOWER)
    assert "versions: not recorded for A" in found.not_known
    assert not any(text.startswith("versions") for text in found.same)


# --- clocks, power, load --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "slower", "first"),
    [
        (1881.0, 0.05, "SM clock, median"),
        (1881.0, -0.05, "GPU driver"),
        (2079.0, 0.05, "GPU driver"),
        (2079.0, -0.05, "SM clock, median"),
        (1881.0, 0.0, "GPU driver"),
        (1881.0, None, "GPU driver"),
    ],
)
def test_a_clock_ranks_above_a_version_only_if_it_fits_the_step_times(
    clock: float, slower: float | None, first: str
) -> None:
    a, b = on_gpu("a", 1.0), on_gpu("b", 1.0, sm_clock_mhz_median=clock, driver="581.0")
    assert causes([a], [b], slower).causes[0].name == first


def at_load(one: ComparedRun, load: float) -> ComparedRun:
    machine = {**one.provenance["machine"], "load_average": [load, 1.0, 1.0]}
    return one._replace(provenance={**one.provenance, "machine": machine})


def test_a_busy_machine_explains_a_slow_run_on_a_cpu_and_hardly_one_on_gpus() -> None:
    busy = at_load(version("b", jaxlib="9.9"), 3.0)
    assert [cause.kind for cause in causes([version("a")], [busy], SLOWER).causes] == ["load", "version"]
    b = on_gpu("b", 1.05)._replace(provenance=busy.provenance)
    assert [cause.kind for cause in causes([on_gpu("a", 1.0)], [b], SLOWER).causes] == ["version", "load"]


@pytest.mark.parametrize(("before", "after", "found"), [(12.0, 13.0, []), (0.1, 0.4, []), (4.0, 6.0, ["load"])])
def test_a_machine_that_was_as_busy_before_both_explains_nothing(
    before: float, after: float, found: list[str]
) -> None:
    sides = [[at_load(run(name), load)] for name, load in (("a", before), ("b", after))]
    assert [cause.kind for cause in causes(*sides, SLOWER).causes] == found


def test_what_two_frameworks_do_not_share_is_one_line_and_no_cause() -> None:
    other = {"backend": "nemo", "engine": "nemo"}
    found = causes([run("a")], [run("b", benchmark=other)], None)
    assert [cause.name for cause in found.causes if (cause.a, cause.b) == ("maxtext", "nemo")] == ["engine"]
    (line,) = found.not_known
    assert line.startswith("settings of the backend, ") and "versions: not comparable" in line
