// SPDX-License-Identifier: LGPL-2.1-or-later
// NVML as the instance would have it: memory is the instance's, all else the
// card's own.
#include "account/ledger.hpp"
#include "base/settings.hpp"
#include "interpose/forward.hpp"

#include <cstdlib>
#include <cstring>

// As NVML declares them. Its header is not needed for two functions.
extern "C" {
struct nvmlDevice_st;
using nvmlDevice_t = nvmlDevice_st *;

struct nvmlMemory_t
{
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
struct nvmlMemory_v2_t
{
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};

[[gnu::visibility("default")]] int
nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
[[gnu::visibility("default")]] int
nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);
}

using namespace emuv::cuda;

namespace {

constexpr int success = 0; // NVML_SUCCESS

// Reads the use of all that share the limits. False if that cannot be known
// from outside the process that uses it: the card's answer then stands.
// @param card  bytes of the card, which limit where nothing else does
bool shared_usage(const settings &asked, unsigned device, std::uint64_t card,
                  usage &now)
{
    if (!asked.limited() || asked.wrong_name != nullptr ||
        device >= max_devices)
        return false;
    char why[256];
    if (!asked.instances.empty()) {
        const auto last = asked.instances.size() - 1;
        instance_ledger instance;
        if (!instance.open(asked.instances[device < last ? device : last], why,
                           sizeof why))
            return false;
        now = instance.read();
        return true;
    }
    ledger_file rows;
    if (asked.ledger_path == nullptr || rows.open(asked.ledger_path) != 0)
        return false;
    file_ledger shared(rows, device,
                       asked.vram_limit(static_cast<int>(device), card),
                       asked.virtual_bytes.value_or(0));
    now = shared.read();
    return true;
}

template <typename Memory>
void show_instance(nvmlDevice_t device, Memory &memory)
{
    unsigned index = 0;
    if (EMUV_REAL(nvmlDeviceGetIndex)(device, &index) != success)
        return;
    const settings asked = read_settings(std::getenv);
    usage now;
    if (!shared_usage(asked, index, memory.total, now))
        return;
    unsigned long long used = now.physical_used_bytes;
    unsigned long long total = now.physical_bytes;
    switch (asked.report) {
    case report_kind::total:
        used += now.virtual_used_bytes;
        total += now.virtual_bytes;
        break;
    case report_kind::physical:
        break;
    case report_kind::free:
        used += now.virtual_used_bytes;
        total = memory.total;
        break;
    }
    memory.total = total;
    memory.used = used < total ? used : total;
    memory.free = total - memory.used;
}

} // namespace

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    const int result = EMUV_REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    if (result == success && memory != nullptr)
        show_instance(device, *memory);
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    const int result = EMUV_REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    if (result == success && memory != nullptr) {
        show_instance(device, *memory);
        if (memory->reserved > memory->total)
            memory->reserved = 0;
    }
    return result;
}
