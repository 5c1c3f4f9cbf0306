// SPDX-License-Identifier: GPL-2.0-or-later
// A library of the name that PyTorch's caching allocator lives in: for
// processes_test.py, and for the hooks' tests.
#include <cstddef>

#include <dlfcn.h>

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
