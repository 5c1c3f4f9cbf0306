// SPDX-License-Identifier: GPL-2.0-or-later
// The decoder against nvdisasm's readings, and against forms that no compiler
// makes.
#include "proof/cubin.hpp"
#include "proof/prover.hpp"
#include "proof/sass.hpp"
#include "reading.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace proof = emuv::cuda::proof;

namespace {

// The two halves of an instruction.
using word = std::pair<std::uint64_t, std::uint64_t>;

std::vector<unsigned char> code_of(const std::vector<word> &words)
{
    std::vector<unsigned char> made(16 * words.size());
    for (std::size_t i = 0; i < words.size(); i++) {
        std::memcpy(made.data() + 16 * i, &words[i].first, 8);
        std::memcpy(made.data() + 16 * i + 8, &words[i].second, 8);
    }
    return made;
}

bool is_known(unsigned sm, word of)
{
    const auto code = code_of({of});
    return proof::decode(code.data(), proof::architecture_of(sm)).of != nullptr;
}

word with(word of, unsigned bit)
{
    (bit < 64 ? of.first : of.second) ^= std::uint64_t{1} << bit % 64;
    return of;
}

// A kernel for sm_80 with two pointers as its parameters. The verdict is about
// all launches, or about those like one with these parameters.
// @param entry_point  the number of its first instruction
proof::verdict verdict_of(const std::vector<word> &words,
                          const std::vector<std::uint64_t> &given = {},
                          std::uint32_t entry_point = 0)
{
    const auto code = code_of(words);
    proof::kernel_code kernel;
    kernel.name = "made";
    kernel.sm = 80;
    kernel.code = code;
    kernel.entry_point = 16 * entry_point;
    kernel.parameters = 0x160;
    kernel.parameter_bytes = 16;
    const auto *const at =
        reinterpret_cast<const unsigned char *>(given.data());
    return given.empty() ? proof::prove(kernel)
                         : proof::prove(kernel, {at, 8 * given.size()});
}

constexpr word end = {0x000000000000794d, 0x0003800000};
constexpr word store_by_r2 = {0x000000ff02007986, 0x000c101904};

// R2 is the second pointer if P0 holds. Otherwise it is loaded.
std::vector<word> loads_unless_p0(word branch)
{
    return {
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x0000000404007981, 0x000c1e1900}, // LDG.E R0, [R4.64]
        {0x000000ff0000720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R0, RZ, PT
        {0x0000000404028981, 0x000c1e1b00}, // @!P0 LDG.E.64 R2, [R4.64]
        {0x00005a00ff020624, 0x00078e00ff}, // @P0 IMAD.MOV.U32 R2, ...
        {0x00005b00ff030624, 0x00078e00ff}, // @P0 IMAD.MOV.U32 R3, ...
        branch,                             // to the store
        end,
        store_by_r2,
        end,
    };
}

constexpr word branch_if_p0 = {0x0000001000000947, 0x0003800000};

TEST(proof_decoder, condition_of_a_branch_holds_where_it_leads)
{
    const auto plain = verdict_of(loads_unless_p0(branch_if_p0));
    EXPECT_TRUE(plain.proven()) << describe(plain.why);
}

TEST(proof_decoder, condition_does_not_hold_behind_a_branch_of_many_threads)
{
    // .U, .DIV, .CONV; .ANY; by a uniform register
    for (const auto &[what, bits] : {std::pair{"U", std::vector<unsigned>{32}},
                                     {"DIV", {33}},
                                     {"CONV", {32, 33}},
                                     {"U.ANY", {32, 84}},
                                     {"of a uniform register", {91}}}) {
        word branch = branch_if_p0;
        for (const unsigned bit : bits)
            branch = with(branch, bit);
        EXPECT_FALSE(verdict_of(loads_unless_p0(branch)).proven()) << what;
    }
}

// Stores the first pointer at [R1] and a loaded one behind it. The way from
// there to the load of [R1] leads over an instruction before the entry point.
std::vector<word> stores_by_what_it_stored(word before_the_entry_point)
{
    return {
        before_the_entry_point,
        {0x0000009000007947, 0x0003800000}, // BRA, to the load
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0xffffffe001017810, 0x0007ffe0ff}, // IADD3 R1, R1, -0x20, RZ
        {0x0000000404067981, 0x000c1e1b00}, // LDG.E.64 R6, [R4.64]
        {0x0000000401007387, 0x0000100a00}, // STL.64 [R1], R4
        {0x0000100601007387, 0x0000100a00}, // STL.64 [R1+0x10], R6
        {0xffffff6000007947, 0x000383ffff}, // BRA, to before the entry point
        end,
        {0x0000000001027983, 0x0000100a00}, // LDL.64 R2, [R1]
        store_by_r2,
        end,
    };
}

TEST(proof_decoder,
     stack_that_code_before_the_entry_point_moves_is_not_followed)
{
    constexpr std::uint32_t entry_point = 2;
    constexpr word moves_r8 = {0x0000001008087810, 0x0007ffe0ff};
    constexpr word moves_r1 = {0x0000001001017810, 0x0007ffe0ff};
    const auto other =
        verdict_of(stores_by_what_it_stored(moves_r8), {}, entry_point);
    EXPECT_TRUE(other.proven()) << describe(other.why);
    EXPECT_FALSE(verdict_of(stores_by_what_it_stored(moves_r1), {}, entry_point)
                     .proven());
}

// The instruction before the entry point leads into it. So code there runs
// twice: it stores the first pointer at [R1+0x20] and a loaded one at [R1], and
// loads from [R1+0x20] the second time.
std::vector<word> loads_the_second_time(word at_the_entry_point)
{
    return {
        {0x0000001008087810, 0x0007ffe0ff}, // IADD3 R8, R8, 0x10, RZ
        at_the_entry_point,
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x0000000404007981, 0x000c1e1900}, // LDG.E R0, [R4.64]
        {0x000000ff0000720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R0, RZ, PT
        {0x0000005000000947, 0x0003800000}, // @P0 BRA, to the load
        {0x0000000404067981, 0x000c1e1b00}, // LDG.E.64 R6, [R4.64]
        {0x0000200401007387, 0x0000100a00}, // STL.64 [R1+0x20], R4
        {0x0000000601007387, 0x0000100a00}, // STL.64 [R1], R6
        {0xffffff4000007947, 0x000383ffff}, // BRA, to before the entry point
        end,
        {0x0000200001027983, 0x0000100a00}, // LDL.64 R2, [R1+0x20]
        store_by_r2,
        end,
    };
}

TEST(proof_decoder, stack_that_is_moved_anew_each_time_is_not_followed)
{
    constexpr std::uint32_t entry_point = 1;
    constexpr word moves_r8 = {0xffffffe008087810, 0x0007ffe0ff};
    constexpr word moves_r1 = {0xffffffe001017810, 0x0007ffe0ff};
    const auto other =
        verdict_of(loads_the_second_time(moves_r8), {}, entry_point);
    EXPECT_TRUE(other.proven()) << describe(other.why);
    EXPECT_FALSE(
        verdict_of(loads_the_second_time(moves_r1), {}, entry_point).proven());
    // The same without the way back: it goes on to the load.
    auto once = loads_the_second_time(moves_r1);
    once[11] = {0x0000001000007947, 0x0003800000};
    EXPECT_TRUE(verdict_of(once, {}, entry_point).proven());
}

TEST(proof_decoder, end_of_a_thread_in_another_mode_is_not_known)
{
    for (const unsigned bit : {82U, 83U, 84U, 85U, 86U, 91U})
        EXPECT_FALSE(is_known(80, with(end, bit))) << bit;
}

// P0 says whether the second parameter is not 0. It is kept in R6 while
// another condition takes its place, and comes back. If it holds, the address
// of the store is loaded.
std::vector<word> loads_by_a_kept_condition(word keep, std::vector<word> back)
{
    std::vector<word> all = {
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x00005a00ff007624, 0x00078e00ff}, // IMAD.MOV.U32 R0, c[0x0][0x168]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x000000ff0000720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R0, RZ, PT
        keep,
        {0x0000000404077981, 0x000c1e1900}, // LDG.E R7, [R4.64]
        {0x000000ff0700720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R7, RZ, PT
    };
    all.insert(all.end(), back.begin(), back.end());
    all.insert(all.end(), {
                              {0x0000000400027202, 0x0000000f00}, // MOV R2, R4
                              {0x0000000500037202, 0x0000000f00}, // MOV R3, R5
                              // @P0 LDG.E.64 R2, [R4.64]
                              {0x0000000404020981, 0x000c1e1b00},
                              store_by_r2,
                              end,
                          });
    return all;
}

constexpr word keep_p0 = {0x00000001ff067803, 0}; // P2R R6, PR, RZ, 0x1
constexpr word back_p0 = {0x0000000106007804, 0}; // R2P PR, R6, 0x1
constexpr std::uint64_t some_address = 0x210000000000;

TEST(proof_decoder, condition_that_a_register_keeps_is_followed)
{
    // In another byte; by a comparison; by the predicate of a logical operation
    const word keep_high = {keep_p0.first, 0x2000};
    const word back_high = {back_p0.first, 0x2000};
    const word compare = {0x000000ff0600720c, 0x0003f05270};
    const word logic = {0x0000000106ff7812, 0x000780c0ff};
    for (const auto &[keep, back] : {std::pair{keep_p0, back_p0},
                                     {keep_high, back_high},
                                     {keep_p0, compare},
                                     {keep_p0, logic}}) {
        const auto code = loads_by_a_kept_condition(keep, {back});
        EXPECT_FALSE(verdict_of(code).proven());
        const auto without = verdict_of(code, {some_address, 0});
        EXPECT_TRUE(without.proven())
            << std::hex << back.first << ": " << describe(without.why);
        const auto with_one = verdict_of(code, {some_address, 7});
        EXPECT_FALSE(with_one.proven()) << std::hex << back.first;
    }
}

// An optional pointer that is moved only where there is one.
TEST(proof_decoder,
     condition_of_a_number_on_the_way_that_a_launch_takes_is_followed)
{
    const std::vector<word> code = {
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x00005a00ff007624, 0x00078e00ff}, // IMAD.MOV.U32 R0, c[0x0][0x168]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x000000ff0000720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R0, RZ, PT
        {0x000000ff00067202, 0x0000000f00}, // MOV R6, RZ
        {0x0000001000008947, 0x0003800000}, // @!P0 BRA, over the next one
        {0x0000000404067981, 0x000c1e1900}, // LDG.E R6, [R4.64]
        {0x000000ff0600720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R6, RZ, PT
        {0x0000000400027202, 0x0000000f00}, // MOV R2, R4
        {0x0000000500037202, 0x0000000f00}, // MOV R3, R5
        {0x0000000404020981, 0x000c1e1b00}, // @P0 LDG.E.64 R2, [R4.64]
        store_by_r2,
        end,
    };
    EXPECT_FALSE(verdict_of(code).proven());
    EXPECT_TRUE(verdict_of(code, {some_address, 0}).proven());
    EXPECT_FALSE(verdict_of(code, {some_address, 7}).proven());
}

TEST(proof_decoder, other_condition_does_not_come_back)
{
    const word keep_p1 = {0x00000002ff067803, 0};
    const word back_p1 = {0x0000000206007804, 0};
    const word back_other = {0x0000000107007804, 0};        // of R7
    const word back_now_and_then = {0x0000000106001804, 0}; // @P1
    for (const auto &[keep, back] : {std::pair{keep_p1, back_p1},
                                     {keep_p0, back_p1},
                                     {keep_p0, back_other},
                                     {keep_p0, back_now_and_then}}) {
        const auto code = loads_by_a_kept_condition(keep, {back});
        EXPECT_FALSE(verdict_of(code, {some_address, 0}).proven())
            << std::hex << keep.first << ' ' << back.first;
    }
}

// R2 is the first pointer if P0 holds, which says whether the loaded R0 is not
// 0. Otherwise it is loaded. Another condition takes the place of P0, before
// the store.
std::vector<word> stores_where_it_held(const std::vector<word> &before,
                                       const std::vector<word> &behind,
                                       word store)
{
    std::vector<word> all = {
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x0000000404007981, 0x000c1e1900}, // LDG.E R0, [R4.64]
        {0x0000000404027981, 0x000c1e1b00}, // LDG.E.64 R2, [R4.64]
        {0x000000ff0000720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R0, RZ, PT
    };
    all.insert(all.end(), before.begin(), before.end());
    all.insert(all.end(), {
                              {0x0000000400020202, 0x0000000f00}, // @P0 MOV R2
                              {0x0000000500030202, 0x0000000f00}, // @P0 MOV R3
                              {0x0000000404077981, 0x000c1e1900}, // LDG.E R7
                              // ISETP.NE.AND P0, PT, R7, RZ, PT
                              {0x000000ff0700720c, 0x0003f05270},
                          });
    all.insert(all.end(), behind.begin(), behind.end());
    all.insert(all.end(), {store, end});
    return all;
}

constexpr word back_p1 = {0x000000ff0600720c, 0x0003f25270}; // ISETP.NE P1, R6
constexpr word store_if_p1 = {0x000000ff02001986, 0x000c101904};

TEST(proof_decoder, value_under_a_condition_that_a_register_keeps_is_followed)
{
    const word keep_high = {keep_p0.first, 0x2000};
    const word back_by_r0 = {0x000000ff0000720c, 0x0003f25270};
    const word moves_r8 = {0x000000ff00087202, 0x0000000f00};
    for (const auto &[before, behind] :
         {std::pair{std::vector<word>{keep_p0}, std::vector<word>{back_p1}},
          {{keep_high}, {back_p1}},
          {{keep_p0}, {moves_r8, back_p1}},
          {{}, {back_by_r0}}}) {
        const auto is =
            verdict_of(stores_where_it_held(before, behind, store_if_p1));
        EXPECT_TRUE(is.proven()) << describe(is.why);
        EXPECT_EQ(is.bases, (std::vector<proof::base>{{0, false}}));
    }
}

TEST(proof_decoder, value_under_another_condition_is_not_followed)
{
    const word keep_p1 = {0x00000002ff067803, 0};
    const word keep_two = {0x00000003ff067803, 0};
    const word keep_beside = {0x0000000107067803, 0}; // with bits of R7
    const word keep_at_times = {keep_p0.first ^ 0x5000, keep_p0.second};
    const word moves_r6 = {0x0000000700067202, 0x0000000f00}; // MOV R6, R7
    const word moves_at_times = {0x0000000700062202, 0x0000000f00}; // @P2
    // HMMA.16816.F32 R4, R100, R104, R4: to R6, too
    const word product = {0x000000686404723c, 0x0000001804};
    const word equal = {0x000000ff0600720c, 0x0003f22270};
    const word with_p2 = {0x000000ff0600720c, 0x0001725270};
    const word of_r8 = {0x000000ff0800720c, 0x0003f25270};
    const word with_one = {0x000000010600780c, 0x0003f25270};
    const word extended = with(back_p1, 72);
    const word or_p2 = {0x000000ff0600720c, 0x0001725670};
    const word back_at_times = {back_p1.first ^ 0x5000, back_p1.second};
    const word store_unless_p1 = with(store_if_p1, 15);
    const word over_one = {0x0000001000002947, 0x0003800000};   // @P2 BRA
    const word over_three = {0x0000003000002947, 0x0003800000}; // @P2 BRA
    const word loads_r2 = {0x0000000404027981, 0x000c1e1b00};
    const word r2_if_p0 = {0x0000000400020202, 0x0000000f00};
    const word r3_if_p0 = {0x0000000500030202, 0x0000000f00};
    const struct
    {
        const char *what;
        std::vector<word> before;
        std::vector<word> behind;
        word store;
    } all[] = {
        {"the opposite", {keep_p0}, {back_p1}, store_unless_p1},
        {"no condition", {keep_p0}, {back_p1}, store_by_r2},
        {"another predicate is kept", {keep_p1}, {back_p1}, store_if_p1},
        {"two are kept", {keep_two}, {back_p1}, store_if_p1},
        {"other bits are kept", {keep_beside}, {back_p1}, store_if_p1},
        {"kept now and then", {keep_at_times}, {back_p1}, store_if_p1},
        {"written", {keep_p0}, {moves_r6, back_p1}, store_if_p1},
        {"written at times", {keep_p0}, {moves_at_times, back_p1}, store_if_p1},
        {"perhaps written", {keep_p0}, {product, back_p1}, store_if_p1},
        {"written before", {keep_p0, moves_r6}, {back_p1}, store_if_p1},
        {"the other one anew",
         {keep_p0},
         {back_p1, {0x000000ff0700720c, 0x0003f22270}},
         store_if_p1},
        {"written on one way",
         {keep_p0, over_one, moves_r6},
         {back_p1},
         store_if_p1},
        {"loaded on one way",
         {keep_p0},
         {over_three, loads_r2, r2_if_p0, r3_if_p0, back_p1},
         store_if_p1},
        {"written behind",
         {keep_p0},
         {back_p1, {0x000000ff0700720c, 0x0003f25270}},
         store_if_p1},
        {"equal", {keep_p0}, {equal}, store_if_p1},
        {"and another one", {keep_p0}, {with_p2}, store_if_p1},
        {"or another one", {keep_p0}, {or_p2}, store_if_p1},
        {"another register", {keep_p0}, {of_r8}, store_if_p1},
        {"another number", {keep_p0}, {with_one}, store_if_p1},
        {"with a comparison before", {keep_p0}, {extended}, store_if_p1},
        {"back now and then", {keep_p0}, {back_at_times}, store_if_p1},
    };
    for (const auto &each : all)
        EXPECT_FALSE(verdict_of(stores_where_it_held(each.before, each.behind,
                                                     each.store))
                         .proven())
            << each.what;
}

// Stores behind the second pointer, by a distance that is loaded: R0, and R1
// behind it.
std::vector<word> stores_at_a_distance(word upper)
{
    return {
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x0000000404007981, 0x000c1e1b00}, // LDG.E.64 R0, [R4.64]
        {0x00005a0000027a11, 0x00078010ff}, // LEA R2, P0, R0, c[0x0][0x168], 2
        upper,                              // ... R3, and c[0x0][0x16c]
        store_by_r2,
        end,
    };
}

TEST(proof_decoder, upper_bits_of_a_scaled_number_are_no_part_of_an_address)
{
    using bases = std::vector<proof::base>;
    // LEA.HI.X.SX32 R3, R0, c[0x0][0x16c], 0x2, P0: R0 has 32 bits
    const auto of_32 =
        verdict_of(stores_at_a_distance({0x00005b0000037a11, 0x00000f16ff}));
    EXPECT_TRUE(of_32.proven()) << describe(of_32.why);
    EXPECT_EQ(of_32.bases, (bases{{0, false}, {8, false}}));
    // LEA.HI.X R3, R0, c[0x0][0x16c], R8, 0x2, P0: R8 was never loaded
    const auto beside =
        verdict_of(stores_at_a_distance({0x00005b0000037a11, 0x00000f1408}));
    EXPECT_EQ(beside.bases, (bases{{0, false}, {8, false}}));
    // The same with R1, the upper half of what was loaded
    const auto of_64 =
        verdict_of(stores_at_a_distance({0x00005b0000037a11, 0x00000f1401}));
    EXPECT_EQ(of_64.bases, (bases{{0, false}, {8, true}}));
    // LEA.HI.X R3, R0, c[0x0][0x16c], RZ, 0x4, P0: up to 16 bytes, and 0x5
    EXPECT_EQ(
        verdict_of(stores_at_a_distance({0x00005b0000037a11, 0x00000f24ff}))
            .bases,
        (bases{{0, false}, {8, false}}));
    EXPECT_EQ(
        verdict_of(stores_at_a_distance({0x00005b0000037a11, 0x00000f2cff}))
            .bases,
        (bases{{0, false}, {8, true}}));
    // LEA.HI.X R3, R0, c[0x0][0x16c], RZ, 0x1f, P0: nearly all of R0
    const auto of_most =
        verdict_of(stores_at_a_distance({0x00005b0000037a11, 0x00000ffcff}));
    EXPECT_EQ(of_most.bases, (bases{{0, false}, {8, true}}));
    // LEA.HI.X.SX32 R3, R0, R1, 0x2, P0: the loaded half itself
    EXPECT_FALSE(
        verdict_of(stores_at_a_distance({0x0000000100037211, 0x00000f16ff}))
            .proven());
}

// Adds nothing to the second parameter, for sm_120. If the sum is not 0, the
// address of the store is loaded.
proof::verdict verdict_by_wide_sum(const std::vector<word> &sum,
                                   std::uint64_t number)
{
    std::vector<word> all = {
        {0x0000e000ff047b82, 0x0000000a00}, // LDC.64 R4, c[0x0][0x380]
        {0x0000e200ff067b82, 0x0000000a00}, // LDC.64 R6, c[0x0][0x388]
        {0x00006b00ff0677ac, 0x0008000a00}, // LDCU.64 UR6, c[0x0][0x358]
        {0x00007100ff0877ac, 0x0008000a00}, // LDCU.64 UR8, c[0x0][0x388]
        {0x0000000604007981, 0x000c1e1900}, // LDG.E R0, desc[UR6][R4.64]
        {0x000000ff0000720c, 0x0003f05270}, // ISETP.NE.AND P0, PT, R0, RZ, PT
        {0x00000000000c72ca, 0x00000e0000}, // R2UR UR12, R0
        {0x000000ff0c00728c, 0x000bf05270}, // UISETP.NE.AND UP0, UPT, UR12, ...
    };
    all.insert(all.end(), sum.begin(), sum.end()); // to R8
    all.insert(all.end(),
               {
                   // ISETP.NE.AND P1, PT, R8, RZ, PT
                   {0x000000ff0800720c, 0x0003f25270},
                   {0x0000000400027202, 0x0000000f00}, // MOV R2, R4
                   {0x0000000500037202,
                    0x0000000f00}, // MOV R3, R5
                                   // @P1 LDG.E.64 R2, desc[UR6][R4.64]
                   {0x0000000604021981, 0x000c1e1b00},
                   // STG.E desc[UR6][R2.64], RZ
                   {0x000000ff02007986, 0x000c101906},
                   end,
               });
    const auto code = code_of(all);
    proof::kernel_code kernel;
    kernel.name = "made";
    kernel.sm = 120;
    kernel.code = code;
    kernel.parameters = 0x380;
    kernel.parameter_bytes = 16;
    const std::uint64_t given[] = {some_address, number};
    return proof::prove(
        kernel, {reinterpret_cast<const unsigned char *>(given), sizeof given});
}

TEST(proof_decoder, carry_into_a_wide_sum_leaves_its_number_open)
{
    const word to_r8 = {0x0000000a00087c02, 0x0008000f00}; // MOV R8, UR10
    // IADD.64 R8, R6, RZ, and with a carry by P0. UIADD3.64 UR10, UR8, URZ,
    // URZ, and with a carry by UP0.
    const std::pair<std::vector<word>, std::vector<word>> all[] = {
        {{{0x000000ff06087235, 0x00078e0200}},
         {{0x000000ff06087235, 0x00000e0600}}},
        {{{0x000000ff080a7297, 0x000fffe0ff}, to_r8},
         {{0x000000ff080a7297, 0x00087fe4ff}, to_r8}},
    };
    for (const auto &[plain, carries] : all) {
        const auto none = verdict_by_wide_sum(plain, 0);
        EXPECT_TRUE(none.proven()) << describe(none.why);
        EXPECT_FALSE(verdict_by_wide_sum(plain, 7).proven());
        EXPECT_FALSE(verdict_by_wide_sum(carries, 0).proven());
    }
}

constexpr word r3_of_both = {0x0000000203037212, 0x00078e3cff};
constexpr word r2_of_both = {0x0000000203027212, 0x00078e3cff};

// R2 has the upper half of the second pointer, and R3 the lower one. R6 and R7
// have a loaded pointer.
std::vector<word> stores_after(const std::vector<word> &steps)
{
    std::vector<word> all = {
        {0x00005800ff047624, 0x00078e00ff}, // IMAD.MOV.U32 R4, c[0x0][0x160]
        {0x00005900ff057624, 0x00078e00ff}, // IMAD.MOV.U32 R5, c[0x0][0x164]
        {0x0000460000047ab9, 0x0000000a00}, // ULDC.64 UR4, c[0x0][0x118]
        {0x0000000404067981, 0x000c1e1b00}, // LDG.E.64 R6, [R4.64]
        {0x00005b00ff027624, 0x00078e00ff}, // IMAD.MOV.U32 R2, c[0x0][0x16c]
        {0x00005a00ff037624, 0x00078e00ff}, // IMAD.MOV.U32 R3, c[0x0][0x168]
    };
    all.insert(all.end(), steps.begin(), steps.end());
    all.insert(all.end(), {store_by_r2, end});
    return all;
}

TEST(proof_decoder, registers_that_exclusive_ors_exchange_are_followed)
{
    EXPECT_FALSE(verdict_of(stores_after({})).proven());
    const word r7_is_r6 = {0x0000000600077202, 0x0000000f00}; // MOV R7, R6
    for (const auto &steps :
         {std::vector<word>{r3_of_both, r2_of_both, r3_of_both},
          {r2_of_both, r3_of_both, r2_of_both},
          {r3_of_both, r7_is_r6, r2_of_both, r3_of_both}}) {
        const auto is = verdict_of(stores_after(steps));
        EXPECT_TRUE(is.proven()) << describe(is.why);
        EXPECT_EQ(is.bases, (std::vector<proof::base>{{0, false}, {8, false}}));
    }
    // A loaded pointer stays one.
    const word r2_is_r7 = {0x0000000700027202, 0x0000000f00};
    const word r3_is_r6 = {0x0000000600037202, 0x0000000f00};
    EXPECT_FALSE(verdict_of(stores_after({r2_is_r7, r3_is_r6, r3_of_both,
                                          r2_of_both, r3_of_both}))
                     .proven());
}

TEST(proof_decoder, other_exclusive_ors_exchange_nothing)
{
    const word r2_is_r7 = {0x0000000700027202, 0x0000000f00}; // MOV R2, R7
    const word r3_is_r6 = {0x0000000600037202, 0x0000000f00};
    const word r2_by_r6 = {0x0000000602027212, 0x00078e3cff};
    const word r3_by_r6 = {0x0000000603037212, 0x00078e3cff};
    const word r6_by_r3 = {0x0000000306067212, 0x00078e3cff};
    // HMMA.16816.F32 R0, R100, R104, R4: to R2 and R3, too
    const word product = {0x000000686400723c, 0x0000001804};
    const word ored = {0x0000000203027212, 0x00078efcff};
    const word r2_at_times = {r2_of_both.first ^ 0x6000, r2_of_both.second};
    const word r3_at_times = {r3_of_both.first ^ 0x6000, r3_of_both.second};
    const word to_the_next = {0x0000000000001947, 0x0003800000}; // @P1 BRA
    const word back = {0xffffffe000001947, 0x000383ffff}; // to the one before
    const std::pair<const char *, std::vector<word>> all[] = {
        {"two steps", {r3_of_both, r2_of_both}},
        {"six steps",
         {r3_of_both, r2_of_both, r3_of_both, r3_of_both, r2_of_both,
          r3_of_both}},
        {"one is loaded meanwhile",
         {r3_of_both, r2_is_r7, r2_of_both, r3_of_both}},
        {"one is filled behind another",
         {r3_of_both, product, r2_of_both, r3_of_both}},
        {"the other is", {r3_of_both, r2_of_both, r3_is_r6, r3_of_both}},
        {"with a third one", {r3_of_both, r2_by_r6, r3_of_both}},
        {"no exclusive or", {r3_of_both, ored, r3_of_both}},
        {"now and then", {r3_of_both, r2_at_times, r3_of_both}},
        {"the second step twice",
         {r3_of_both, r2_of_both, r2_of_both, r3_of_both}},
        {"of an immediate", {r3_of_both, with(r2_of_both, 11), r3_of_both}},
        {"with an unknown bit", {r3_of_both, with(r2_of_both, 62), r3_of_both}},
        {"with another bit", {r3_of_both, with(r2_of_both, 63), r3_of_both}},
        {"a third one in the last step", {r3_of_both, r2_of_both, r3_by_r6}},
        {"a third one takes it",
         {r3_of_both, r6_by_r3, {0x0000000600027202, 0x0000000f00}, r3_is_r6}},
        {"the last now and then", {r3_of_both, r2_of_both, r3_at_times}},
        {"a step that is repeated", {r3_of_both, back, r2_of_both, r3_of_both}},
        {"over the begin of a block",
         {r3_of_both, to_the_next, r2_of_both, r3_of_both}},
    };
    for (const auto &[what, steps] : all)
        EXPECT_FALSE(verdict_of(stores_after(steps)).proven()) << what;
}

struct way
{
    const char *name;
    unsigned sm;
    word is;
};

// Behind these nothing comes, as long as they have no other condition.
constexpr way ways[] = {
    {"BRA.U UP0", 100, {0xfffffffd00787547, 0x000b83ffff}},
    {"CALL.REL.NOINC", 80, {0x000017b000007944, 0x0003c00000}},
    {"CALL.REL.NOINC", 90, {0x0000007000a47944, 0x0003c00000}},
    {"CALL.ABS.NOINC R2", 80, {0x0000000002007343, 0x0003c00000}},
    {"RET.REL.NODEC R4", 80, {0xffffe20004007950, 0x0003c3ffff}},
    {"RET.REL.NODEC R44", 90, {0xffffff7c2c287950, 0x0003c3ffff}},
    {"BRX R4", 80, {0xffffedf004007949, 0x000383ffff}},
    {"BRXU UR4", 80, {0xffffef2004007958, 0x000b83ffff}},
};

TEST(proof_decoder, way_with_a_condition_more_is_not_known)
{
    for (const way &each : ways) {
        EXPECT_TRUE(is_known(each.sm, each.is)) << each.name;
        // Another predicate, turned; one of the other kind; another mode.
        for (const unsigned bit : {87U, 88U, 89U, 90U, 91U, 82U, 83U, 85U, 86U})
            EXPECT_FALSE(is_known(each.sm, with(each.is, bit)))
                << each.name << ", bit " << bit;
    }
}

TEST(proof_decoder, condition_before_a_branch_by_a_uniform_one_is_not_followed)
{
    const auto code = code_of({{0xfffffffd00780547, 0x000b83ffff}});
    const auto is = proof::decode(code.data(), proof::sm_100);
    EXPECT_EQ(is.when.value, proof::condition::somehow);
}

TEST(proof_decoder, constant_that_an_index_chooses_the_bank_of_is_not_known)
{
    // LDC.64 R16, c[0x0][R16+0x160]; ULDC.64; LDCU.64 with an index
    for (const auto &[sm, is] :
         {std::pair{80U, word{0x0000580010107b82, 0x0000000a00}},
          {90U, word{0x000058000c0c7abb, 0x0008000a00}},
          {90U, word{0x00008600000a7ab9, 0x0000000a00}},
          {100U, word{0x000080000b1877ac, 0x0008000a00}}}) {
        EXPECT_TRUE(is_known(sm, is));
        for (const unsigned bit : {76U, 78U, 79U, 80U, 90U, 59U, 62U})
            EXPECT_FALSE(is_known(sm, with(is, bit))) << sm << ' ' << bit;
    }
    EXPECT_FALSE(is_known(100, with({0x000080000b1877ac, 0x0008000a00}, 91)));
}

// CS2R has the same bit. Proofs must not take the second register for what it
// was before.
TEST(proof_decoder, long_special_register_fills_a_uniform_pair)
{
    constexpr word of_32_bits = {0x00000000000578cb, 0x00000005000};
    const auto writes = [](word of) {
        const auto code = code_of({of});
        return proof::decode(code.data(), proof::architecture_of(120))
            .most_written();
    };
    EXPECT_EQ(writes(of_32_bits), 1u);
    EXPECT_EQ(writes(with(of_32_bits, 64 + 16)), 2u);
}

TEST(proof_decoder, second_register_of_a_long_special_one_is_no_address)
{
    constexpr word of_32_bits = {0x00000000000478cb, 0x00000005000};
    // The upper half is taken from UR5 behind it.
    const auto verdict = [](word of) {
        const auto code = code_of({
            {0x00007000ff0477ac, 0x00008000a00}, // LDCU.64 UR4, c[0x0][0x380]
            {0x0000000400027c02, 0x00008000f00}, // MOV R2, UR4
            of,                                  // CS2UR UR4, SR_CLOCKLO
            {0x0000000500037c02, 0x00008000f00}, // MOV R3, UR5
            {0x000000ff02007386, 0x0000010e900}, // STG.E.STRONG.GPU [R2], RZ
            end,
        });
        proof::kernel_code kernel;
        kernel.sm = 120;
        kernel.code = code;
        kernel.parameters = 0x380;
        kernel.parameter_bytes = 8;
        return proof::prove(kernel);
    };
    const auto is = verdict(of_32_bits);
    EXPECT_TRUE(is.proven()) << proof::describe(is.why) << " at " << is.where;
    EXPECT_EQ(is.bases, (std::vector<proof::base>{{0, false}}));
    EXPECT_EQ(verdict(with(of_32_bits, 64 + 16)).why,
              proof::obstacle::no_parameter);
}

TEST(proof_decoder, atomic_operation_of_an_unknown_type_fills_four_registers)
{
    const auto width = [](word of, unsigned sm) {
        const auto code = code_of({of});
        return proof::decode(code.data(), proof::architecture_of(sm))
            .width_of_atomic();
    };
    const auto of_type = [](word of, std::uint64_t type) {
        of.second = (of.second & ~(std::uint64_t{7} << 9)) | type << 9;
        return of;
    };
    // ATOMG.E.CAS, ATOMG.E.ADD, ATOMG.E.ADD of floating-point numbers
    constexpr word swap = {0x00000010260373a9, 0x00001ee111};
    constexpr word add = {0x80000007040479a8, 0x00081ef10e};
    constexpr word add_float = {0x0000000412ff79a3, 0x00081ef3d2};
    EXPECT_EQ(width(of_type(swap, 0), 90), 1U);
    EXPECT_EQ(width(of_type(swap, 2), 90), 2U);
    for (const std::uint64_t type : {1, 3, 4, 5, 6, 7})
        EXPECT_EQ(width(of_type(swap, type), 90), 4U) << type;
    EXPECT_EQ(width(of_type(add, 0), 90), 1U);
    EXPECT_EQ(width(of_type(add, 2), 90), 2U);
    EXPECT_EQ(width(of_type(add, 7), 90), 4U);
    EXPECT_EQ(width(of_type(add_float, 1), 90), 1U);
    EXPECT_EQ(width(of_type(add_float, 7), 90), 2U);
    for (const std::uint64_t type : {2, 4, 5, 6})
        EXPECT_EQ(width(of_type(add_float, type), 90), 4U) << type;
    // Types of these have a bit more. Four numbers of F32 are 11.
    word vector = add_float;
    for (const std::uint64_t type : {1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14}) {
        vector.second =
            (add_float.second & ~(std::uint64_t{15} << 9)) | type << 9;
        EXPECT_EQ(width(vector, 90), 4U) << type;
        EXPECT_EQ(width(vector, 120), 4U) << type;
    }
}

TEST(proof_decoder, address_of_a_cache_line_is_looked_at)
{
    // CCTL.E.C.LDCU.IV.DEEP [UR30], which nothing has written
    constexpr word line = {0x000000001e007540, 0x0009c08000};
    const auto code = code_of({line, end});
    proof::kernel_code kernel;
    kernel.sm = 100;
    kernel.code = code;
    kernel.parameters = 0x380;
    EXPECT_FALSE(proof::prove(kernel).proven());
}

// --- nvdisasm's readings ---

// Those that were noted down, of what compilers make for each architecture.
std::vector<reading> noted()
{
    std::vector<reading> all;
    std::ifstream file(PROOF_READINGS);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#')
            continue;
        std::istringstream parts(line);
        reading one;
        parts >> one.sm >> std::hex >> one.low >> one.high;
        std::getline(parts >> std::ws, one.text);
        all.push_back(std::move(one));
    }
    return all;
}

TEST(proof_decoder, agrees_with_the_readings_that_were_noted_down)
{
    const auto all = noted();
    EXPECT_GT(all.size(), 500U) << PROOF_READINGS;
    std::map<unsigned, unsigned> of;
    for (const reading &each : all) {
        const std::string why = difference(each);
        EXPECT_TRUE(why.empty())
            << "sm_" << each.sm << ' ' << std::hex << each.low << ' '
            << each.high << "\n  " << each.text << "\n  " << why;
        of[each.sm]++;
    }
    for (const unsigned sm : {80U, 90U, 100U, 120U})
        EXPECT_GT(of[sm], 100U) << sm;
}

// The text names a target more than the bits do.
TEST(proof_decoder, target_that_the_decoder_does_not_claim_is_a_difference)
{
    struct
    {
        word is;
        const char *text;
        const char *other;
    } const all[] = {
        {{0x0000001305137210, 0x0000791e900},
         "IADD3 R19, P0, P1, -R5, R19, -R0",
         "IADD3 R19, P0, P2, -R5, R19, -R0"},
        {{0x0000001305137210, 0x0000791e900},
         "IADD3 R19, P0, P1, -R5, R19, -R0",
         "IADD3 R20, P0, P1, -R5, R19, -R0"},
        {{0x000000030a067229, 0x00000000006},
         "DADD R6, R10, R6",
         "DADD R5, R10, R6"},
        {{0x0000000f78007804, 0x00000001000},
         "R2P PR, R120.B1, 0xf",
         "R2P PR, R120.B1, 0x1f"},
        {{0x0000000800087311, 0x0000020d800}, // a pair
         "F2I.U64.TRUNC R8, R8",
         "F2I.TRUNC R8, R8"},
        {{0x00000000003f7886, 0x00000000100},
         "VOTEU.ANY UP0, P0",
         "VOTEU.ANY P0, P0"},
    };
    for (const auto &each : all) {
        reading one;
        one.sm = 80;
        one.low = each.is.first;
        one.high = each.is.second;
        one.text = each.text;
        EXPECT_EQ(difference(one), "") << one.text;
        one.text = each.other;
        EXPECT_NE(difference(one), "") << one.text;
    }
}

// The listing of a file that nvdisasm prints; nothing if it cannot read that.
std::string disassembled(const std::string &file)
{
    const std::string command =
        std::string(PROOF_NVDISASM) + " -c -hex '" + file + "' 2>/dev/null";
    FILE *const from = popen(command.c_str(), "r");
    if (from == nullptr)
        return {};
    std::string made;
    std::array<char, 65536> block{};
    for (std::size_t got = 0;
         (got = fread(block.data(), 1, block.size(), from)) > 0;)
        made.append(block.data(), got);
    return pclose(from) == 0 ? made : std::string();
}

// The instructions of a listing, with the ways of branches.
std::vector<reading> read_listing(const std::string &listing, unsigned sm)
{
    // Two lines each: the address, the text, the first half; the second half.
    static const std::regex first(
        R"(^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x([0-9a-f]{16}) \*/.*)");
    static const std::regex second(R"(^\s*/\* 0x([0-9a-f]{16}) \*/.*)");
    static const std::regex label(R"(^(\.L_x_\d+):\s*)");
    static const std::regex target(R"(.*`\((\.L_x_\d+)\).*)");
    std::vector<reading> all;
    std::map<std::string, std::uint64_t> labels;
    std::vector<std::string> named;
    struct jump
    {
        std::size_t which;
        std::uint64_t at;
        std::string to;
    };
    std::vector<jump> jumps;
    std::istringstream lines(listing);
    std::uint64_t at = 0;
    bool open = false;
    for (std::string line; std::getline(lines, line);) {
        std::smatch found;
        if (std::regex_match(line, found, label)) {
            named.push_back(found[1]);
        } else if (std::regex_match(line, found, first)) {
            reading one;
            one.sm = sm;
            at = std::stoull(found[1], nullptr, 16);
            one.text = found[2];
            one.low = std::stoull(found[3], nullptr, 16);
            for (const std::string &each : named)
                labels[each] = at;
            named.clear();
            if (std::smatch to; std::regex_match(one.text, to, target))
                jumps.push_back({all.size(), at, to[1]});
            all.push_back(std::move(one));
            open = true;
        } else if (open && std::regex_match(line, found, second)) {
            all.back().high = std::stoull(found[1], nullptr, 16);
            open = false;
        }
    }
    for (const jump &each : jumps)
        if (const auto to = labels.find(each.to); to != labels.end())
            all[each.which].distance = static_cast<std::int64_t>(to->second) -
                                       static_cast<std::int64_t>(each.at) - 16;
    return all;
}

class proof_readings : public testing::TestWithParam<unsigned>
{};

TEST_P(proof_readings, are_nvdisasms)
{
    if (std::strcmp(PROOF_NVDISASM, "") == 0)
        GTEST_SKIP() << "nvdisasm is not installed: the decoder is compared "
                        "with noted readings alone (EMUV_NVDISASM names it)";
    const unsigned sm = GetParam();
    std::size_t branches = 0;
    std::size_t instructions = 0;
    for (const char *const kind : {"", ".spilled"}) {
        const std::string file = std::string(PROOF_FOLDER "/kernels.sm_") +
                                 std::to_string(sm) + kind + ".cubin";
        const auto all = read_listing(disassembled(file), sm);
        if (all.empty())
            GTEST_SKIP() << PROOF_NVDISASM << " is too old for sm_" << sm
                         << ": that is compared with noted readings alone";
        for (const reading &each : all) {
            const std::string why = difference(each);
            EXPECT_TRUE(why.empty()) << std::hex << each.low << ' ' << each.high
                                     << "\n  " << each.text << "\n  " << why;
            branches += each.distance ? 1 : 0;
            instructions++;
        }
    }
    EXPECT_GT(instructions, 1000U);
    EXPECT_GT(branches, 100U);
}

INSTANTIATE_TEST_SUITE_P(sm, proof_readings, testing::Values(80, 90, 100, 120),
                         testing::PrintToStringParamName());

} // namespace
