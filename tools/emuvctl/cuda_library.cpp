// SPDX-License-Identifier: GPL-2.0-or-later
// Finds emuV's CUDA library.
#include "cuda_library.hpp"

namespace emuvctl {

std::optional<std::filesystem::path> find_cuda_library()
{
    const auto here =
        std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const char *const place : {EMUV_CUDA_DIR, "../cuda/lib"})
        if (std::filesystem::exists(here / place / "libcuda.so.1"))
            return (here / place).lexically_normal();
    return std::nullopt;
}

std::string no_cuda_library()
{
    return "the CUDA library is not installed: no " EMUV_CUDA_DIR
           "/libcuda.so.1 beside this program";
}

} // namespace emuvctl
