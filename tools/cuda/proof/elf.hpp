// SPDX-License-Identifier: LGPL-2.1-or-later
// The sections of an ELF file of 64 bits, as far as they make sense.
#pragma once

#include "proof/bytes.hpp"

#include <string_view>
#include <vector>

namespace emuv::cuda::proof {

struct section
{
    std::string_view name;
    std::uint32_t type = 0;
    std::uint32_t link = 0;
    std::uint32_t info = 0;
    bytes content;
};

struct elf
{
    std::uint16_t machine = 0;
    std::uint8_t abi = 0;
    std::uint8_t abi_version = 0;
    std::uint32_t flags = 0;
    std::vector<section> sections; ///< by their numbers

    [[nodiscard]] const section *find(std::string_view name) const
    {
        for (const section &each : sections)
            if (each.name == name)
                return &each;
        return nullptr;
    }
};

constexpr std::uint16_t machine_cuda = 190;

constexpr std::uint32_t elf_magic = 0x464c457f;

inline bool is_elf(bytes file)
{
    return number_or_zero<std::uint32_t>(file, 0) == elf_magic;
}

/// The size of an ELF file that others have read already, by its headers.
std::size_t elf_bytes(const unsigned char *file);

/// @return nothing if it is none, or does not make sense
std::optional<elf> read_elf(bytes file);

} // namespace emuv::cuda::proof
