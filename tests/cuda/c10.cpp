// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for the library that PyTorch's caching allocator reports to.
#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device
{
    std::int8_t type;
    std::int8_t index;
};

__attribute__((visibility("default"))) std::int64_t heard;

__attribute__((visibility("default"))) void
reportMemoryUsageToProfiler(void *, std::int64_t bytes, std::size_t allocated,
                            std::size_t reserved, Device device)
{
    if (device.type == 1 && device.index == 0 && allocated == 5 &&
        reserved == 7)
        heard += bytes;
}

__attribute__((visibility("default"))) void
reportMemoryUsageToProfiler(void *, std::int64_t bytes, std::int64_t allocated,
                            std::int64_t reserved, Device device)
{
    if (device.type == 1 && device.index == 0 && allocated == 5 &&
        reserved == 7)
        heard += bytes;
}

} // namespace c10
