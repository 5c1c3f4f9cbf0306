// SPDX-License-Identifier: GPL-2.0-or-later
// A card, its link and the memory that a job may have.
//
// Rates are of NVIDIA's data sheets and of the architectures' whitepapers,
// without sparsity. GeForce cards sum up in 32 bits at half their rate.
#include "machine.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace emuv::estimate {

namespace {

struct rate
{
    std::string_view name; // the beginning of a full name
    double teraflops;
};

constexpr std::array<rate, 39> rates = {{
    {"NVIDIA Tesla V100 PCIe", 112},
    {"NVIDIA Tesla V100 SXM2", 125},
    {"NVIDIA Tesla T4", 65},
    {"NVIDIA GeForce RTX 3060 12GB", 25.5},
    {"NVIDIA GeForce RTX 3060 Ti", 32.4},
    {"NVIDIA GeForce RTX 3070 Ti", 43.5},
    {"NVIDIA GeForce RTX 3070", 40.6},
    {"NVIDIA GeForce RTX 3080 10GB", 59.5},
    {"NVIDIA GeForce RTX 3080 Ti", 68.2},
    {"NVIDIA GeForce RTX 3090 Ti", 80},
    {"NVIDIA GeForce RTX 3090", 71},
    {"NVIDIA RTX A6000", 154.8},
    {"NVIDIA A10 ", 125},
    {"NVIDIA A30", 165},
    {"NVIDIA A40", 149.7},
    {"NVIDIA A100", 312},
    {"NVIDIA GeForce RTX 4060 Laptop", 0},
    {"NVIDIA GeForce RTX 4060 Ti", 44.1},
    {"NVIDIA GeForce RTX 4060", 30.2},
    {"NVIDIA GeForce RTX 4070 Laptop", 0},
    {"NVIDIA GeForce RTX 4070 SUPER", 71},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", 88.2},
    {"NVIDIA GeForce RTX 4070 Ti", 80.2},
    {"NVIDIA GeForce RTX 4070", 58.3},
    {"NVIDIA GeForce RTX 4080 Laptop", 0},
    {"NVIDIA GeForce RTX 4080 SUPER", 104.4},
    {"NVIDIA GeForce RTX 4080", 97.5},
    {"NVIDIA GeForce RTX 4090 Laptop", 0},
    {"NVIDIA GeForce RTX 4090 D", 147.1},
    {"NVIDIA GeForce RTX 4090", 165.2},
    {"NVIDIA L4 ", 121},
    {"NVIDIA L40S", 362},
    {"NVIDIA L40", 181},
    {"NVIDIA H100 PCIe", 756},
    {"NVIDIA H100 SXM5", 989},
    {"NVIDIA H100 NVL", 835},
    {"NVIDIA H200 SXM", 989},
    {"NVIDIA H200 NVL", 835},
    {"NVIDIA B200", 2250},
}};

// Bytes a second and lane that PCIe carries behind its line code.
constexpr double lane_rate(unsigned generation)
{
    switch (generation) {
    case 1:
        return 0.25e9;
    case 2:
        return 0.5e9;
    case 3:
        return 0.985e9;
    case 4:
        return 1.969e9;
    case 5:
        return 3.938e9;
    default:
        return 7.563e9;
    }
}

} // namespace

double link_rate(unsigned generation, unsigned lanes)
{
    return 0.88 * lane_rate(generation) * lanes;
}

double tensor_rate(const gpu_model &card)
{
    // Names that are the beginnings of others get a blank behind them.
    const std::string full = card.full_name() + " ";
    const auto *const found =
        std::find_if(rates.begin(), rates.end(), [&](const rate &each) {
            return full.starts_with(each.name);
        });
    return found == rates.end() ? 0 : found->teraflops * 1e12;
}

machine whole_card(const gpu_model &card)
{
    machine out;
    out.name = card.full_name();
    constexpr double kept_by_driver = 256.0 * (1 << 20);
    out.vram = static_cast<double>(card.vram_bytes) - kept_by_driver;
    out.bandwidth = card.bandwidth_gb_s * 1e9;
    out.link = link_rate(card.pcie_generation, card.pcie_width);
    out.tensor = tensor_rate(card);
    return out;
}

} // namespace emuv::estimate
