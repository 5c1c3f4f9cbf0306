// SPDX-License-Identifier: GPL-2.0-or-later
// Finds emuV's CUDA library.
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

} // namespace emuvctl
