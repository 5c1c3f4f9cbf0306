// SPDX-License-Identifier: GPL-2.0-or-later
// The harness's kernels, with one behaviour on a card and in simulation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace harness {

// An image for cuModuleLoadData, of the kind that the driver takes.
//   fill(u64 at, u64 count, u32 seed)      at[i] = pattern(seed, i)
//   add(u64 at, u64 count, u32 value)      at[i] += value
//   checksum(u64 at, u64 count, u64 sum)   *sum += at[i] * (2 i + 1), all i
// and, with an address that is not among the parameters:
//   add_by_table(u64 table, u64 count, u32 value, u64 index)
//       at = table[index]
//   add_by_list(u64 node, u64 count, u32 value, u64 hops)
//       at = the second word of the node that many hops on; a node's first is
//       the address of the next
//   add_by_offset(u64 from, u64 count, u32 value, u64 offset)
//       at = from + offset
//   checksum_by_offset(u64 from, u64 count, u64 sum, u64 offset)
//       the same of what is at from + offset
//   add_by_part(u64 part, u64 count, u32 value, u64 shift)
//       at = part << shift
// and kernels that leave an address in memory for others:
//   write_batched_ptrs(u64 table, u64 count, u32 index, u64 at)
//       table[index] = at, by the first thread
//   fake_arange_cuda_out(u64 count, {u64 first, u64 step}, u64 at)
//       at[i] = first + i * step, of 64-bit words
// of 32-bit words at `at`, in blocks of block_threads, one thread a word.
const void *kernel_image(bool simulated);

inline constexpr unsigned block_threads = 256;

[[gnu::always_inline]] constexpr std::uint32_t pattern(std::uint32_t seed,
                                                       std::size_t index)
{
    const std::uint32_t h =
        (seed + static_cast<std::uint32_t>(index)) * 2654435761U;
    return h ^ (h >> 15);
}

// The same as by fill, add and checksum, for memory of the host.
void fill_words(std::uint32_t *at, std::uint64_t count, std::uint32_t seed);
void add_to_words(std::uint32_t *at, std::uint64_t count, std::uint32_t value);
std::uint64_t sum_of_words(const std::uint32_t *at, std::uint64_t count);
// The first word that is not pattern(seed, i) + added; the count if there is
// none.
std::uint64_t first_other_word(const std::uint32_t *at, std::uint64_t count,
                               std::uint32_t seed, std::uint32_t added);

} // namespace harness
