// SPDX-License-Identifier: LGPL-2.1-or-later
// Gives a file its length, without the signal that ends a program whose files
// may not grow so far.
#pragma once

#include <cerrno>
#include <cstddef>

#include <sys/resource.h>
#include <unistd.h>

namespace emuv::cuda {

/// ftruncate(2); beyond RLIMIT_FSIZE (`ulimit -f`), which holds for a memfd,
/// too, it fails with EFBIG and sends no SIGXFSZ.
/// @return false if it fails; errno says why
inline bool set_length(int file, std::size_t bytes)
{
    rlimit most = {};
    if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur) {
        errno = EFBIG;
        return false;
    }
    return ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
}

} // namespace emuv::cuda
