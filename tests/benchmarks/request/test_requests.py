"""Lists in flags become cells, in order; a list that means nothing is refused."""

import pytest

from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, requests_of

TINY: dict[str, str | None] = {"backend": "jax", "model": "llama2_tiny"}


def test_every_combination_in_the_order_typed() -> None:
    found = requests_of({**TINY, "gpus": "4,1", "dtype": "fp32,bf16"}, {"steps": 12})
    assert [(r.dtype, r.gpus) for r in found] == [("fp32", 4), ("fp32", 1), ("bf16", 4), ("bf16", 1)]
    assert requests_of({**TINY, "gpus": "8"}, {"steps": 12}) == [
        Request(backend="jax", model="llama2_tiny", gpus=8, steps=12)
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gpus", "64,64", "has 64 twice"),
        ("gpus", "64,064", "has 64 twice"),
        ("dtype", "bf16, bf16", "has bf16 twice"),
        ("gpus", "64,,128", "has an empty value"),
        ("gpus", "", "has an empty value"),
        ("gpus", "64,many", "'many' is not a whole number"),
        ("gpus", "٣", "is not a whole number"),
        ("gpus", "9" * 5000, "is not a whole number"),
        ("nodes", "1_0", "is not a whole number"),
    ],
)
def test_a_list_that_means_nothing_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as refusal:
        requests_of({**TINY, name: text}, {})
    assert refusal.value.where == f"--{name}"
