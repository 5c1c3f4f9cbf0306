// SPDX-License-Identifier: LGPL-2.1-or-later
// Binds functions that moved between glibc's libraries to their oldest version,
// so that the library loads with glibc 2.17. Included by callers of such a
// function; the build links libdl.so.2 and libpthread.so.0, their old homes.
#pragma once

#if defined(__x86_64__)
#define EMUV_OLDEST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define EMUV_OLDEST_GLIBC "GLIBC_2.17"
#else
#error "no forwarders for this machine"
#endif

__asm__(".symver dlsym, dlsym@" EMUV_OLDEST_GLIBC);
__asm__(".symver dladdr, dladdr@" EMUV_OLDEST_GLIBC);
