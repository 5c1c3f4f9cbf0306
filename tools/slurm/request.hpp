// SPDX-License-Identifier: GPL-2.0-or-later
// The value of --emuv-vram.
#pragma once

#include <cstdint>
#include <string_view>

namespace emuv_slurm {

/// The job's control variable that holds the GiB. Slurm puts SPANK_ before it.
inline constexpr const char *request_variable = "EMUV_VRAM_GIB";

/// The GiB that a size such as "48G" asks for, a part of one counted as one.
/// @throws std::invalid_argument it is no size, less than 1 MiB, or more than
///   an instance can have
std::uint64_t read_request(std::string_view text);

} // namespace emuv_slurm
