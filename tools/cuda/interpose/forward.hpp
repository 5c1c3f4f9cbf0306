// SPDX-License-Identifier: LGPL-2.1-or-later
// The real library behind this one, symbol by symbol.
#pragma once

#include <cstddef>

/// The target of each symbol's calls: first a stub that looks the symbol up,
/// then the real function. Generated; each address changes once, as a whole.
extern "C" void *emuv_table[];

namespace emuv::cuda {

/// A symbol of the table.
enum class symbol : unsigned
{
#define EMUV_SYMBOL(name) name,
#include "symbols.inc"
    count
};

/// The real library, opened at the first call.
/// @return a handle for dlsym(), or null if there is no such library
void *real_library();

/// The address that the real library has for a name, or null.
void *real_address(const char *name);

/// For the child of a fork(): another thread may have held the lock.
void forward_after_fork();

inline void *target(symbol which)
{
    return __atomic_load_n(&emuv_table[static_cast<unsigned>(which)],
                           __ATOMIC_RELAXED);
}

} // namespace emuv::cuda

/// The real function of a name, to be called.
#define EMUV_REAL(name)                                                        \
    (reinterpret_cast<decltype(&::name)>(                                      \
        ::emuv::cuda::target(::emuv::cuda::symbol::name)))
