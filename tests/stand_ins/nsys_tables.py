"""The recording of the substitute for nsys, in nsys's own formats: its CSV table and its SQLite export."""

import csv
import io
import re
import sqlite3
import zlib

COLUMNS = (
    "NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst", "Total Time (ns)", "Avg (ns)", "Med (ns)",
    "Min (ns)", "Max (ns)", "StdDev (ns)", "Kernel Name",
)  # fmt: skip
STEPS = 3  # that were recorded


INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (?:.*?[\]})] )?([a-z][a-z\-]*)\(")
LAUNCH_NOTHING = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all",
    "async-start", "async-update", "async-done", "partition-id", "replica-id", "opt-barrier", "domain",
}  # fmt: skip
MOVES = re.compile(r"all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute|collective-broadcast")


def seen(report, mode):
    """(program, its number, [(instruction, kernel, nanoseconds)]) of the training step dumped next to a report."""
    dumps = sorted((report.parent / "hlo").glob("*after_optimizations.txt"))
    chosen = [path for path in dumps if "train_step" in path.name] or dumps
    if not chosen:
        return "jit_train_step", 1, []
    path = max(chosen, key=lambda path: path.stat().st_size)
    text = path.read_text(errors="replace")
    module = re.match(r"HloModule ([^,\s]+)", text)[1]
    number = re.search(r"module_(\d+)", path.name)
    instructions = list(launching(text))
    if mode == "partial":
        first = next((name for name, opcode in instructions if MOVES.match(opcode)), None)
        instructions = [(name, opcode) for name, opcode in instructions if name != first]
    if mode == "other_model":
        instructions = [(f"{name}.other", opcode) for name, opcode in instructions]
    timed = [(name, kernel_of(name, opcode), nanoseconds(name)) for name, opcode in instructions]
    return module, int(number[1]) if number else 1, timed


def nanoseconds(name):
    """Return a fixed number per name, different for each."""
    return 2000 + zlib.crc32(name.encode()) % 900_000


def launching(text):
    """Yield (name, opcode) of instructions with their own kernel: none within fusions and reductions."""
    inner = set(re.findall(r" fusion\(.*?calls=%?([\w.\-]+)", text)) | set(re.findall(r"to_apply=%?([\w.\-]+)", text))
    inner -= set(re.findall(r" call\(.*?to_apply=%?([\w.\-]+)", text))
    within = None
    for line in text.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            within = header[1]
        elif line.startswith("}"):
            within = None
        elif within and within not in inner and (match := INSTRUCTION.match(line)) and launches(match[2]):
            yield match[1], match[2]


def launches(opcode):
    return opcode not in LAUNCH_NOTHING and not opcode.endswith("-done")


def kernel_of(name, opcode):
    if MOVES.match(opcode):
        words = "".join(word.capitalize() for word in opcode.removesuffix("-start").split("-"))
        return f"ncclDevKernel_{words}_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
    if opcode in ("dot", "custom-call"):
        return "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT"
    return re.sub(r"[.\-]", "_", name)


def thunk_range(name, at):
    """As XLA names it, without its domain TSL."""
    return f"Thunk:#name=jit(train_step)/step,hlo_op={name},unique_hlo_op_id={at}#"


def module_range(module, number):
    return f"XlaModule:#prefix=jit(train_step),hlo_module={module},program_id={number}#"


# The columns that are read, among others of exports from 2023 to 2025.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
    nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    bytes INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
PUSHPOP_RANGE, DOMAIN_CREATE = 59, 75
GLOBAL_PID = 1 << 56 | 4242 << 24
GLOBAL_TID = GLOBAL_PID | 4242
COMPUTE_STREAM, COLLECTIVE_STREAM = 7, 13


class Tables:
    """An SQLite export under the making."""

    def __init__(self, path):
        self.database = sqlite3.connect(path)
        self.database.executescript(SCHEMA)
        self.strings = {}

    def string(self, text):
        number = self.strings.setdefault(text, len(self.strings) + 1)
        self.database.execute("INSERT OR IGNORE INTO StringIds VALUES (?, ?)", (number, text))
        return number

    def insert(self, table, **values):
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def launch(self, at, title, kernel, start, took):
        """XLA's range of the instruction, and later its kernel."""
        common = {"correlationId": at + 1, "deviceId": 0, "contextId": 1, "globalPid": GLOBAL_PID}
        called = 1000 * at
        self.insert("NVTX_EVENTS", start=called, end=called + 900, eventType=PUSHPOP_RANGE, textId=self.string(title),
                    globalTid=GLOBAL_TID, domainId=1)  # fmt: skip
        words = self.string(kernel)
        stream = COLLECTIVE_STREAM if kernel.startswith("nccl") else COMPUTE_STREAM
        self.insert("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=start + took, streamId=stream, demangledName=words,
                    shortName=self.string(kernel.split("(")[0]), **common)  # fmt: skip


def rows_of(title, timed):
    for _, kernel, took in timed:
        spread = took // 50
        yield (title, "PushPop", 4242, 4242, STEPS, STEPS, took * STEPS, float(took), float(took), took - spread,
               took + spread, float(spread), kernel)  # fmt: skip


class Pretence:
    """What was recorded, in the ways of STAND_IN_NSYS."""

    def __init__(self, mode):
        self.mode = mode

    def table(self, report):
        """nvtx_kern_sum as CSV: a kernel has a row for each range that was open when it was launched."""
        module, number, timed = seen(report, self.mode)
        timed = [] if self.mode == "empty" else timed
        rows = [*rows_of("TSL:" + module_range(module, number), timed)]
        for at, one in enumerate(timed):
            rows += rows_of("TSL:" + thunk_range(one[0], at), [one])
        if self.mode == "no_ranges":
            rows = [(":train", *row[1:]) for row in rows]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(sorted(rows))
        return stream.getvalue()

    def export(self, report, output):
        """Three steps, each a module's range with what its instructions launch, one kernel after the other."""
        tables = Tables(output)
        module, number, timed = seen(report, self.mode)
        timed = [] if self.mode in ("empty", "no_kernels") else timed
        tables.insert("NVTX_EVENTS", start=0, eventType=DOMAIN_CREATE, text="TSL", globalTid=GLOBAL_TID, domainId=1)
        at, clock = 0, 1_000_000
        for _ in range(STEPS):
            began = 1000 * at
            for name, kernel, took in timed:
                tables.launch(at, thunk_range(name, at), kernel, clock, took)
                at, clock = at + 1, clock + took + 1000
            title = tables.string(module_range(module, number))
            tables.insert("NVTX_EVENTS", start=began, end=1000 * at, eventType=PUSHPOP_RANGE, textId=title,
                          globalTid=GLOBAL_TID, domainId=1)  # fmt: skip
            tables.insert("CUPTI_ACTIVITY_KIND_MEMCPY", start=clock, end=clock + 5000, deviceId=0,
                          streamId=COMPUTE_STREAM, bytes=1 << 20, copyKind=8)  # fmt: skip
            clock += 6000
        tables.database.commit()
        tables.database.close()
