// SPDX-License-Identifier: GPL-2.0-or-later
// Finds emuV's CUDA library, and says how a program is put under it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace emuvctl {

/// Its folder: as installed beside this program, or in the tree that both were
/// built in; nullopt if it is in neither.
std::optional<std::filesystem::path> find_cuda_library();

/// The message if there is none.
std::string no_cuda_library();

/// The folder that --library names, or else find_cuda_library()'s.
/// @param named  empty if the option is not given
/// @throws failure there is no library
std::filesystem::path cuda_library_folder(const std::string &named);

/// The value of LD_PRELOAD that puts a program under the libraries of a folder.
/// @param seen  the folder as the program finds it
/// @throws failure LD_PRELOAD cannot name it
std::string preload_list(const std::filesystem::path &folder,
                         const std::filesystem::path &seen);

/// The same for a program on this machine, before the caller's own LD_PRELOAD.
/// @throws failure as preload_list()
std::string own_preload(const std::filesystem::path &folder);

/// Makes the file in which a program and its children keep their accounts, and
/// returns its path. The caller removes it. @throws std::system_error
std::string make_ledger();

} // namespace emuvctl
