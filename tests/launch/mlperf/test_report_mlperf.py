"""launch/report.py mlperf as a user runs it: the package's own checkers on logs made for the tests."""

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.mlperf.verdict import Verdict
from launch.mlperf.staging import staged_runs
from tests import forked
from tests.benchmarks.mlperf.made_runs import WrittenRun, made_run, replace, write

pytestmark = pytest.mark.slow(seconds=1)  # each starts MLPerf's own checkers
SCRIPT = Path(__file__).resolve().parents[3] / "launch" / "report.py"


def report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = forked.run(SCRIPT, *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def as_json(place: Path, *arguments: str, code: int = 0) -> Any:
    done = report("mlperf", place, "--json", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(done.stdout)
    msgspec.convert(found, Verdict)
    return found


def logs(folder: Path, count: int = 3, name: str = "llama2_70b_lora", **changes: Any) -> Path:
    """Runs that differ in their seeds; the others as asked."""
    for place in range(count):
        write(made_run(name, extra_lines={"seed": place + 1}, **changes), folder / f"result_{place}.txt")
    return folder


def spoil(folder: Path, place: int, run: WrittenRun) -> None:
    write(run, folder / f"result_{place}.txt")


@pytest.mark.parametrize(("name", "ruleset"), [("llama2_70b_lora", "5.0.0"), ("llama31_8b", "6.1.0")])
def test_runs_as_the_rules_have_them_pass(name: str, ruleset: str, tmp_path: Path) -> None:
    document = as_json(logs(tmp_path / "logs", name=name), f"--ruleset={ruleset}")
    assert (document["verdict"], document["reasons"]) == ("passes", [])
    (one,) = document["sets"]
    assert one["convergence"]["passed"] and one["benchmark"] == name
    assert one["olympic_minutes"] == pytest.approx(one["runs"][0]["story"]["time_to_train_minutes"])
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [f"result_{n}.txt" for n in range(3)]


@pytest.mark.parametrize("content", [b"", bytes(range(256))])
def test_a_result_without_a_line_of_mllog_fails_and_another_file_does_not(content: bytes, tmp_path: Path) -> None:
    folder = logs(tmp_path, count=10)
    (folder / "notes.txt").write_bytes(content)
    assert as_json(folder)["not_counted"] == []
    (folder / "result_0.txt").write_bytes(content)
    assert any("result_0.txt has no readable MLLOG line" in one for one in as_json(folder, code=3)["reasons"])


def test_a_result_s_lines_may_come_after_megabytes_of_others(tmp_path: Path) -> None:
    path = logs(tmp_path, count=1) / "result_0.txt"
    path.write_bytes(b"NCCL INFO Channel 00\n" * 400_000 + b"x" * 9_000_000 + b"\n" + path.read_bytes())
    assert staged_runs(tmp_path, tmp_path / "scratch")[1] == []


def test_too_few_runs_or_a_mixture_pass_and_are_called_no_submission(tmp_path: Path) -> None:
    folder = logs(tmp_path / "mixed", count=2)
    assert as_json(folder)["no_submission_because"] == ["2 of the 10 runs that a submission needs"]
    spoil(folder, 1, made_run(extra_lines={"seed": 2, "submission_platform": "8xOther"}))
    spoil(folder, 2, made_run("llama31_8b"))
    (verdict,) = (line for line in report("mlperf", folder).stdout.splitlines() if line.startswith("verdict:"))
    assert "passes" in verdict and "2 of the 10 runs that a submission needs" in verdict
    assert any("2 systems (1xcpu, 8xOther)" in one for one in as_json(folder)["no_submission_because"])
    assert as_json(logs(tmp_path / "whole", count=10))["no_submission_because"] == []


def test_what_a_log_says_leads_neither_out_of_the_scratch_folder_nor_into_the_report_s_lines(tmp_path: Path) -> None:
    folder = logs(tmp_path / "logs", count=1)
    for place, name in enumerate([str(tmp_path / "evil"), "../../evil", "a\0b", "n" * 300], start=1):
        spoil(folder, place, made_run(extra_lines={"submission_benchmark": name}))
    spoil(folder, 5, made_run(extra_lines={"submission_platform": "\033[31m\nverdict: passes"}))
    scratch = tmp_path / "scratch"
    assert len(staged_runs(folder, scratch / "deep")[0]) == 2
    assert not list(tmp_path.rglob("*evil*")) and [one.name for one in scratch.iterdir()] == ["deep"]
    done = report("mlperf", folder)
    assert "\033" not in done.stdout and "\nverdict: passes" not in done.stdout and done.returncode == 3


def test_packed_logs_are_read_too(tmp_path: Path) -> None:
    path = logs(tmp_path / "logs", count=2) / "result_0.txt"
    data = gzip.compress(path.read_bytes())
    path.unlink()
    packed = path.with_name("result_0.txt.gz")
    packed.write_bytes(data)
    ((_, _, (run, _)), *_), lost = staged_runs(path.parent, tmp_path / "scratch")
    assert run.log.status == "success" and not run.log.skipped and not lost
    packed.write_bytes(data[:12])
    assert staged_runs(path.parent, tmp_path / "again")[1] == [packed.name]


def test_only_lines_of_mllog_are_judged_and_keep_their_numbers(tmp_path: Path) -> None:
    path = logs(tmp_path, count=1) / "result_0.txt"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"NCCL INFO Channel 00\n".join(lines))
    ((_, _, (run,)),), _ = staged_runs(tmp_path, tmp_path / "scratch")
    assert run.staged.read_bytes() == b"\n".join(lines)


def test_a_log_that_holds_no_run_is_named_whatever_it_is(tmp_path: Path) -> None:
    logs(tmp_path, count=1)
    (tmp_path / "result_1.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "result_2.txt")
    assert staged_runs(tmp_path, tmp_path / "scratch")[1] == ["result_1.txt", "result_2.txt"]


def test_a_finding_common_to_all_runs_is_shown_once(tmp_path: Path) -> None:
    folder = logs(tmp_path)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace('"llama2_70b_lora"', '"gnn"'))
    text = report("mlperf", folder).stdout
    assert text.count("target and settings are not compared (3 of 3 runs)") == 1
    assert text.count("unknown benchmark") == 1


def test_one_run_that_did_not_converge_is_left_out_as_the_worst(tmp_path: Path) -> None:
    folder = logs(tmp_path, count=4)
    run = made_run(extra_lines={"seed": 9}, status="aborted")
    spoil(folder, 2, replace(run, evaluations=[replace(one, loss=1.0) for one in run.evaluations]))
    document = as_json(folder, code=0)
    assert document["sets"][0]["olympic_minutes"] is not None
    text = report("mlperf", folder).stdout
    assert "did not converge, excluded as the worst" in text


def test_an_accepted_cadence_is_a_warning_and_the_time_is_shown(tmp_path: Path) -> None:
    for place in range(3):
        run = made_run(extra_lines={"seed": place + 1})
        late = [replace(one, sequences=one.sequences + 384 * n) for n, one in enumerate(run.evaluations)]
        write(replace(run, evaluations=late), tmp_path / f"result_{place}.txt")
    document = as_json(tmp_path)
    (one,) = document["sets"]
    assert (document["verdict"], one["ruleset"]["name"]) == ("passes", "5.1.0")  # by the day of the logs
    assert one["olympic_minutes"] is not None
    assert any("768 samples between two evaluations" in warning for warning in one["warnings"])


def test_a_run_that_does_not_comply_is_left_out_as_the_package_checker_has_it(tmp_path: Path) -> None:
    folder = logs(tmp_path, count=4)
    path = folder / "result_1.txt"
    path.write_text("".join(line for line in path.open() if '"lora_rank"' not in line))
    document = as_json(folder)
    (one,) = document["sets"]
    assert not one["runs"][1]["compliance"]["passed"] and one["olympic_minutes"] is not None


def test_two_runs_get_no_olympic_mean_and_no_convergence_check(tmp_path: Path) -> None:
    document = as_json(logs(tmp_path, count=2))
    (one,) = document["sets"]
    assert one["olympic_minutes"] is None and one["convergence"] is None
    assert "cannot compute a number" in one["no_convergence_because"]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([{"extra_lines": {"seed": n}, "status": "aborted"} for n in range(3)], ["3 of 3 runs fail"]),
        # a setting that no official checker looks at; such a run is not excluded
        (
            [{"extra_lines": {"seed": n, "lora_alpha": 64.0 if n == 2 else 32.0}} for n in range(4)],
            ["fail: result_2.txt"],
        ),
        # 1920 samples where the reference needs 3179
        ([{"extra_lines": {"seed": n}, "count": 2} for n in range(10)], ["rcp_checker: ", "FAILED"]),
        (
            [{"extra_lines": {"seed": seed}} for seed in (1, 2, 1)],
            ["seed_checker", "result_2.txt logs seed 1", "result_0.txt already logs the same"],
        ),
    ],
)
def test_a_set_fails_that_the_compliance_checker_passes(
    runs: list[dict[str, Any]], words: list[str], tmp_path: Path
) -> None:
    for place, run in enumerate(runs):
        spoil(tmp_path, place, made_run(**run))
    found = as_json(tmp_path, code=3)
    assert all(run["compliance"]["passed"] for run in found["sets"][0]["runs"])
    reasons = " ".join(found["reasons"])
    assert all(one in reasons for one in words) and str(tmp_path.parent) not in reasons


def test_experiments_in_one_file_are_judged_one_by_one(tmp_path: Path) -> None:
    texts = [write(made_run(extra_lines={"seed": n}), tmp_path / "one").read_text() for n in (1, 2, 3)]
    (tmp_path / "one").unlink()
    (tmp_path / "slurm-70.out").write_text("srun: hello\n".join(texts))
    (one,) = as_json(tmp_path)["sets"]
    assert [run["name"] for run in one["runs"]] == [f"slurm-70.out, run {n}" for n in (1, 2, 3)]
    assert one["convergence"]["passed"]


def test_runs_of_our_own_side_by_side_are_one_set_by_the_rules_of_the_submission(tmp_path: Path) -> None:
    for seed, name in enumerate("abc"):
        write(made_run(extra_lines={"seed": seed}), tmp_path / name / "attempt-1" / "train" / "result_0.txt")
        (tmp_path / name / "benchmark.json").write_text("{}")
    (one,) = as_json(tmp_path)["sets"]
    assert [run["name"] for run in one["runs"]] == ["a", "b", "c"]
    assert one["ruleset"]["because"] == "the ruleset of the submission that ran"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ruleset=5.0.0"], "llama31_8b is not in ruleset 5.0.0"),
        (["--ruleset=9.9.9"], "unknown ruleset '9.9.9'"),
        (["--ruleset="], "--ruleset= has no value"),
        (["more"], "unexpected argument 'more'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = report("mlperf", logs(tmp_path, 1, name="llama31_8b"), *arguments)
    assert done.returncode == 2 and says in done.stderr


@pytest.mark.parametrize("text", ["hello\n", ':::MLLOG {"key": "a", \n' * 3])
def test_a_folder_without_any_run_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    done = report("mlperf", tmp_path)
    assert done.returncode == 2 and "found no MLPerf run" in done.stderr
