// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver and its instances as /sys shows them; readable by everybody.
#pragma once

#include <emuv/types.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace emuv {

/// A reader of sysfs. Reading changes nothing and needs no rights.
class sysfs
{
public:
    /// @param root  the mount point of sysfs, or a recorded copy of it. By
    ///   default: the environment variable EMUV_SYSFS_ROOT, else /sys
    explicit sysfs(std::filesystem::path root = default_root());

    [[nodiscard]] const std::filesystem::path &root() const { return root_; }

    /// True if the driver is in the kernel.
    [[nodiscard]] bool loaded() const;
    /// The driver's version, if it is loaded and says so.
    [[nodiscard]] std::optional<std::string> module_version() const;
    /// The value of a module parameter, if there is one of that name.
    [[nodiscard]] std::optional<std::string>
    parameter(std::string_view name) const;

    /// The ids of all instances, in rising order.
    [[nodiscard]] std::vector<int> ids() const;
    /// All instances by id, without any that were removed during the call.
    /// @throws emuv::error an attribute cannot be read or makes no sense
    [[nodiscard]] std::vector<instance_info> instances() const;
    /// The UUIDs of all instances by id, without any that were removed during
    /// the call: a fraction of the files that instances() reads.
    /// @throws emuv::error one cannot be read
    [[nodiscard]] std::map<int, std::string> uuids() const;
    /// One instance, if it exists.
    /// @throws emuv::error an attribute cannot be read or makes no sense
    [[nodiscard]] std::optional<instance_info> instance(int id) const;
    /// An instance's vram_info, a summary for people, if the instance exists.
    [[nodiscard]] std::optional<std::string> vram_info(int id) const;

    static std::filesystem::path default_root();

private:
    [[nodiscard]] std::filesystem::path directory(int id) const;

    std::filesystem::path root_;
};

/// The content of a small file without its final newline, if it can be read.
std::optional<std::string> read_line_file(const std::filesystem::path &path);

/// The id in "emuvN", "N" or a path that ends in either.
std::optional<int> parse_instance(std::string_view text);

} // namespace emuv
