"""Phase convert: a report of nsys becomes a profile that is of its program, or the phase fails and says why.

nsys is its stand-in, or a script that hands over a table of tests/jax_backend/samples.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from benchmarks.runs.worker_events import read_phase
from benchmarks.values import PgleProfile
from jax_backend.inside import hlo, profile_identity

REPOSITORY = Path(__file__).resolve().parents[2]
CONVERTER = REPOSITORY / "jax_backend" / "inside" / "convert_profile.py"
STAND_INS = REPOSITORY / "tests" / "stand_ins"
SAMPLES = Path(__file__).parent / "samples"
CPU = SAMPLES / "fsdp_cpu_after_optimizations.txt"
GPU = SAMPLES / "gpu_after_optimizations.txt"
FACTS = {
    "event": "facts",
    "rank": 0,
    "argv": ["base_emb_dim=64", "steps=15"],
    "versions": {"jax": "0.12.0.1", "jaxlib": "0.12.0.1"},
    "mesh": {"fsdp": 8},
    "device_kind": "NVIDIA H100 80GB HBM3",
    "device_count": 8,
    "xla_flags": "--xla_gpu_enable_triton_gemm=false",
}


class Converted(NamedTuple):
    """What a conversion came to."""

    code: int
    message: str
    notes: list[str]
    folder: Path
    stderr: str

    def profile(self) -> PgleProfile:
        return msgspec.json.decode((self.folder / "profile.json").read_bytes(), type=PgleProfile)

    def costs(self) -> dict[str, float]:
        lines = (self.folder / "profile.pbtxt").read_text().splitlines()
        words = [line.split() for line in lines]
        return {word[3].strip('"'): float(word[5]) for word in words}


Convert = Callable[..., Converted]


@pytest.fixture
def profiled(tmp_path: Path) -> Path:
    """The folder of a profile phase, of the program that was lowered on a CPU."""
    folder = tmp_path / "profile"
    (folder / "hlo").mkdir(parents=True)
    shutil.copy(CPU, folder / "hlo" / "module_0010.jit_train_step.cpu_after_optimizations.txt")
    (folder / "events-rank0.jsonl").write_text(json.dumps(FACTS) + "\n")
    (folder / "llama2-70b_local_0_0-prof.nsys-rep").write_text("{}\n")
    return folder


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    def run(
        profiled: Path, *options: str, path: str = str(STAND_INS), python: str = "", **variables: str
    ) -> Converted:
        folder = tmp_path / "convert"
        folder.mkdir(exist_ok=True)
        (folder / "events-rank0.jsonl").unlink(missing_ok=True)
        command = [
            python or sys.executable,
            "-P",
            str(CONVERTER),
            f"--profile_dir={profiled}",
            f"--events_dir={folder}",
        ]
        environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin", "TMPDIR": str(tmp_path), **variables}
        done = subprocess.run(
            [*command, "--key=k1", *options],
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
        (end,) = read_phase(folder, 1).ends
        assert "Traceback" not in done.stderr
        assert (done.returncode == 0) == (end.status == "done")
        assert not list(tmp_path.glob("stepmark-nsys-*"))
        made = {name for name in ("profile.pbtxt", "profile.json") if (folder / name).exists()}
        assert made == (set() if done.returncode else {"profile.pbtxt", "profile.json"})
        assert not list(folder.glob("*.part"))
        return Converted(done.returncode, end.message, end.notes, folder, done.stderr)

    return run


def refused(done: Converted) -> str:
    assert done.code == 1
    assert done.message.startswith("stepmark convert: ")
    assert done.message in done.stderr
    return done.message


def nsys_with(tmp_path: Path, *tables: str | Path) -> str:
    """A folder with an nsys whose stats hand over these tables, one a report in the order of their names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for number, table in enumerate(tables):
        (folder / f"{number}.csv").write_text(table.read_text() if isinstance(table, Path) else table)
    script = f"""#!{sys.executable}
import pathlib, shutil, sys
if "--help-reports" in sys.argv:
    print("nvtx_kern_sum[:base|:mangled] -- NVTX Range Kernel Summary"); sys.exit()
counter = pathlib.Path({str(folder / "counter")!r})
number = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(number + 1))
output = sys.argv[sys.argv.index("--output") + 1] + "_nvtx_kern_sum.csv"
shutil.copy(pathlib.Path({str(folder)!r}) / f"{{number}}.csv", output)
"""
    (folder / "nsys").write_text(script)
    (folder / "nsys").chmod(0o755)
    return str(folder)


# --- what works -----------------------------------------------------------------------------------


def test_a_report_becomes_a_profile_of_its_program(profiled: Path, convert: Convert) -> None:
    done = convert(profiled)
    assert (done.code, done.message, done.notes) == (0, "", [])
    profile = done.profile()
    assert (profile.key, profile.collectives, profile.covered) == ("k1", 6, 6)
    assert profile.sha256 == hashlib.sha256((done.folder / "profile.pbtxt").read_bytes()).hexdigest()
    assert profile.instructions == len(done.costs()) > 20
    assert profile.made_by == profile_identity.of_facts(FACTS)
    assert profile_identity.check(done.folder / "profile.json", profile_identity.of_facts(FACTS)) is None
    assert set(done.costs()) <= hlo.read_module(CPU).names()


def test_an_nsys_of_2022_is_asked_for_its_own_report(profiled: Path, convert: Convert) -> None:
    old = convert(profiled, STAND_IN_NSYS_OLD="1")
    costs = old.costs()
    assert "--report nvtxkernsum" in (old.folder / "nsys-stats.log").read_text()
    assert costs == convert(profiled).costs()


@pytest.mark.parametrize("table", ["nvtx_kern_sum_2025.csv", "nvtxkernsum_2022.csv"])
def test_a_recorded_table_of_a_gpu_covers_the_program_of_a_gpu(
    profiled: Path, convert: Convert, tmp_path: Path, table: str
) -> None:
    """By the names of starts, of what they wrap, and of fusions; without those in a branch or of one device."""
    (dump,) = hlo.dumps(profiled / "hlo")
    dump.unlink()
    shutil.copy(GPU, profiled / "hlo" / "module_0089.jit_train_step.sm_9.0_gpu_after_optimizations.txt")
    done = convert(profiled, path=nsys_with(tmp_path, SAMPLES / table))
    assert (done.code, done.notes) == (0, [])
    assert (done.profile().collectives, done.profile().covered) == (8, 5)
    assert done.costs()["all-gather-start.1"] == pytest.approx(7040.5125)
    assert done.costs()["cublas-gemm.1"] == pytest.approx(2103.3102)


def test_a_second_try_takes_the_place_of_the_first(profiled: Path, convert: Convert) -> None:
    assert convert(profiled).code == 0
    assert convert(profiled, STAND_IN_NSYS="fail").code == 1  # and leaves none of the first, as `convert` asserts
    assert convert(profiled).code == 0


def test_the_program_that_ran_is_the_one_that_counts(profiled: Path, convert: Convert) -> None:
    """Another program is larger, has the same names and more collectives; nsys saw the training step alone."""
    text = CPU.read_text().replace("HloModule jit_train_step", "HloModule jit__lambda")
    more = "  %all-gather.77 = f32[8]{0} all-gather(%p), replica_groups={{0,1,2,3,4,5,6,7}}\n"
    (profiled / "hlo" / "module_0004.jit__lambda.cpu_after_optimizations.txt").write_text(
        text.replace("ENTRY %main.13_spmd", "ENTRY %main.13_spmd").replace(
            "ROOT %tuple.51", more + "  ROOT %tuple.51"
        )
    )
    assert convert(profiled).profile().collectives == 6


def test_a_training_step_that_was_compiled_twice_is_told_apart_by_its_number(
    profiled: Path, convert: Convert, tmp_path: Path
) -> None:
    names = list(convert(profiled).costs())
    more = "  %all-gather.77 = f32[8]{0} all-gather(%p), replica_groups={{0,1,2,3,4,5,6,7}}\n"
    older = profiled / "hlo" / "module_0009.jit_train_step.cpu_after_optimizations.txt"
    older.write_text(CPU.read_text().replace("  ROOT %tuple.51", more + "  ROOT %tuple.51"))
    rows = [f"Thunk:#hlo_op={name}#" for name in names]
    both = (
        "NVTX Range,Avg (ns)\n"
        + "".join(f'"TSL:{row}",1\n' for row in [*rows, f"XlaModule:#hlo_module=jit_train_step,program_id={number}#"])
        for number in (10, 9)
    )
    path = nsys_with(tmp_path, *both)
    assert convert(profiled, path=path).profile().covered == 6
    assert "all-gather.77" in refused(convert(profiled, path=path))


def test_a_program_without_collectives_is_said_to_have_none(profiled: Path, convert: Convert) -> None:
    (dump,) = hlo.dumps(profiled / "hlo")
    dump.write_text(
        "HloModule jit_train_step\n\nENTRY %main (p: f32[]) -> f32[] {\n  %p = f32[] parameter(0)\n"
        "  ROOT %add.1 = f32[] add(%p, %p)\n}\n"
    )
    done = convert(profiled)
    assert (done.code, done.profile().collectives, list(done.costs())) == (0, 0, ["add.1"])
    assert "nothing for a profile to hide" in done.notes[0]


# --- what does not --------------------------------------------------------------------------------


def test_without_a_report_it_fails(profiled: Path, convert: Convert) -> None:
    (report,) = profiled.glob("*.nsys-rep")
    report.unlink()
    words = refused(convert(profiled))
    assert f"no *.nsys-rep in {profiled}" in words
    assert "rank-0.log" in words
    (profiled / "x.qdstrm").touch()
    assert "its importer failed" in refused(convert(profiled))


def test_without_nsys_it_fails(profiled: Path, convert: Convert) -> None:
    words = refused(convert(profiled, "--nsys=nsys-of-nobody"))
    assert "nsys-of-nobody is not on PATH" in words


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (
            "fail",
            "nsys failed with exit code 1 of {report}: nsys (stand-in): ERROR: the report could not be exported",
        ),
        ("no_kernels", "nsys made no table of {report}: SKIPPED: "),
        ("empty", "nsys's table of {report} has no row: no kernel ran while it recorded"),
        (
            "no_ranges",
            "rows of nsys's table of {report} names an HLO instruction: XLA's NVTX ranges were not recorded",
        ),
        ("other_model", "the profile is of another program: it has a cost for none of the 4 collectives of {dump}"),
        ("partial", "the profile has no cost for 1 of the 4 collectives of {dump}: all-gather; XLA would guess"),
    ],
)
def test_what_nsys_does_wrong_is_told(profiled: Path, convert: Convert, mode: str, words: str) -> None:
    (report,), (dump,) = profiled.glob("*.nsys-rep"), hlo.dumps(profiled / "hlo")
    done = convert(profiled, STAND_IN_NSYS=mode)
    assert words.format(report=report, dump=dump) in refused(done)
    assert (done.folder / "nsys-stats.log").stat().st_size


def test_an_nsys_that_hangs_is_given_up(profiled: Path, convert: Convert, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nsys").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "nsys").chmod(0o755)
    assert "did not answer within 1 s" in refused(convert(profiled, "--timeout=1", path=str(folder)))


def test_a_table_that_cannot_be_read_is_kept(profiled: Path, convert: Convert, tmp_path: Path) -> None:
    done = convert(profiled, path=nsys_with(tmp_path, "A,B\n1,2\n"))
    assert "no column holds the range; its columns are A, B" in refused(done)
    assert (done.folder / "nsys-table.csv").read_text() == "A,B\n1,2\n"


def test_one_that_has_all_collectives_and_many_unknown_instructions_is_of_another_program(
    profiled: Path, convert: Convert, tmp_path: Path
) -> None:
    names = list(convert(profiled).costs())
    table = "NVTX Range,Avg (ns)\n" + "".join(f'"TSL:Thunk:#hlo_op={name}#",1\n' for name in names)
    few, many = (table + "".join(f'"TSL:Thunk:#hlo_op=foreign.{n}#",1\n' for n in range(count)) for count in (1, 10))
    path = nsys_with(tmp_path, few, many)
    done = convert(profiled, path=path)
    assert done.notes == [f"1 of the profile's {len(names) + 1} instructions are in no dumped program: foreign.0"]
    assert "foreign.0" not in done.costs()
    assert f"10 of its {len(names) + 10} instructions are not in" in refused(convert(profiled, path=path))


def test_programs_that_ran_and_were_not_dumped_may_have_instructions_of_their_own(
    profiled: Path, convert: Convert, tmp_path: Path
) -> None:
    """A worker has XLA dump the training step alone."""
    names = list(convert(profiled).costs())
    rows = [*(f"Thunk:#hlo_op={name}#" for name in [*names, *(f"foreign.{n}" for n in range(10))])]
    rows += ["XlaModule:#hlo_module=jit_train_step,program_id=10#", "XlaModule:#hlo_module=jit_mean,program_id=12#"]
    table = "NVTX Range,Avg (ns)\n" + "".join(f'"TSL:{row}",1\n' for row in rows)
    done = convert(profiled, path=nsys_with(tmp_path, table))
    assert done.code == 0
    assert "10 of the profile's" in done.notes[0]


def test_cuda_graphs_are_named_as_the_reason(profiled: Path, convert: Convert, tmp_path: Path) -> None:
    table = 'NVTX Range,Avg (ns)\n"TSL:Thunk:#hlo_op=command_buffer.1#",1\n"TSL:Thunk:#hlo_op=all-reduce.2#",1\n'
    words = refused(convert(profiled, path=nsys_with(tmp_path, table)))
    assert "no cost for 3 of the 4 collectives" in words
    assert "--xla_gpu_enable_command_buffer= (empty)" in words


def test_a_dump_of_a_program_that_did_not_run_is_told(profiled: Path, convert: Convert, tmp_path: Path) -> None:
    table = 'NVTX Range,Avg (ns)\n"TSL:XlaModule:#hlo_module=jit_eval#",1\n"TSL:Thunk:#hlo_op=all-gather#",1\n'
    words = refused(convert(profiled, path=nsys_with(tmp_path, table)))
    assert "the dump is of another program: nsys saw jit_eval run, and" in words
    assert "holds jit_train_step" in words


def test_without_a_dump_it_fails_and_says_which_flags_make_one(
    profiled: Path, convert: Convert, tmp_path: Path
) -> None:
    shutil.rmtree(profiled / "hlo")
    table = 'NVTX Range,Avg (ns)\n"TSL:Thunk:#hlo_op=all-gather#",1\n'
    assert f"--xla_dump_to={profiled / 'hlo'}" in refused(convert(profiled, path=nsys_with(tmp_path, table)))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"event": "started"}', "{ cut", "3"], "does not say what program was profiled"),
        ([json.dumps({**FACTS, "argv": None})], "does not say what program was profiled"),
        ([json.dumps({k: v for k, v in FACTS.items() if k != "xla_flags"})], "KeyError('xla_flags')"),
    ],
)
def test_facts_that_are_missing_are_told(profiled: Path, convert: Convert, lines: list[str], words: str) -> None:
    events = profiled / "events-rank0.jsonl"
    events.write_text("".join(f"{line}\n" for line in lines))
    assert words in refused(convert(profiled))
    events.unlink()
    assert f"{events} does not say what program was profiled: No such file" in refused(convert(profiled))


def test_told_to_stop_it_says_so_and_takes_nsys_with_it(profiled: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "bin", tmp_path / "convert"
    folder.mkdir()
    out.mkdir()
    (folder / "nsys").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    (folder / "nsys").chmod(0o755)
    command = [sys.executable, "-P", str(CONVERTER), f"--profile_dir={profiled}", f"--events_dir={out}", "--key=k"]
    with subprocess.Popen(command, env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip() != "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 130
    child = int((tmp_path / "pid").read_text())
    wait_until(
        lambda: not Path(f"/proc/{child}").exists() or "Z (zombie)" in Path(f"/proc/{child}/status").read_text()
    )
    assert [end.status for end in read_phase(out, 1).ends] == ["interrupted"]


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it never held")
