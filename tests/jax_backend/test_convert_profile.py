"""Phase convert: a report of nsys becomes a profile of its program, or the phase fails with the reason.

nsys is its stand-in, or a script that hands over a table.
"""

import hashlib
import json
import os
import re
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
from jax_backend.inside import convert_profile, hlo, profile_identity
from tests.jax_backend.asked import each

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
# Another program with the names of the sample, and one collective more.
ANOTHER = CPU.read_text().replace(
    "  ROOT %tuple.51",
    "  %all-gather.77 = f32[8]{0} all-gather(%p), replica_groups={{0,1,2,3,4,5,6,7}}\n  ROOT %tuple.51",
)


class Conversion(NamedTuple):
    """What a conversion came to."""

    code: int
    message: str
    notes: list[str]
    folder: Path

    def profile(self) -> PgleProfile:
        return msgspec.json.decode((self.folder / "profile.json").read_bytes(), type=PgleProfile)

    def costs(self) -> dict[str, float]:
        words = [line.split() for line in (self.folder / "profile.pbtxt").read_text().splitlines()]
        return {word[3].strip('"'): float(word[5]) for word in words}


Convert = Callable[..., Conversion]


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
def convert(tmp_path: Path, profiled: Path) -> Convert:
    """By the stand-in, in one of its modes; or by an nsys that hands over a table."""

    def run(table: str | Path | None = None, mode: str = "", path: str = str(STAND_INS)) -> Conversion:
        folder = tmp_path / "convert"
        folder.mkdir(exist_ok=True)
        (folder / "events-rank0.jsonl").unlink(missing_ok=True)
        if table is not None:
            path = nsys_with(tmp_path, table.read_text() if isinstance(table, Path) else table)
        done = subprocess.run(
            [sys.executable, "-P", CONVERTER, f"--profile_dir={profiled}", f"--events_dir={folder}", "--key=k1"],
            capture_output=True,
            text=True,
            env={"PATH": f"{path}:/usr/bin:/bin", "TMPDIR": str(tmp_path), "STAND_IN_NSYS": mode},
            timeout=120,
            check=False,
        )
        (end,) = read_phase(folder, 1).ends
        assert "Traceback" not in done.stderr
        assert (done.returncode == 0) == (end.status == "done")
        assert (done.returncode == 0) or end.message.startswith("stepmark convert: ")
        assert not [*tmp_path.glob("stepmark-nsys-*"), *folder.glob("*.part")]
        made = {name for name in ("profile.pbtxt", "profile.json") if (folder / name).exists()}
        assert made == (set() if done.returncode else {"profile.pbtxt", "profile.json"})
        return Conversion(done.returncode, end.message, end.notes, folder)

    return run


def nsys_with(tmp_path: Path, table: str) -> str:
    """A folder with an nsys whose stats hand over this table."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "table.csv").write_text(table)
    script = f"""#!{sys.executable}
import shutil, sys
shutil.copy({str(folder / "table.csv")!r}, sys.argv[sys.argv.index("--output") + 1] + "_nvtx_kern_sum.csv")
"""
    (folder / "nsys").write_text(script)
    (folder / "nsys").chmod(0o755)
    return str(folder)


def table_of(*ranges: str, header: str = "NVTX Range,Avg (ns)", average: str = "1000.0") -> str:
    return "\n".join([header, *(f'"{title}",{average}' for title in ranges)]) + "\n"


def thunks(*names: str) -> list[str]:
    return [f"TSL:Thunk:#hlo_op={name}#" for name in names]


# --- nsys's table ---------------------------------------------------------------------------------


@each("nsys_ranges", "range", "costs")
def test_instructions_are_found_in_every_form_of_a_range(range: str, costs: list[str]) -> None:
    assert list(convert_profile.costs_of(table_of(range).splitlines())) == costs


def test_the_longest_of_an_instructions_kernels_is_its_cost() -> None:
    rows = [table_of(*thunks("gemm.1"), average=average).splitlines()[1] for average in ("10", '"2,000"', "30")]
    assert convert_profile.costs_of([*table_of().splitlines(), *rows]) == {"gemm.1": 2.0}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", "has no HLO instruction"),
        ("SKIPPED: x.sqlite does not contain CUDA kernel data.\n", "has no HLO instruction"),
        ("A,B\n1,2\n", "line 2 of nsys's table cannot be read: KeyError('NVTX Range')"),
        *((table_of(*thunks("a"), average=bad), "line 2 of nsys's table") for bad in ("n/a", "-5", "nan", "inf")),
        ('NVTX Range,Avg (ns)\n"TSL:Thunk:#hlo_op=a#"\n', "line 2 of nsys's table"),
        (table_of(*thunks("all-reduce.2")), "no cost for 3 of the 4 collectives"),
    ],
)
def test_a_table_that_cannot_be_used_says_why_and_is_kept(convert: Convert, table: str, words: str) -> None:
    done = convert(table)
    assert words in done.message
    assert (done.folder / "nsys-table.csv").read_text() == table


# --- what works -----------------------------------------------------------------------------------


def test_a_report_becomes_a_profile_of_its_program(convert: Convert) -> None:
    done = convert()
    assert (done.code, done.message, done.notes) == (0, "", [])
    profile = done.profile()
    assert (profile.key, profile.collectives, profile.covered) == ("k1", 6, 6)
    assert profile.sha256 == hashlib.sha256((done.folder / "profile.pbtxt").read_bytes()).hexdigest()
    assert profile.instructions == len(done.costs()) > 20
    lines = (done.folder / "profile.pbtxt").read_text().splitlines()
    assert all(re.fullmatch(r'costs \{ name: "[^"]+" cost_us: [\d.e-]+ \}', line) for line in lines)
    assert profile.made_by == profile_identity.of_facts(FACTS)
    assert profile_identity.check(done.folder / "profile.json", profile_identity.of_facts(FACTS)) is None
    assert set(done.costs()) <= hlo.read_module(CPU).names()
    assert convert(mode="fail").code == 1  # and leaves none of the first, as `convert` asserts
    assert convert().code == 0


def test_a_recorded_table_of_a_gpu_covers_the_program_of_a_gpu(profiled: Path, convert: Convert) -> None:
    """Names of starts, wrapped instructions and fusions count; those in a branch or of one device do not."""
    (dump,) = hlo.dumps(profiled / "hlo")
    dump.unlink()
    shutil.copy(GPU, profiled / "hlo" / "module_0089.jit_train_step.sm_9.0_gpu_after_optimizations.txt")
    done = convert(SAMPLES / "nvtx_kern_sum_2025.csv")
    assert (done.code, done.notes) == (0, [])
    assert (done.profile().collectives, done.profile().covered) == (8, 5)
    assert done.costs()["all-gather-start.1"] == pytest.approx(7040.5125)
    assert done.costs()["cublas-gemm.1"] == pytest.approx(2103.3102)


def test_the_program_that_ran_is_the_one_that_counts(profiled: Path, convert: Convert) -> None:
    """The dumped program with exactly the names of the profile counts."""
    names = [*convert().costs()]
    another = ANOTHER.replace("HloModule jit_train_step", "HloModule jit__lambda")
    (profiled / "hlo" / "module_0004.jit__lambda.cpu_after_optimizations.txt").write_text(another)
    (profiled / "hlo" / "module_0009.jit_train_step.cpu_after_optimizations.txt").write_text(ANOTHER)
    assert convert(table_of(*thunks(*names))).profile().covered == 6


def test_a_program_without_collectives_is_refused_with_that_reason(profiled: Path, convert: Convert) -> None:
    (dump,) = hlo.dumps(profiled / "hlo")
    dump.write_text(
        "HloModule jit_train_step\n\nENTRY %main (p: f32[]) -> f32[] {\n  %p = f32[] parameter(0)\n"
        "  ROOT %add.1 = f32[] add(%p, %p)\n}\n"
    )
    done = convert()
    assert (done.code, done.profile().collectives, list(done.costs())) == (0, 0, ["add.1"])
    assert "profile cannot improve" in done.notes[0]


def test_instructions_of_other_programs_are_left_out(convert: Convert) -> None:
    names = [*convert().costs()]
    assert "foreign.0" not in convert(table_of(*thunks(*names, "foreign.0"))).costs()


# --- what does not --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fail", "nsys failed with exit code 1: nsys (stand-in): ERROR: the report could not be exported"),
        ("no_kernels", "nsys made no table of {report}: SKIPPED: "),
        ("empty", "nsys's table of {report} has no HLO instruction: no kernel ran"),
        ("no_ranges", "--trace did not include nvtx"),
        ("other_model", "the profile has no cost for 4 of the 4 collectives of {dump}"),
        ("partial", "the profile has no cost for 1 of the 4 collectives of {dump}: all-gather; XLA would guess"),
    ],
)
def test_a_failure_of_nsys_is_reported(profiled: Path, convert: Convert, mode: str, words: str) -> None:
    (report,), (dump,) = profiled.glob("*.nsys-rep"), hlo.dumps(profiled / "hlo")
    done = convert(mode=mode)
    assert words.format(report=report, dump=dump) in done.message
    assert (done.folder / "nsys-stats.log").stat().st_size


def test_what_phase_profile_left_out_is_named(profiled: Path, convert: Convert) -> None:
    assert "nsys is not on PATH" in convert(path="/nowhere").message
    (report,) = profiled.glob("*.nsys-rep")
    shutil.rmtree(profiled / "hlo")
    assert f"--xla_dump_to={profiled / 'hlo'}" in convert(table_of(*thunks("all-gather"))).message
    report.unlink()
    assert f"{profiled} has no *.nsys-rep" in convert().message


def test_an_interrupt_is_reported_and_ends_nsys(profiled: Path, tmp_path: Path) -> None:
    folder, out, pid = tmp_path / "bin", tmp_path / "convert", tmp_path / "pid"
    folder.mkdir()
    out.mkdir()
    os.mkfifo(pid)
    (folder / "nsys").write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 300\n")
    (folder / "nsys").chmod(0o755)
    command = [sys.executable, "-P", str(CONVERTER), f"--profile_dir={profiled}", f"--events_dir={out}", "--key=k"]
    with subprocess.Popen(command, env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}) as process:
        status = Path(f"/proc/{int(pid.read_text())}/status")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 130
    deadline = time.monotonic() + 120
    while status.exists() and "Z (zombie)" not in status.read_text():
        assert time.monotonic() < deadline, "nsys goes on"
        time.sleep(0.05)
    assert [end.status for end in read_phase(out, 1).ends] == ["interrupted"]
