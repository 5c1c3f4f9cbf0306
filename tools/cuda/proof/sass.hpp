// SPDX-License-Identifier: LGPL-2.1-or-later
// Machine code of NVIDIA's cards, as far as a proof needs it: which registers
// an instruction reads and writes, and what it makes of addresses.
//
// The encoding is undocumented. Each row of the table was compared with
// nvdisasm's reading; what no row names is unknown, and never proven.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace emuv::cuda::proof {

/// The architectures that the decoder knows, as bits.
enum architecture : std::uint8_t
{
    sm_8x = 1, ///< 80, 86, 89
    sm_90 = 2,
    sm_100 = 4,
    sm_120 = 8,
};

/// The bit of the compute capability @p sm (80, 86, ...), or 0.
std::uint8_t architecture_of(unsigned sm);

/// The effect of an instruction on addresses.
enum class effect : std::uint8_t
{
    unknown,
    nothing,      ///< writes no register but predicates
    number,       ///< writes what can be no address
    conversion,   ///< writes such a number, or a pair
    mixed,        ///< writes a number that its sources went into
    copy,         ///< A or B
    copy_wide,    ///< a pair of registers, or a wide immediate
    sum,          ///< A + B + C
    sum_wide,     ///< pairs of registers
    product,      ///< A * B + C
    product_wide, ///< A * B + the pair C, a pair
    product_high, ///< the upper half of A * B, + C
    scaled_sum,   ///< (A << s) + B, or the upper half of that
    logic,        ///< a function of the bits of A, B and C
    shift,        ///< of the pair C:A
    permute,      ///< the bytes of A and C
    choice,       ///< A or B
    choice_wide,  ///< of pairs
    extreme,      ///< A or B; a bit says whether they are pairs
    extreme_of_three,
    extreme_of_sum, ///< A + B, or C
    exchange,       ///< A, of another thread
    load_constant,
    special,        ///< a special register
    load,           ///< from an address
    load_both,      ///< from an address, to two runs of registers
    load_elsewhere, ///< from shared or local memory: registers hold what was
                    ///< found there
    store,
    atomic,
    reduction,
    copy_to_shared,
    tensor_map, ///< reads a descriptor
    cache_control,
    cache_control_uniform, ///< by an address in uniform registers
    branch,
    branch_indexed,
    call,
    call_absolute,
    give_back, ///< returns from a call
    leave,     ///< ends the thread
    mark,      ///< names a point where threads meet again
    meet,      ///< waits there
    collect,   ///< may go on at another point
    program_counter,
    keep_predicates, ///< in a byte of a register; the rest of it is of A
    set_predicates,  ///< from a byte of A
    compare,         ///< A with B: writes a predicate
    of_predicates,   ///< a function of three predicates: writes one
};

/// How the fields of an instruction lie.
enum class layout : std::uint8_t
{
    none,
    vector,     ///< D, A, B, C by the form
    uniform,    ///< the same, uniform registers
    from_b,     ///< D and B alone
    to_uniform, ///< a uniform D from a register A
    from_c,     ///< D and A, with B and C where loads have them
    memory,     ///< D, an address in A
    compared,   ///< A and B alone
    compared_uniform,
};

struct operation
{
    const char *name; ///< nvdisasm's, without modifiers
    effect does = effect::unknown;
    layout fields = layout::none;
    /// Registers that it surely writes, and those that it may write.
    std::uint8_t writes = 0;
    std::uint8_t may_write = 0;
    /// Which predicates it may write: those at bit 81, and at bit 84.
    bool predicate_81 = false;
    bool predicate_84 = false;
};

struct operand
{
    enum class kind : std::uint8_t
    {
        none,
        reg,
        immediate,
        constant,  ///< of a bank
        elsewhere, ///< of a bank that a register names
    };
    kind is = kind::none;
    bool negative = false; ///< or its bits inverted
    std::uint8_t bank = 0;
    /// A register: those from `first_uniform` on are uniform ones. An operand
    /// that reads as zero is an immediate.
    std::uint16_t reg = 0;
    std::uint32_t value = 0; ///< or the offset in the bank
};

constexpr std::uint16_t first_uniform = 256;
constexpr std::uint16_t registers = 512;
constexpr std::uint16_t no_register = 0xffff;
constexpr std::uint8_t no_predicate = 0xff;

/// The memory that an operation reaches.
enum class space : std::uint8_t
{
    none,
    global,
    generic, ///< any of the other three
    shared,
    local, ///< the thread's own
};

/// The condition under which an instruction takes effect.
struct condition
{
    static constexpr std::uint8_t always = 0xff;
    static constexpr std::uint8_t somehow = 0xfe; ///< one that is not followed
    /// The predicate (uniform ones from 8 on), and 16 if it is negated.
    std::uint8_t value = always;

    friend bool operator==(condition, condition) = default;
    [[nodiscard]] condition opposite() const
    {
        if (value >= somehow)
            return {somehow};
        return {static_cast<std::uint8_t>(value ^ 16U)};
    }
};

struct instruction
{
    const operation *of = nullptr; ///< null for what is not known
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    condition when;
    std::uint16_t to = no_register;
    operand a;
    operand b;
    operand c;
    std::uint8_t architecture = 0;

    /// Bits @p from to @p end - 1, of 128.
    [[nodiscard]] std::uint64_t bits(unsigned from, unsigned end) const
    {
        const std::uint64_t word = from >= 64 ? high >> (from - 64)
                                   : end <= 64 || from == 0
                                       ? low >> from
                                       : low >> from | high << (64 - from);
        const unsigned count = end - from;
        return count >= 64 ? word : word & ((std::uint64_t{1} << count) - 1);
    }
    [[nodiscard]] bool bit(unsigned at) const { return bits(at, at + 1) != 0; }
    /// The way that a branch leads, from the instruction behind it, in bytes.
    [[nodiscard]] std::int64_t distance() const;
    [[nodiscard]] space reaches() const;
    /// The first of two uniform registers that are added to the address of an
    /// access, or hold its descriptor. None where there are no such ones.
    [[nodiscard]] std::uint16_t uniform_in_address() const;
    /// The uniform register at bit @p at.
    [[nodiscard]] std::uint16_t uniform_at(unsigned at) const;
    /// The registers that a load of its width fills: 1, 2 or 4.
    [[nodiscard]] unsigned width() const;
    /// The registers that an atomic operation may fill: 1, 2 or 4.
    [[nodiscard]] unsigned width_of_atomic() const;
    /// True for one of the special registers that a pair of registers takes,
    /// all of it or half: CS2R and CS2UR. S2R and S2UR read others.
    [[nodiscard]] bool reads_long_special() const;
    /// True for one that writes a pair of registers, of operations that write
    /// one register or two.
    [[nodiscard]] bool writes_pair() const;
    /// The registers that it may write, from its target on. A load to two runs
    /// fills as many of the second.
    [[nodiscard]] unsigned most_written() const;
    /// The predicates that it may write, as bits: uniform ones from 8 on.
    [[nodiscard]] std::uint16_t predicates_written() const;
    /// The predicate that has its result, not the opposite of that.
    [[nodiscard]] std::uint8_t predicate_of_result() const;
    /// True for a branch that each thread takes by the condition before it,
    /// and perhaps one more. Others go by what threads do together.
    [[nodiscard]] bool goes_alone() const;
    /// True for such a branch, or an end, with no condition but the one before
    /// it.
    [[nodiscard]] bool has_one_condition() const;
};

/// Reads the instruction at @p at, 16 bytes.
instruction decode(const unsigned char *at, std::uint8_t architecture);

} // namespace emuv::cuda::proof
