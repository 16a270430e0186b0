"""What is known of an image's file."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import EXIT_REFUSED, RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, changed_benchmark
from jax_backend import BACKEND
from launch.environments import image_files


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "nemo.sqsh"
    path.write_bytes(b"hsqs and more")
    return path


def benchmark(**changes: Any) -> Benchmark:
    base = resolve(Request(backend="jax", model="llama2_70b", site="example_pyxis"), Configs(), BACKEND)
    return changed_benchmark(base, **changes)


def refusal(image: Path, asked: Benchmark) -> RequestError:
    with pytest.raises(RequestError) as caught:
        image_files.refuse(image, asked)
    assert caught.value.exit_code == EXIT_REFUSED
    assert caught.value.where == str(image)
    return caught.value


@pytest.mark.parametrize(
    ("content", "words", "further"),
    [
        (None, "the container image does not exist", ""),
        (b"", "it has 0 bytes", " --force"),
        (b"hs", "it is not a squashfs file", " --force"),
    ],
)
def test_what_is_no_image_is_imported_by_setup(image: Path, content: bytes | None, words: str, further: str) -> None:
    image_files.refuse(image, benchmark())  # one that was never looked into may be used
    image.unlink()
    if content is not None:
        image.write_bytes(content)
    error, name = refusal(image, benchmark()), benchmark().settings.image
    assert words in error.what
    setup = f"python launch/setup.py --site=example_pyxis --engine=maxtext --image={name}{further}"
    assert error.next_command == setup
    assert "setup.py" not in refusal(image, benchmark(image=str(image))).next_command


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
