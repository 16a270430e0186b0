"""What is known of an image's file: its size, and what its own Python said when setup.py started it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, changed_benchmark
from jax_backend import BACKEND
from launch.environments import image_files

EXEC_FORMAT = "bash: line 1: /usr/bin/python3: cannot execute binary file: Exec format error\n"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "nemo.sqsh"
    path.write_bytes(b"hsqs and more")
    return path


def benchmark(**changes: Any) -> Benchmark:
    base = resolve(Request(backend="jax", model="llama2_70b", site="example_pyxis"), Configs(), BACKEND)
    return changed_benchmark(base, **changes)


def answer(**changes: Any) -> str:
    said = {"machine": "x86_64", "python": "3.12.3", "packages": {"jax": "0.7.2"}, "missing": [], **changes}
    return f"pyxis: imported\n{json.dumps(said)}\n"


def refusal(image: Path, asked: Benchmark) -> RequestError:
    with pytest.raises(RequestError) as caught:
        image_files.refuse(image, asked, "maxtext")
    assert caught.value.exit_code == EXIT_REFUSED
    assert caught.value.where == str(image)
    return caught.value


@pytest.mark.parametrize(
    ("content", "words", "further"),
    [
        (None, "the container image is not there", ""),
        (b"", "it has 0 bytes", " --force"),
        (b"hs", "it is no squashfs file", " --force"),
    ],
)
def test_what_is_no_image_is_imported_by_setup(image: Path, content: bytes | None, words: str, further: str) -> None:
    image_files.refuse(image, benchmark(), "maxtext")  # one that was never looked into may be used
    image.unlink()
    if content is not None:
        image.write_bytes(content)
    error, name = refusal(image, benchmark()), benchmark().settings.image
    assert words in error.what
    setup = f"python launch/setup.py --site=example_pyxis --engine=maxtext --image={name}{further}"
    assert error.next_command == setup
    assert "setup.py" not in refusal(image, benchmark(image=str(image))).next_command


def test_a_node_that_could_not_start_it_is_no_last_word(image: Path) -> None:
    for output, known in ((answer(), True), ("pyxis: no space left on device\n", False)):
        image_files.keep(image, output, 0 if known else 1)
        checked = image_files.checked_of(image)
        assert checked is not None
        assert (checked.asked is not None) == known


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        (answer(missing=["maxtext"]), 0, "its Python 3.12.3 has no module 'maxtext'"),
        (answer(machine="aarch64"), 0, "it is for arm64, the nodes are amd64"),
        (answer(python="3.10.12"), 0, "its Python is 3.10.12, 3.11 or newer is needed"),
        (EXEC_FORMAT, 126, "its Python could not be started: bash: line 1: /usr/bin/python3: cannot execute binary"),
        (
            "Traceback\nKilled\nsrun: error: node1: task 0: Exited with exit code 137\n",
            137,
            "its Python could not be started: Killed",
        ),
    ],
)
def test_what_setup_found_is_refused(image: Path, output: str, code: int, words: str) -> None:
    image_files.keep(image, output, code)
    error = refusal(image, benchmark())
    assert words in error.what
    assert "--force" in error.next_command
    image.write_bytes(b"hsqs, imported anew")
    image_files.refuse(image, benchmark(), "maxtext")  # what was found in another file says nothing of this one


def test_what_is_there_is_recorded(image: Path) -> None:
    image_files.keep(image, answer(), 0)
    image_files.refuse(image, benchmark(), "maxtext")
    about = image_files.about(image, "nvcr.io/nvidia/jax:1", "jax-maxtext")
    assert (about["image"], about["python_version"], about["packages"]) == (
        "nvcr.io/nvidia/jax:1",
        "3.12.3",
        "jax==0.7.2",
    )
    image_files.keep(image, answer(machine="aarch64"), 0)
    arm = Configs().hardware("gb200")
    image_files.refuse(image, benchmark(hardware=arm), "maxtext")


def test_an_image_is_known_by_its_ends_wherever_it_lies(tmp_path: Path) -> None:
    size = 3 * image_files.ENDS_BYTES
    one, copy = tmp_path / "one.sqsh", tmp_path / "copy.sqsh"
    for path in (one, copy):
        path.write_bytes(b"x" * size)
    first = image_files.digest_of_ends(one)
    assert image_files.digest_of_ends(copy) == first
    for at, changed in ((0, b"y"), (size - 1, b"y"), (size, b"x")):  # another beginning, end, length
        copy.write_bytes(one.read_bytes()[:at] + changed + one.read_bytes()[at + 1 :])
        assert image_files.digest_of_ends(copy) != first
