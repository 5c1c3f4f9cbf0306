// SPDX-License-Identifier: GPL-2.0-or-later
// The NVIDIA cards of this machine, as their driver lists them in /proc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace emuvctl::watch {

/// A card of this machine.
struct card
{
    std::string uuid;                ///< "GPU-..."; empty if not known yet
    std::uint16_t pci_device_id = 0; ///< 0 if unknown
};

/// The cards that NVIDIA's driver drives; none without it.
/// @param proc  /proc, or a copy of it
/// @param sys  /sys, or a copy of it
std::vector<card> read_cards(const std::filesystem::path &proc,
                             const std::filesystem::path &sys);

/// The UUID of the one card that an instance can belong to. With a PCI device
/// id that is the only card with this id, without one the only card of the
/// machine. Empty where several cards may be meant, or none.
std::string uuid_of_card(const std::vector<card> &cards,
                         std::uint16_t pci_device_id);

} // namespace emuvctl::watch
