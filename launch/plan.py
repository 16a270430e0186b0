"""What a run needs and takes, before a GPU hour is spent: memory, the least time, an estimate, layouts and the cost.

    python launch/plan.py --backend=jax --model=llama2_70b --dtype=fp8 --hardware=h100 --gpus=64
        without a subcommand, `estimate`
    python launch/plan.py layouts --backend=nemo --model=llama31_70b --hardware=h100 --gpus=64

Nothing is started and no GPU is needed. Exit codes: 0 done; 1 the compiler failed; 2 the request was wrong.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

from launch.cli.subcommands import Subcommands

SUBCOMMANDS = Subcommands(
    "plan",
    ("estimate", "layouts", "compile"),
    lambda _: "estimate",
)

if __name__ == "__main__":
    SUBCOMMANDS.run()
