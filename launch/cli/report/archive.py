"""Runs as one file, with a checksum of every file in it.

python launch/report.py archive FILE.tar.gz RUN...
python launch/report.py archive FILE.tar.gz --where=model=llama2_70b --output_dir=FOLDER
"""

import sys

from absl import flags

from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.history.archive import LEFT_OUT, write_archive
from benchmarks.runs.find_runs import find_run
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.text import bytes_text, plural
from launch.cli.report import choice
from launch.terminal.documents import Archive
from launch.terminal.output import answer
from launch.terminal.run_index import print_some

flags.adopt_module_key_flags(choice)


def main(argv: list[str]) -> int:
    target, named = choice.file_and_runs(argv[1:], "archive")
    folder = choice.all_runs()
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise RequestError("an archive is called NAME.tar.gz", where=str(target))
    if named:
        folders = list(dict.fromkeys(find_run(name, folder).path.resolve() for name in named))
    else:
        folders = [folder / one.path for one in choice.fitting(folder)]
    for run in map(RunFolder, folders):
        if not (run.path / RESULT).is_file() or not run.is_collected():
            raise choice.no_result("a run has no result yet", run.path)
    packed = write_archive(folders, target)
    archived = packed.archived
    answer(
        Archive(file=str(target), runs=[one.name for one in folders], sums_sha256=archived.sums_sha256),
        f"{target}: {plural(len(folders), 'run')}, {len(archived.sums)} files, {bytes_text(archived.size_bytes)} "
        f"({bytes_text(target.stat().st_size)} packed); left out of each: {LEFT_OUT}/\n"
        f"  SHA256SUMS  {archived.sums_sha256} (its own sha256)\n"
        f"  next        python launch/report.py verify_archive {target}     (on any machine)",
    )
    if packed.skipped:
        print("stepmark: left out, as they are links or their names begin with a dot:", file=sys.stderr)
        print_some(packed.skipped, len(packed.skipped))
    if packed.secrets:  # raw files go in as they are: else no digest would agree
        print("stepmark: what looks like a secret is in these files, and now in the archive:", file=sys.stderr)
        print_some(packed.secrets, len(packed.secrets))
    return EXIT_VALID
