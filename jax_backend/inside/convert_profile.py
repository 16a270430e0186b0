"""Phase convert of --pgle=nsys: what Nsight Systems recorded -> the profile that XLA schedules by.

Run by path inside MaxText's environment, one task, without a device: the standard library and `nsys` alone. It does
what jax's pgo_nsys_converter.py does, and fails where that goes on: XLA trains on in silence with a profile that is
missing, empty, or of another program, so each of these must end here, before GPU hours are spent on it.

Out of the folder of phase profile (*.nsys-rep, hlo/, the worker's facts) it makes profile.pbtxt and, last,
profile.json beside it. Where it fails, neither is there.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

hlo = kit.load(HERE / "hlo.py")
kernel_table = kit.load(HERE / "kernel_table.py")
profile_identity = kit.load(HERE / "profile_identity.py")

SHOWN = 5  # names in one message
# Of the profile's instructions, so many may be in no dump. More where nsys saw programs run that were not dumped: a
# worker dumps the training step alone, and others run beside it.
UNKNOWN_SHARE = 0.05
UNKNOWN_SHARE_BESIDE_OTHERS = 0.5


class Program(NamedTuple):
    """The dumped program that was profiled."""

    path: Path
    names: set[str]
    collectives: list[Any]  # hlo.Collective
    known: set[str]  # the names in it and in all other dumped programs that ran
    all_dumped: bool  # all that ran

    @property
    def demanded(self) -> list[Any]:
        return [one for one in self.collectives if one.always]


class Failure(Exception):
    """Why there is no profile: what is wrong, and where to look."""


# --- what nsys says -----------------------------------------------------------------------------


def reports_in(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.nsys-rep"))
    raw = sorted(folder.glob("*.qdstrm"))
    if not found and raw:
        raise Failure(f"nsys wrote {raw[0]} and made no report of it: its importer failed; see rank-0.log beside it")
    if not found:
        why = "the steps that it was to record must be steps that were trained"
        raise Failure(f"there is no *.nsys-rep in {folder}: nsys recorded nothing; see rank-0.log there; {why}")
    return found


def tables_of(reports: list[Path], nsys: str, log: Path, timeout: float) -> list[Any]:
    program = shutil.which(nsys)
    if program is None:
        raise Failure(f"{nsys} is not on PATH where phase convert runs: only nsys can read {reports[0]}")
    said = _run([program, "stats", "--help-reports"], log, timeout)
    report = next((name for name in kernel_table.REPORTS if name in said), None)
    if report is None:
        raise Failure(f"{program} offers no report {' or '.join(kernel_table.REPORTS)}: what it says is in {log}")
    # Not beside the reports: nsys makes an SQLite file of each, and needs locks that a shared disk may not have.
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as work:
        return [_table(program, report, path, Path(work) / path.stem, log, timeout) for path in reports]


def _table(program: str, report: str, path: Path, work: Path, log: Path, timeout: float) -> Any:
    work.mkdir()
    command = [program, "stats", "--report", report, "--format", "csv", "--force-export", "true"]
    command += ["--sqlite", str(work / "report.sqlite"), "--output", str(work / "kernels"), str(path)]
    said = _run(command, log, timeout, f" of {path}")
    made = sorted(work.glob("*.csv"))
    if not made:
        skipped = [
            f": {line.strip()}" for line in said.splitlines() if "SKIPPED" in line or "does not contain" in line
        ]
        raise Failure(f"nsys made no table of {path}{''.join(skipped[:1])}; what it says is in {log}")
    try:
        table = kernel_table.read(made[0])
    except kernel_table.TableError as error:
        kept = shutil.copy(made[0], log.with_name("nsys-table.csv"))
        raise Failure(f"nsys's table of {path} ({kept}) cannot be read: {error}") from error
    if not table.rows:
        raise Failure(f"nsys's table of {path} has no row: no kernel ran while it recorded; see rank-0.log beside it")
    if not table.costs:
        why = "XLA's NVTX ranges were not recorded. nsys needs nvtx in its --trace"
        raise Failure(f"none of the {table.rows} rows of nsys's table of {path} names an HLO instruction: {why}")
    return table


def _run(command: list[str], log: Path, timeout: float, of: str = "") -> str:
    """Run nsys; what it said, which is kept as well."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            preexec_fn=kit.die_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        raise Failure(f"nsys did not answer within {timeout:.0f} s{of}: {' '.join(command)}") from error
    except OSError as error:
        raise Failure(f"{command[0]} does not start: {error.strerror}") from error
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"$ {' '.join(command)}\n{done.stdout}\nexit code {done.returncode}\n\n")
    if done.returncode:
        last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "it says nothing")
        raise Failure(f"nsys failed with exit code {done.returncode}{of}: {last[:300]}; all that it says is in {log}")
    return done.stdout


# --- what was profiled --------------------------------------------------------------------------


def facts_of(folder: Path) -> dict[str, Any]:
    """What the worker of phase profile wrote down of itself."""
    path = folder / "events-rank0.jsonl"
    try:
        lines = [line for line in path.read_bytes().splitlines() if b'"facts"' in line]
        return dict(profile_identity.of_facts(json.loads(lines[-1])))
    except (OSError, IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else repr(error)
        raise Failure(f"{path} does not say what program was profiled: {why}; see rank-0.log beside it") from error


def program_of(folder: Path, modules: dict[str, set[int]], names: set[str]) -> Program:
    """The dumped program that the profile is of.

    The ranges of the programs themselves say which ones ran. Without them it is the training step, else the one that
    has most of the profile's instructions: names such as fusion.1 are in every program.
    """
    dumps = hlo.dumps(folder)
    if not dumps:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text in XLA_FLAGS"
        raise Failure(f"there is no {hlo.DUMPS} in {folder}: phase profile needs {flags}")
    called = {path: hlo.module_name(path) for path in dumps}
    ran = [path for path in dumps if called[path] in modules]
    exact = {called[path] for path in ran if hlo.program_id(path) in modules[called[path]]}
    ran = [p for p in ran if called[p] not in exact or hlo.program_id(p) in modules[called[p]]]
    if modules and not ran:
        held = some(sorted(set(called.values())))
        raise Failure(
            f"the dump is of another program: nsys saw {some(sorted(modules))} run, and {folder} holds {held}"
        )
    ran = ran or [path for path in dumps if "train_step" in called[path]] or dumps
    read = {path: hlo.read_module(path) for path in ran}
    cut = [path for path, module in read.items() if not module.whole]
    if cut:
        raise Failure(f"{cut[0]} is not whole: it ends before its ENTRY does; was the disk full?")
    have = {path: module.names() for path, module in read.items()}
    best = max(ran, key=lambda path: len(have[path] & names))
    all_dumped = set(modules) <= {called[path] for path in ran}
    return Program(best, have[best], read[best].collectives(), set().union(*have.values()), all_dumped)


def refuse_another_program(program: Program, names: set[str]) -> list[str]:
    """A profile that is not of the dumped program, or not of all its collectives; else notes on what is in none."""
    demanded = [one.name for one in program.demanded]
    missing = [one.name for one in program.demanded if not one.known_in(names)]
    in_graphs = any(kernel_table.GRAPH_RANGE.search(name) for name in names)
    graphs = (
        ". Kernels were launched in CUDA graphs, where ranges do not tell them apart: phase profile needs "
        "--xla_gpu_enable_command_buffer= (empty)"
        if in_graphs
        else ""
    )
    if demanded and missing == demanded:
        raise Failure(
            f"the profile is of another program: it has a cost for none of the {len(demanded)} collectives of "
            f"{program.path} ({some(demanded)}); it has {some(sorted(names))}{graphs}"
        )
    unknown = sorted(name for name in names - program.known if not kernel_table.GRAPH_RANGE.search(name))
    if len(unknown) > (UNKNOWN_SHARE if program.all_dumped else UNKNOWN_SHARE_BESIDE_OTHERS) * len(names):
        what = f"{len(unknown)} of its {len(names)} instructions are not in {program.path} ({some(unknown)})"
        raise Failure(f"the profile is of another program: {what}")
    if missing:
        raise Failure(
            f"the profile has no cost for {len(missing)} of the {len(demanded)} collectives of "
            f"{program.path}: {some(missing)}; XLA would guess what they take{graphs}"
        )
    what = f"{len(unknown)} of the profile's {len(names)} instructions are in no dumped program"
    return [f"{what}: {some(unknown)}"] if unknown else []


def some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


# --- the profile --------------------------------------------------------------------------------


def convert(options: argparse.Namespace, notes: list[str]) -> None:
    folder, out = Path(options.profile_dir).resolve(), Path(options.events_dir)
    for name in ("profile.json", "profile.pbtxt"):
        (out / name).unlink(missing_ok=True)  # of an earlier try; a failure leaves neither
    reports = reports_in(folder)
    made_by = facts_of(folder)
    tables = tables_of(reports, options.nsys, out / "nsys-stats.log", options.timeout)
    modules: dict[str, set[int]] = {}
    for table in tables:
        for name, numbers in table.modules.items():
            modules.setdefault(name, set()).update(numbers)
    names = {name for table in tables for name in table.costs}
    program = program_of(folder / "hlo", modules, names)
    notes += refuse_another_program(program, names)

    moving = {name for one in program.collectives for name in (one.name, *one.others)}
    costs = kernel_table.over_ranks(tables, moving)
    text = kernel_table.profile_text({name: cost for name, cost in costs.items() if name in program.names})
    covered = sum(one.known_in(names) for one in program.collectives)
    if not program.collectives:
        notes.append(f"{program.path.name} has no collective: there is nothing for a profile to hide")
    profile = {
        "key": options.key,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "instructions": text.count("\n"),
        "collectives": len(program.collectives),
        "covered": covered,
        "made_by": made_by,
    }
    _write(out / "profile.pbtxt", text)
    _write(out / "profile.json", json.dumps(profile, indent=2) + "\n")
    print(
        f"{out / 'profile.pbtxt'}: {profile['instructions']} instructions of {program.path.name}, "
        f"{covered} of {len(program.collectives)} collectives, from {len(reports)} report(s)"
    )


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(path.name + ".part")
    with beside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile_dir", required=True, help="the folder of phase profile")
    parser.add_argument("--events_dir", required=True, help="the folder of this phase; the profile is written there")
    parser.add_argument("--key", required=True, help="names the request that the profile is made for")
    parser.add_argument("--nsys", default="nsys", help="the program")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds that nsys may take over one report")
    parser.add_argument("--rank", type=int, default=int(os.environ.get("STEPMARK_RANK", "0")))
    return parser.parse_args(argv)


def main(options: argparse.Namespace) -> int:
    notes: list[str] = []

    def work() -> None:
        try:
            convert(options, notes)
        except Failure as failure:
            raise SystemExit(f"stepmark convert: {failure}") from failure
        except OSError as error:
            raise SystemExit(f"stepmark convert: {error.filename or 'a file'}: {error.strerror}") from error

    return int(kit.run(options, work, list, kit.events_of(options), lambda: notes))


if __name__ == "__main__":
    kit.leave(main(parse(sys.argv[1:])))
