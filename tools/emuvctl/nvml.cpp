// SPDX-License-Identifier: GPL-2.0-or-later
// Asks NVML for the cards it shows, with nothing of NVIDIA's needed to build.
#include "environment.hpp"

#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

namespace emuvctl {

namespace {

struct close_library
{
    void operator()(void *library) const { ::dlclose(library); }
};

// The parts of NVML that are used, as its documentation gives them. A result
// is an enum, and 0 is success; a device is a pointer.
struct memory_info
{
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

struct pci_info
{
    std::array<char, 16> bus_id_legacy;
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned pci_device_id; // the vendor in its lower half
    unsigned pci_subsystem_id;
    std::array<char, 32> bus_id;
};

struct functions
{
    explicit functions(void *library)
    {
        const auto find = [library](auto &function, const char *symbol) {
            using type = std::remove_reference_t<decltype(function)>;
            function = reinterpret_cast<type>(::dlsym(library, symbol));
        };
        find(init, "nvmlInit_v2");
        find(shutdown, "nvmlShutdown");
        find(error, "nvmlErrorString");
        find(driver, "nvmlSystemGetDriverVersion");
        find(count, "nvmlDeviceGetCount_v2");
        find(device, "nvmlDeviceGetHandleByIndex_v2");
        find(name, "nvmlDeviceGetName");
        find(memory, "nvmlDeviceGetMemoryInfo");
        find(pci, "nvmlDeviceGetPciInfo_v3");
        find(minor, "nvmlDeviceGetMinorNumber");
    }

    [[nodiscard]] bool complete() const
    {
        return init != nullptr && shutdown != nullptr && error != nullptr &&
               driver != nullptr && count != nullptr && device != nullptr &&
               name != nullptr && memory != nullptr && pci != nullptr &&
               minor != nullptr;
    }

    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    const char *(*error)(int result) = nullptr;
    int (*driver)(char *text, unsigned size) = nullptr;
    int (*count)(unsigned *count) = nullptr;
    int (*device)(unsigned index, void **device) = nullptr;
    int (*name)(void *device, char *text, unsigned size) = nullptr;
    int (*memory)(void *device, memory_info *info) = nullptr;
    int (*pci)(void *device, pci_info *info) = nullptr;
    int (*minor)(void *device, unsigned *number) = nullptr;
};

} // namespace

nvml_state probe_nvml(const char *library)
{
    nvml_state state;
    const std::unique_ptr<void, close_library> handle(
        ::dlopen(library, RTLD_NOW | RTLD_LOCAL));
    if (!handle) {
        const char *const why = ::dlerror();
        state.problem = why != nullptr ? why : "dlopen failed";
        return state;
    }
    state.present = true;
    const functions nvml(handle.get());
    if (!nvml.complete()) {
        state.problem = "it lacks functions of NVML";
        return state;
    }
    if (const int result = nvml.init(); result != 0) {
        const char *const text = nvml.error(result);
        state.problem =
            fmt::format("nvmlInit says {} ({})",
                        text != nullptr ? text : "an error", result);
        return state;
    }
    std::array<char, 96> text{};
    if (nvml.driver(text.data(), text.size()) == 0)
        state.driver = text.data();
    unsigned count = 0;
    if (nvml.count(&count) != 0)
        count = 0;
    for (unsigned i = 0; i < count; i++) {
        void *device = nullptr;
        nvml_card one;
        pci_info pci{};
        // One that has fallen off the bus is not told of.
        if (nvml.device(i, &device) != 0 || nvml.pci(device, &pci) != 0)
            continue;
        one.address = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus,
                                  pci.device);
        one.pci_device_id =
            static_cast<std::uint16_t>(pci.pci_device_id >> 16U);
        if (nvml.name(device, text.data(), text.size()) == 0)
            one.name = text.data();
        memory_info memory{};
        if (nvml.memory(device, &memory) == 0)
            one.memory_bytes = memory.total;
        unsigned minor = 0;
        if (nvml.minor(device, &minor) == 0)
            one.minor = static_cast<int>(minor);
        state.cards.push_back(std::move(one));
    }
    nvml.shutdown();
    return state;
}

} // namespace emuvctl
