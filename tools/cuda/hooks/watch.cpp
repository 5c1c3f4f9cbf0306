// SPDX-License-Identifier: LGPL-2.1-or-later
// The functions that are watched and nothing else.
#include "hooks/watch.hpp"

// The functions that the exported ones go to, by place in the table of symbols.
extern "C" {
[[gnu::visibility("hidden")]] extern void *const emuv_watched[];
void *const emuv_watched[] = {
#define EMUV_WATCHED(name, per_thread)                                         \
    reinterpret_cast<void *>(&EMUV_FOLLOWED(name)),
#include "symbols.inc"
};
}
