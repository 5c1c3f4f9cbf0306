// SPDX-License-Identifier: GPL-2.0-or-later
// Tells what a file is that was taken for the kernel module.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace emuvctl {

/// Tells why a file is not the module for a kernel, as far as the file itself
/// shows. It may be "a program of x86-64, not a kernel module", or "emuV's
/// module for 6.12.1, and 6.1.0 is running".
/// @param release  of the running kernel; empty: unknown
/// @return empty where the file is an uncompressed module of emuV for that
///   kernel, or is compressed, or cannot be read
std::string why_no_module(const std::filesystem::path &path,
                          std::string_view release);

} // namespace emuvctl
