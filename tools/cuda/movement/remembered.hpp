// SPDX-License-Identifier: LGPL-2.1-or-later
// Kernels that a fault was seen with, from one run of a program to the next.
#pragma once

#include <climits>
#include <cstddef>
#include <string_view>
#include <vector>

namespace emuv::cuda {

/// Names in a file of the user's, one a line. The file is read once. It counts
/// only if nobody else can have written it. By any thread.
class remembered
{
public:
    /// A path, or none.
    struct path_buffer
    {
        char text[PATH_MAX] = "";
    };

    /// @param path  the file, which need not exist
    explicit remembered(const path_buffer &path);
    remembered(const remembered &) = delete;
    remembered &operator=(const remembered &) = delete;

    /// The file of this user: $XDG_CACHE_HOME/emuv/untrusted, or below
    /// ~/.cache. None if neither is an absolute path.
    static path_buffer usual_file();

    /// True if the file named the kernel when it was read.
    bool has(std::string_view name) const;

    /// Adds kernels to the file, for the next run. Makes the file, and the two
    /// folders above it.
    /// @return false if the file cannot be written or is not the user's, or if
    ///   a name is not kept
    bool add(const std::vector<const char *> &names) const;

    const char *path() const { return path_.text; }

    /// The longest name that is kept, and the largest file that is read.
    static constexpr std::size_t max_name_bytes = std::size_t{64} << 10;
    static constexpr std::size_t max_file_bytes = std::size_t{1} << 20;

private:
    // A file, and the names in it, in order.
    struct contents
    {
        std::vector<char> text;
        std::vector<std::string_view> names;

        bool has(std::string_view name) const;
    };
    static contents read_file(const char *path);

    const path_buffer path_;
    const contents there_;
};

} // namespace emuv::cuda
