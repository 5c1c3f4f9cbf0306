// SPDX-License-Identifier: GPL-2.0-or-later
// A file that its readers see whole, old or new.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include <sys/types.h>

namespace emuvctl::watch {

/// Puts a file with @p text in the place of @p path: writes one beside it and
/// renames that. A link is followed. On failure the old file is untouched.
/// @param mode  its permissions; by default a file keeps its own, and a new one
///   has 0644 less the umask
/// @throws std::system_error EINVAL: @p path exists and is no regular file
void replace_file(const std::filesystem::path &path, std::string_view text,
                  std::optional<mode_t> mode = {});

} // namespace emuvctl::watch
