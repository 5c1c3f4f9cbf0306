// SPDX-License-Identifier: GPL-2.0-or-later
// A card, its link and the memory that a job may have.
#pragma once

#include <emuv/gpu_model.hpp>

#include <string>

namespace emuv::estimate {

/// Rates in bytes and operations a second.
struct machine
{
    std::string name;
    double vram = 0;             ///< bytes that a job may have
    double ram = 0;              ///< bytes that may spill; 0: not limited
    bool spills_to_none = false; ///< 0 bytes of RAM are a limit
    double bandwidth = 0;        ///< of VRAM
    double link = 0;             ///< each way
    double tensor = 0;           ///< 16-bit products, dense; 0: not known
    double cpu_bandwidth = 60e9; ///< of system RAM
};

/// A card of the catalogue, all its VRAM but what the driver keeps.
[[nodiscard]] machine whole_card(const gpu_model &card);

/// The link's rate: 88 % of what PCIe's lanes carry, as an H200 reached with 16
/// lanes of generation 5 (55.4 GB/s, 2026-11-20).
[[nodiscard]] double link_rate(unsigned generation, unsigned lanes);

/// Dense 16-bit tensor operations a second with sums in 32 bits, as NVIDIA
/// publishes them; 0 if it is not in the table.
[[nodiscard]] double tensor_rate(const gpu_model &card);

} // namespace emuv::estimate
