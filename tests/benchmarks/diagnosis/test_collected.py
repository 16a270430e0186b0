"""Failures as people reported them, shortened to the lines that count: what is named first, and what it is not."""

import pytest

from tests.benchmarks.diagnosis.reading import diagnosis

ENROOT = "[2025-11-06T20:36:19.163] [19.0] error: pyxis: "
# Where it was seen, the lines, the symptom that comes first, and a part of the line that is shown for it.
COLLECTED = [
    (
        "enroot#256",
        f"{ENROOT}child 70956 failed with error code: 1\n{ENROOT}failed to import docker image\n"
        f"{ENROOT}printing enroot log file:\n"
        "[2025-11-06T20:36:19.163] [19.0] pyxis: could not remove squashfs /tmp/enroot_data/1000/19.0.squashfs: "
        "No such file or directory\n"
        f"{ENROOT}couldn't start container\n",
        "image_import",
        "failed to import docker image",
    ),
    (
        "pyxis#70",
        "slurmstepd: error: pyxis: child 1 failed with error code: 1\n"
        "slurmstepd: error: pyxis: failed to import docker image\n"
        "slurmstepd: error: pyxis:     [ERROR] Invalid image reference: docker://dockerd://mlperf-nvidia:minigo\n",
        "image_missing",
        "Invalid image reference",
    ),
    (
        "marin#8244",
        "E0813 10:00:00.000000 1 coordination_service_agent.cc:318] Failed to connect to coordination service with "
        "status: UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.2:32623: Failed to "
        "connect to remote host: Connection refused\n"
        "jax.errors.JaxRuntimeError: UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: "
        "ipv4:10.0.0.2:32623: Failed to connect to remote host: Connection refused\n",
        "jax_rendezvous",
        "Failed to connect to coordination service",
    ),
    (
        "marin#5480",
        "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\nAdditional GRPC error information from "
        "remote target coordination_service while calling /xla.coordination.CoordinationService/RegisterTask:\n",
        "jax_rendezvous",
        "DEADLINE_EXCEEDED",
    ),
    (
        "marin#7430",
        "E0720 06:27:00.000000 217 coordination_service_agent.cc:760] Polling error: UNAVAILABLE: Socket closed\n"
        "F0720 06:27:00.000000 217 client.h:80] Terminating process because the JAX distributed service detected fatal "
        "errors. This most likely indicates that another task died; see the other task logs for more details.\n"
        "*** SIGABRT received by PID 217 (TID 300) on cpu 3 from PID 217; stack trace: ***\n",
        "jax_peer_lost",
        "Polling error",
    ),
    (
        "nccl#1283",
        "(train pid=2657296) 2024-05-11 14:10:52.227 n176:2657296:2658232 [0] include/alloc.h:102 NCCL WARN Cuda failure "
        "1 'invalid argument'\n"
        "(train pid=2657296) 2024-05-11 14:10:52.227 n176:2657296:2658232 [0] NCCL INFO transport/p2p.cc:199 -> 1\n"
        "RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n",
        "nccl_cuda",
        "Cuda failure 1",
    ),
    (
        "nccl, after another error",
        "RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
        "Last error:\nCuda failure 2 'out of memory'\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        "gpu_memory",
        "Tried to allocate",
    ),
]


@pytest.mark.parametrize(
    ("lines", "name", "shown"), [row[1:] for row in COLLECTED], ids=[row[0] for row in COLLECTED]
)
def test_a_failure_that_was_reported(lines: str, name: str, shown: str) -> None:
    first = diagnosis(a_log=f"a line\n{lines}").first
    assert first is not None, where
    assert first.id == name
    assert shown in first.first.text
