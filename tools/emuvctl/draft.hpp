// SPDX-License-Identifier: GPL-2.0-or-later
// Small files that are written beside their place, and put there whole; and the
// folders that they are in.
#pragma once

#include <filesystem>
#include <string_view>

namespace emuvctl {

/// How long a file is to last.
enum class lasting
{
    until_reboot,
    for_good, ///< through a loss of power, too
};

/// Writes a file that everybody may read, whatever the umask, and puts it in
/// the place of one of before. Readers see the old one or the new one, whole.
/// @param draft  beside it: the file's name until then; none is left
/// @throws std::system_error with a path
void put_file(const std::filesystem::path &file,
              const std::filesystem::path &draft, std::string_view text,
              lasting how);

/// Makes a folder that everybody may look into, whatever the umask, unless it
/// is there. The one above it is there.
/// @throws std::system_error with its path
void make_folder(const std::filesystem::path &path);

/// Makes what was written to a folder last through a loss of power.
/// @throws std::system_error with its path
void sync_folder(const std::filesystem::path &folder);

} // namespace emuvctl
