"""The virtual environments backends run in: where they are, whether they are whole, how one is made.

An environment is made from its backend's lock file on first use and reused ever after. It is whole
when its `complete` marker is there, which is written last; whoever writes into an environment, pip
and its import check included, holds its lock file. Knows no backend and no framework by name.

In order: places, reuse and making, pip, its failures in plain words, progress, Python search.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from benchmarks.backend import EnvironmentSpec
from benchmarks.errors import RequestError, RunError

Say = Callable[[str], None]

MARKER = "complete"
WAIT_NOTE_SECONDS = 60.0
END_SECONDS = 5.0  # what a program gets between being asked to end and being killed


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- places -----------------------------------------------------------------------------------


def environments_root() -> Path:
    """The folder of all environments: $STEPMARK_HOME/environments, or the user's cache."""
    home = os.environ.get("STEPMARK_HOME")
    if home:
        return Path(home).absolute() / "environments"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if Path(cache).is_absolute():
        return Path(cache) / "stepmark" / "environments"
    return _user_home() / ".cache" / "stepmark" / "environments"


def _user_home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise RequestError(
            "this user has no home folder, so there is no place for the environments",
            where="HOME",
            why=str(error),
            next_command="export STEPMARK_HOME=<a folder that this user can write>",
        ) from error


def environment_path(spec: EnvironmentSpec, python_version: tuple[int, int] | None = None) -> Path:
    """Where the environment is, or would be: the whole one if there is one, else the preferred Python's."""
    if python_version is None:
        whole = python_of(spec)
        if whole is not None:
            return whole.parents[1]
    major, minor = python_version or spec.python_minimum
    # The machine is part of the name because a home folder may be shared by x86_64 and aarch64 nodes.
    return environments_root() / f"{_key(spec)}-py{major}.{minor}-{os.uname().machine}"


def _key(spec: EnvironmentSpec) -> str:
    return f"{spec.name}-{_lock_digest(spec)[:12]}"


def _lock_digest(spec: EnvironmentSpec) -> str:
    try:
        return hashlib.sha256(spec.lock_file.read_bytes()).hexdigest()
    except OSError as error:
        raise RequestError(
            f"the lock file of the environment '{spec.name}' cannot be read",
            where=str(spec.lock_file),
            why=error.strerror or str(error),
            next_command="install Stepmark again, or `make lock` in a checkout",
        ) from error


def _python_versions(spec: EnvironmentSpec) -> list[tuple[int, int]]:
    """The Python versions the lock file was made for, the preferred first."""
    (major, first), (_, last) = spec.python_minimum, spec.python_maximum
    return [(major, minor) for minor in range(first, last + 1)]


def _version_range(spec: EnvironmentSpec) -> str:
    first, last = (".".join(map(str, v)) for v in (spec.python_minimum, spec.python_maximum))
    return first if first == last else f"{first} to {last}"


# --- reuse and making -------------------------------------------------------------------------


def is_ready(spec: EnvironmentSpec) -> bool:
    """Whether the environment is whole; starts nothing."""
    return python_of(spec) is not None


def python_of(spec: EnvironmentSpec) -> Path | None:
    """The Python of the environment if that is whole; starts nothing and takes about a millisecond."""
    for version in _python_versions(spec):
        path = environment_path(spec, version)
        python = path / "bin" / "python"
        # The link is followed: an environment whose base Python was removed is not whole.
        if _exists(path / MARKER) and _exists(python):
            return python
    return None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder of somebody else's: `ensure` says so when it comes to writing there
        return False


def ensure(spec: EnvironmentSpec, say: Say = _to_stderr, bar: bool | None = None) -> Path:
    """The Python of the environment, which is made first if need be.

    `say` gets the lines for a person; `bar` decides for a progress bar on stderr instead of
    progress lines (None: a bar where stderr is a terminal).
    """
    python = python_of(spec)
    if python is not None:
        return python
    root = _writable_root()
    with _only_maker(root / f"{_key(spec)}.making", spec, say) as lock:
        python = python_of(spec)
        if python is not None:
            say(f"environment '{spec.name}': made by the other process, reused")
            return python
        return _make(spec, lock, say, sys.stderr.isatty() if bar is None else bar)


def _writable_root() -> Path:
    root = environments_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        writable = os.access(root, os.W_OK | os.X_OK)
        reason = "no permission to write"
    except OSError as error:
        writable = False
        reason = error.strerror or str(error)
    if not writable:
        raise RequestError(
            "the folder of the environments cannot be written",
            where=str(root),
            why=f"{reason}; a backend's environment is made there on first use",
            next_command="export STEPMARK_HOME=<a folder that this user can write>",
        )
    return root


@contextlib.contextmanager
def _only_maker(path: Path, spec: EnvironmentSpec, say: Say) -> Iterator[int]:
    """Hold the lock file of an environment; wait, and say so, while another process holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RequestError(
            "the folder of the environments cannot be written",
            where=str(path),
            why=error.strerror or str(error),
            next_command="export STEPMARK_HOME=<a folder that this user can write>",
        ) from error
    try:
        _wait_for_lock(descriptor, path, spec, say)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)  # which unlocks it, unless a program we started lives on


def _wait_for_lock(descriptor: int, path: Path, spec: EnvironmentSpec, say: Say) -> None:
    noted = -WAIT_NOTE_SECONDS
    started = time.monotonic()
    while not _try_lock(descriptor, path):
        waited = time.monotonic() - started
        if waited - noted >= WAIT_NOTE_SECONDS:
            noted = waited
            holder = os.pread(descriptor, 20, 0).decode(errors="replace") or "unknown"
            say(f"environment '{spec.name}': process {holder} is making it; waiting ({waited:.0f} s)")
        time.sleep(0.1)


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise RequestError(
            "the environment's lock file cannot be locked",
            where=str(path),
            why=f"{error.strerror}; some network file systems have no locks",
            next_command="export STEPMARK_HOME=<a folder on a local disk>",
        ) from error
    return True


@dataclass(frozen=True)
class _Making:
    """One environment in the making: what, where, and the lock that its programs hold too."""

    spec: EnvironmentSpec
    path: Path
    log_file: Path
    lock: int

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"


def _make(spec: EnvironmentSpec, lock: int, say: Say, bar: bool) -> Path:
    base, version = _find_python(spec)
    path = environment_path(spec, version)
    making = _Making(spec, path, path.with_name(path.name + ".log"), lock)
    if path.exists():
        say(f"environment '{spec.name}': removing one that was left incomplete")
    _remove(path)
    _refuse_without_room(spec, path.parent)
    say(
        f"environment '{spec.name}': making it with Python {version[0]}.{version[1]}, "
        f"once, about {spec.size_gb:g} GB, in {path}"
    )
    started = time.monotonic()
    try:
        with _signals_as_exit(), _progress(spec, say, bar) as progress:
            _fill(making, base, progress)
        _mark_complete(making, time.monotonic() - started)
    except OSError as error:
        _remove(path)
        raise _unwritten(making, error) from error
    except BaseException:
        _remove(path)
        raise
    say(f"environment '{spec.name}': ready after {time.monotonic() - started:.0f} s")
    return making.python


def _unwritten(making: _Making, error: OSError) -> RunError:
    return RunError(
        f"environment '{making.spec.name}': a file could not be written",
        where=str(error.filename or making.path),
        why=error.strerror or str(error),
        next_command="export STEPMARK_HOME=<a folder that this user can write, on a disk with room>",
    )


def _fill(making: _Making, base: Path, progress: "Progress") -> None:
    making.log_file.write_text("")
    progress.phase("creating")
    _step(making, [str(base), "-I", "-m", "venv", str(making.path)], _explain_program("creating it"))
    _install(making, progress)
    progress.phase("checking")
    pip_check = [str(making.python), "-I", "-m", "pip", "check"]
    _step(making, pip_check, _explain_program("`pip check`"))
    module = making.spec.import_check
    import_check = [str(making.python), "-I", "-c", f"import importlib; importlib.import_module({module!r})"]
    _step(making, import_check, _explain_program(f"importing {module}"))


def _mark_complete(making: _Making, seconds: float) -> None:
    facts = {"name": making.spec.name, "lock_sha256": _lock_digest(making.spec), "seconds": round(seconds, 1)}
    half_written = making.path / f"{MARKER}.part"
    half_written.write_text(json.dumps(facts) + "\n")
    half_written.replace(making.path / MARKER)


def _remove(path: Path) -> None:
    """Remove an environment; the marker first, so that what is half removed is never taken for whole."""
    if not path.exists():
        return
    (path / MARKER).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise RunError(
            "an incomplete environment cannot be removed",
            where=str(path),
            why="a file in it is in use or belongs to another user",
            next_command=f"rm -rf {path}",
        )


def _refuse_without_room(spec: EnvironmentSpec, place: Path) -> None:
    free_gb = shutil.disk_usage(place).free / 1e9
    if free_gb < spec.size_gb:
        raise RequestError(
            f"the disk has no room for the environment '{spec.name}'",
            where=str(place),
            why=f"it takes about {spec.size_gb:g} GB and {free_gb:.1f} GB are free",
            next_command="free some space, or export STEPMARK_HOME=<a folder on a larger disk>",
        )


@contextlib.contextmanager
def _signals_as_exit() -> Iterator[None]:
    """Let a polite kill or a closed terminal end pip too, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    # One that is handled otherwise stays so: nohup ignores a closed terminal.
    ours = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


# --- pip --------------------------------------------------------------------------------------


# What would send packages elsewhere than into the environment, or contradict its lock file; NVIDIA's
# container images set PIP_CONSTRAINT.
_UNWANTED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_CONSTRAINT",
    "PIP_REQUIRE_HASHES",
)
_PIP_SETTINGS = {
    "PIP_USER": "0",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_PROGRESS_BAR": "off",
    "PYTHONUNBUFFERED": "1",
}
_LOGIN_IN_URL = re.compile(r"(?<=://)[^\s/]*@")


def scrub(text: str) -> str:
    """The text with the logins taken out of its URLs."""
    return _LOGIN_IN_URL.sub("***@", text)


def _install(making: _Making, progress: "Progress") -> None:
    watch = _PipWatch(making, progress)
    watch.start()
    pip = [str(making.python), "-I", "-m", "pip", "install", "--require-hashes", "--no-deps"]
    command = [*pip, "--only-binary", ":all:", "-r", str(making.spec.lock_file)]
    _step(making, command, _explain_pip, watch.line, watch.tick)


@dataclass
class _PipWatch:
    """Turns pip's lines, and what it has installed so far, into progress."""

    making: _Making
    progress: "Progress"
    total: int = 0
    collected: int = 0
    installed_before: int = 0
    installing: bool = False

    def start(self) -> None:
        self.total = len(re.findall(r"^[^\s#]+==", self.making.spec.lock_file.read_text(), re.MULTILINE))
        self.installed_before = self._installed()
        self.progress.phase("downloading", self.total)

    def line(self, text: str) -> None:
        if text.startswith("Ignoring "):  # its marker names another platform or Python
            self.total -= 1
        elif text.startswith("Collecting "):
            self.collected += 1
        elif text.startswith("Installing collected packages"):
            self.installing = True

    def tick(self) -> None:
        if self.installing:
            # pip is silent while it installs; a package's .dist-info folder is what it writes last.
            self.progress.phase("installing", self.total)
            self.progress.done(self._installed() - self.installed_before, self.total)
        else:
            self.progress.done(self.collected, self.total)

    def _installed(self) -> int:
        return sum(1 for _ in self.making.path.glob("lib/python*/site-packages/*.dist-info"))


Explain = Callable[[_Making, list[str]], RunError]


def _step(
    making: _Making,
    command: list[str],
    explain: Explain,
    on_line: Callable[[str], None] = lambda _text: None,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Run one program of the making, its output into the log file; raise what `explain` says if it fails."""
    lines: list[str] = []
    with making.log_file.open("a", encoding="utf-8") as log:

        def take(raw: str) -> None:
            text = scrub(raw)
            lines.append(text.rstrip("\n"))
            on_line(text)
            # On a full disk pip's words must still be read: they are what says so.
            with contextlib.suppress(OSError):
                log.write(text)

        code = _run(command, making, take, on_tick)
    if code != 0:
        raise explain(making, lines)


def _run(command: list[str], making: _Making, take: Callable[[str], None], on_tick: Callable[[], None]) -> int:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={k: v for k, v in os.environ.items() if k not in _UNWANTED} | _PIP_SETTINGS,
        cwd=making.path.parent,
        start_new_session=True,  # a group of its own, which can be ended as a whole
        # The program holds the lock too: if this process is killed, nobody else may
        # write into the environment before the program has ended.
        pass_fds=(making.lock,),
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_pump, args=(process.stdout, take), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            reader.join(0.2)
            on_tick()
            if not reader.is_alive():
                process.wait()
        reader.join(END_SECONDS)
        on_tick()
    except BaseException:
        _end_group(process)
        reader.join(END_SECONDS)
        raise
    return process.returncode


def _pump(stream: IO[str], take: Callable[[str], None]) -> None:
    for line in stream:
        take(line)


_ASKED_FIRST = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)  # at SIGINT pip removes its temporary files


def _end_group(process: subprocess.Popen[str], signals: tuple[signal.Signals, ...] = _ASKED_FIRST) -> None:
    """End a program that leads its own group, and its children."""
    for number in signals:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


# --- its failures in plain words --------------------------------------------------------------


@dataclass(frozen=True)
class _Failure:
    """A way for pip to fail: how its log shows it, what that means, what to do. {0} is what was matched."""

    pattern: str
    what: str
    why: str
    next_command: str
    unless: str | None = None


_AGAIN = "run the same command again"
_NOT_OFFERED = _Failure(
    r"No matching distribution found for (\S+)",
    "the package index has no {0} for this machine",
    "the lock file pins a version with a wheel; the index lacks it for this Python, system or processor",
    "see which index pip is set up for (pip.conf, PIP_INDEX_URL); it must offer what PyPI offers",
)
_FAILURES = (
    _Failure(
        r"DO NOT MATCH THE HASHES[^\n]*\n(?:\s*\n)*\s+(\S+)",
        "the package {0} is not the one the lock file was made with",
        "its hash differs from the pinned ones: the package index or a cache gave other content",
        "export PIP_NO_CACHE_DIR=1, and " + _AGAIN + "; if that does not help, ask who runs the package index",
    ),
    _Failure(
        r"No space left on device",
        "the disk became full while packages were installed",
        "pip unpacks in TMPDIR and keeps downloads in its cache, besides the environment itself",
        "free some space, or export TMPDIR and STEPMARK_HOME=<folders on a larger disk>",
    ),
    _Failure(
        r"(?:HTTP error |\b)(401|403|407)(?: Client)? (?:Error|Proxy|Unauthorized|Forbidden)|User for \S+:",
        "the package index refused the login",
        "pip's own settings name an index that needs one; pip may not ask for it here",
        "give pip the login of the index it is set up for (pip.conf, netrc, keyring), and " + _AGAIN,
    ),
    _Failure(
        r"(Failed to establish a new connection|NewConnectionError|NameResolutionError|"
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable|"
        r"Connection refused|Connection reset|ConnectTimeout|Connection broken|timed out|"
        r"ProxyError|SSLError)",
        "the package index cannot be reached ({0})",
        "this machine has no network, or pip is not set up for its proxy or mirror",
        "on a machine with network: {python} -m pip download --require-hashes --no-deps "
        "--only-binary :all: -d wheels -r {lock_file}; copy the folder here, then: "
        "export PIP_NO_INDEX=1 PIP_FIND_LINKS=<folder>, and " + _AGAIN + ". "
        "Or copy a STEPMARK_HOME that holds the environment, to the same path beside the same Python",
        unless=r"\(from versions: (?!none)",
    ),
    _NOT_OFFERED,
    _Failure(
        r"(Permission denied|Read-only file system)[^\n]*",
        "a file could not be written while packages were installed ({0})",
        "the environment, TMPDIR and pip's cache must be writable",
        "export TMPDIR and STEPMARK_HOME=<folders that this user can write>",
    ),
)


def _explain_pip(making: _Making, lines: list[str]) -> RunError:
    text = "\n".join(lines)
    failure, found = _recognise(text)
    if failure is _NOT_OFFERED and "(from versions: none)" in text:
        failure, found = _recognise("\n".join([*lines, *_ask_loudly(making, found)]))
    if failure is None:
        return _explain_program("pip")(making, lines)
    python = f"python{environment_python_version(making.path)}"
    return RunError(
        f"environment '{making.spec.name}': {failure.what.format(found)}",
        where=f"pip's log: {making.log_file}",
        why=failure.why,
        next_command=failure.next_command.format(python=python, lock_file=making.spec.lock_file),
    )


def _recognise(text: str) -> tuple[_Failure | None, str]:
    for failure in _FAILURES:
        match = re.search(failure.pattern, text)
        if match and not (failure.unless and re.search(failure.unless, text)):
            return failure, (match.group(1) or "") if match.groups() else ""
    return None, ""


def _ask_loudly(making: _Making, requirement: str) -> list[str]:
    """What pip says of one requirement at its loudest.

    Otherwise an index that cannot be reached and one that lacks the package look the same to it
    when it does not retry.
    """
    pip = [str(making.python), "-I", "-m", "pip", "download", "-vv", "--no-deps", "--retries=0"]
    folder = making.path / "asked_again"
    command = [*pip, "--timeout=15", "--only-binary=:all:", f"--dest={folder}", requirement]
    lines: list[str] = []
    with contextlib.suppress(RunError):
        _step(making, command, _explain_program("pip"), lines.append)
    return lines


def environment_python_version(path: Path) -> str:
    """The Python version in an environment's folder name, such as "3.12"."""
    match = re.search(r"-py(\d+\.\d+)-", path.name)
    return match.group(1) if match else "3"


def _explain_program(doing: str) -> Explain:
    def explain(making: _Making, lines: list[str]) -> RunError:
        errors = [line for line in lines if line.startswith("ERROR")] or [line for line in lines if line.strip()]
        return RunError(
            f"environment '{making.spec.name}': {doing} failed",
            where=f"log: {making.log_file}",
            why=errors[-1].strip()[:300] if errors else "the program ended without a word",
            next_command=f"read the log; the environment is made again when you {_AGAIN}",
        )

    return explain


# --- progress ---------------------------------------------------------------------------------


class Progress(Protocol):
    """What a person sees of the making: phases, and within one how many packages are done."""

    def phase(self, name: str, total: int | None = None) -> None: ...

    def done(self, count: int, total: int) -> None: ...


@contextlib.contextmanager
def _progress(spec: EnvironmentSpec, say: Say, bar: bool) -> Iterator[Progress]:
    if not bar:
        yield _Lines(spec.name, say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TextColumn("packages"), TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as rich_progress:
        task = rich_progress.add_task(spec.name, total=None)
        yield _Bar(
            spec.name,
            lambda text, count, total: rich_progress.update(task, description=text, completed=count, total=total),
        )


@dataclass
class _Lines:
    """Progress for a log file: a line for each phase and for each further tenth."""

    name: str
    say: Say
    current: str = ""
    tenth: int = 0
    started: float = field(default_factory=time.monotonic)

    def phase(self, name: str, total: int | None = None) -> None:
        if name != self.current:
            self.current, self.tenth = name, 0
            self._line(name if total is None else f"{name} {total} packages")

    def done(self, count: int, total: int) -> None:
        tenth = 10 * count // max(total, 1)
        if tenth > self.tenth:
            self.tenth = tenth
            self._line(f"{self.current}: package {count} of {total}")

    def _line(self, text: str) -> None:
        self.say(f"environment '{self.name}': {text} ({time.monotonic() - self.started:.0f} s)")


@dataclass
class _Bar:
    """Progress for a terminal."""

    name: str
    update: Callable[[str, int, int | None], None]
    current: str = ""

    def phase(self, name: str, total: int | None = None) -> None:
        if name != self.current:
            self.current = name
            self.update(f"{self.name}: {name}", 0, total)

    def done(self, count: int, total: int) -> None:
        self.update(f"{self.name}: {self.current}", count, total)


# --- Python search ----------------------------------------------------------------------------


PROBE_SECONDS = 5.0
# Old syntax on purpose: this also runs in a Python 2.
_PROBE = (
    "import sys, platform, sysconfig; "
    "print('%d.%d %s %s' % (sys.version_info[0], sys.version_info[1], platform.python_implementation(), "
    "sysconfig.get_config_var('Py_GIL_DISABLED') or 0)); "
    "import venv, ensurepip"
)
# Folders where package managers and people put a Python that need not be in PATH.
SYSTEM_PATTERNS = (
    "/usr/bin/{python}",
    "/usr/local/bin/{python}",
    "/opt/homebrew/bin/{python}",
    "/home/linuxbrew/.linuxbrew/bin/{python}",
    "/opt/homebrew/opt/python@{version}/bin/{python}",
    "/Library/Frameworks/Python.framework/Versions/{version}/bin/{python}",
    "/opt/*/bin/{python}",
    "/opt/*/*/bin/{python}",
)
# What a distribution's own packages offer: (ID, VERSION_ID of /etc/os-release) -> Python.
DISTRIBUTION_PYTHONS = {
    ("debian", "13"): (3, 13),
    ("ubuntu", "24.04"): (3, 12),
    ("ubuntu", "24.10"): (3, 12),
    ("ubuntu", "25.04"): (3, 13),
    ("ubuntu", "25.10"): (3, 13),
}
OS_RELEASE = Path("/etc/os-release")


def find_python(spec: EnvironmentSpec) -> Path:
    """A Python on this machine that the environment can be made with: the oldest that fits is preferred."""
    return _find_python(spec)[0]


def _find_python(spec: EnvironmentSpec) -> tuple[Path, tuple[int, int]]:
    wanted = _python_versions(spec)
    fitting: dict[tuple[int, int], Path] = {}
    no_good: dict[Path, str] = {}
    for candidate in _candidates(wanted):
        version, reason = _probe(candidate)
        if version in wanted and not reason:
            fitting.setdefault(version, candidate)
        else:
            no_good[candidate] = reason or f"is Python {version[0]}.{version[1]}"
        if wanted[0] in fitting:
            break
    if not fitting:
        raise _no_python(spec, no_good)
    best = min(fitting)
    return fitting[best], best


def _candidates(wanted: list[tuple[int, int]]) -> Iterator[Path]:
    """Every program that may be a suitable Python, each once, the likelier first."""
    seen: set[tuple[str, str]] = set()
    for path in _places(wanted):
        # The name belongs to the key: one shim program stands behind many names.
        key = (os.path.realpath(path), path.name)
        if key not in seen and os.access(path, os.X_OK) and path.is_file():
            seen.add(key)
            yield path


def _places(wanted: list[tuple[int, int]]) -> Iterator[Path]:
    if sys.executable:
        yield Path(sys.executable)
    folders = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if Path(p).is_absolute()]
    names = [*(f"python{major}.{minor}" for major, minor in wanted), "python3", "python"]
    yield from (folder / name for name in names for folder in folders)
    yield from _pyenv_pythons()
    yield from _uv_pythons()
    for major, minor in wanted:
        version = f"{major}.{minor}"
        for pattern in SYSTEM_PATTERNS:
            place = pattern.format(python=f"python{version}", version=version)
            yield from sorted(Path("/").glob(place.removeprefix("/")))


def _pyenv_pythons() -> list[Path]:
    root = _folder("PYENV_ROOT", "~/.pyenv")
    return _newest_first(root.glob("versions/*/bin/python"))


def _uv_pythons() -> list[Path]:
    data = _folder("XDG_DATA_HOME", "~/.local/share")
    root = _folder("UV_PYTHON_INSTALL_DIR", str(data / "uv" / "python"))
    return _newest_first(root.glob("*/bin/python3"))


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or os.path.expanduser(default))  # noqa: PTH111 (never raises)


def _newest_first(pythons: Iterable[Path]) -> list[Path]:
    """Sorted by the numbers in the name of the version's folder, such as 3.12.1 or cpython-3.12.1-linux."""

    def numbers(path: Path) -> list[int]:
        match = re.search(r"\d+(\.\d+)+", path.parents[1].name)
        return [int(part) for part in match.group().split(".")] if match else []

    return sorted(pythons, key=numbers, reverse=True)


def _probe(python: Path) -> tuple[tuple[int, int], str]:
    """The version a program answers with, and why it is no good ("" when it is)."""
    try:
        process = subprocess.Popen(
            [str(python), "-E", "-s", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return (0, 0), f"cannot be started: {error.strerror}"
    try:
        out, err = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        _end_group(process, (signal.SIGKILL,))
        return (0, 0), f"gave no answer within {PROBE_SECONDS:g} s"
    except BaseException:
        _end_group(process)
        raise
    return _judge(out, err, process.returncode)


def _judge(out: str, err: str, code: int) -> tuple[tuple[int, int], str]:
    match = re.fullmatch(r"(\d+)\.(\d+) (\w+) (\d)\s*", out)
    if match is None:
        words = (err.strip() or out.strip() or "no output").splitlines()
        return (0, 0), f"fails: {words[0][:80]}"
    version = (int(match[1]), int(match[2]))
    if match[3] != "CPython":
        return version, f"is {match[3]}, not CPython"
    if match[4] != "0":
        return version, "is a free-threaded build"
    if code != 0:
        return version, f"is Python {match[1]}.{match[2]} without venv and ensurepip"
    return version, ""


def _no_python(spec: EnvironmentSpec, no_good: dict[Path, str]) -> RequestError:
    looked_at = [f"{path} {reason}" for path, reason in no_good.items()]
    shown = "\n         ".join(["looked at PATH, pyenv, uv and the system's folders:", *looked_at])
    return RequestError(
        f"no Python {_version_range(spec)} was found to make the environment '{spec.name}' with",
        where=shown if looked_at else "looked at PATH, pyenv, uv and the system's folders: no Python at all",
        why=f"the packages in {spec.lock_file.name} are pinned for Python {_version_range(spec)}",
        next_command="\n         or: ".join(_ways_to_install(spec, no_good)),
    )


def _ways_to_install(spec: EnvironmentSpec, no_good: dict[Path, str]) -> list[str]:
    major, minor = spec.python_minimum
    ways = [f"uv python install {major}.{minor}", f"pyenv install {major}.{minor}"]
    for major, minor in _apt_pythons(spec, no_good):
        ways.insert(0, f"apt-get install python{major}.{minor} python{major}.{minor}-venv")
    return ways


def _apt_pythons(spec: EnvironmentSpec, no_good: dict[Path, str]) -> list[tuple[int, int]]:
    """The suitable Pythons this Debian or Ubuntu offers: by its release, or one that lacks only its -venv."""
    release = _os_release()
    offered = DISTRIBUTION_PYTHONS.get((release.get("ID", ""), release.get("VERSION_ID", "")))
    lacking = re.findall(r"is Python (\d+)\.(\d+) without venv", "\n".join(no_good.values()))
    pythons = {(int(a), int(b)) for a, b in lacking} if release.get("ID") in ("debian", "ubuntu") else set()
    return sorted((pythons | {offered}) & set(_python_versions(spec)), reverse=True) if offered else sorted(pythons)


def _os_release() -> dict[str, str]:
    try:
        lines = OS_RELEASE.read_text().splitlines()
    except OSError:
        return {}
    return {k: v.strip("\"'") for k, _, v in (line.partition("=") for line in lines) if k}
