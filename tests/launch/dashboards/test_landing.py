"""What a dashboard's bare address answers: step times. All else is left to TensorBoard."""

import pytest

from launch.dashboards.landing import landing


def answer(path: str, query: str = "") -> str:
    environ = {"PATH_INFO": path, "QUERY_STRING": query}
    return b"".join(landing(lambda *_: [b"TensorBoard's own"])(environ, lambda *_: None)).decode()


def test_the_bare_address_goes_on_to_step_times_unsmoothed() -> None:
    page = answer("/")
    assert "?smoothing=0&runFilter=" in page
    assert "#timeseries" in page


@pytest.mark.parametrize(("path", "query"), [("/", "darkMode=true"), ("/data/runs", ""), ("/index.js", "")])
def test_every_other_address_is_tensorboards(path: str, query: str) -> None:
    assert answer(path, query) == "TensorBoard's own"
