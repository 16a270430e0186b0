"""A local HTTP server that plays a hub, and fails on request."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Respond = Callable[["Handler"], None]


@dataclass
class FileServer:
    """What is served, what goes wrong, and what was asked."""

    files: dict[str, bytes] = field(default_factory=dict)  # path -> content
    responses: dict[str, Respond] = field(default_factory=dict)  # path -> what answers instead
    breaks: list[int] = field(default_factory=list)  # the next answers end after so many bytes of their body
    statuses: list[int] = field(default_factory=list)  # the next answers are these, without a body
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # path and headers of each request
    url: str = ""
    commit: str = ""  # of the repository that is served as a hub does

    def serve_repository(self, name: str, commit: str, files: dict[str, bytes], unserved: dict[str, int]) -> None:
        """Play Hugging Face: the commit and the list of files, large ones with SHA-256; `unserved` only listed."""
        self.commit = commit
        self.files |= {f"/{name}/resolve/{commit}/{path}": content for path, content in files.items()}
        self.files |= {f"/{name}/resolve/main/{path}": content for path, content in files.items()}
        listed = [_listed(path, content) for path, content in files.items()]
        listed += [{"type": "file", "path": path, "size": size, "oid": "2" * 40} for path, size in unserved.items()]
        self.serve_json(f"/api/models/{name}/revision/main", {"id": name, "sha": commit})
        for revision in ("main", commit):
            self.serve_json(f"/api/models/{name}/tree/{revision}", listed)

    def serve_json(self, path: str, value: object) -> None:
        self.responses[path] = lambda handler: handler.answer(200, json.dumps(value).encode())

    def paths_asked(self) -> list[str]:
        return [path.partition("?")[0] for path, _ in self.asked]


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _listed(path: str, content: bytes) -> dict[str, object]:
    facts: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": git_sha1(content)}
    if len(content) > 10_000:
        facts["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return facts


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: FileServer

    def log_message(self, *_: object) -> None:
        """Nothing is printed: the tests look at what the downloader prints."""

    def do_GET(self) -> None:
        state = self.server_state
        state.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        path = self.path.partition("?")[0]
        if state.statuses:
            self.answer(state.statuses.pop(0))
        elif path in state.responses:
            state.responses[path](self)
        elif path in state.files:
            self._file(path)
        else:
            self.answer(404)

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, path: str) -> None:
        state, content = self.server_state, self.server_state.files[path]
        headers = {
            "ETag": f'"{git_sha1(content)}"',
            "X-Repo-Commit": state.commit,
            "Content-Length": str(len(content)),
        }
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if state.breaks:
            self.close_connection = True
            content = content[: state.breaks.pop(0)]
        self.wfile.write(content)


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def serving(**settings: object) -> Iterator[FileServer]:
    """A server on a free port of this machine, for as long as the block lasts."""
    state = FileServer(**settings)  # type: ignore[arg-type]
    server = QuietServer(("127.0.0.1", 0), type("OneHandler", (Handler,), {"server_state": state}))
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
