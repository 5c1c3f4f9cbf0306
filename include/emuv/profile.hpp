// SPDX-License-Identifier: LGPL-2.1-or-later
// Profiles: the instances that a machine should have; vgpu-profiles.conf(5).
#pragma once

#include <emuv/types.hpp>

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace emuv {

/// VRAM of another instance's card, which a program's memory beyond its share
/// may take before it takes system RAM.
struct tier
{
    std::string instance;    ///< the lender's number or name
    std::uint64_t bytes = 0; ///< more than none, whole chunks
};

/// Reads tiers such as "emuv1=40G,team-b=20G", the first one to use first; or
/// "none".
/// @throws std::invalid_argument the text is no such list, names an instance
///   twice, or is longer than a profile's line
std::vector<tier> parse_tiers(std::string_view text);
/// The text that parse_tiers() reads; empty for none.
std::string format_tiers(const std::vector<tier> &tiers);

/// A section of the profile file.
struct profile
{
    std::string name;
    instance_spec spec;      ///< with count above 1, spec.id is the first one's
    unsigned count = 1;      ///< number of instances
    std::vector<tier> tiers; ///< for the programs of each of them
    std::string file;        ///< the profile's file
    int line = 0;            ///< the section's line there
    /// False if the section leaves it to the card of the machine, and spec
    /// does not have it yet.
    bool model_given = true;
    bool physical_given = true;

    /// The profile's instances, one by one.
    [[nodiscard]] std::vector<instance_spec> instances() const;
};

/// Profile files have errors. messages() holds all of them, each "FILE:LINE:
/// message" (or "FILE: message"), in the order of files and lines.
class profile_error : public std::runtime_error
{
public:
    explicit profile_error(std::vector<std::string> messages);
    [[nodiscard]] const std::vector<std::string> &messages() const noexcept
    {
        return messages_;
    }

private:
    std::vector<std::string> messages_;
};

/// Reads profiles from texts, whatever a text contains.
class profile_parser
{
public:
    /// Reads one file's text. @param file  its name, for messages
    void add(std::string_view text, const std::string &file);
    /// Notes a file that cannot be read. @param why  lower case
    void fail(const std::string &file, const std::string &why);
    /// All profiles in the order of reading.
    /// @throws profile_error if a text or file had an error
    [[nodiscard]] std::vector<profile> finish();

private:
    class file_reader;

    struct draft
    {
        profile result;
        std::map<std::string, int, std::less<>> lines; ///< of each key
    };

    void error(const std::string &file, int line, const std::string &message);
    void set(draft &target, std::string_view key, std::string_view value,
             const std::string &file, int line);
    void check(const draft &complete);

    std::vector<draft> drafts_;
    std::vector<std::string> errors_;
};

/// Reads one text. @throws profile_error
std::vector<profile> parse_profiles(std::string_view text,
                                    const std::string &file);

/// Reads a profile file, then the files FILE.d/*.conf in lexical order; "-" is
/// standard input. FILE itself may be missing if there is a file in FILE.d.
/// @throws profile_error
std::vector<profile> load_profiles(const std::filesystem::path &file);

/// The environment variable EMUV_CONFIG, else /etc/emuv/vgpu-profiles.conf.
std::filesystem::path default_profile_file();

/// A profile as a section of a profile file, with a final newline.
std::string format_profile(const profile &what);

/// The PCI device id in "0x2684". @throws std::invalid_argument
std::uint16_t parse_pci_device_id(std::string_view text);
/// A decimal number. @throws std::invalid_argument if the text is no number, or
/// the number is not between @p low and @p high
long long parse_integer(std::string_view text, long long low, long long high);
/// Throws std::invalid_argument if the driver would refuse @p label, or a
/// profile file could not hold it.
void check_gpu_model_label(std::string_view label);
/// The part of an instance that one client may allocate; 0: all.
/// @param shift  of the unit of a number without one, as parse_size() takes it
/// @throws std::invalid_argument if the driver would refuse it
std::uint64_t parse_client_size(std::string_view text, unsigned shift = 0);
/// Throws std::invalid_argument if the driver would refuse these sizes.
void check_instance_sizes(std::uint64_t physical_bytes,
                          std::uint64_t virtual_bytes);

} // namespace emuv
