// SPDX-License-Identifier: LGPL-2.1-or-later
// The sections of an ELF file of 64 bits.
#include "proof/elf.hpp"

#include <algorithm>

namespace emuv::cuda::proof {

namespace {

constexpr std::uint64_t section_bytes = 64;
constexpr std::uint32_t no_content = 8; // SHT_NOBITS
constexpr std::size_t most_sections = 1U << 20;

} // namespace

std::size_t elf_bytes(const unsigned char *file)
{
    const bytes head(file, section_bytes);
    const auto sections = number_or_zero<std::uint64_t>(head, 40);
    const auto program_headers = number_or_zero<std::uint64_t>(head, 32);
    std::uint64_t count = number_or_zero<std::uint16_t>(head, 60);
    const auto section_at = [&](std::uint64_t i) {
        return bytes(file + sections + i * section_bytes, section_bytes);
    };
    if (count == 0 && sections != 0)
        count = number_or_zero<std::uint64_t>(section_at(0), 32);
    std::uint64_t end = section_bytes;
    if (program_headers != 0)
        end = std::max(end, program_headers +
                                std::uint64_t{56} *
                                    number_or_zero<std::uint16_t>(head, 56));
    if (sections == 0 || count > most_sections ||
        number_or_zero<std::uint16_t>(head, 58) != section_bytes)
        return static_cast<std::size_t>(end);
    end = std::max(end, sections + count * section_bytes);
    for (std::uint64_t i = 0; i < count; i++) {
        const bytes one = section_at(i);
        if (number_or_zero<std::uint32_t>(one, 4) != no_content)
            end = std::max(end, number_or_zero<std::uint64_t>(one, 24) +
                                    number_or_zero<std::uint64_t>(one, 32));
    }
    return static_cast<std::size_t>(end);
}

std::optional<elf> read_elf(bytes file)
{
    // 64 bits, little end first.
    if (!is_elf(file) || number_or_zero<std::uint16_t>(file, 4) != 0x0102)
        return std::nullopt;
    elf made;
    made.abi = number_or_zero<std::uint8_t>(file, 7);
    made.abi_version = number_or_zero<std::uint8_t>(file, 8);
    made.machine = number_or_zero<std::uint16_t>(file, 18);
    const auto at = number_at<std::uint64_t>(file, 40);
    made.flags = number_or_zero<std::uint32_t>(file, 48);
    const auto each = number_at<std::uint16_t>(file, 58);
    const auto short_count = number_at<std::uint16_t>(file, 60);
    const auto short_names = number_at<std::uint16_t>(file, 62);
    if (!at || *at == 0 || each != section_bytes || !short_count ||
        !short_names)
        return std::nullopt;
    std::uint64_t count = *short_count;
    std::uint64_t names = *short_names;
    // More of them than fit have their number in the first one.
    if (count == 0)
        count = number_or_zero<std::uint64_t>(file, *at + 32);
    if (names == 0xffff)
        names = number_or_zero<std::uint32_t>(file, *at + 40);
    if (count == 0 || count > most_sections || names >= count ||
        subspan_of(file, *at, count * section_bytes).empty())
        return std::nullopt;
    made.sections.resize(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; i++) {
        const bytes header = subspan_of(file, *at + i * section_bytes, 64);
        section &one = made.sections[static_cast<std::size_t>(i)];
        one.type = number_or_zero<std::uint32_t>(header, 4);
        const auto offset = number_or_zero<std::uint64_t>(header, 24);
        const auto size = number_or_zero<std::uint64_t>(header, 32);
        one.link = number_or_zero<std::uint32_t>(header, 40);
        one.info = number_or_zero<std::uint32_t>(header, 44);
        if (one.type == no_content || size == 0)
            continue;
        one.content = subspan_of(file, offset, size);
        if (one.content.empty())
            return std::nullopt;
    }
    const bytes texts = made.sections[static_cast<std::size_t>(names)].content;
    for (std::uint64_t i = 0; i < count; i++)
        made.sections[static_cast<std::size_t>(i)].name = text_at(
            texts,
            number_or_zero<std::uint32_t>(file, *at + i * section_bytes));
    return made;
}

} // namespace emuv::cuda::proof
