// SPDX-License-Identifier: GPL-2.0-or-later
// The kernels in PTX, and as functions for the simulated driver.
#include "kernels.hpp"

#include "../sim/sim.h"

#include <cstring>
#include <iterator>

#ifdef __SANITIZE_THREAD__
extern "C" {
void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes);
}
#endif

namespace harness {

namespace {

// index in %rd3, address of the word in %rd6; left at once past the end
#define HARNESS_PROLOGUE                                                       \
    "{\n"                                                                      \
    ".reg .pred %p<2>;\n"                                                      \
    ".reg .b32 %r<9>;\n"                                                       \
    ".reg .b64 %rd<12>;\n"                                                     \
    "ld.param.u64 %rd1, [at];\n"                                               \
    "ld.param.u64 %rd2, [count];\n"                                            \
    "cvta.to.global.u64 %rd1, %rd1;\n"                                         \
    "mov.u32 %r2, %ctaid.x;\n"                                                 \
    "mov.u32 %r3, %ntid.x;\n"                                                  \
    "mov.u32 %r4, %tid.x;\n"                                                   \
    "cvt.u64.u32 %rd4, %r4;\n"                                                 \
    "mad.wide.u32 %rd3, %r2, %r3, %rd4;\n"                                     \
    "setp.ge.u64 %p1, %rd3, %rd2;\n"                                           \
    "@%p1 ret;\n"                                                              \
    "shl.b64 %rd5, %rd3, 2;\n"                                                 \
    "add.u64 %rd6, %rd1, %rd5;\n"

// adds the value to word %rd3 of the memory at %rd6
#define HARNESS_ADD                                                            \
    "add.u64 %rd6, %rd6, %rd5;\n"                                              \
    "ld.param.u32 %r1, [value];\n"                                             \
    "ld.global.u32 %r5, [%rd6];\n"                                             \
    "add.u32 %r5, %r5, %r1;\n"                                                 \
    "st.global.u32 [%rd6], %r5;\n"                                             \
    "ret;\n"                                                                   \
    "}\n"

constexpr char ptx[] =
    ".version 7.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".visible .entry fill(.param .u64 at, .param .u64 count,"
    " .param .u32 seed)\n" HARNESS_PROLOGUE "ld.param.u32 %r1, [seed];\n"
    "cvt.u32.u64 %r5, %rd3;\n"
    "add.u32 %r5, %r5, %r1;\n"
    "mul.lo.u32 %r5, %r5, 2654435761;\n"
    "shr.u32 %r6, %r5, 15;\n"
    "xor.b32 %r5, %r5, %r6;\n"
    "st.global.u32 [%rd6], %r5;\n"
    "ret;\n"
    "}\n"
    ".visible .entry add(.param .u64 at, .param .u64 count,"
    " .param .u32 value)\n" HARNESS_PROLOGUE "ld.param.u32 %r1, [value];\n"
    "ld.global.u32 %r5, [%rd6];\n"
    "add.u32 %r5, %r5, %r1;\n"
    "st.global.u32 [%rd6], %r5;\n"
    "ret;\n"
    "}\n"
    ".visible .entry checksum(.param .u64 at, .param .u64 count,"
    " .param .u64 sum)\n" HARNESS_PROLOGUE "ld.param.u64 %rd7, [sum];\n"
    "cvta.to.global.u64 %rd7, %rd7;\n"
    "ld.global.u32 %r5, [%rd6];\n"
    "cvt.u64.u32 %rd8, %r5;\n"
    "shl.b64 %rd9, %rd3, 1;\n"
    "add.u64 %rd9, %rd9, 1;\n"
    "mul.lo.u64 %rd8, %rd8, %rd9;\n"
    "red.global.add.u64 [%rd7], %rd8;\n"
    "ret;\n"
    "}\n"
    ".visible .entry checksum_by_offset(.param .u64 at, .param .u64 count,"
    " .param .u64 sum, .param .u64 offset)\n" HARNESS_PROLOGUE
    "ld.param.u64 %rd7, [sum];\n"
    "cvta.to.global.u64 %rd7, %rd7;\n"
    "ld.param.u64 %rd10, [offset];\n"
    "add.u64 %rd6, %rd6, %rd10;\n"
    "ld.global.u32 %r5, [%rd6];\n"
    "cvt.u64.u32 %rd8, %r5;\n"
    "shl.b64 %rd9, %rd3, 1;\n"
    "add.u64 %rd9, %rd9, 1;\n"
    "mul.lo.u64 %rd8, %rd8, %rd9;\n"
    "red.global.add.u64 [%rd7], %rd8;\n"
    "ret;\n"
    "}\n"
    ".visible .entry add_by_table(.param .u64 at, .param .u64 count,"
    " .param .u32 value, .param .u64 index)\n" HARNESS_PROLOGUE
    "ld.param.u64 %rd7, [index];\n"
    "shl.b64 %rd7, %rd7, 3;\n"
    "add.u64 %rd7, %rd1, %rd7;\n"
    "ld.global.u64 %rd6, [%rd7];\n" HARNESS_ADD
    ".visible .entry add_by_list(.param .u64 at, .param .u64 count,"
    " .param .u32 value, .param .u64 hops)\n" HARNESS_PROLOGUE
    "ld.param.u64 %rd7, [hops];\n"
    "hop:\n"
    "setp.eq.u64 %p1, %rd7, 0;\n"
    "@%p1 bra there;\n"
    "ld.global.u64 %rd1, [%rd1];\n"
    "sub.u64 %rd7, %rd7, 1;\n"
    "bra hop;\n"
    "there:\n"
    "ld.global.u64 %rd6, [%rd1+8];\n" HARNESS_ADD
    ".visible .entry add_by_offset(.param .u64 at, .param .u64 count,"
    " .param .u32 value, .param .u64 offset)\n" HARNESS_PROLOGUE
    "ld.param.u64 %rd7, [offset];\n"
    "add.u64 %rd6, %rd1, %rd7;\n" HARNESS_ADD
    ".visible .entry add_by_part(.param .u64 at, .param .u64 count,"
    " .param .u32 value, .param .u64 shift)\n" HARNESS_PROLOGUE
    "ld.param.u64 %rd7, [shift];\n"
    "cvt.u32.u64 %r6, %rd7;\n"
    "shl.b64 %rd6, %rd1, %r6;\n" HARNESS_ADD
    ".visible .entry write_batched_ptrs(.param .u64 at, .param .u64 count,"
    " .param .u32 index, .param .u64 address)\n" HARNESS_PROLOGUE
    "ld.param.u32 %r1, [index];\n"
    "mul.wide.u32 %rd7, %r1, 8;\n"
    "add.u64 %rd6, %rd1, %rd7;\n"
    "ld.param.u64 %rd8, [address];\n"
    "st.global.u64 [%rd6], %rd8;\n"
    "ret;\n"
    "}\n"
    ".visible .entry fake_arange_cuda_out(.param .u64 count,"
    " .param .align 8 .b8 numbers[16], .param .u64 at)\n" HARNESS_PROLOGUE
    "ld.param.u64 %rd7, [numbers];\n"
    "ld.param.u64 %rd8, [numbers+8];\n"
    "mad.lo.u64 %rd7, %rd3, %rd8, %rd7;\n"
    "add.u64 %rd6, %rd6, %rd5;\n" // words of 64 bits
    "st.global.u64 [%rd6], %rd7;\n"
    "ret;\n"
    "}\n";

// A sanitizer is told once of all words that a loop reads or writes. Told of
// each word, ThreadSanitizer takes three quarters of a test's time.
#define HARNESS_TOLD_ONCE [[gnu::no_sanitize_address, gnu::no_sanitize_thread]]

void will_read([[maybe_unused]] const std::uint32_t *at,
               [[maybe_unused]] std::uint64_t count)
{
#ifdef __SANITIZE_THREAD__
    __tsan_read_range(const_cast<std::uint32_t *>(at), count * sizeof *at);
#endif
}

void will_write([[maybe_unused]] std::uint32_t *at,
                [[maybe_unused]] std::uint64_t count)
{
#ifdef __SANITIZE_THREAD__
    __tsan_write_range(at, count * sizeof *at);
#endif
}

} // namespace

HARNESS_TOLD_ONCE void fill_words(std::uint32_t *at, std::uint64_t count,
                                  std::uint32_t seed)
{
    will_write(at, count);
    for (std::uint64_t i = 0; i < count; ++i)
        at[i] = pattern(seed, i);
}

HARNESS_TOLD_ONCE void add_to_words(std::uint32_t *at, std::uint64_t count,
                                    std::uint32_t value)
{
    will_write(at, count);
    for (std::uint64_t i = 0; i < count; ++i)
        at[i] += value;
}

HARNESS_TOLD_ONCE std::uint64_t sum_of_words(const std::uint32_t *at,
                                             std::uint64_t count)
{
    will_read(at, count);
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < count; ++i)
        sum += at[i] * (2 * i + 1);
    return sum;
}

HARNESS_TOLD_ONCE std::uint64_t first_other_word(const std::uint32_t *at,
                                                 std::uint64_t count,
                                                 std::uint32_t seed,
                                                 std::uint32_t added)
{
    will_read(at, count);
    std::uint64_t i = 0;
    while (i < count && at[i] == pattern(seed, i) + added)
        ++i;
    return i;
}

namespace {

template <typename T>
T param(void *const *params, std::size_t index)
{
    T out;
    std::memcpy(&out, params[index], sizeof out);
    return out;
}

std::uint32_t *words(void *const *params)
{
    return reinterpret_cast<std::uint32_t *>(param<std::uint64_t>(params, 0));
}

// As many words as the launch has threads for, as on a card.
std::uint64_t covered(const emuv_sim_launch *launch, void *const *params)
{
    const std::uint64_t threads =
        std::uint64_t{launch->grid[0]} * launch->block[0];
    const auto count = param<std::uint64_t>(params, 1);
    return threads < count ? threads : count;
}

void fill(const emuv_sim_launch *launch, void *const *params)
{
    fill_words(words(params), covered(launch, params),
               param<std::uint32_t>(params, 2));
}

void add(const emuv_sim_launch *launch, void *const *params)
{
    add_to_words(words(params), covered(launch, params),
                 param<std::uint32_t>(params, 2));
}

template <typename Find>
void add_found(const emuv_sim_launch *launch, void *const *params, Find find)
{
    const auto given = param<std::uint64_t>(params, 0);
    auto *at = reinterpret_cast<std::uint32_t *>(
        find(given, param<std::uint64_t>(params, 3)));
    add_to_words(at, covered(launch, params), param<std::uint32_t>(params, 2));
}

const std::uint64_t *as_words(std::uint64_t at)
{
    return reinterpret_cast<const std::uint64_t *>(at);
}

void add_by_table(const emuv_sim_launch *launch, void *const *params)
{
    add_found(launch, params, [](std::uint64_t table, std::uint64_t index) {
        return as_words(table)[index];
    });
}

void add_by_list(const emuv_sim_launch *launch, void *const *params)
{
    add_found(launch, params, [](std::uint64_t node, std::uint64_t hops) {
        for (; hops > 0; --hops)
            node = as_words(node)[0];
        return as_words(node)[1];
    });
}

void add_by_offset(const emuv_sim_launch *launch, void *const *params)
{
    add_found(launch, params, [](std::uint64_t at, std::uint64_t offset) {
        return at + offset;
    });
}

void add_by_part(const emuv_sim_launch *launch, void *const *params)
{
    add_found(launch, params, [](std::uint64_t part, std::uint64_t shift) {
        return part << shift;
    });
}

void write_batched_ptrs(const emuv_sim_launch *, void *const *params)
{
    const auto index = param<std::uint32_t>(params, 2);
    reinterpret_cast<std::uint64_t *>(param<std::uint64_t>(params, 0))[index] =
        param<std::uint64_t>(params, 3);
}

void fake_arange_cuda_out(const emuv_sim_launch *, void *const *params)
{
    struct numbers
    {
        std::uint64_t first;
        std::uint64_t step;
    };
    const auto [first, step] = param<numbers>(params, 1);
    auto *at =
        reinterpret_cast<std::uint64_t *>(param<std::uint64_t>(params, 2));
    for (std::uint64_t i = 0; i < param<std::uint64_t>(params, 0); ++i)
        at[i] = first + i * step;
}

void checksum(const emuv_sim_launch *launch, void *const *params)
{
    auto *sum =
        reinterpret_cast<std::uint64_t *>(param<std::uint64_t>(params, 2));
    *sum += sum_of_words(words(params), covered(launch, params));
}

void checksum_by_offset(const emuv_sim_launch *launch, void *const *params)
{
    const auto *at = reinterpret_cast<const std::uint32_t *>(
        param<std::uint64_t>(params, 0) + param<std::uint64_t>(params, 3));
    auto *sum =
        reinterpret_cast<std::uint64_t *>(param<std::uint64_t>(params, 2));
    *sum += sum_of_words(at, covered(launch, params));
}

constexpr emuv_sim_param short_params[] = {{0, 8}, {8, 8}, {16, 4}};
constexpr emuv_sim_param long_params[] = {{0, 8}, {8, 8}, {16, 8}};
constexpr emuv_sim_param found_params[] = {{0, 8}, {8, 8}, {16, 4}, {24, 8}};
constexpr emuv_sim_param wide_params[] = {{0, 8}, {8, 8}, {16, 8}, {24, 8}};
constexpr emuv_sim_param numbers_params[] = {{0, 8}, {8, 16}, {24, 8}};
const emuv_sim_kernel kernels[] = {
    {"fill", fill, short_params, 3},
    {"add", add, short_params, 3},
    {"checksum", checksum, long_params, 3},
    {"checksum_by_offset", checksum_by_offset, wide_params, 4},
    {"add_by_table", add_by_table, found_params, 4},
    {"add_by_list", add_by_list, found_params, 4},
    {"add_by_offset", add_by_offset, found_params, 4},
    {"add_by_part", add_by_part, found_params, 4},
    {"write_batched_ptrs", write_batched_ptrs, found_params, 4},
    {"fake_arange_cuda_out", fake_arange_cuda_out, numbers_params, 3},
};

} // namespace

const void *kernel_image(bool simulated)
{
    static const emuv_sim_module module = [] {
        emuv_sim_module out{};
        std::memcpy(out.magic, EMUV_SIM_MODULE_MAGIC, sizeof out.magic);
        out.kernels = kernels;
        out.kernel_count = std::size(kernels);
        return out;
    }();
    return simulated ? static_cast<const void *>(&module)
                     : static_cast<const void *>(ptx);
}

} // namespace harness
