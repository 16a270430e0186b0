"""The redirect of requests for a GPU, on real torch: what it answers, and that CUDA turns it off."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REDIRECT = Path(__file__).resolve().parents[2] / "nemo_backend" / "inside" / "cpu_redirect.py"
EACH_IN_A_FORK = f"""
import importlib.util, json, os, sys, torch, traceback
from torch.utils import cpp_extension
spec = importlib.util.spec_from_file_location("cpu_redirect", {str(REDIRECT)!r})
redirect = importlib.util.module_from_spec(spec)
spec.loader.exec_module(redirect)
for name, code in json.load(sys.stdin).items():
    if os.fork() == 0:
        status = 1
        try:
            exec(code)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    print(json.dumps([name, os.waitstatus_to_exitcode(os.wait()[1])]))
"""


CASES = {
    "where CUDA exists nothing is done at all": """
names = ("current_device", "set_device", "synchronize", "current_stream", "Stream", "Event", "LongTensor")
before = [getattr(torch.cuda, name) for name in names] + [torch.nn.Module.cuda, cpp_extension.load_inline]
torch.cuda.is_available = lambda: True
assert redirect.install() is False
after = [getattr(torch.cuda, name) for name in names] + [torch.nn.Module.cuda, cpp_extension.load_inline]
assert all(one is other for one, other in zip(before, after))
try:
    torch.zeros(1).to("cuda")
except (AssertionError, RuntimeError):  # torch itself answers: this build, or this machine, has no CUDA
    pass
else:
    raise SystemExit("redirected")
""",
    "every request for a GPU is answered with the CPU": """
assert redirect.install() is True
cpu = torch.device("cpu")
x = torch.arange(4.0)
assert torch.cuda.current_device() == cpu
for moved in (x.cuda(), x.to("cuda"), x.to("cuda:1"), x.to(torch.device("cuda", 0)), x.pin_memory(),
              torch.zeros(4, device="cuda"), torch.ones(4, pin_memory=True), torch.cuda.LongTensor([1])):
    assert moved.device == cpu
assert torch.nn.Linear(2, 2).cuda().weight.device == cpu
with torch.cuda.stream(torch.cuda.Stream()):
    event = torch.cuda.Event(enable_timing=True)
    event.record(); event.synchronize(); torch.cuda.current_stream().wait_event(event)
torch.cuda.synchronize(); torch.cuda.set_device(0)
assert x.type() == "torch.cuda.FloatTensor"
""",
    "what asks for no GPU is not changed, and nothing is compiled for one": """
torch.manual_seed(0)
x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
(x @ w).square().sum().backward()
plain, w.grad = w.grad.clone(), None
redirect.install()
(x @ w).square().sum().backward()
assert torch.equal(plain, w.grad)
assert x.to("cpu") is x and x.to(torch.float64).dtype == torch.float64
assert x.type(torch.float64).dtype == torch.float64
try:
    cpp_extension.load_inline(name="x", cpp_sources=[""])
except RuntimeError as error:
    assert "CUDA" in str(error)
else:
    raise SystemExit("compiled")
""",
}


@pytest.fixture(scope="module")
def outcomes(nemo_python: Path) -> dict[str, int]:
    """The exit code of each case; torch is imported once."""
    done = subprocess.run(
        [str(nemo_python), "-c", EACH_IN_A_FORK],
        input=json.dumps(CASES), stdout=subprocess.PIPE, text=True, check=True, timeout=600,
        cwd=REDIRECT.parent,
    )  # fmt: skip
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("case", CASES)
def test_the_redirect(outcomes: dict[str, int], case: str) -> None:
    assert outcomes[case] == 0
