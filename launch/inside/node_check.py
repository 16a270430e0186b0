"""Run on every node of a preflight, and write the facts of the node to one JSON file, without judging them.

A node runs `python3 -I -S node_check.py FOLDER` with any Python that it has (3.6 or newer). The program imports few
modules of the standard library, because hundreds of nodes start it at the same time. FOLDER/asked.json is the
request. FOLDER/answers/NODE.json is the answer, which benchmarks/preflight judges.
"""

# Do not use pathlib, which takes longer to import than all other modules together:
# ruff: noqa: PTH105, PTH108, PTH112, PTH118, PTH100, PTH123, PTH207

import contextlib
import glob
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
import zlib

COMMAND_SECONDS = 20  # nvidia-smi without persistence mode takes some seconds for each GPU
CONNECT_SECONDS = 5
SERVER_IDLE_SECONDS = 15  # the first node stops waiting after this long without a call
GPU_FIELDS = (
    "index,name,uuid,driver_version,persistence_mode,mig.mode.current,memory.total,memory.used,utilization.gpu,"
    "ecc.errors.uncorrected.volatile.total,clocks_throttle_reasons.active,clocks.sm,clocks.max.sm,temperature.gpu"
)


def main(folder):
    with open(os.path.join(folder, "asked.json")) as stream:
        asked = json.load(stream)
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    first = os.environ.get("STEPMARK_FIRST_NODE")  # the node to which all others connect; unset for a single node
    callers = int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) - 1
    load = os.getloadavg()[0]  # first, before this program increases the load
    server = take_calls(folder, callers) if node == first and callers else None
    answer = {
        "node": node,
        "token": asked["token"],
        "versions": versions(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": load,
        "limits": {
            "memlock_bytes": soft_limit(resource.RLIMIT_MEMLOCK),
            "open_files": soft_limit(resource.RLIMIT_NOFILE),
        },
        "shm_bytes": size_of("/dev/shm"),
        "free_bytes": free_in(folder),
        "folders": folders(asked, node),
        "program": checksum(os.path.abspath(__file__)),
        "environments": {path: os.access(path, os.X_OK) for path in asked["environments"]},
        "infiniband": infiniband(),
        "commands": commands(asked),
    }
    answer["call"] = call(folder, asked, first, node) if callers else {"first_node": None}
    write(os.path.join(folder, "answers", node + ".json"), answer)
    if server is not None:
        server.join()
    return 0


# --- facts from files --------------------------------------------------------------------------


def versions():
    found = {
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "os": os_name(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
    # Read the version of the kernel module, because a node may lack OFED's programs.
    ofed = "".join(lines_of("/sys/module/mlx5_core/version")).strip()
    return dict(found, ofed=ofed) if ofed else found


def os_name():
    for line in lines_of("/etc/os-release"):
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip().strip('"')
    return "unknown"


def infiniband():
    """Return the state of each port of each adapter, such as "4: ACTIVE", by "adapter:port"."""
    found = {}
    for path in sorted(glob.glob("/sys/class/infiniband/*/ports/*/state")):
        parts = path.split("/")
        found[parts[4] + ":" + parts[6]] = "".join(lines_of(path)).strip()
    return found


def lines_of(path):
    try:
        with open(path, errors="replace") as stream:
            return stream.readlines()
    except OSError:
        return []


def soft_limit(which):
    """Return a soft limit of this process; None if it is unlimited."""
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def size_of(path):
    try:
        about = os.statvfs(path)
    except OSError:
        return None
    return about.f_blocks * about.f_frsize


def free_in(path):
    about = os.statvfs(path)
    return about.f_bavail * about.f_frsize


def folders(asked, node):
    """Return the state of each folder. Test write access only for the folders in `written_folders`."""
    found = {path: "visible" if os.path.isdir(path) else "missing" for path in asked["shared_folders"]}
    found.update({path: access_to(path, node) for path in asked["written_folders"]})
    return found


def access_to(path, node):
    if not os.path.isdir(path):
        return "missing"
    probe = os.path.join(path, f".stepmark-{node}-{os.getpid()}-{time.time_ns()}")
    try:  # write a file, because a file system may refuse a write that the permissions allow
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        os.unlink(probe)
    except OSError:
        return "readable"
    return "writable"


def checksum(path):
    with open(path, "rb") as stream:
        return f"{zlib.crc32(stream.read()):08x}"


# --- programs of the node ----------------------------------------------------------------------


def commands(asked):
    """Return the output of the node's programs, which the launcher parses."""
    found = {}
    if asked["gpus"]:
        found["gpus"] = query_gpus()
        found["remapped_rows"] = run(
            "nvidia-smi --query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure --format=csv"
        )
        found["processes"] = run("nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv")
        found["nvlink"] = run("nvidia-smi nvlink --status")
        found["nvidia_smi"] = run("nvidia-smi")
    if asked["container"]:
        found["enroot"] = run("enroot version")
    return found


def query_gpus():
    """Query the GPUs. A driver refuses a query with an unknown field, so remove that field and repeat the query."""
    fields = GPU_FIELDS.split(",")
    while True:
        answer = run("nvidia-smi --query-gpu=" + ",".join(fields) + " --format=csv,nounits")
        unknown = re.search(r'Field "([^"]+)" is not a valid field', answer["output"])
        if not unknown or unknown.group(1) not in fields:
            return answer
        fields.remove(unknown.group(1))


def run(command):
    environment = dict(os.environ, LC_ALL="C")
    try:
        done = subprocess.run(
            command.split(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except OSError as error:
        return {"exit_code": None, "output": f"{command.split()[0]}: {error.strerror}"}
    except subprocess.TimeoutExpired:
        return {"exit_code": None, "output": f"{command}: no answer after {COMMAND_SECONDS} s"}
    return {"exit_code": done.returncode, "output": done.stdout.decode("utf-8", "replace")}


# --- ports -------------------------------------------------------------------------------------


def take_calls(folder, callers):
    """On the first node, start a thread that accepts the calls of all other nodes. Write its port to port.json."""
    listener = socket.socket()
    listener.bind(("", 0))  # any free port, because virtual nodes share the ports of one machine
    listener.listen(1024)
    listener.settimeout(SERVER_IDLE_SECONDS)
    write(os.path.join(folder, "port.json"), {"host": own_name(), "port": listener.getsockname()[1]})

    def serve():
        with contextlib.suppress(OSError):
            for _ in range(callers):
                listener.accept()[0].close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def own_name():
    """Return this node's name, in the form in which a run's job names its first node."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    try:
        socket.gethostbyname(name)
    except OSError:
        return socket.gethostname()
    return name


def call(folder, asked, first, node):
    """Connect to the first node, as every run on several nodes does. Return the outcome."""
    if not first:
        return {"first_node": None}
    if node == first:
        return {"first_node": first, "offered": True}
    offered = wait_for(os.path.join(folder, "port.json"), asked["call_seconds"])
    if offered is None:
        return {"first_node": first, "error": f"{first} offered no port within {asked['call_seconds']} s"}
    try:
        socket.create_connection((offered["host"], offered["port"]), CONNECT_SECONDS).close()
    except OSError as error:
        why = f"{offered['host']}:{offered['port']} {error.strerror or error}"
        return {"first_node": first, "offered": True, "error": why}
    return {"first_node": first, "offered": True}


def wait_for(path, seconds):
    deadline, pause = time.time() + seconds, 0.05
    while time.time() < deadline:
        try:
            with open(path) as stream:
                return json.load(stream)
        except (OSError, ValueError):
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)  # limits the load of hundreds of nodes on one file system
    return None


def write(path, value):
    """Write the file atomically, so that the launcher never reads an incomplete file."""
    with open(path + ".part", "w") as stream:
        json.dump(value, stream)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except OSError as error:
        sys.exit(f"node_check on {os.environ.get('SLURMD_NODENAME') or socket.gethostname()}: {error}")
