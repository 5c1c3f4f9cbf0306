// SPDX-License-Identifier: GPL-2.0-or-later
// Files by which container engines know instances as devices, by the Container
// Device Interface: https://github.com/cncf-tags/container-device-interface
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuv {
struct instance_info;
}

namespace emuvctl {

struct environment;
class names_lock;

/// The vendor and the class of the devices.
inline constexpr std::string_view cdi_kind = "emuv.dev/vgpu";

/// A device of a file: a name, and the instance behind it.
struct cdi_device
{
    std::string name; ///< "emuv0", or one that somebody gave
    int id = -1;

    /// "emuv.dev/vgpu=emuv0"
    [[nodiscard]] std::string whole_name() const;
};

/// True if engines take this as a device's name: letters, digits, '_', '-' and
/// '.', with a letter or digit at both ends.
bool is_cdi_name(std::string_view name);

/// The devices of instances: each by its number, then by its name.
/// @param names  as read_names() gives them
std::vector<cdi_device>
cdi_devices(std::span<const emuv::instance_info> instances,
            const std::map<std::string, std::string> &names);

/// A file's text.
/// @param library  the folder of the CUDA library
/// @throws failure as library_part()
std::string cdi_text(std::span<const cdi_device> devices,
                     const std::filesystem::path &library,
                     const environment &env);

/// The folders that engines read by default, /etc/cdi and /run/cdi; where both
/// have a device, the last one's counts.
std::vector<std::filesystem::path> cdi_folders(const environment &env);

/// The file in such a folder.
std::filesystem::path cdi_file(const std::filesystem::path &folder);

/// The devices of a file; nullopt if there is no such file. An entry that names
/// no instance has the id -1.
/// @throws failure it cannot be read, or somebody else wrote it
std::optional<std::vector<cdi_device>>
read_cdi(const std::filesystem::path &file);

/// Writes a file whole, readable by everybody, and makes its folder.
/// @throws std::system_error
void write_cdi(const std::filesystem::path &file, std::string_view text);

/// The outcome of bringing one file up to date.
struct cdi_change
{
    std::vector<cdi_device> kept;    ///< as they are now
    std::vector<cdi_device> dropped; ///< whose instance is gone
    /// The file's new text; empty: it has no device left and is to go.
    std::string text = {};
    /// A device leads to another instance than before, or to other tiers.
    bool moved = false;
};

/// The devices of a file whose instance is not there.
enum class gone_devices
{
    drop,
    /// Keep those that lead to no node: their instances may be on their way, as
    /// after a restart. One that leads to another's node is dropped.
    keep_harmless,
};

/// Looks which devices of a file still have their instance, by their names, and
/// which tiers it has. Edits that somebody has added stay.
/// @param library  the folder of the CUDA library; nullopt: as the file has it
/// @return nullopt if there is no such file
/// @throws failure as read_cdi() and library_part()
std::optional<cdi_change>
renew_cdi(const std::filesystem::path &file,
          const std::optional<std::filesystem::path> &library,
          gone_devices gone, const environment &env);

/// Carries a change out. @throws std::system_error
void apply_cdi(const cdi_change &change, const std::filesystem::path &file);

/// Brings all files up to date once instances have gone or come, or have other
/// tiers. A name must not lead to whoever gets the number next. A failure is
/// told to the user.
/// @param held  against others that make, name or remove instances meanwhile
void follow_cdi_devices(const names_lock &held, gone_devices gone,
                        const environment &env) noexcept;

} // namespace emuvctl
