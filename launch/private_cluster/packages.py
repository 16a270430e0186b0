"""Which programs a private cluster needs, and which Debian packages bring them."""

import os
import shutil
from pathlib import Path

from benchmarks.errors import RequestError

SLURM = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "scontrol": "slurm-client",
    "sinfo": "slurm-client",
    "squeue": "slurm-client",
    "srun": "slurm-client",
}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core", "sacct": "slurm-client"}
DATABASE_PACKAGE = "mariadb-server-core"
# The first that is there; newer packages have renamed it.
SYSTEM_TABLES = (
    Path("/usr/share/mysql/mysql_system_tables.sql"),
    Path("/usr/share/mariadb/mariadb_system_tables.sql"),
)
DAEMON_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where daemons lie; not in every user's PATH


def refuse_missing(accounting: bool) -> None:
    """Before anything starts: is every program there?"""
    absent = missing(accounting)
    if not absent:
        return
    packages = " ".join(sorted(set(absent.values())))
    without = "" if not set(absent) <= set(ACCOUNTING) else "     (or --noaccounting: no sacct)"
    raise RequestError(
        f"Slurm is not installed here: {', '.join(absent)} not found",
        where="PATH and " + ", ".join(DAEMON_FOLDERS),
        why=f"a private cluster runs the daemons of these Debian packages: {packages}",
        next_command=f"sudo apt-get install --no-install-recommends {packages}{without}",
    )


def missing(accounting: bool) -> dict[str, str]:
    """Program -> the package that brings it, for each that is not here."""
    needed = SLURM | (ACCOUNTING if accounting else {})
    absent = {program: package for program, package in needed.items() if find(program) is None}
    if accounting and system_tables() is None:
        absent[SYSTEM_TABLES[0].name] = DATABASE_PACKAGE
    return absent


def system_tables() -> Path | None:
    return next((path for path in SYSTEM_TABLES if path.is_file()), None)


def find(program: str) -> str | None:
    return shutil.which(program, path=search_path())


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), *DAEMON_FOLDERS])
