// SPDX-License-Identifier: LGPL-2.1-or-later
// Asks the kernel itself what a file is. In glibc stat() and fstat() are new,
// and so is statx(): the library would not load where they are missing.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emuv::cuda {

// On 64-bit machines the C library's structure is the kernel's.
static_assert(sizeof(long) == 8);

/// fstatat(2). @param flags  AT_SYMLINK_NOFOLLOW, or 0
/// @return false if it fails; errno says why
inline bool status_of(int folder, const char *path, struct stat &is, int flags)
{
    return ::syscall(SYS_newfstatat, folder, path, &is, flags) == 0;
}

/// fstat(2), likewise.
inline bool status_of(int file, struct stat &is)
{
    return ::syscall(SYS_fstat, file, &is) == 0;
}

} // namespace emuv::cuda
