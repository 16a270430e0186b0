"""The download of one file, from a local server: broken connections, wrong content, a full disk, and the token."""

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
from launch.assets import download, hub_access
from launch.assets.byte_progress import Lines, size_text
from launch.assets.download import Checksum, fetch, shown
from launch.assets.hub_access import Access
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
        self.part = folder / "file.bin.part"
        self.pauses: list[float] = []

    def __call__(self, path: str = "/file", sha256: str = SHA256) -> bool:
        return fetch(f"{self.server.url}{path}", self.target, Checksum("sha256", sha256), Lines(), self.pauses.append)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.target.parent.iterdir())


@pytest.fixture
def get(server: FileServer, tmp_path: Path) -> Fetch:
    folder = tmp_path / "to"
    folder.mkdir()
    return Fetch(server, folder)


def test_a_file_is_downloaded_once(get: Fetch) -> None:
    assert get()
    assert get.target.read_bytes() == CONTENT
    assert get.left() == ["file.bin"]
    assert not get()
    assert len(get.server.asked) == 1


def test_another_file_of_that_name_is_left_alone(get: Fetch) -> None:
    get.target.write_bytes(b"mine")
    with pytest.raises(RequestError, match="another file is there"):
        get()
    assert get.target.read_bytes() == b"mine"


# --- broken connections -----------------------------------------------------------------------


def test_a_broken_connection_is_resumed(get: Fetch, capsys: pytest.CaptureFixture[str]) -> None:
    get.server.breaks = [300_000, 100_000]
    get()
    assert get.target.read_bytes() == CONTENT
    assert get.server.ranges_asked() == [None, "bytes=300000-", "bytes=400000-"]
    assert get.pauses == [1.0, 1.0], "failures are counted anew with every byte that comes"
    assert "broke off" in capsys.readouterr().err


def test_a_server_without_ranges_sends_all_again(get: Fetch) -> None:
    get.server.ranges = False
    get.server.breaks = [300_000]
    get()
    assert get.target.read_bytes() == CONTENT


def test_a_server_that_never_recovers_is_given_up_and_the_part_is_kept(get: Fetch) -> None:
    get.server.breaks = [300_000] + [0] * 20
    with pytest.raises(RunError, match="failed 6 times") as caught:
        get()
    assert get.pauses == [1, 2, 4, 8, 16]
    assert "the same command again" in caught.value.next_command
    assert get.part.stat().st_size == 300_000
    get.server.breaks = []
    get()
    assert get.server.ranges_asked()[-1] == "bytes=300000-"
    assert get.target.read_bytes() == CONTENT


def test_nobody_listens(tmp_path: Path) -> None:
    with serving() as gone:
        pass
    with pytest.raises(RunError, match=r"127\.0\.0\.1:\d+: .*refused"):
        fetch(f"{gone.url}/file", tmp_path / "file", Checksum("sha256", SHA256), Lines(), lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_server_is_asked_again(get: Fetch, status: int) -> None:
    get.server.statuses = [status, status]
    get()
    assert get.pauses == [1, 2]


def test_a_silent_server_is_not_waited_for_for_ever(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(handler: Handler) -> None:
        del handler.server_state.responses["/file"]
        time.sleep(0.6)
        handler.close_connection = True

    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.2)
    get.server.responses["/file"] = silent
    get()
    assert get.pauses == [1]


def test_a_part_that_is_whole_already_is_recognised(get: Fetch) -> None:
    get.part.write_bytes(CONTENT)
    get()
    assert get.server.ranges_asked() == [f"bytes={len(CONTENT)}-"]
    assert get.left() == ["file.bin"]


def test_killed_half_way_the_next_one_resumes(server: FileServer, tmp_path: Path) -> None:
    half = len(CONTENT) // 2

    def slow(handler: Handler) -> None:
        del handler.server_state.responses["/file"]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:half])
        handler.wfile.flush()
        time.sleep(3)
        handler.close_connection = True

    server.responses["/file"] = slow
    target, part = tmp_path / "file.bin", tmp_path / "file.bin.part"
    command = [sys.executable, str(SETUP), "--download", f"--url={server.url}/file", f"--sha256={SHA256}"]
    process = subprocess.Popen([*command, f"--out={target}"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not part.exists() or part.stat().st_size == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not target.exists()
    came = part.stat().st_size
    done = subprocess.run([*command, f"--out={target}"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert server.ranges_asked()[-1] == f"bytes={came}-"
    assert target.read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_only_one_process_downloads_a_file(get: Fetch) -> None:
    with get.part.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RequestError, match="another process"):
            get()


# --- wrong content ----------------------------------------------------------------------------


def test_a_wrong_checksum_keeps_nothing_and_names_both(get: Fetch) -> None:
    wrong = "0" * 64
    with pytest.raises(RunError) as caught:
        get(sha256=wrong)
    assert wrong in str(caught.value)
    assert SHA256 in str(caught.value)
    assert get.left() == []


def test_what_was_resumed_is_checked_as_a_whole(get: Fetch) -> None:
    get.part.write_bytes(b"changed" + CONTENT[7:300_000])
    with pytest.raises(RunError, match="not the expected one"):
        get()
    assert get.left() == []


def test_a_file_that_is_not_there(get: Fetch) -> None:
    with pytest.raises(RequestError, match="404"):
        get("/nothing")
    assert get.left() == []


# --- the disk ---------------------------------------------------------------------------------

Usage = namedtuple("Usage", "total used free")


def test_a_disk_without_room_is_refused_before_a_byte_is_written(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**6, 0, 1000))
    with pytest.raises(RequestError, match=r"1\.02 MB are needed, 1 kB are free"):
        get()
    assert get.left() == []


def test_a_disk_that_fills_up_is_named_and_the_part_kept(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    get.part.write_bytes(CONTENT[:1000])

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(download, "_receive", full)
    with pytest.raises(RunError, match="No space left") as caught:
        get()
    assert caught.value.why == "the disk is full"
    assert get.part.stat().st_size == 1000


def test_an_endless_body_of_unknown_size_does_not_fill_the_disk(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        for _ in range(1000):  # an end after all, where the downloader knows none
            handler.wfile.write(b"x" * 100_000)

    def usage(_: Path) -> Usage:
        came = get.part.stat().st_size
        return Usage(10**10, came, 1_005_000_000 - came)

    get.server.responses["/file"] = endless
    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(RunError, match="does not say how much will come"):
        get()
    assert 4 * 10**6 < get.part.stat().st_size < 7 * 10**6


def test_of_unknown_size_a_file_that_fits_is_downloaded(get: Fetch) -> None:
    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        handler.wfile.write(CONTENT)

    get.server.responses["/file"] = respond
    assert get()
    assert get.target.read_bytes() == CONTENT


# --- access and the token ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("token", "words"), [("", "HF_TOKEN is not set"), (TOKEN, "HF_TOKEN is set")])
def test_a_gated_file_says_that_access_must_be_requested(
    get: Fetch, status: int, token: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", get.server.url)
    monkeypatch.setenv("HF_TOKEN", token)
    get.server.statuses = [status]
    with pytest.raises(RequestError, match=f"refuses access: {status}") as caught:
        get()
    assert words in caught.value.why
    assert "export HF_TOKEN=<your token>" in caught.value.next_command
    assert TOKEN not in str(caught.value)
    assert get.left() == []


def test_the_token_goes_to_the_hub_and_not_where_it_redirects(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as hub:
        hub.responses["/file"] = lambda handler: handler.answer(302, Location=f"{get.server.url}/file?signed")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        fetch(f"{hub.url}/file", get.target, Checksum("sha256", SHA256), Lines())
        assert hub.asked[0][1]["authorization"] == f"Bearer {TOKEN}"
    assert [headers.get("authorization") for _, headers in get.server.asked] == [None]


def test_another_server_port_or_scheme_gets_no_token() -> None:
    access = Access("https://hub.example", TOKEN)
    assert access.token_for("https://hub.example:443/x") == TOKEN
    for url in ("http://hub.example/x", "https://hub.example:8443/x", "https://hub.example.evil/x"):
        assert access.token_for(url) is None


def test_a_redirect_to_a_file_of_this_machine_is_not_followed(get: Fetch) -> None:
    get.server.responses["/away"] = lambda handler: handler.answer(302, Location="file:///etc/passwd")
    with pytest.raises(RunError):
        get("/away")
    assert get.left() == []


def test_secrets_in_urls_are_not_shown() -> None:
    assert shown("https://me:pw@host/a/b?X-Signature=abc") == "https://host/a/b?..."
    assert TOKEN not in repr(Access(token=TOKEN))


def test_a_token_that_cannot_be_one_is_refused_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\nX-Evil: 1")
    with pytest.raises(RequestError) as caught:
        hub_access.from_environment()
    assert TOKEN not in str(caught.value)


def test_a_token_is_not_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example")
    with pytest.raises(RequestError, match="unencrypted"):
        hub_access.from_environment()
    monkeypatch.delenv("HF_TOKEN")
    assert hub_access.from_environment().token is None


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1.5e6, "1.5 MB"), (747e9, "747 GB")])
def test_sizes_are_decimal(size: float, text: str) -> None:
    assert size_text(size) == text
