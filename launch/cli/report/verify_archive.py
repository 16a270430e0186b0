"""Is an archive as it was written, and does every result in it follow from its raw files?

python launch/report.py verify_archive FILE.tar.gz          exit code 3 where it is not
"""

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, RunError, StepmarkError
from benchmarks.history.archive import RUNS, unpack
from benchmarks.runs.runfolder import RunFolder
from benchmarks.text import bytes_text, plural
from launch.cli.command import only_argument
from launch.terminal.documents import Checked, CheckedArchive, Why
from launch.terminal.output import document
from launch.terminal.run_index import print_some


def main(argv: list[str]) -> int:
    path = Path(only_argument(argv[1:], "python launch/report.py verify_archive FILE"))
    if not path.is_file():
        raise RequestError("there is no such file", where=str(path))
    with tempfile.TemporaryDirectory(prefix="stepmark-archive-") as place:
        try:
            found = unpack(path, Path(place))
        except OSError as error:
            raise RunError(
                f"the archive could not be unpacked: {error.strerror}",
                where=place,
                next_command="TMPDIR=<a folder with space> python launch/report.py verify_archive ...",
            ) from None
        if found.differences or found.archived is None:
            print(f"{path}: not as it was written", flush=True)
            print_some(found.differences, len(found.differences))
            gone = list(found.differences)
            document(CheckedArchive(file=str(path), whole=False, differences=gone, runs=[]))
            return EXIT_INVALID
        archived = found.archived
        sizes = f"{plural(len(archived.runs), 'run')}, {len(archived.sums)} files, {bytes_text(archived.size_bytes)}"
        print(f"{path}: whole: {sizes}")
        print(f"  SHA256SUMS  {archived.sums_sha256} (its own sha256)")
        checked = _verify_runs(Path(place), archived.runs)
    agree = sum(code == EXIT_VALID for _, code in checked)
    print(f"{agree:,} of {plural(len(checked), 'run')} agree with their raw files")
    document(CheckedArchive(file=str(path), whole=True, differences=[], runs=[one for one, _ in checked]))
    return EXIT_VALID if agree == len(checked) else EXIT_INVALID


def _verify_runs(place: Path, names: Sequence[str]) -> list[tuple[Checked, int]]:
    """The same check as launch/verify.py, which names a run as it is named to it: relative to the archive."""
    from launch.verify import verify  # it has flags of its own

    found = []
    with contextlib.chdir(place):
        for name in names:
            try:
                found.append(verify(RunFolder(Path(RUNS, name))))
            except StepmarkError as error:
                print(f"stepmark: {error}", file=sys.stderr)
                found.append((Checked(path=name, agrees=None, error=Why(**error.words())), EXIT_INVALID))
    return found
