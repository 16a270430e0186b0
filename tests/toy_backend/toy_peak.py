"""A device of any name that multiplies at a given rate: it computes how long that would take.

TOY_DEVICE: its name; TOY_TFLOPS: its rate; TOY_ENDS: hang, raise, memory, doze, or empty. Only standard library.
"""

import importlib.util
import os
import sys
import time

spec = importlib.util.spec_from_file_location("peak_turns", sys.argv[1])
turns = importlib.util.module_from_spec(spec)
spec.loader.exec_module(turns)


class Toy:
    notes = ["a toy says so", f"it is shown '{os.environ.get('CUDA_VISIBLE_DEVICES')}'"]

    def facts(self):
        platform = sys.argv[2]
        threads = 1 if platform == "cpu" else None
        device = os.environ.get("TOY_DEVICE", "cpu")
        versions = {"toy": "1.0"}
        return {"device_kind": device, "platform": platform, "versions": versions, "threads": threads}

    def matmul(self, dtype, shape):
        if dtype == "fp8":
            raise RuntimeError("a toy has no eighths")
        if os.environ.get("TOY_ENDS") == "hang":
            time.sleep(3600)
        if os.environ.get("TOY_ENDS") == "raise":
            raise ValueError("told to")
        if os.environ.get("TOY_ENDS") == "memory" and dtype == "fp32":
            raise RuntimeError("out of memory")
        rate = float(os.environ.get("TOY_TFLOPS", "2")) * (2 if dtype == "bf16" else 1)
        rate *= 1.5 if shape["name"] == "mlp_input" else 1
        return lambda calls: calls * 2e-12 * shape["m"] * shape["k"] * shape["n"] / rate


turns.main(lambda _platform: Toy(), [f"--platform={sys.argv[2]}", sys.argv[3]])
