// SPDX-License-Identifier: GPL-2.0-or-later
// The NVIDIA cards of this machine, as sysfs, their driver and NVML show them.
#pragma once

#include "environment.hpp"

#include <emuv/gpu_model.hpp>
#include <emuv/profile.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace emuvctl {

/// A card, or the part of one that NVML shows as such.
struct card
{
    std::string address;          ///< on the PCI bus: "0000:01:00.0"
    std::filesystem::path path;   ///< its folder in sysfs; empty: not there
    std::string name;             ///< "NVIDIA GeForce RTX 4070"; empty: unknown
    std::uint64_t vram_bytes = 0; ///< 0: unknown
    std::uint16_t pci_device_id = 0; ///< 0: unknown
    std::optional<int> minor;        ///< N of /dev/nvidiaN
    std::string uuid = {}; ///< "GPU-..."; empty until its driver knows it
    bool driven = false;   ///< NVIDIA's driver drives it
};

/// The cards there are, by address.
/// @param nvml  NVML's answer, which completes what sysfs shows; it may be one
///   that was not asked
std::vector<card> find_cards(const environment &env, const nvml_state &nvml);

/// The UUID of the one card that an instance can belong to. With a PCI device
/// id that is the only driven card with this id, without one the only one of
/// the machine. Empty if several cards may be meant, or none.
std::string uuid_of_card(const std::vector<card> &cards,
                         std::uint16_t pci_device_id);

/// The models of the table that a card may be.
std::vector<const emuv::gpu_model *> models_of(const card &one);

/// The model and VRAM for an instance that names none: those of the card that
/// is here.
/// @throws failure there is none, or there are several kinds
card only_card(const environment &env);

/// The VRAM of the card that a model's name means: by the table, or that of a
/// card here where the table leaves it open.
/// @throws std::invalid_argument it is in neither, or may be any of several
std::uint64_t vram_of(const std::string &model, const environment &env);

/// Gives a profile the model and VRAM that it leaves out.
/// @throws failure they cannot be told
void complete(emuv::profile &what, const environment &env);

} // namespace emuvctl
