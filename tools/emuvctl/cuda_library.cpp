// SPDX-License-Identifier: GPL-2.0-or-later
// Finds emuV's CUDA library, and says how a program is put under it.
#include "cuda_library.hpp"

#include "failure.hpp"

#include <emuv/unique_fd.hpp>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>

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

std::filesystem::path cuda_library_folder(const std::string &named)
{
    // The dynamic linker only warns if it cannot preload a library, and the
    // program would run without any limit.
    if (!named.empty()) {
        const auto folder = std::filesystem::absolute(named);
        if (!std::filesystem::is_regular_file(folder / "libcuda.so.1"))
            throw failure(fmt::format("--library: {}: no libcuda.so.1 in it",
                                      folder.string()));
        return folder;
    }
    if (const auto found = find_cuda_library())
        return *found;
    throw failure(no_cuda_library() +
                  "; it is built where CMake finds CUDA's toolkit, 13.0 or "
                  "later, and --library names its folder elsewhere");
}

std::string preload_list(const std::filesystem::path &folder,
                         const std::filesystem::path &seen)
{
    std::string list = (seen / "libcuda.so.1").string();
    if (std::filesystem::exists(folder / "libnvidia-ml.so.1"))
        list += ":" + (seen / "libnvidia-ml.so.1").string();
    if (list.find(' ') != std::string::npos)
        throw failure(fmt::format("{}: LD_PRELOAD takes no path with a blank "
                                  "in it",
                                  seen.string()));
    return list;
}

std::string own_preload(const std::filesystem::path &folder)
{
    const std::string list = preload_list(folder, folder);
    const char *const others = std::getenv("LD_PRELOAD");
    return others == nullptr || *others == '\0' ? list : list + ":" + others;
}

std::string make_ledger()
{
    std::string path = "/dev/shm/emuv-ledger-XXXXXX";
    const emuv::unique_fd fd(::mkostemp(path.data(), O_CLOEXEC));
    if (!fd)
        throw std::system_error(errno, std::generic_category(), path);
    return path;
}

} // namespace emuvctl
