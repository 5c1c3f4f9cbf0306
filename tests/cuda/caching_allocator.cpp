// SPDX-License-Identifier: GPL-2.0-or-later
// A library of the name that PyTorch's caching allocator lives in: for
// processes_test.py, the hooks' tests, and the harness.
#include <cstddef>
#include <cstdint>

#include <dlfcn.h>

namespace c10 {

struct Device
{
    std::int8_t type;
    std::int8_t index;
};
extern std::int64_t heard;
void reportMemoryUsageToProfiler(void *, std::int64_t, std::size_t, std::size_t,
                                 Device);
void reportMemoryUsageToProfiler(void *, std::int64_t, std::int64_t,
                                 std::int64_t, Device);

} // namespace c10

/// cuMemAlloc from here.
extern "C" __attribute__((visibility("default"))) int
ask(unsigned long long *pointer, std::size_t bytes)
{
    using call = int (*)(unsigned long long *, std::size_t);
    const auto allocate =
        reinterpret_cast<call>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    // No tail call: what is looked for is this frame.
    volatile int result = allocate(pointer, bytes);
    return result;
}

/// Reports a part, as PyTorch does from 2.0 on, or as earlier ones.
/// @return the bytes that were reported so far, by those who listen
extern "C" __attribute__((visibility("default"))) std::int64_t
report(unsigned long long at, std::int64_t bytes, bool earlier)
{
    void *const pointer = reinterpret_cast<void *>(at);
    if (earlier)
        c10::reportMemoryUsageToProfiler(pointer, bytes, std::int64_t{5},
                                         std::int64_t{7}, {1, 0});
    else
        c10::reportMemoryUsageToProfiler(pointer, bytes, std::size_t{5},
                                         std::size_t{7}, {1, 0});
    return c10::heard;
}
