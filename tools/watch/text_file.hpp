// SPDX-License-Identifier: GPL-2.0-or-later
// A file that its readers see whole, old or new.
#pragma once

#include <filesystem>
#include <string_view>

namespace emuvctl::watch {

/// Puts a file with @p text in the place of @p path: writes one beside it and
/// renames that. A link is followed, and a file keeps its mode. New files have
/// 0644 less the umask. On failure the old file is untouched.
/// @throws std::system_error EINVAL: @p path exists and is no regular file
void replace_file(const std::filesystem::path &path, std::string_view text);

} // namespace emuvctl::watch
