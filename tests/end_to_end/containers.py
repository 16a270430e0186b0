"""Real containers without a registry: podman with its own storage, images of this machine's files, another user."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.runs import LIMIT_SECONDS, REPOSITORY

NEEDED = ("podman", "runc", "newuidmap", "setpriv", "unshare")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
USER = 4711  # a user id that exists only in the namespace of OPEN
MAPPED = 20_000_000  # the first of its subordinate user ids
PROGRAMS = ("/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/uname", "/usr/bin/id")
LIBRARIES = "libstdc++.so.6 libgcc_s.so.1 libgomp.so.1 libz.so.1 librt.so.1 libdl.so.2 libpthread.so.0 libutil.so.1"
# Makes closed folders passable and gives the user a name, in this namespace only. Rootless podman mounts /dev/mqueue.
OPEN = """set -e
mount -t tmpfs tmpfs "$FOLDER/open"
for path in $CLOSED; do
    mkdir -p "$FOLDER/open/upper$path" "$FOLDER/open/work$path"
    mount -t overlay overlay \
        -o "lowerdir=$path,upperdir=$FOLDER/open/upper$path,workdir=$FOLDER/open/work$path" "$path"
    chmod o+x "$path"
done
for name in passwd group subuid subgid; do
    touch -a "/etc/$name"
    mount --bind "$FOLDER/etc/$name" "/etc/$name"
done
mkdir -p /dev/mqueue
mountpoint -q /dev/mqueue || mount -t mqueue mqueue /dev/mqueue
exec setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups "$@"
"""


class User:
    """A user of this machine, with podman's storage, a home and a folder for runs."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.started: list[subprocess.Popen[str]] = []
        for name in ("home", "runtime", "results", "storage", "run", "etc", "open"):
            (folder / name).mkdir(mode=0o700 if name == "runtime" else 0o755, parents=True)
            os.chown(folder / name, number, number)
        configs = folder / "home/.config/containers"
        configs.mkdir(parents=True)
        places = "" if number else f'graphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
        (configs / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\n{places}')
        (configs / "containers.conf").write_text('[engine]\nruntime = "runc"\n')
        subprocess.run(["chown", "--recursive", str(number), folder / "home"], check=True)
        for name, line in {
            "passwd": f"ann:x:{number}:{number}::{folder}/home:/bin/sh",
            "group": f"ann:x:{number}:",
            "subuid": f"ann:{MAPPED}:65536",
            "subgid": f"ann:{MAPPED}:65536",
        }.items():
            before = Path("/etc", name).read_text() if Path("/etc", name).exists() else ""
            (folder / "etc" / name).write_text(f"{before}{line}\n")
        self.variables = {
            "HOME": f"{folder}/home",
            "XDG_RUNTIME_DIR": f"{folder}/runtime",
            "STEPMARK_HOME": f"{folder}/home/stepmark",
        }
        if not number:  # root's podman reads no configuration in a home, and an ordinary user's loses these variables
            self.variables["CONTAINERS_CONF"] = f"{configs}/containers.conf"
            self.variables["CONTAINERS_STORAGE_CONF"] = f"{configs}/storage.conf"

    def start(self, *command: object, **variables: str) -> "subprocess.Popen[str]":
        words = [str(word) for word in command]
        own = self.variables | variables
        if self.number != os.geteuid():
            words = ["unshare", "--mount", "sh", "-c", OPEN, "sh", *words]
            passed = (Path(sys.executable), Path(sys.executable).resolve(), REPOSITORY / "launch", self.folder)
            closed = {str(one) for path in passed for one in path.parents if not one.stat().st_mode & 1}
            own |= {"FOLDER": str(self.folder), "USER_ID": str(self.number), "CLOSED": " ".join(sorted(closed))}
        process = subprocess.Popen(
            words, env=os.environ | own, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(process)
        return process

    def podman(self, *words: object) -> str:
        process = self.start("podman", *words)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, (words, err)
        return out.strip()


def import_image(user: User, name: str, python: Path) -> str:
    """Import the libraries and shell of this machine with a Python's environment, and return the image's name.

    The import has all but the Python's packages, which are linked into its layer: importing gigabytes takes minutes.
    """
    base = Path(subprocess.check_output([python, "-c", "import sys; print(sys.base_prefix)"], text=True).strip())
    version = re.search(r"python(3\.\d+)", str(python.resolve()))
    assert version is not None, python.resolve()
    library = base / "lib" / f"python{version[1]}"
    trees = [library, *base.glob(f"lib/libpython{version[1]}*.so*"), *base.glob("bin/python3*")]
    trees += [python.parents[1]] if python.parents[1] != base else []
    archive = user.folder / f"{name}.tar"
    with tarfile.open(archive, "w") as tar:
        for path in sorted({*PROGRAMS, *_libraries([*PROGRAMS, str(python), *map(str, library.rglob("*.so"))])}):
            tar.add(os.path.realpath(path), path)
        tar.add(user.folder / "etc/passwd", "etc/passwd")
        tar.add(user.folder / "etc/group", "etc/group")
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(temporary)
    archive.chmod(0o644)
    user.podman("import", "--change", f"ENV PATH={python.parent}:/usr/bin:/bin", archive, f"localhost/{name}:1")
    top = user.podman("image", "inspect", "--format={{.GraphDriver.Data.UpperDir}}", f"localhost/{name}:1")
    for tree in trees:
        place = Path(f"{top}{tree}")
        place.parent.mkdir(parents=True, exist_ok=True)
        linked = subprocess.run(["cp", "-al", tree, place], capture_output=True, check=False)
        if linked.returncode:  # another file system
            subprocess.run(["cp", "-a", tree, place], check=True)
    return f"localhost/{name}:1"


def _libraries(programs: Sequence[str]) -> set[str]:
    """Return the libraries that programs and modules load, and those that packages from PyPI expect."""
    found = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    folder = Path("/lib") / str(sysconfig.get_config_var("MULTIARCH"))
    expected = {str(folder / name) for name in LIBRARIES.split() if (folder / name).exists()}
    return {*re.findall(r"(?:=> |^\t)(/(?:usr/)?lib\S+)", found, re.MULTILINE), *expected}


@contextmanager
def user(name: str) -> Iterator[User]:
    """Yield root, or another user; the caller in either's place if this is not root."""
    folder = Path(tempfile.mkdtemp(prefix="stepmark-", dir="/tmp"))  # podman allows 50 characters for its run folder
    folder.chmod(0o755)
    one = User(folder, os.geteuid() or (0 if name == "root" else USER))
    try:
        yield one
    finally:
        for process in one.started:
            process.kill()
        one.start("podman", "rm", "--all", "--force").communicate()
        pause = folder / "runtime/libpod/tmp/pause.pid"  # of the process that keeps a user's namespace
        if pause.exists():
            os.kill(int(pause.read_text()), signal.SIGTERM)
        subprocess.run(["umount", folder / "storage/overlay"], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", folder], capture_output=True, check=False)  # faster than shutil.rmtree
