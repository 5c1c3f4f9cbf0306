// SPDX-License-Identifier: LGPL-2.1-or-later
// Finding the libraries that this project's stand in front of.
#pragma once

namespace emuv::cuda {

using open_library = void *(*)(const char *, int);

/// The dlopen() behind this library's own, if it has one.
open_library next_dlopen();

/// Opens a library of the NVIDIA driver, and none of this project's. It looks
/// at the setting's path alone if set, else in LD_LIBRARY_PATH, in the linker's
/// cache, and in the folders where drivers are installed.
/// @param soname  "libcuda.so.1"
/// @param setting  the environment variable that may name its full path
/// @return a handle for dlsym(), which nobody closes; null if there is none
void *find_library(const char *soname, const char *setting);

} // namespace emuv::cuda
