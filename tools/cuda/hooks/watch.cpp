// SPDX-License-Identifier: LGPL-2.1-or-later
// The functions that are watched and nothing else.
#include "hooks/watch.hpp"

// By place in the table of symbols: where the exported functions go.
extern "C" {
[[gnu::visibility("hidden")]] extern void *const emuv_watched[];
void *const emuv_watched[] = {
#define EMUV_WATCHED(name, per_thread)                                         \
    reinterpret_cast<void *>(&EMUV_FOLLOWED(name)),
#include "symbols.inc"
};
}
