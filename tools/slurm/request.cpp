// SPDX-License-Identifier: GPL-2.0-or-later
// The value of --emuv-vram.
#include "request.hpp"

#include <emuv/size.hpp>

#include <stdexcept>
#include <string>

#include <linux/emuv.h>

namespace emuv_slurm {

std::uint64_t read_request(std::string_view text)
{
    constexpr unsigned gib_shift = 30;
    const std::uint64_t bytes = emuv::parse_size(text);
    // A number without a unit is one of bytes, and hardly meant so.
    if (bytes < 1U << 20)
        throw std::invalid_argument("'" + std::string(text) +
                                    "' is less than 1 MiB; a size has a unit, "
                                    "as 48G");
    if (bytes > EMUV_MAX_BYTES)
        throw std::invalid_argument("'" + std::string(text) +
                                    "' is more than an instance can have, " +
                                    emuv::format_size_exact(EMUV_MAX_BYTES));
    return ((bytes - 1) >> gib_shift) + 1;
}

} // namespace emuv_slurm
