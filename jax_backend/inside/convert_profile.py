"""Convert the report of Nsight Systems to the profile that XLA's scheduler reads (phase convert of --pgle=nsys).

This program runs by path inside MaxText's environment as one task without a device, with only the standard library
and `nsys`. It works like jax's pgo_nsys_converter.py, but it fails if the report is missing, has no instructions, or
has no cost for a collective. jax's converter accepts such a report, and XLA then guesses costs without a warning.

The program reads the folder of phase profile (*.nsys-rep, hlo/, the worker's facts), and writes profile.pbtxt and
then profile.json. If it fails, neither file exists.
"""

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

hlo = kit.load(HERE / "hlo.py")
profile_identity = kit.load(HERE / "profile_identity.py")
first_few = profile_identity.first_few

PROFILE, ABOUT = "profile.pbtxt", "profile.json"
NSYS_SECONDS = 1800  # the time limit of nsys for one report


class Failure(SystemExit):
    """An error that ends the program without a profile."""

    def __init__(self, why: str) -> None:
        super().__init__(f"stepmark convert: {why}")


# --- nsys's table of kernels by NVTX range ------------------------------------------------------

# XLA opens an NVTX range around every kernel launch, and the range's name contains the instruction. Examples, oldest
# format first (openxla/xla: xla/backends/profiler/gpu, nvtx_utils, annotation.cc); each may begin with `TSL:`:
#
#     Thunk:#hlo_op=fusion.3,hlo_module=jit_step,program_id=7#
#     Thunk:#name=transformer/dot_general,hlo_op=fusion.3,unique_hlo_op_id=812#
#
# jax's own converter uses all text after `hlo_op=` as the name, so it finds no instruction in the newest format.
TABLE = "nvtx_kern_sum"
RANGE, AVERAGE = "NVTX Range", "Avg (ns)"
OPERATION = re.compile(r"(?:^|:)Thunk:.*[#,]hlo_op=([\w.\-]+)(?=[,#]|$)")
MICROSECONDS = 1e-3
# The name of a range may be longer than the csv module's default limit of 131,072 characters.
csv.field_size_limit(16 << 20)


def costs_of(lines: Iterable[str]) -> dict[str, float]:
    """Return instruction -> microseconds, the average time of the slowest kernel of the instruction."""
    reader = csv.DictReader(lines)
    costs: dict[str, float] = {}
    try:
        for row in reader:
            if operation := OPERATION.search(row[RANGE] or ""):
                cost = float(row[AVERAGE].replace(",", "")) * MICROSECONDS
                if not 0 <= cost < float("inf"):
                    raise ValueError(f"an average of {row[AVERAGE]}")
                costs[operation[1]] = max(cost, costs.get(operation[1], 0.0))
    except (csv.Error, KeyError, ValueError, AttributeError) as error:
        raise Failure(f"line {reader.line_num} of nsys's table cannot be read: {error!r}") from error
    return costs


def read_report(report: Path, log: Path) -> dict[str, float]:
    # Use a temporary folder, because nsys makes an SQLite file, whose locks a shared disk may not support.
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as work:
        command = ["nsys", "stats", "--report", TABLE, "--format", "csv", "--force-export", "true"]
        output = run([*command, "--sqlite", f"{work}/report.sqlite", "--output", f"{work}/kernels", str(report)], log)
        made = sorted(Path(work).glob("*.csv"))
        if not made:
            skipped = next((line.strip() for line in output.splitlines() if "SKIPPED" in line), "without a reason")
            raise Failure(f"nsys made no table of {report}: {skipped}; its whole output is in {log}")
        shutil.copy(made[0], log.with_name("nsys-table.csv"))
        with made[0].open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            costs = costs_of(stream)
    if not costs:
        why = "no kernel ran while nsys recorded (see rank-0.log), or --trace did not include nvtx"
        raise Failure(f"nsys's table of {report} has no HLO instruction: {why}")
    return costs


def run(command: list[str], log: Path) -> str:
    """Run nsys, write its output to the log, and return the output."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=NSYS_SECONDS,
            check=False,
            preexec_fn=kit.die_with_parent,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Failure(f"nsys is not on PATH, or did not start or end: {error}") from error
    log.write_text(f"$ {' '.join(command)}\n{done.stdout}\nexit code {done.returncode}\n", encoding="utf-8")
    if done.returncode:
        last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "no output")
        raise Failure(f"nsys failed with exit code {done.returncode}: {last[:300]}; its whole output is in {log}")
    return done.stdout


# --- the profiled program -----------------------------------------------------------------------


def facts_of(folder: Path) -> dict[str, Any]:
    """Return the facts that the worker recorded in the phase `profile`."""
    lines = (folder / "events-rank0.jsonl").read_bytes().splitlines()
    *_, facts = (json.loads(line) for line in lines if b'"facts"' in line)
    return dict(profile_identity.of_facts(facts))


def program_of(folder: Path, costs: dict[str, float]) -> tuple[Path, Any]:
    """Return the path and hlo.Module of the dumped program whose instruction names are most like the profile's."""
    read = {path: hlo.read_module(path) for path in hlo.dumps(folder)}
    if not read:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text in XLA_FLAGS"
        raise Failure(f"{folder} has no {hlo.DUMPS}: phase profile needs {flags}")

    def likeness(path: Path) -> float:
        names = read[path].names()
        return len(names & costs.keys()) / len(names | costs.keys())

    best = max(read, key=likeness)
    return best, read[best]


# --- the profile --------------------------------------------------------------------------------


def convert(options: argparse.Namespace, notes: list[str]) -> None:
    folder, out = Path(options.profile_dir).resolve(), Path(options.events_dir)
    for name in (ABOUT, PROFILE):
        (out / name).unlink(missing_ok=True)  # remove the files of an earlier attempt
    report = next(iter(sorted(folder.glob("*.nsys-rep"))), None)  # only rank 0 is recorded
    if report is None:
        why = "nsys recorded nothing, or its importer failed (*.qdstrm)"
        raise Failure(f"{folder} has no *.nsys-rep: {why}; see its rank-0.log")
    made_by = facts_of(folder)
    measured = read_report(report, out / "nsys-stats.log")
    path, program = program_of(folder / "hlo", measured)
    collectives, known = program.collectives(), program.names()
    demanded = [one for one in collectives if one.always]
    if missing := [one.name for one in demanded if not one.known_in(measured)]:
        raise Failure(
            f"the profile has no cost for {len(missing)} of the {len(demanded)} collectives of {path}: "
            f"{first_few(sorted(missing))}; XLA would guess their times"
        )
    if not collectives:
        notes.append(f"{path.name} has no collective, so a profile cannot improve its schedule")
    # The format of xla_gpu_pgle_profile_file_or_directory_path: XLA's ProfiledInstructionsProto as text.
    costs = sorted((name, cost) for name, cost in measured.items() if name in known)
    text = "".join(f'costs {{ name: "{name}" cost_us: {round(cost, 6)!r} }}\n' for name, cost in costs)
    profile = {
        "key": options.key,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "instructions": text.count("\n"),
        "collectives": len(collectives),
        "covered": sum(one.known_in(measured) for one in collectives),
        "made_by": made_by,
    }
    for name, words in ((PROFILE, text), (ABOUT, json.dumps(profile, indent=2) + "\n")):
        (out / f"{name}.part").write_text(words, encoding="utf-8")
        (out / f"{name}.part").replace(out / name)
    covered = f"{profile['covered']} of {len(collectives)} collectives"
    print(f"{out / PROFILE}: {profile['instructions']} instructions of {path.name}, {covered}")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile_dir", required=True, help="the folder of phase profile")
    parser.add_argument("--events_dir", required=True, help="the folder of this phase; the profile is written there")
    parser.add_argument("--key", required=True, help="the key of the request for which the profile is made")
    parser.add_argument("--rank", type=int, default=int(os.environ.get("STEPMARK_RANK", "0")))
    return parser.parse_args(argv)


def main(options: argparse.Namespace) -> int:
    notes: list[str] = []
    return int(kit.run(options, lambda: convert(options, notes), list, kit.events_of(options), lambda: notes))


if __name__ == "__main__":
    kit.leave(main(parse(sys.argv[1:])))
