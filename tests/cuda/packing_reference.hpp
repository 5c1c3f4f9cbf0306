// SPDX-License-Identifier: GPL-2.0-or-later
// The same as the kernels of tools/cuda/movement/packing.cu, on the host:
// written apart from them, by the layout in packing.hpp.
#pragma once

#include "movement/packing.hpp"

#include <array>
#include <cstdint>
#include <cstring>

/// As the kernels of the same names, with the same parameters.
namespace packing_reference {

using emuv::cuda::packing;

inline std::uint16_t bf16(float value)
{
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

inline std::uint16_t fp16(float value) // of usual size
{
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    const int exponent = static_cast<int>(word >> 23 & 0xff) - 112;
    return static_cast<std::uint16_t>(
        (word >> 16 & 0x8000) |
        (exponent > 0
             ? static_cast<unsigned>(exponent) << 10 | (word >> 13 & 0x3ff)
             : 0));
}

// A number's place among a group's remainders; its code's bits are found by
// lane and turn.
struct spot
{
    unsigned lane, turn, which;
    explicit spot(unsigned number)
        : lane(number / packing::at_once % packing::lanes),
          turn(number / packing::at_once / packing::lanes),
          which(number % packing::at_once)
    {}
    std::uint64_t remainder() const
    {
        return packing::header_bytes + turn / 2 * packing::lanes * 16 +
               lane * 16 + turn % 2 * 8 + which;
    }
    std::uint64_t low() const // 16 bits
    {
        return packing::low_at + lane * 16 + turn * 2;
    }
    std::uint64_t high() const // 8 bits
    {
        return packing::high_at + lane * 8 + turn;
    }
};

// Escapes are in order of the lane, then of the turn.
template <typename Use>
[[gnu::no_sanitize_thread]] inline void in_order_of_escapes(Use use)
{
    for (unsigned lane = 0; lane < packing::lanes; lane++)
        for (unsigned turn = 0; turn < packing::turns; turn++)
            for (unsigned which = 0; which < packing::at_once; which++)
                use((turn * packing::lanes + lane) * packing::at_once + which);
}

[[gnu::no_sanitize_thread]] inline unsigned number_at(const unsigned char *raw,
                                                      unsigned number)
{
    return raw[2 * number] | static_cast<unsigned>(raw[2 * number + 1]) << 8;
}

// The seven most frequent exponents, the lower one first among equals.
[[gnu::no_sanitize_thread]] inline std::array<unsigned char, 8>
choose(std::array<unsigned, 256> counts)
{
    std::array<unsigned char, 8> table{};
    for (unsigned code = 0; code < packing::codes; code++) {
        unsigned best = 0;
        for (unsigned i = 0; i < counts.size(); i++)
            if (counts[i] > counts[best])
                best = i;
        if (counts[best] == 0)
            break;
        table[code] = static_cast<unsigned char>(best);
        counts[best] = 0;
    }
    return table;
}

[[gnu::no_sanitize_thread]] inline void pack_group(const unsigned char *raw,
                                                   unsigned char *coded,
                                                   unsigned char *all_escapes,
                                                   std::uint64_t most_escapes,
                                                   packing::outcome &out)
{
    std::array<unsigned, 256> counts{};
    for (unsigned i = 0; i < packing::group_numbers; i++)
        counts[number_at(raw, i) >> 7 & 0xff]++;
    const auto table = choose(counts);
    std::array<unsigned char, 256> codes{};
    codes.fill(packing::escape);
    for (unsigned code = packing::codes; code-- > 0;)
        if (counts[table[code]] > 0)
            codes[table[code]] = static_cast<unsigned char>(code);
    for (std::uint64_t i = 0; i < packing::group_bytes; i++)
        coded[i] = 0;
    std::uint64_t escapes = 0;
    for (unsigned i = 0; i < packing::group_numbers; i++) {
        const unsigned number = number_at(raw, i);
        const unsigned code = codes[number >> 7 & 0xff];
        const spot at(i);
        coded[at.remainder()] =
            static_cast<unsigned char>((number & 0x7f) | (number >> 8 & 0x80));
        coded[at.low() + at.which / 4] |=
            static_cast<unsigned char>((code & 3) << at.which % 4 * 2);
        coded[at.high()] |= static_cast<unsigned char>(code >> 2 << at.which);
        escapes += code == packing::escape ? 1 : 0;
    }
    const auto begin =
        static_cast<std::uint32_t>(escapes > 0 ? out.escapes : 0);
    std::memcpy(coded, &begin, sizeof begin);
    for (unsigned i = 0; i < table.size(); i++)
        coded[8 + i] = table[i];
    const bool has_room = begin + escapes <= most_escapes;
    out.escapes += escapes;
    if (!has_room || escapes == 0)
        return;
    unsigned char *next = all_escapes + begin;
    in_order_of_escapes([&](unsigned i) {
        const unsigned exponent = number_at(raw, i) >> 7 & 0xff;
        if (codes[exponent] == packing::escape)
            *next++ = static_cast<unsigned char>(exponent);
    });
}

[[gnu::no_sanitize_thread]] inline void
pack(const unsigned char *at, std::uint64_t groups, unsigned char *to,
     std::uint64_t most_escapes, packing::outcome *out)
{
    for (std::uint64_t i = 0; i < groups; i++)
        pack_group(at + i * packing::raw_group_bytes,
                   to + i * packing::group_bytes,
                   to + groups * packing::group_bytes, most_escapes, *out);
}

[[gnu::no_sanitize_thread]] inline void
unpack_group(const unsigned char *coded, const unsigned char *all_escapes,
             std::uint64_t most_escapes, unsigned char *raw)
{
    std::uint32_t begin = 0;
    std::memcpy(&begin, coded, sizeof begin);
    std::uint64_t next = begin;
    in_order_of_escapes([&](unsigned i) {
        const spot at(i);
        const unsigned low =
            coded[at.low() + at.which / 4] >> at.which % 4 * 2 & 3;
        const unsigned high = coded[at.high()] >> at.which & 1;
        const unsigned code = low | high << 2;
        const unsigned exponent = code != packing::escape ? coded[8 + code]
                                  : next < most_escapes   ? all_escapes[next++]
                                                          : 0U;
        const unsigned rest = coded[at.remainder()];
        const unsigned number =
            (rest & 0x80) << 8 | exponent << 7 | (rest & 0x7f);
        raw[2 * i] = static_cast<unsigned char>(number);
        raw[2 * i + 1] = static_cast<unsigned char>(number >> 8);
    });
}

[[gnu::no_sanitize_thread]] inline void
unpack(const unsigned char *from, std::uint64_t groups, unsigned char *at,
       std::uint64_t most_escapes, packing::outcome *out)
{
    for (std::uint64_t i = 0; i < groups; i++) {
        std::array<unsigned char, packing::raw_group_bytes> raw;
        unpack_group(from + i * packing::group_bytes,
                     from + groups * packing::group_bytes, most_escapes,
                     raw.data());
        unsigned char *const here = at + i * packing::raw_group_bytes;
        for (std::uint64_t j = 0; j < raw.size(); j += 16) {
            if (out == nullptr)
                std::memcpy(here + j, raw.data() + j, 16);
            else if (std::memcmp(here + j, raw.data() + j, 16) != 0)
                out->differing++;
        }
    }
}

} // namespace packing_reference
