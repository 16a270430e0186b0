"""Run NeMo's own llm.pretrain or llm.finetune, and write one JSON line per event.

This program runs by path inside NeMo's environment (`python -P worker.py ... -- group.name=value ...`) with only the
standard library and NeMo. build.py makes NeMo's objects from the settings. If there is no GPU, cpu_redirect.py
redirects requests for a GPU to the CPU. This file connects the processes, times the steps, starts and stops the
recording of nsys, and checks that the requested work was done.
"""

import argparse
import hashlib
import importlib.util
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks" / "inside"))  # no package of Stepmark is importable here
import worker_kit as kit  # noqa: E402

PACKAGES = (
    "nemo-toolkit", "megatron-bridge", "megatron-core", "torch", "lightning", "transformers", "transformer-engine",
    "nvidia-modelopt", "numpy",
)  # fmt: skip
PACKED = "packed to whole sequences"
PADDED = "each row is padded to the full length, because packing needs Transformer Engine; tokens/s counts padding"
ON_A_CPU = (
    "on a CPU: no Transformer Engine kernels, NCCL, fp8, sequence parallelism, communication overlap or CUDA graphs"
)


# --- processes and devices --------------------------------------------------------------------


def join_processes(options):
    """Set torch's rendezvous variables, so that NeMo does not use the variables of another launcher."""
    host, _, port = (options.coordinator or "127.0.0.1:0").rpartition(":")
    os.environ.update(
        MASTER_ADDR=host,
        MASTER_PORT=port if options.coordinator else str(free_port()),
        WORLD_SIZE=str(options.processes),
        RANK=str(options.rank),
        NODE_RANK=str(options.rank // options.tasks_per_node),
        LOCAL_RANK=str(options.rank % options.tasks_per_node),
    )


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def share_the_cpu(options):
    """Limit each process to its share of the machine's cores. By default, each process would use all cores."""
    import torch

    all_here = os.environ["MASTER_ADDR"] == "127.0.0.1"  # one machine can simulate several nodes
    sharing = options.processes if all_here else options.tasks_per_node
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(max(1, cores // sharing))


def assert_devices(options):
    import torch

    names = [name.lower() for name in options.device_name]
    found = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    if names and found.lower() not in names:
        raise SystemExit(
            f"stepmark worker: the device is '{found}', but the benchmark is for {' or '.join(options.device_name)}"
        )


def assert_processes(options):
    """Exit if ranks train separately, because each would report success."""
    import torch

    world = torch.distributed.get_world_size()
    if world != options.processes:
        raise SystemExit(f"stepmark worker: only {world} of {options.processes} processes have joined")


# --- facts about the model and the data -------------------------------------------------------


def mesh():
    from megatron.core import parallel_state as state

    return {
        "tensor": state.get_tensor_model_parallel_world_size(),
        "pipeline": state.get_pipeline_model_parallel_world_size(),
        "context": state.get_context_parallel_world_size(),
        "data": state.get_data_parallel_world_size(),
    }


def parameter_counts(model):
    """Return the numbers of all and of trainable parameters. Copies of a weight on several ranks count once."""
    import torch

    mine = [p for p in model.parameters() if is_first_copy(p)]
    counts = [sum(p.numel() for p in mine), sum(p.numel() for p in mine if p.requires_grad)]
    everywhere = torch.tensor(counts, dtype=torch.int64, device=torch.cuda.current_device())
    torch.distributed.all_reduce(everywhere)
    return tuple(everywhere.tolist())


def is_first_copy(parameter):
    """Return whether no process with a smaller rank has a copy of the parameter."""
    from megatron.core import parallel_state as state

    if not getattr(parameter, "allreduce", True):  # experts, which other processes share than other parameters
        return state.get_expert_data_parallel_rank() == 0
    is_split = getattr(parameter, "tensor_model_parallel", False)
    is_first = state.get_data_parallel_rank(with_context_parallel=True) == 0
    return is_first and (is_split or state.get_tensor_model_parallel_rank() == 0)


def facts(options, model, notes):
    import torch

    total, trainable = parameter_counts(model)
    on_gpu = torch.cuda.is_available()
    return {
        "rank": options.rank,
        "process_count": torch.distributed.get_world_size(),
        "device_count": torch.distributed.get_world_size(),
        "local_device_count": 1,
        "device_kind": torch.cuda.get_device_name() if on_gpu else "cpu",
        "platform": "cuda" if on_gpu else "cpu",
        "parameters": total,
        "trainable_parameters": trainable,
        "mesh": {axis: size for axis, size in mesh().items() if size > 1},
        "versions": kit.installed_versions(PACKAGES),
        "argv": options.settings,
        "notes": notes,
    }


class TokenCount:
    """Counts the tokens that enter the model in one step, on the ranks that have its first layer."""

    def __init__(self, model):
        from megatron.core import parallel_state as state
        from megatron.core.models.gpt import GPTModel

        self.tokens = 0
        self._shares = state.get_data_parallel_world_size() * state.get_context_parallel_world_size()
        first = [m for m in model.modules() if isinstance(m, GPTModel) and m.pre_process]
        self._hooks = [m.register_forward_pre_hook(self._count, with_kwargs=True) for m in first]

    def _count(self, _module, args, kwargs):
        self.tokens += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()

    def failures(self, wanted):
        """Stop counting, and return a message if the count is wrong. All data and context ranks have equal shares."""
        for hook in self._hooks:
            hook.remove()
        found = self.tokens * self._shares
        wrong = self._hooks and found != wanted
        return [f"a step trained {found:,} tokens, but the benchmark has {wanted:,}"] if wrong else []


def about_dataset(folder):
    """Return a list with a sentence about the dataset; empty for mock data."""
    questions = folder / "training.jsonl"
    if indexes := sorted(folder.glob("*.idx")):
        size = sum(path.with_suffix(".bin").stat().st_size for path in indexes)
        digests = ", ".join(map(short_digest, indexes))
        return [f"data: {folder.name}, {size:,} bytes of tokens, indexed by {digests}"]
    if questions.is_file():
        packed = importlib.util.find_spec("transformer_engine") is not None
        return [f"data: {folder.name}/{questions.name} ({short_digest(questions)}), {PACKED if packed else PADDED}"]
    return []


def short_digest(path):
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


# --- proof that adapters train and nothing else does -------------------------------------------


def looks_of(model):
    """Return two mappings of name to fingerprint: for this rank's adapters, and for its frozen weights."""
    adapters, frozen = {}, {}
    for name, parameter in model.named_parameters():
        (adapters if parameter.requires_grad else frozen)[name] = fingerprint(parameter)
    return adapters, frozen


def without_gradient(model):
    """Return the adapters without a gradient in the last step; NeMo may have frozen them by mistake."""
    return [name for name, p in model.named_parameters() if p.requires_grad and not has_gradient(p)]


def has_gradient(parameter):
    """Return whether a parameter has a gradient that is not zero. Megatron keeps gradients in separate buffers."""
    gradient = getattr(parameter, "main_grad", None)
    gradient = parameter.grad if gradient is None else gradient
    return gradient is not None and bool(gradient.abs().max() > 0)


def fingerprint(parameter, piece=1 << 24):
    """Return a number that depends on every bit and its position, so that it shows any change of a weight."""
    import torch

    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    stored = stored_numbers(parameter).contiguous()
    flat = stored.view(-1).view(words[stored.element_size()])
    total = 0
    for start in range(0, flat.numel(), piece):
        bits = flat[start : start + piece].to(torch.int64)
        places = torch.arange(start, start + bits.numel(), device=bits.device) % 1_000_003 + 1
        total += int((bits * places).sum())
    return total


def stored_numbers(parameter):
    """Return the stored numbers. Transformer Engine's fp8 tensors have them in an attribute of one of these names."""
    for name in ("_data", "_rowwise_data"):
        if getattr(parameter, name, None) is not None:
            return getattr(parameter, name)
    return parameter.detach()


# --- the clock --------------------------------------------------------------------------------


def step_clock(work):
    """Return a Lightning callback that records the end of each step after the device has finished it."""
    import torch
    from lightning.pytorch.callbacks import Callback

    class StepClock(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):  # noqa: ARG002
            if not work.recorder.started:
                work.begin(trainer.strategy.megatron_parallel)
            work.profile.before(trainer.global_step, torch)

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):  # noqa: ARG002
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # no extra wait, because NeMo's own timer has already waited
            end, measured = time.perf_counter(), trainer.callback_metrics
            # Megatron sends the last stage's loss to the first rank. On the other ranks, the loss may be zero.
            loss = float(measured["reduced_train_loss"]) if work.options.rank == 0 else None
            work.end_of_step(
                trainer.global_step - 1,
                end,
                loss,
                float(measured["grad_norm"]),
                framework_seconds=measured.get("train_step_timing in s"),
                framework_tflops_per_device=measured.get("TFLOPS_per_GPU"),
            )
            work.profile.after(trainer.global_step - 1, torch)

        def on_train_end(self, trainer, pl_module):  # noqa: ARG002
            work.finish(trainer.strategy.megatron_parallel)

    return StepClock()


class ProfiledSteps:
    """Starts nsys before the `recorded` steps and stops it after them, if this rank is recorded (`mine`).

    NeMo's own NsysCallback makes the same calls, but counts steps from the start of each epoch. On a small dataset,
    it would start nsys twice or never.
    """

    def __init__(self, recorded, *, mine):
        self._recorded, self._mine = recorded, mine
        self._on_cpu = False
        self._ranges = None

    def before(self, step, torch):
        """Start nsys if the step that is about to begin is the first recorded one."""
        if not self._recorded or step != min(self._recorded):
            return
        self._on_cpu = not torch.cuda.is_available()  # set on every rank, because only rank 0's notes are read
        if self._on_cpu or not self._mine:
            return
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
        self._ranges = torch.autograd.profiler.emit_nvtx()
        self._ranges.__enter__()

    def after(self, step, torch):
        """Stop nsys after the last recorded step. Call this after the step's time is recorded."""
        if self._ranges is None or step != max(self._recorded):
            return
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
        self._ranges.__exit__(None, None, None)
        self._ranges = None

    def notes(self):
        return ["profile: nsys recorded the whole run, because a CPU cannot select steps"] if self._on_cpu else []


# --- training ---------------------------------------------------------------------------------


class Work:
    """Runs the framework's own training loop with timed steps, and collects failures and notes."""

    def __init__(self, options, events):
        self.recorder = kit.StepRecorder(events)
        self._slowdown = kit.slowdown(options)
        recorded, ranks = (kit.numbers_of(text) for text in (options.recorded_steps, options.recorded_ranks))
        self.profile = ProfiledSteps(recorded, mine=options.rank in ranks)
        self._reason_against = kit.reason_against_disturbed(options)
        self.options = options
        self._events = events
        self.proof = kit.AdapterProof(options.rank) if options.task == "lora" else None
        self.said = []
        self._count = None
        self._failures = []

    def train(self):
        fit(self.options, *self.prepared())

    def prepared(self):
        """Return the remaining arguments of `fit`: build.py, the callbacks, and whether the run uses a CPU."""
        on_cpu = self.join(kit.load(HERE / "cpu_redirect.py"))
        if self.proof:
            self.said.append(kit.RANDOM_WEIGHTS)
        return kit.load(HERE / "build.py"), [step_clock(self)], on_cpu

    def join(self, redirect):
        """Connect the processes and return whether they use a CPU. Call this before the framework is imported."""
        join_processes(self.options)
        on_cpu = redirect.install()
        if on_cpu:
            share_the_cpu(self.options)
            self.said += [ON_A_CPU, redirect.NOTE]
        self.said.extend(about_dataset(Path(self.options.data)))
        assert_devices(self.options)
        return on_cpu

    def begin(self, model):
        """Write the facts and start the clock, after the model, its adapters and the first batch exist."""
        assert_processes(self.options)
        self._events.write("facts", **facts(self.options, model, self.said))
        if self.proof:
            self.proof.begin(*looks_of(model))
        self._count = TokenCount(model)
        self.recorder.start()

    def end_of_step(self, step, end, loss, gradient_norm, **framework):
        end = self._slowdown.end_of_step(end)
        why_not = self._reason_against(step)
        self.recorder.record(step, end, loss, gradient_norm, excluded_because=why_not, **framework)
        if self._count:
            self._failures += self._count.failures(self.options.tokens_per_step)
            self._count = None

    def finish(self, model):
        if self.proof:
            self.proof.finish(*looks_of(model), without_gradient(model))

    def failures(self):
        return self.recorder.failures() + self._failures + (self.proof.failures if self.proof else [])

    def notes(self):
        proven = self.proof.notes if self.proof else []
        return proven + self.profile.notes() + self._slowdown.notes()


def fit(options, build, callbacks, on_cpu):
    """Train as a NeMo script does. tests/measure_overhead.py also calls this without timed steps."""
    from nemo.collections import llm

    arguments = objects(options, build, callbacks, on_cpu)
    if options.task == "lora":
        llm.finetune(tokenizer="data", **arguments)
    else:
        llm.pretrain(**arguments)


def objects(options, build, callbacks, on_cpu):
    """Return the arguments of NeMo's entry point."""
    from nemo import lightning as nl

    if on_cpu:
        kit.load(HERE / "cpu_redirect.py").fork_no_random_state()
    settings = build.grouped(options.settings)
    tokenizer = build.tokenizer_of(options.vocabulary_size)
    arguments = {
        "model": build.model_of(settings, tokenizer),
        "data": build.data_of(settings, options.data, options.task, tokenizer),
        "trainer": build.trainer_of(settings, callbacks),
        "log": nl.NeMoLogger(log_dir=settings["trainer"]["default_root_dir"], ckpt=None, use_datetime_version=False),
    }
    if options.task == "lora":
        adapters = kit.load(HERE / "adapters.py")
        adapters.without_transformer_engine()
        arguments["peft"] = build.adapters_of(settings, adapters)
    return arguments


def main(options):
    return run(options, Work, "nemo_check.py", objects)


def run(options, kind, check, *given):
    """Train with the class `kind` of Work, or only look at the node with the module `check`."""
    events = kit.events_of(options)
    if options.check:
        look = kit.load(HERE / check).look
        return kit.run_check(lambda: look(options, kind(options, events), *given, kit), events)
    work = kind(options, events)
    return kit.run(options, work.train, work.failures, events, work.notes)


def parser_for(description):
    parser = argparse.ArgumentParser(description=description)
    kit.add_options(parser)
    parser.add_argument("--data", required=True, help="mock, or the folder of a dataset")
    parser.add_argument("--tokens_per_step", type=int, required=True)
    parser.add_argument("--recorded_steps", default="", help="steps that nsys records, such as 45-49")
    return parser


def parse(argv):
    parser = parser_for(__doc__)
    parser.add_argument("--vocabulary_size", type=int, required=True)
    return parser.parse_args(argv)


if __name__ == "__main__":
    kit.leave(main(parse(sys.argv[1:])))
