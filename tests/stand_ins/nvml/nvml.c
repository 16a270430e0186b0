/* A stand-in for NVIDIA's libnvidia-ml.so.1: it plays the machine in the file that $STEPMARK_NVML_MACHINE names.

Only what Stepmark asks is answered; pynvml takes any other function for one that this driver lacks. The values of
nvmlReturn_t and the structures are those of nvml.h.

A machine is lines of "key = value" and sections; "#" begins a comment.
  driver, cuda (as 12080), init (the error of nvmlInit)   of the machine
  [gpu] or [gpu x8]          a GPU, or eight: "%d" in uuid and pci is its index
  [mig]                      a slice of the GPU above, which is then in MIG mode
  name, uuid, pci, memory_mib, used_mib, power_w, power_limit_w, sm_mhz, max_sm_mhz, memory_mhz, temperature_c,
  utilization, throttle (bits), ecc_uncorrected, remapped (as 1 0 0 0), nvlinks, nvlinks_down, persistence,
  ecc (0: it has none), capability (as 9.0), process (pid, MiB, name; repeated), lost (1: it answers nothing),
  lost_after_energy (it answers nothing any more after it was asked for its energy so often, by one program) */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_THERE = 12, LOST = 15 };
enum { MOST_GPUS = 32, MOST_PROCESSES = 4, TEXT = 160 };
typedef unsigned long long u64;

typedef struct { unsigned pid; u64 mib; char name[TEXT]; } Process;
typedef struct Gpu {
    char name[TEXT], uuid[TEXT], pci[TEXT];
    u64 memory_mib, used_mib, ecc_uncorrected, energy_mj, asked;
    unsigned power_w, power_limit_w, sm_mhz, max_sm_mhz, memory_mhz, temperature_c, utilization, throttle, persistence;
    unsigned remapped[4], capability[2];
    int ecc, nvlinks, nvlinks_down, lost, lost_after, is_mig, processes, index;
    Process process[MOST_PROCESSES];
    struct Gpu *parent;
} Gpu;

static Gpu gpus[MOST_GPUS];
static int count, init_error, cuda;
static char driver[TEXT];

static void set(Gpu *gpu, const char *key, const char *value) {
    unsigned number = (unsigned)strtoul(value, NULL, 0);
    if (!strcmp(key, "name")) snprintf(gpu->name, TEXT, "%s", value);
    else if (!strcmp(key, "uuid")) snprintf(gpu->uuid, TEXT, value, gpu->index);
    else if (!strcmp(key, "pci")) snprintf(gpu->pci, TEXT, value, gpu->index);
    else if (!strcmp(key, "memory_mib")) gpu->memory_mib = number;
    else if (!strcmp(key, "used_mib")) gpu->used_mib = number;
    else if (!strcmp(key, "power_w")) gpu->power_w = number;
    else if (!strcmp(key, "power_limit_w")) gpu->power_limit_w = number;
    else if (!strcmp(key, "sm_mhz")) gpu->sm_mhz = number;
    else if (!strcmp(key, "max_sm_mhz")) gpu->max_sm_mhz = number;
    else if (!strcmp(key, "memory_mhz")) gpu->memory_mhz = number;
    else if (!strcmp(key, "temperature_c")) gpu->temperature_c = number;
    else if (!strcmp(key, "utilization")) gpu->utilization = number;
    else if (!strcmp(key, "throttle")) gpu->throttle = number;
    else if (!strcmp(key, "persistence")) gpu->persistence = number;
    else if (!strcmp(key, "ecc_uncorrected")) gpu->ecc_uncorrected = number;
    else if (!strcmp(key, "ecc")) gpu->ecc = (int)number;
    else if (!strcmp(key, "nvlinks")) gpu->nvlinks = (int)number;
    else if (!strcmp(key, "nvlinks_down")) gpu->nvlinks_down = (int)number;
    else if (!strcmp(key, "lost")) gpu->lost = (int)number;
    else if (!strcmp(key, "lost_after_energy")) gpu->lost_after = (int)number;
    else if (!strcmp(key, "capability")) sscanf(value, "%u.%u", &gpu->capability[0], &gpu->capability[1]);
    else if (!strcmp(key, "remapped"))
        sscanf(value, "%u %u %u %u", gpu->remapped, gpu->remapped + 1, gpu->remapped + 2, gpu->remapped + 3);
    else if (!strcmp(key, "process") && gpu->processes < MOST_PROCESSES) {
        Process *process = &gpu->process[gpu->processes++];
        sscanf(value, "%u %llu %159[^\n]", &process->pid, &process->mib, process->name);
    } else {
        fprintf(stderr, "stand-in NVML: unknown key '%s'\n", key);
        abort();
    }
}

static int whole_gpus(void) {
    int found = 0;
    for (int i = 0; i < count; i++) found += !gpus[i].is_mig;
    return found;
}

static void begin(const char *line, int *first) {
    int copies = 1, mig = !strncmp(line, "[mig]", 5);
    sscanf(line, "[gpu x%d]", &copies);
    Gpu *parent = count ? (gpus[count - 1].is_mig ? gpus[count - 1].parent : &gpus[count - 1]) : NULL;
    *first = count;
    for (int i = 0; i < copies && count < MOST_GPUS; i++, count++) {
        Gpu *gpu = &gpus[count];
        memset(gpu, 0, sizeof *gpu);
        gpu->lost_after = -1;
        gpu->persistence = gpu->ecc = 1;
        gpu->energy_mj = 1000000;
        gpu->is_mig = mig;
        gpu->parent = mig ? parent : NULL;
        gpu->index = mig ? count - 1 - (int)(parent - gpus) : whole_gpus();
    }
}

static int read_machine(void) {
    const char *path = getenv("STEPMARK_NVML_MACHINE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], key[TEXT], value[TEXT];
    int first = 0;
    if (!file) return NOT_THERE; /* no machine: as if there were no such library */
    count = init_error = cuda = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "#\n")] = 0;
        for (size_t end = strlen(line); end && line[end - 1] == ' ';) line[--end] = 0;
        if (line[0] == '[') begin(line, &first);
        if (sscanf(line, "%159[a-z_] = %159[^\n]", key, value) != 2) continue;
        if (!strcmp(key, "driver")) snprintf(driver, TEXT, "%s", value);
        else if (!strcmp(key, "cuda")) cuda = atoi(value);
        else if (!strcmp(key, "init")) init_error = atoi(value);
        else for (int i = first; i < count; i++) set(&gpus[i], key, value);
    }
    fclose(file);
    return init_error;
}

static int text(const char *from, char *to, unsigned size) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}

static int gone(const Gpu *gpu) {
    const Gpu *whole = gpu->parent ? gpu->parent : gpu;
    return whole->lost || (whole->lost_after >= 0 && whole->asked > (u64)whole->lost_after);
}

#define ASKED(gpu) if (gone(gpu)) return LOST
#define NUMBER(function, type, expression) \
    int function(Gpu *gpu, type *out) { ASKED(gpu); *out = (type)(expression); return OK; }

/* --- the machine --- */

int nvmlInitWithFlags(unsigned flags) { (void)flags; return read_machine(); }
int nvmlInit_v2(void) { return read_machine(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(driver, to, size); }
int nvmlSystemGetNVMLVersion(char *to, unsigned size) { return text("12.stand-in", to, size); }
int nvmlSystemGetCudaDriverVersion(int *out) { *out = cuda; return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = cuda; return OK; }

int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
    for (int i = 0; i < count; i++)
        for (int p = 0; p < gpus[i].processes; p++)
            if (gpus[i].process[p].pid == pid) return text(gpus[i].process[p].name, to, size);
    return NOT_FOUND;
}

int nvmlDeviceGetCount_v2(unsigned *out) { *out = (unsigned)whole_gpus(); return OK; }

/* --- a GPU --- */

static int handle(Gpu *parent, unsigned index, Gpu **out) {
    for (int i = 0; i < count; i++)
        if (gpus[i].parent == parent && gpus[i].index == (int)index) {
            *out = &gpus[i];
            return gone(&gpus[i]) ? LOST : OK;
        }
    return parent ? NOT_FOUND : INVALID;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **out) { return handle(NULL, index, out); }
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, Gpu **out) { return handle(gpu, index, out); }

static unsigned slices(const Gpu *gpu) {
    unsigned found = 0;
    for (int i = 0; i < count; i++) found += gpus[i].parent == gpu;
    return found;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *pending) {
    ASKED(gpu);
    if (gpu->capability[0] < 8) return NOT_SUPPORTED;
    *now = *pending = slices(gpu) > 0;
    return OK;
}

int nvmlDeviceGetName(Gpu *gpu, char *to, unsigned size) { ASKED(gpu); return text(gpu->name, to, size); }
int nvmlDeviceGetUUID(Gpu *gpu, char *to, unsigned size) { ASKED(gpu); return text(gpu->uuid, to, size); }

typedef struct { char old_bus_id[16]; unsigned domain, bus, device, pci_id, subsystem; char bus_id[32]; } PciInfo;
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *out) {
    ASKED(gpu);
    memset(out, 0, sizeof *out);
    return text((gpu->parent ? gpu->parent : gpu)->pci, out->bus_id, sizeof out->bus_id);
}

typedef struct { u64 total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *out) {
    ASKED(gpu);
    if (!gpu->memory_mib) return NOT_SUPPORTED; /* it uses the host's */
    u64 used = gpu->used_mib;
    for (int p = 0; p < gpu->processes; p++) used += gpu->process[p].mib;
    *out = (Memory){gpu->memory_mib << 20, (gpu->memory_mib - used) << 20, used << 20};
    return OK;
}

typedef struct { unsigned version; u64 total, reserved, free, used; } Memory_v2;
int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, Memory_v2 *out) {
    Memory memory;
    int code = nvmlDeviceGetMemoryInfo(gpu, &memory);
    if (code == OK) *out = (Memory_v2){out->version, memory.total, 0, memory.free, memory.used};
    return code;
}

typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } ProcessInfo;
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *size, ProcessInfo *out) {
    ASKED(gpu);
    unsigned room = *size;
    *size = (unsigned)gpu->processes;
    if (room < *size) return INSUFFICIENT_SIZE;
    for (int p = 0; p < gpu->processes; p++)
        out[p] = (ProcessInfo){gpu->process[p].pid, gpu->process[p].mib << 20, 0xFFFFFFFFu, 0xFFFFFFFFu};
    return OK;
}

NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, gpu->capability[0] < 8 ? 0 : 7)
NUMBER(nvmlDeviceGetPersistenceMode, int, gpu->persistence)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, gpu->throttle)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, gpu->power_w * 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->power_limit_w * 1000)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, 0)

int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, u64 *out) {
    gpu->asked++;
    ASKED(gpu);
    *out = gpu->energy_mj += gpu->power_w * 1000ull;
    return OK;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, int kind, unsigned *out) {
    ASKED(gpu);
    *out = kind == 2 ? gpu->memory_mhz : gpu->sm_mhz;
    return OK;
}

int nvmlDeviceGetMaxClockInfo(Gpu *gpu, int kind, unsigned *out) {
    ASKED(gpu);
    *out = kind == 2 ? gpu->memory_mhz : gpu->max_sm_mhz;
    return OK;
}

int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *out) {
    (void)sensor;
    ASKED(gpu);
    *out = gpu->temperature_c;
    return OK;
}

typedef struct { int version, sensor, temperature; } Temperature;
int nvmlDeviceGetTemperatureV(Gpu *gpu, Temperature *out) {
    ASKED(gpu);
    out->temperature = (int)gpu->temperature_c;
    return OK;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *out) {
    ASKED(gpu);
    *out = (Utilization){gpu->utilization, gpu->utilization / 2};
    return OK;
}

int nvmlDeviceGetTotalEccErrors(Gpu *gpu, int kind, int counter, u64 *out) {
    ASKED(gpu);
    if (!gpu->ecc) return NOT_SUPPORTED;
    *out = kind == 1 && counter == 0 ? gpu->ecc_uncorrected : 0;
    return OK;
}

int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *fixed, unsigned *not, unsigned *pending, unsigned *failed) {
    ASKED(gpu);
    if (!gpu->ecc) return NOT_SUPPORTED;
    *fixed = gpu->remapped[0], *not = gpu->remapped[1], *pending = gpu->remapped[2], *failed = gpu->remapped[3];
    return OK;
}

int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *out) {
    ASKED(gpu);
    if ((int)link >= gpu->nvlinks) return gpu->nvlinks ? INVALID : NOT_SUPPORTED;
    *out = (int)link < gpu->nvlinks - gpu->nvlinks_down;
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    ASKED(gpu);
    *major = (int)gpu->capability[0], *minor = (int)gpu->capability[1];
    return OK;
}
