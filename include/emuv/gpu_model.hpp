// SPDX-License-Identifier: LGPL-2.1-or-later
// NVIDIA's cards by name: their memory, its bandwidth, the link.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuv {

/// A card as it is sold.
struct gpu_model
{
    std::string_view name;    ///< as NVML names it: "NVIDIA GeForce RTX 4070"
    std::string_view variant; ///< tells namesakes apart: "16GB"; or empty
    std::uint64_t vram_bytes; ///< its memory
    unsigned bandwidth_gb_s;  ///< its memory's bandwidth, in 10^9 bytes/s
    unsigned pcie_generation; ///< 3, 4 or 5
    unsigned pcie_width;      ///< lanes
    std::span<const std::uint16_t> pci_device_ids; ///< may be empty

    /// Name and variant.
    [[nodiscard]] std::string full_name() const;
};

/// The whole table, in the order of generations.
std::span<const gpu_model> gpu_models() noexcept;

/// The cards that a name may mean. There are several when the name leaves
/// something open, as "3080" does (10 and 12 GB). Case, spaces and hyphens do
/// not matter. NVIDIA, GeForce, Quadro, Tesla and RTX may be left out; "mobile"
/// means "laptop".
std::vector<const gpu_model *> find_gpu_models(std::string_view name);

/// True if two names are equal, or mean the same cards.
bool same_gpu_model(std::string_view a, std::string_view b);

/// The name to show for an instance's label: the card's name if the label is an
/// alias of a known card, else the label itself.
std::string gpu_display_name(std::string_view label);

} // namespace emuv
