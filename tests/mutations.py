"""Random damage to a log or to the files of a run, for tests/measure_faults.py; the same seed does the same damage.

Nothing here knows what a file means: numbers and words are replaced in place, which gives JSON and YAML wrong types,
missing keys and deep nesting.
"""

import gzip
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

ODD = [
    *(b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"9" * 400, b"9" * 5000, b"1.5", b"1e-320"),
    *(b"18446744073709551616", b"null", b"true", b'"text"', b'""', b"[]", b"{}", b"[" * 5000, b'{"a":' * 5000),
    *(b"[1, [2], {}]", b"- " * 5000, b"2026-13-45T99:99:99Z", b"1969-12-31T23:59:59", b"0001-01-01 00:00:00"),
    *(b"9999-12-31T23:59:59.999999999+14:00", b'"\\ud800"', b'"\\u0000"', b"../../etc/passwd", b"\xff\xfe", b"\0"),
    *(b"\x1b[31m", b"\x1b]0;title\x07", b"\xc2\x9b", b"\xe2\x80\xa8", b"\r", b"\x0c", b"", b"{"),
    *(b"&a [*a, *a]", b"!!python/none x", b"\xef\xbb\xbf"),
]
# What logs hold in addition to steps: the seeds are mostly of runs that went well.
LINES = [
    b"[rank3]: Traceback (most recent call last):\n",
    b'  File "train.py", line 1, in <module>\n',
    b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    b"slurmstepd: error: *** STEP 4242.0 ON node7 CANCELLED AT 2026-11-28T04:00:00 DUE TO TIME LIMIT ***\n",
    b':::MLLOG {"time_ms": 1, "key": "eval_accuracy", "value": 1, "metadata": {"samples_count": 2}}\n',
    b" iteration       10/      30 | elapsed time per iteration (ms): 1.0 | lm loss: 1.0E+00 |\n",
]
WORD = re.compile(rb'"[^"\n]{0,60}"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\b(?:true|false|null)\b')
# Behind these, or anywhere, a long run of one of REPEATED is put: it takes a regular expression of quadratic time
# minutes.
KNOWN_WORD = re.compile(rb"(?:loss|step|iter|iteration|time|seconds|sec|error|rank|epoch|node)\W{0,3}", re.IGNORECASE)
REPEATED = [
    *(b" ", b"\t", b"[", b"]", b"(", b"{", b"}", b'"', b"'", b"0", b"7", b".", b",", b":", b"=", b"-", b"|", b"/"),
    *(b"\\", b"x", b"\r", b"\0", b"\x1b[", b"1,", b"a ", b"a.", b"1:", b"[1", b": ", b"{}"),
]
REPEATS = 100_000
LONG_LINE_BYTES, BOMB_BYTES, MOST_BYTES = 3 << 20, 40 << 20, 8 << 20
Change = Callable[[random.Random, bytes], bytes]


def changed(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        data = rng.choice(CHANGES)(rng, data)[:MOST_BYTES]
    return data


def _flip(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(min(len(made), rng.choice((1, 3, 30)))):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def _insert(rng: random.Random, data: bytes) -> bytes:
    place = rng.randint(0, len(data))
    return data[:place] + rng.choice([*ODD, rng.randbytes(9)]) + data[place:]


def _replace(rng: random.Random, data: bytes) -> bytes:
    found = list(WORD.finditer(data))
    for match in sorted(rng.sample(found, min(len(found), rng.choice((1, 1, 4)))), key=re.Match.start, reverse=True):
        data = data[: match.start()] + rng.choice(ODD) + data[match.end() :]
    return data


def _of_lines(change: Callable[[random.Random, list[bytes]], object]) -> Change:
    def made(rng: random.Random, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True) or [b""]
        change(rng, lines)
        return b"".join(lines)

    return made


def _move_a_part(rng: random.Random, lines: list[bytes]) -> None:
    """Drop a part, join it to one line, or repeat it once or often at another place."""
    first = rng.randrange(len(lines))
    part = lines[first : first + rng.choice((1, 2, 20))]
    kind = rng.choice(("drop", "join", "double", "many"))
    if kind in ("drop", "join"):
        lines[first : first + len(part)] = [line.rstrip(b"\r\n") for line in part] if kind == "join" else []
        return
    place = rng.randint(0, len(lines))
    lines[place:place] = part * (50 if kind == "many" else 1)


def _add(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randint(0, len(lines)), rng.choice(LINES) * rng.choice((1, 1, 1, 300)))


def _long(rng: random.Random, lines: list[bytes]) -> None:
    line = lines[rng.randrange(len(lines))].rstrip(b"\n") or b"x "
    times = 1 + rng.choice((5000, LONG_LINE_BYTES)) // len(line)
    lines.insert(rng.randint(0, len(lines)), line * times)


def _repeat_one(rng: random.Random, data: bytes) -> bytes:
    places = [match.end() for match in KNOWN_WORD.finditer(data)] if rng.random() < 0.7 else []
    place = rng.choice(places) if places else rng.randint(0, len(data))
    return data[:place] + rng.choice(REPEATED) * REPEATS + data[place:]


CHANGES: list[Change] = [
    *(_flip, _insert, _insert, _replace, _replace, _replace),
    *map(_of_lines, (_move_a_part, _move_a_part, _add, _add, lambda rng, lines: rng.shuffle(lines))),
    lambda rng, data: data[: rng.randint(0, len(data))],
    lambda rng, data: data[rng.randint(0, len(data)) :],
    lambda rng, data: data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\0"))),
    lambda rng, data: data.decode("latin-1").encode(rng.choice(("utf-8", "utf-8-sig"))),
    _repeat_one,
]
SELDOM: list[Change] = [
    _of_lines(_long),
    lambda _, data: gzip.compress(data),
    lambda rng, data: gzip.compress(data)[: rng.randint(2, 900)],
    lambda _rng, _data: b"",
    lambda rng, _data: rng.randbytes(5000),
    lambda _, data: gzip.compress(data + bytes(BOMB_BYTES), 1),
]


def change_file(rng: random.Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(rng.choice(SELDOM)(rng, data) if rng.random() < 0.05 else changed(rng, data))


def replace_file(rng: random.Random, path: Path) -> None:
    """Replace it by something that is not a file, or an unreadable or foreign one; or rename it."""
    kind = rng.choice(("gone", "folder", "fifo", "link", "loop", "zeros", "closed", "empty", "renamed", "other"))
    others = sorted(one for one in path.parent.iterdir() if one.is_file() and one != path) or [path]
    if kind == "closed":
        path.chmod(0)
        return
    data, odd_name = path.read_bytes(), rng.choice(ODD[20:]).replace(b"/", b"").replace(b"\0", b"") + b"x.log"
    others_data = rng.choice(others).read_bytes()
    path.unlink()
    put: dict[str, Callable[[], object]] = {
        "gone": lambda: None,
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to("no/such/file"),
        "loop": lambda: path.symlink_to(path.name),
        "zeros": lambda: path.symlink_to("/dev/zero"),
        "empty": path.touch,
        "renamed": lambda: path.with_name(os.fsdecode(odd_name)).write_bytes(data),
        "other": lambda: path.write_bytes(others_data),
    }
    put[kind]()


def change_run(rng: random.Random, run: Path) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        files = sorted(
            path for path in run.rglob("*") if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK)
        )
        if not files:
            return
        # The files that are read most: a folder has one of each, in addition to telemetry.
        path = rng.choice([*files, *(one for one in files if one.parent == run and one.suffix.startswith(".json"))])
        if rng.random() < 0.7:
            change_file(rng, path)
        elif rng.random() < 0.8:
            replace_file(rng, path)
        else:
            attempt = run / rng.choice(("attempt-0", "attempt-2", "attempt--1", "attempt-x", "attempt-" + "9" * 30))
            (attempt / "perf").mkdir(parents=True, exist_ok=True)
            (attempt / "perf" / path.name).write_bytes(path.read_bytes())
