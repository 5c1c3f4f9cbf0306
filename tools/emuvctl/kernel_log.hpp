// SPDX-License-Identifier: GPL-2.0-or-later
// Reads what the kernel says about the module while a command is at work.
#pragma once

#include <emuv/unique_fd.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace emuvctl {

/// Reads the kernel's log from its end at construction, or from as far back as
/// the kernel keeps it. The driver says there which parameter it refuses, and
/// its range; an errno cannot. Without the right to read the log it stays
/// empty.
class kernel_log
{
public:
    enum class from
    {
        now,
        boot
    };

    /// @param kmsg  /dev/kmsg
    explicit kernel_log(const std::filesystem::path &kmsg,
                        from where = from::now);
    /// The module's lines since that place or the last call.
    std::vector<std::string> lines();

private:
    emuv::unique_fd file_;
};

} // namespace emuvctl
