// SPDX-License-Identifier: GPL-2.0-or-later
// A library of the name of one that works on memory by tables of the driver's
// functions: for processes_test.py, and for the hooks' tests.
#include <dlfcn.h>

/// cuGetExportTable from here.
extern "C" __attribute__((visibility("default"))) int take(const void **table,
                                                           const void *name)
{
    using call = int (*)(const void **, const void *);
    const auto ask =
        reinterpret_cast<call>(dlsym(RTLD_DEFAULT, "cuGetExportTable"));
    // No tail call: what is looked for is this place.
    volatile int result = ask(table, name);
    return result;
}
