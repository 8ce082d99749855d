/* A libnvidia-ml.so.1 whose GPUs are a file.
 *
 * The test maps the same file and writes into it, in this process or from another one, so that a GPU can change, fail,
 * hang or report an event while a program that knows only NVIDIA's library is running. state.py mirrors the structs.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GPUS = 16, MAX_FIELDS = 16, MAX_RULES = 32, MAX_EVENTS = 64, MAX_CALLS = 64 };
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10,
       LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25 };
enum { ANY_GPU = -1, NO_PARENT = -1, WHOLE_GPU = 0xffffffff };

typedef struct { uint32_t id, type; uint64_t value; } Field;
typedef struct {
    char uuid[96], name[96], bus_id[32];
    int32_t parent;                     /* index of the GPU that this is a MIG slice of */
    uint32_t instance;
    uint32_t power_mw, celsius, gpu_percent, memory_percent, sm_mhz, memory_mhz;
    uint64_t memory_used, memory_total, memory_reserved, throttle_bits, event_types;
    uint32_t field_count;
    Field fields[MAX_FIELDS];
} Gpu;
typedef struct { char function[64]; int32_t gpu, code, hang; } Rule;  /* hang: until the rule is taken away */
typedef struct { int32_t gpu; uint32_t instance; uint64_t type, data; } Event;
typedef struct { char function[64]; int32_t gpu; uint64_t count; } Calls;
typedef struct {
    uint32_t initialized, gpu_count, rule_count, event_head, event_tail, call_count, waits, sets, hangs;
    Gpu gpus[MAX_GPUS];
    Rule rules[MAX_RULES];
    Event events[MAX_EVENTS];
    Calls calls[MAX_CALLS];
} State;

typedef int Return;
typedef Gpu *Device;
typedef struct { Device device; unsigned long long type, data; unsigned int instance, compute; } EventData;
typedef struct { uint32_t id, scope; int64_t timestamp, latency; uint32_t type; Return code; union { double d; uint64_t u; } value; } FieldValue;
typedef struct { uint32_t watched; } EventSet;
typedef struct { uint32_t version; uint64_t total, reserved, free, used; } Memory2;

static State *state;

static State *open_state(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    if (state || !path) return state;
    int file = open(path, O_RDWR);
    if (file < 0) return NULL;
    void *mapped = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return state = mapped == MAP_FAILED ? NULL : mapped;
}

static void nap(unsigned int milliseconds) {
    struct timespec time = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

static int index_of(Device device) { return device ? (int)(device - state->gpus) : ANY_GPU; }

static void count(const char *function, int gpu) {
    for (uint32_t i = 0; i < MAX_CALLS; i++) {
        Calls *calls = &state->calls[i];
        if (i == state->call_count) {
            snprintf(calls->function, sizeof calls->function, "%s", function);
            calls->gpu = gpu;
            state->call_count++;
        }
        if (calls->gpu == gpu && !strcmp(calls->function, function)) { calls->count++; return; }
    }
}

static Rule *rule_for(const char *function, int gpu) {
    for (uint32_t i = 0; i < state->rule_count; i++) {
        Rule *rule = &state->rules[i];
        int named = !strcmp(rule->function, "*") ? strcmp(function, "nvmlInitWithFlags") : !strcmp(rule->function, function);
        if (named && (rule->gpu == ANY_GPU || rule->gpu == gpu)) return rule;
    }
    return NULL;
}

/* The rule for a call, after it has hung for as long as the rule says so. */
static Rule *rule_after_hang(const char *function, int gpu) {
    Rule *rule = rule_for(function, gpu);
    if (rule && rule->hang) state->hangs++;
    while (rule && rule->hang) { nap(5); rule = rule_for(function, gpu); }
    return rule;
}

/* What every call answers before it does anything: SUCCESS, or what the test has scripted. */
static Return scripted(const char *function, Device device) {
    int gpu = index_of(device);
    count(function, gpu);
    Rule *rule = rule_after_hang(function, gpu);
    if (rule) return rule->code;
    return state->initialized ? SUCCESS : UNINITIALIZED;
}

#define BEGIN(device) do { Return code = scripted(__func__, device); if (code) return code; } while (0)

Return nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!open_state()) return LIBRARY_NOT_FOUND;
    Return code = scripted(__func__, NULL);
    if (code && code != UNINITIALIZED) return code;
    state->initialized++;
    return SUCCESS;
}
Return nvmlShutdown(void) { BEGIN(NULL); state->initialized--; return SUCCESS; }  /* other processes stay */
const char *nvmlErrorString(Return code) { (void)code; return "an error of the fake driver"; }

Return nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    BEGIN(NULL);
    snprintf(version, length, "570.86.15");
    return SUCCESS;
}
Return nvmlDeviceGetCount_v2(unsigned int *found) {
    BEGIN(NULL);
    *found = 0;
    for (uint32_t i = 0; i < state->gpu_count; i++) *found += state->gpus[i].parent == NO_PARENT;
    return SUCCESS;
}
Return nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device *device) {
    BEGIN(NULL);
    for (uint32_t i = 0; i < state->gpu_count; i++)
        if (state->gpus[i].parent == NO_PARENT && !index--) { *device = &state->gpus[i]; return SUCCESS; }
    return INVALID_ARGUMENT;
}
Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    BEGIN(NULL);
    for (uint32_t i = 0; i < state->gpu_count; i++)
        if (!strcmp(state->gpus[i].uuid, uuid)) { *device = &state->gpus[i]; return SUCCESS; }
    return NOT_FOUND;
}
Return nvmlDeviceGetUUID(Device device, char *uuid, unsigned int length) {
    BEGIN(device);
    snprintf(uuid, length, "%s", device->uuid);
    return SUCCESS;
}
Return nvmlDeviceGetName(Device device, char *name, unsigned int length) {
    BEGIN(device);
    snprintf(name, length, "%s", device->name);
    return SUCCESS;
}
Return nvmlDeviceGetPciInfo_v3(Device device, char *info) {  /* nvmlPciInfo_t ends with busId[32] */
    BEGIN(device);
    memset(info, 0, 68);
    snprintf(info + 36, 32, "%s", device->bus_id);
    return SUCCESS;
}

Return nvmlDeviceGetMigMode(Device device, unsigned int *current, unsigned int *pending) {
    BEGIN(device);
    if (device->parent != NO_PARENT) return INVALID_ARGUMENT;
    *current = *pending = 0;
    for (uint32_t i = 0; i < state->gpu_count; i++) *current |= state->gpus[i].parent == index_of(device);
    return SUCCESS;
}
Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned int *found) { BEGIN(device); *found = 7; return SUCCESS; }
Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned int index, Device *slice) {
    BEGIN(device);
    for (uint32_t i = 0; i < state->gpu_count; i++)
        if (state->gpus[i].parent == index_of(device) && !index--) { *slice = &state->gpus[i]; return SUCCESS; }
    return NOT_FOUND;
}
Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device slice, Device *device) {
    BEGIN(slice);
    if (slice->parent == NO_PARENT) return INVALID_ARGUMENT;
    *device = &state->gpus[slice->parent];
    return SUCCESS;
}
Return nvmlDeviceGetGpuInstanceId(Device slice, unsigned int *instance) {
    BEGIN(slice);
    *instance = slice->instance;
    return SUCCESS;
}

#define WHOLE_GPU_ONLY(device) do { BEGIN(device); if (device->parent != NO_PARENT) return NOT_SUPPORTED; } while (0)

Return nvmlDeviceGetPowerUsage(Device device, unsigned int *milliwatts) {
    WHOLE_GPU_ONLY(device);
    *milliwatts = device->power_mw;
    return SUCCESS;
}
Return nvmlDeviceGetTemperature(Device device, unsigned int sensor, unsigned int *celsius) {
    WHOLE_GPU_ONLY(device);
    (void)sensor;
    *celsius = device->celsius;
    return SUCCESS;
}
Return nvmlDeviceGetUtilizationRates(Device device, unsigned int *rates) {
    WHOLE_GPU_ONLY(device);
    rates[0] = device->gpu_percent;
    rates[1] = device->memory_percent;
    return SUCCESS;
}
Return nvmlDeviceGetClockInfo(Device device, unsigned int clock, unsigned int *mhz) {
    WHOLE_GPU_ONLY(device);
    *mhz = clock == 1 ? device->sm_mhz : device->memory_mhz;
    return SUCCESS;
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *bits) {
    WHOLE_GPU_ONLY(device);
    *bits = device->throttle_bits;
    return SUCCESS;
}
Return nvmlDeviceGetMemoryInfo(Device device, unsigned long long *memory) {  /* total, free, used */
    BEGIN(device);
    memory[0] = device->memory_total;
    memory[2] = device->memory_used + device->memory_reserved;
    memory[1] = device->memory_total - memory[2];
    return SUCCESS;
}
Return nvmlDeviceGetMemoryInfo_v2(Device device, Memory2 *memory) {
    BEGIN(device);
    if (memory->version != (sizeof *memory | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    memory->total = device->memory_total;
    memory->reserved = device->memory_reserved;
    memory->used = device->memory_used;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}
Return nvmlDeviceGetFieldValues(Device device, int asked, FieldValue *values) {
    WHOLE_GPU_ONLY(device);
    for (int i = 0; i < asked; i++) {
        values[i].code = NOT_SUPPORTED;
        for (uint32_t j = 0; j < device->field_count; j++) {
            Field *field = &device->fields[j];
            if (field->id != values[i].id) continue;
            values[i].code = SUCCESS;
            values[i].type = field->type;
            values[i].value.u = field->value;
        }
    }
    return SUCCESS;
}

/* No process runs on the device: Ray asks for them and shows no GPU that cannot say. */
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned int *found, void *processes) {
    BEGIN(device);
    (void)processes;
    *found = 0;
    return SUCCESS;
}
Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned int *found, void *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, found, processes);
}

Return nvmlEventSetCreate(EventSet **set) {
    BEGIN(NULL);
    *set = calloc(1, sizeof(EventSet));
    state->sets++;
    return SUCCESS;
}
Return nvmlEventSetFree(EventSet *set) { BEGIN(NULL); free(set); state->sets--; return SUCCESS; }
Return nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types) {
    BEGIN(device);
    *types = device->event_types;
    return SUCCESS;
}
Return nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet *set) {
    BEGIN(device);
    if (types & ~device->event_types) return NOT_SUPPORTED;
    set->watched |= 1u << index_of(device);
    return SUCCESS;
}
Return nvmlEventSetWait_v2(EventSet *set, EventData *event, unsigned int milliseconds) {
    for (unsigned int waited = 0;; waited += 2) {
        state->waits += waited == 0;
        Rule *rule = rule_after_hang(__func__, ANY_GPU);
        if (rule) return rule->code;
        while (state->event_tail != state->event_head) {
            Event *next = &state->events[state->event_tail++ % MAX_EVENTS];
            if (!(set->watched & (1u << next->gpu))) continue;
            *event = (EventData){&state->gpus[next->gpu], next->type, next->data, next->instance, WHOLE_GPU};
            return SUCCESS;
        }
        if (waited >= milliseconds) return TIMEOUT;
        nap(2);
    }
}
