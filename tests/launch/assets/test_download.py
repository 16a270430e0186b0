"""The downloader against a local server: broken connections, other versions, wrong checksums, and the token."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.errors import RequestError, RunError
from launch.assets import download, web
from launch.assets.byte_progress import Lines, size_text
from launch.assets.download import Checksum, Item, fetch, part_path
from launch.assets.web import Web
from tests.launch.assets.file_server import FileServer, Handler, serving

SETUP = Path(__file__).resolve().parents[3] / "launch" / "setup.py"
CONTENT = bytes(range(256)) * 4000  # about a megabyte
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TOKEN = "hf_a-token-that-must-not-be-seen"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(files={"/file": CONTENT}) as state:
        yield state


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    for name in ("HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


class Fetch:
    """Downloads /file of the server; notes the pauses instead of making them."""

    def __init__(self, server: FileServer, folder: Path) -> None:
        self.server = server
        self.target = folder / "file.bin"
        self.pauses: list[float] = []

    def __call__(self, path: str = "/file", sha256: str = SHA256, size: int | None = None, **web_fields: str) -> bool:
        item = Item(f"{self.server.url}{path}", self.target, size, Checksum("sha256", sha256))
        return fetch(Web(**web_fields), item, Lines(), self.pauses.append)  # type: ignore[arg-type]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.target.parent.iterdir())


@pytest.fixture
def get(server: FileServer, tmp_path: Path) -> Fetch:
    folder = tmp_path / "to"
    folder.mkdir()
    return Fetch(server, folder)


# --- whole files ------------------------------------------------------------------------------


def test_a_file_is_downloaded_whole_and_nothing_else_is_left(get: Fetch) -> None:
    assert get()
    assert get.target.read_bytes() == CONTENT
    assert get.left() == ["file.bin"]


def test_a_file_that_is_there_is_checked_and_not_asked_for(get: Fetch) -> None:
    get()
    asked = len(get.server.asked)
    assert not get()
    assert len(get.server.asked) == asked


def test_another_file_at_its_place_is_left_alone(get: Fetch) -> None:
    get.target.write_bytes(b"mine")
    with pytest.raises(RequestError, match="another file is there"):
        get()
    assert get.target.read_bytes() == b"mine"


# --- broken connections -----------------------------------------------------------------------


def test_a_broken_connection_is_taken_up_where_it_broke(get: Fetch, capsys: pytest.CaptureFixture[str]) -> None:
    get.server.breaks = [300_000, 100_000]
    get()
    assert get.target.read_bytes() == CONTENT
    assert get.server.ranges_asked() == [None, "bytes=300000-", "bytes=400000-"]
    assert {h.get("if-range") for _, h in get.server.asked[1:]} == {get.server.etag("/file")}
    assert get.pauses == [1.0, 1.0], "the patience is new with every byte that comes"
    assert "broke off" in capsys.readouterr().err


def test_without_range_the_server_sends_all_again(get: Fetch) -> None:
    get.server.ranges = False
    get.server.breaks = [300_000]
    get()
    assert get.target.read_bytes() == CONTENT


def test_without_a_version_what_came_is_not_trusted(get: Fetch) -> None:
    get.server.etags = False
    get.server.breaks = [300_000]
    get()
    assert get.server.ranges_asked() == [None, None]
    assert get.target.read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_begun_anew(get: Fetch) -> None:
    other = bytes(reversed(CONTENT))
    get.server.breaks = [300_000]
    get.pauses = Changing(get.server, other)
    get(sha256=hashlib.sha256(other).hexdigest())
    assert get.target.read_bytes() == other


class Changing(list[float]):
    """While the downloader waits, the file on the server becomes another one."""

    def __init__(self, server: FileServer, other: bytes) -> None:
        self._server, self._other = server, other

    def append(self, seconds: float) -> None:
        self._server.files["/file"] = self._other
        super().append(seconds)


def test_a_server_that_never_recovers_is_given_up_and_the_part_is_kept(get: Fetch) -> None:
    get.server.breaks = [300_000] + [0] * 20
    with pytest.raises(RunError, match="failed 6 times") as caught:
        get()
    assert get.pauses == [1, 2, 4, 8, 16]
    assert "the same command again" in str(caught.value)
    assert part_path(get.target).stat().st_size == 300_000
    get.server.breaks = []
    get()
    assert get.server.ranges_asked()[-1] == "bytes=300000-"
    assert get.target.read_bytes() == CONTENT


def test_nobody_listens(tmp_path: Path) -> None:
    with serving() as gone:
        pass
    item = Item(f"{gone.url}/file", tmp_path / "file", None, Checksum("sha256", SHA256))
    with pytest.raises(RunError, match=r"127\.0\.0\.1:\d+: .*refused"):
        fetch(Web(), item, Lines(), lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_a_busy_server_is_asked_again(get: Fetch, status: int) -> None:
    get.server.statuses = [status, status]
    get()
    assert get.pauses == [1, 2]


def test_a_server_says_how_long_to_wait(get: Fetch) -> None:
    def busy(handler: Handler) -> None:
        del handler.server_state.responses["/file"]
        handler.answer(503, Retry_After="7")

    get.server.responses["/file"] = busy
    get()
    assert get.pauses == [7]


def test_a_silent_server_is_not_waited_for_for_ever(get: Fetch) -> None:
    def silent(handler: Handler) -> None:
        del handler.server_state.responses["/file"]
        time.sleep(0.6)
        handler.close_connection = True

    get.server.responses["/file"] = silent
    get(timeout_seconds=0.2)  # type: ignore[arg-type]
    assert get.pauses == [1]


def test_a_part_that_is_whole_already_is_only_checked(get: Fetch) -> None:
    part_path(get.target).write_bytes(CONTENT)
    get(size=len(CONTENT))
    assert get.server.asked == []
    assert get.target.read_bytes() == CONTENT


def test_of_unknown_size_a_whole_part_is_recognised(get: Fetch) -> None:
    part_path(get.target).write_bytes(CONTENT)
    part_path(get.target).with_suffix(".part.json").write_text(f'{{"validator": {_json(get.server.etag("/file"))}}}')
    get()
    assert get.server.ranges_asked() == [f"bytes={len(CONTENT)}-"]


def _json(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def test_killed_half_way_the_next_one_goes_on(server: FileServer, tmp_path: Path) -> None:
    half = len(CONTENT) // 2

    def slow(handler: Handler) -> None:
        del handler.server_state.responses["/file"]
        handler.send_response(200)
        handler.send_header("ETag", server.etag("/file"))
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:half])
        handler.wfile.flush()
        time.sleep(3)
        handler.close_connection = True

    server.responses["/file"] = slow
    target = tmp_path / "file.bin"
    command = [sys.executable, str(SETUP), "--download", f"--url={server.url}/file", f"--sha256={SHA256}"]
    process = subprocess.Popen([*command, f"--out={target}"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not part_path(target).exists() or part_path(target).stat().st_size == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not target.exists()
    came = part_path(target).stat().st_size
    done = subprocess.run([*command, f"--out={target}"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert server.ranges_asked()[-1] == f"bytes={came}-"
    assert target.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


# --- wrong content ----------------------------------------------------------------------------


def test_a_wrong_checksum_keeps_nothing_and_says_both(get: Fetch) -> None:
    wrong = "0" * 64
    with pytest.raises(RunError) as caught:
        get(sha256=wrong)
    assert wrong in str(caught.value)
    assert SHA256 in str(caught.value)
    assert get.left() == []


def test_a_wrong_size_is_refused_before_it_comes(get: Fetch) -> None:
    with pytest.raises(RunError, match=r"1,024,000 bytes, 5 were expected"):
        get(size=5)
    assert get.left() == []


def test_what_was_resumed_is_checked_as_a_whole(get: Fetch) -> None:
    get.server.breaks = [300_000]
    with pytest.raises(RunError):
        get.server.breaks += [0] * 20
        get()
    get.server.breaks = []
    with part_path(get.target).open("r+b") as stream:
        stream.write(b"changed")
    with pytest.raises(RunError, match="not the one that was asked for"):
        get()
    assert get.left() == []


def test_a_server_that_answers_with_another_range_is_not_believed(get: Fetch) -> None:
    def lying(handler: Handler) -> None:
        if "Range" in handler.headers:
            handler.answer(206, CONTENT[:10], Content_Range=f"bytes 0-9/{len(CONTENT)}", ETag='"x"')
        else:
            del handler.server_state.responses["/file"]
            handler._file("/file")

    get.server.breaks = [1000]
    get.pauses = Then(lambda: get.server.responses.setdefault("/file", lying))
    get()
    assert get.target.read_bytes() == CONTENT


class Then(list[float]):
    """Does something at the first pause."""

    def __init__(self, action: object) -> None:
        self._action = action

    def append(self, seconds: float) -> None:
        if not self:
            self._action()  # type: ignore[operator]
        super().append(seconds)


def test_gits_checksum_of_a_small_file(server: FileServer, tmp_path: Path) -> None:
    server.files["/small"] = b"hello\n"
    checksum = Checksum("git-sha1", "ce013625030ba8dba906f756967f9e9ca394464a")  # git hash-object of it
    fetch(Web(), Item(f"{server.url}/small", tmp_path / "small", 6, checksum), Lines())
    assert (tmp_path / "small").read_bytes() == b"hello\n"


# --- the disk ---------------------------------------------------------------------------------

Usage = namedtuple("Usage", "total used free")


def test_a_disk_without_room_is_refused_before_a_byte_is_written(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**6, 0, 1000))
    with pytest.raises(RequestError, match=r"1\.02 MB are needed, 1 kB are free"):
        get()
    assert get.left() == []


def test_a_disk_that_fills_up_is_said_and_the_part_kept(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    written = download.Part.write

    def write(part: download.Part, block: bytes) -> None:
        if part.size:
            raise OSError(28, os.strerror(28))
        written(part, block[:1000])

    monkeypatch.setattr(download.Part, "write", write)
    monkeypatch.setattr(download, "BLOCK_BYTES", 100_000)
    with pytest.raises(RunError, match="No space left"):
        get()
    assert part_path(get.target).stat().st_size == 1000


@pytest.fixture
def endless(get: Fetch) -> list[int]:
    """The server answers /file without a length and without an end; how many bytes it could send."""
    sent: list[int] = []

    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        while sum(sent) < 1 << 28:  # an end after all, where the downloader knows none
            sent.append(handler.wfile.write(b"x" * 100_000))

    get.server.responses["/file"] = respond
    return sent


def test_an_endless_body_is_cut_at_the_size_that_is_known(
    get: Fetch, endless: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "BLOCK_BYTES", 10**5)
    with pytest.raises(RunError, match="more than the 300,000 bytes"):
        get(size=300_000)
    assert get.left() == []
    assert sum(endless) < 1 << 27


def test_an_endless_body_of_unknown_size_does_not_fill_the_disk(
    get: Fetch, endless: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(_: Path) -> Usage:
        came = part_path(get.target).stat().st_size
        return Usage(10**8, came, 10**7 - came)  # the reserve is 5 MB

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(download, "LOOK_AT_DISK_BYTES", 10**6)
    monkeypatch.setattr(download, "BLOCK_BYTES", 10**5)
    with pytest.raises(RunError, match="the disk is almost full") as caught:
        get()
    assert f"rm {part_path(get.target)}" in str(caught.value)
    assert 5 * 10**6 < part_path(get.target).stat().st_size < 7 * 10**6
    assert sum(endless) < 1 << 27


def test_of_unknown_size_a_file_that_fits_is_downloaded(get: Fetch) -> None:
    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        handler.wfile.write(CONTENT)

    get.server.responses["/file"] = respond
    assert get()
    assert get.target.read_bytes() == CONTENT


def test_only_one_process_downloads_a_file(get: Fetch) -> None:
    with part_path(get.target).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RequestError, match="another process"):
            get()


# --- access and the token ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("token", "words"), [(None, "HF_TOKEN is not set"), (TOKEN, "HF_TOKEN is set")])
def test_a_gated_file_says_that_access_must_be_requested(
    get: Fetch, status: int, token: str | None, words: str
) -> None:
    get.server.statuses = [status]
    fields = {"token": token} if token else {}
    with pytest.raises(RequestError) as caught:
        get(endpoint=get.server.url, **fields)
    assert words in str(caught.value)
    assert "request access" in str(caught.value)
    assert "export HF_TOKEN=<your token>" in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert get.left() == []


def test_a_file_that_is_not_there(get: Fetch) -> None:
    with pytest.raises(RequestError, match="404"):
        get("/nothing")


def test_the_token_goes_to_the_hub_and_not_where_it_redirects(get: Fetch) -> None:
    with serving() as hub:
        hub.responses["/file"] = lambda handler: handler.answer(
            302, Location=f"{get.server.url}/file?signature=secret"
        )
        item = Item(f"{hub.url}/file", get.target, None, Checksum("sha256", SHA256))
        fetch(Web(hub.url, TOKEN), item, Lines())
        assert hub.asked[0][1]["authorization"] == f"Bearer {TOKEN}"
    assert [headers.get("authorization") for _, headers in get.server.asked] == [None]


def test_the_token_goes_to_no_other_server(get: Fetch) -> None:
    get(token=TOKEN, endpoint="https://huggingface.co")
    assert "authorization" not in get.server.asked[0][1]


def test_another_port_or_scheme_is_another_server() -> None:
    hub = Web("https://hub.example", TOKEN)
    assert hub._is_the_hub("https://hub.example:443/x")
    for url in ("http://hub.example/x", "https://hub.example:8443/x", "https://hub.example.evil/x"):
        assert not hub._is_the_hub(url)


def test_endless_redirects_end(get: Fetch) -> None:
    get.server.responses["/loop"] = lambda handler: handler.answer(302, Location="/loop")
    with pytest.raises(RunError, match="redirects over 10 times"):
        get("/loop")


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://[", "http://host:port/", "ftp://host/x"])
def test_a_redirect_to_what_is_no_web_address(get: Fetch, location: str) -> None:
    get.server.responses["/away"] = lambda handler: handler.answer(302, Location=location)
    with pytest.raises(RunError, match="no web address"):
        get("/away")


def test_secrets_in_urls_are_not_shown() -> None:
    assert web.shown("https://me:pw@host/a/b?X-Signature=abc") == "https://host/a/b?..."
    assert TOKEN not in repr(Web(token=TOKEN))


def test_a_token_that_cannot_be_one_is_refused_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\nX-Evil: 1")
    with pytest.raises(RequestError) as caught:
        web.from_environment()
    assert TOKEN not in str(caught.value)


def test_a_token_does_not_travel_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example")
    with pytest.raises(RequestError, match="unencrypted"):
        web.from_environment()
    monkeypatch.delenv("HF_TOKEN")
    assert web.from_environment().token is None


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1.5e6, "1.5 MB"), (747e9, "747 GB")])
def test_sizes_are_decimal(size: float, text: str) -> None:
    assert size_text(size) == text
