// SPDX-License-Identifier: LGPL-2.1-or-later
// Machine code of NVIDIA's cards, as far as a proof needs it.
#include "proof/sass.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace emuv::cuda::proof {

namespace {

// The low nine bits of an operation say what it does, the next three say what
// its operands are.
struct row
{
    std::uint16_t base;
    std::uint8_t forms; // as bits
    std::uint8_t on;    // architectures
    operation of;
};

constexpr std::uint8_t any = 0xfe;
constexpr std::uint8_t form(unsigned of)
{
    return static_cast<std::uint8_t>(1U << of);
}
constexpr std::uint8_t all = sm_8x | sm_90 | sm_100 | sm_120;
constexpr std::uint8_t since_90 = sm_90 | sm_100 | sm_120;
constexpr std::uint8_t since_100 = sm_100 | sm_120;
constexpr std::uint8_t before_120 = sm_8x | sm_90 | sm_100;
constexpr std::uint8_t only_90_100 = sm_90 | sm_100;

constexpr operation quiet(const char *name)
{
    return {name, effect::nothing, layout::none, 0, 0, false, false};
}
constexpr operation compares(const char *name)
{
    return {name, effect::nothing, layout::none, 0, 0, true, true};
}
constexpr operation compares(const char *name, effect does, layout fields)
{
    return {name, does, fields, 0, 0, true, true};
}
constexpr operation makes(const char *name, std::uint8_t writes,
                          std::uint8_t may_write,
                          layout fields = layout::vector)
{
    return {name, effect::number, fields, writes, may_write, false, false};
}
constexpr operation takes(const char *name, effect does, layout fields,
                          std::uint8_t writes = 1)
{
    return {name, does, fields, writes, writes, false, false};
}
// With a predicate, or two of them, as targets.
constexpr operation one(operation of)
{
    of.predicate_81 = true;
    return of;
}
constexpr operation two(operation of)
{
    of.predicate_81 = true;
    of.predicate_84 = true;
    return of;
}
constexpr operation reaches(const char *name, effect does)
{
    return {name, does, layout::memory, 0, 0, false, false};
}
constexpr operation goes(const char *name, effect does)
{
    return {name, does, layout::none, 0, 0, false, false};
}

constexpr row rows[] = {
    // Arithmetic on what is no address.
    {0x008, any, all, takes("FSEL", effect::choice, layout::vector)},
    {0x009, any, all, makes("FMNMX", 1, 1)},
    {0x00a, any, all, makes("FSET", 1, 1)},
    {0x00b, any, all, compares("FSETP")},
    {0x020, any, all, makes("FMUL", 1, 1)},
    {0x021, any, all, makes("FADD", 1, 1)},
    {0x023, any, all, makes("FFMA", 1, 1)},
    {0x028, any, all, makes("DMUL", 2, 2)},
    {0x029, any, all, makes("DADD", 2, 2)},
    {0x02a, any, all, compares("DSETP")},
    {0x02b, any, all, makes("DFMA", 2, 2)},
    {0x030, any, all, makes("HADD2", 1, 1)},
    {0x031, any, all, makes("HFMA2", 1, 1)},
    {0x032, any, all, makes("HMUL2", 1, 1)},
    {0x033, any, all, makes("HSET2", 1, 1)},
    {0x034, any, all, compares("HSETP2")},
    {0x035, any, sm_8x | sm_90, makes("HFMA2", 1, 1)},
    {0x037, form(1), all, makes("IMMA", 1, 4)},
    {0x039, any, all, makes("I2IP", 1, 1)},
    {0x03a, form(1), sm_8x | sm_90,
     takes("MOVM", effect::mixed, layout::from_b)},
    {0x03c, form(1), all, makes("HMMA", 1, 4)},
    {0x03e, any, all, makes("F2FP", 1, 1)},
    {0x03f, form(1), all, makes("DMMA", 2, 8)},
    {0x040, any, all, makes("HMNMX2", 1, 1)},
    {0x043, any, since_90, makes("F2IP", 1, 1)},
    {0x045, any, all, makes("I2FP", 1, 1)},
    {0x049, any, sm_100, makes("FFMA2", 2, 2)},
    {0x076, any, sm_100, makes("FMNMX3", 1, 1)},
    {0x07a, form(1), sm_8x | sm_120, makes("QMMA", 1, 4)},
    {0x102,
     any,
     all,
     {"FCHK", effect::nothing, layout::none, 0, 0, true, false}},
    {0x104, any, all, takes("F2F", effect::conversion, layout::from_b)},
    {0x105, any, all, takes("F2I", effect::conversion, layout::from_b)},
    {0x106, any, all, takes("I2F", effect::conversion, layout::from_b)},
    {0x107, any, all, takes("FRND", effect::conversion, layout::from_b)},
    {0x108, any, all, makes("MUFU", 1, 1, layout::from_b)},
    {0x110, any, all, takes("F2F", effect::conversion, layout::from_b)},
    {0x111, any, all, takes("F2I", effect::conversion, layout::from_b)},
    {0x112, any, all, takes("I2F", effect::conversion, layout::from_b)},
    {0x113, any, all, takes("FRND", effect::conversion, layout::from_b)},
    // Arithmetic that may make an address.
    {0x002, form(1) | form(4) | form(5) | form(6), all,
     takes("MOV", effect::copy, layout::from_b)},
    {0x002, form(2), sm_120, takes("MOV", effect::number, layout::none, 2)},
    {0x003, form(4), all,
     takes("P2R", effect::keep_predicates, layout::vector)},
    {0x004,
     form(4),
     all,
     {"R2P", effect::set_predicates, layout::compared, 0, 0, false, false}},
    {0x005, form(4), all, takes("CS2R", effect::special, layout::none)},
    {0x006, form(4), all, one(takes("VOTE", effect::number, layout::none))},
    {0x007, form(1) | form(4) | form(5) | form(6), all,
     takes("SEL", effect::choice, layout::vector)},
    {0x007, form(2) | form(3) | form(7), sm_120,
     takes("SEL", effect::choice_wide, layout::vector, 2)},
    {0x00c, any, all, compares("ISETP", effect::compare, layout::compared)},
    {0x00f, any, only_90_100,
     takes("VIMNMX3", effect::extreme_of_three, layout::vector)},
    {0x010, any, all, two(takes("IADD3", effect::sum, layout::vector))},
    {0x011, any, all, one(takes("LEA", effect::scaled_sum, layout::vector))},
    {0x012, any, all, one(takes("LOP3", effect::logic, layout::vector))},
    {0x013, any, all, takes("IABS", effect::mixed, layout::from_b)},
    {0x016, any, all, takes("PRMT", effect::permute, layout::vector)},
    {0x017, any, sm_8x, takes("IMNMX", effect::extreme, layout::vector)},
    {0x017, any, sm_120, two(takes("IMNMX", effect::extreme, layout::vector))},
    {0x019, any, all, takes("SHF", effect::shift, layout::vector)},
    {0x01a, any, all, takes("SGXT", effect::mixed, layout::vector)},
    {0x01b, any, all, takes("BMSK", effect::mixed, layout::vector)},
    {0x01c, form(4), all,
     compares("PLOP3", effect::of_predicates, layout::none)},
    {0x024, any, all, one(takes("IMAD", effect::product, layout::vector))},
    {0x025, any, all,
     one(takes("IMAD", effect::product_wide, layout::vector, 2))},
    {0x026, any, all, takes("IDP", effect::mixed, layout::vector)},
    {0x027, any, all, one(takes("IMAD", effect::product_high, layout::vector))},
    {0x035, form(1) | form(4) | form(6), sm_120,
     one(takes("IADD", effect::sum_wide, layout::vector))},
    {0x036, form(1) | form(4) | form(5) | form(6), only_90_100,
     takes("VIADD", effect::sum, layout::vector)},
    {0x046, any, only_90_100,
     takes("VIADDMNMX", effect::extreme_of_sum, layout::vector)},
    {0x048, any, since_90,
     two(takes("VIMNMX", effect::extreme, layout::vector))},
    {0x100, any, all, one(takes("FLO", effect::mixed, layout::from_b))},
    {0x101, any, all, takes("BREV", effect::mixed, layout::from_b)},
    {0x109, any, all, takes("POPC", effect::mixed, layout::from_b)},
    {0x189, form(1) | form(2) | form(4) | form(7), all,
     one(takes("SHFL", effect::exchange, layout::from_c))},
    {0x1a1, form(1), all, one(takes("MATCH", effect::number, layout::from_c))},
    {0x119, form(4), all, takes("S2R", effect::special, layout::none)},
    {0x11c, form(1), all, one(takes("B2R", effect::number, layout::none))},
    // The same in uniform registers.
    {0x04a, form(1) | form(4), sm_120,
     two(takes("UVIMNMX", effect::extreme, layout::uniform))},
    {0x051, any, sm_120, takes("UFSEL", effect::choice, layout::uniform)},
    {0x053, any, sm_120, compares("UFSETP")},
    {0x054, any, sm_120, makes("UFADD", 1, 1, layout::uniform)},
    {0x055, any, sm_120, makes("UFFMA", 1, 1, layout::uniform)},
    {0x056, any, sm_120, makes("UFMUL", 1, 1, layout::uniform)},
    {0x05a, any, sm_120, makes("UI2F", 1, 1, layout::uniform)},
    {0x05c, any, sm_120, makes("UF2I", 1, 1, layout::uniform)},
    {0x05e, any, sm_120, makes("UI2FP", 1, 1, layout::uniform)},
    {0x082, form(4) | form(6), all,
     takes("UMOV", effect::copy, layout::uniform)},
    {0x082, form(2), sm_120, takes("UMOV", effect::number, layout::uniform, 2)},
    {0x083, form(4), all, takes("UP2UR", effect::number, layout::uniform)},
    {0x085, form(1) | form(4), sm_120,
     two(takes("UIMNMX", effect::extreme, layout::uniform))},
    {0x086, form(4), all,
     one(takes("VOTEU", effect::number, layout::to_uniform))},
    {0x087, form(1) | form(4), all,
     takes("USEL", effect::choice, layout::uniform)},
    {0x087, form(2) | form(6), sm_120,
     takes("USEL", effect::choice_wide, layout::uniform, 2)},
    {0x08c, form(1) | form(4), all,
     compares("UISETP", effect::compare, layout::compared_uniform)},
    {0x090, form(1) | form(2) | form(4), all,
     two(takes("UIADD3", effect::sum, layout::uniform))},
    {0x091, form(1) | form(2) | form(4), all,
     one(takes("ULEA", effect::scaled_sum, layout::uniform))},
    {0x092, form(1) | form(2) | form(4), all,
     one(takes("ULOP3", effect::logic, layout::uniform))},
    {0x096, form(1) | form(2) | form(4), all,
     takes("UPRMT", effect::permute, layout::uniform)},
    {0x097, form(1) | form(4), since_90,
     two(takes("UIADD3", effect::sum_wide, layout::uniform, 2))},
    {0x099, form(1) | form(2) | form(4), all,
     takes("USHF", effect::shift, layout::uniform)},
    {0x09a, form(1) | form(4), all,
     takes("USGXT", effect::mixed, layout::uniform)},
    {0x09b, form(1) | form(4), all,
     takes("UBMSK", effect::mixed, layout::uniform)},
    {0x09c, form(4), all,
     compares("UPLOP3", effect::of_predicates, layout::none)},
    {0x0a4, form(1) | form(2) | form(4), all,
     one(takes("UIMAD", effect::product, layout::uniform))},
    {0x0a5, form(1) | form(2) | form(4), all,
     one(takes("UIMAD", effect::product_wide, layout::uniform, 2))},
    {0x0a6, form(1) | form(2) | form(4), sm_120,
     one(takes("UIMAD", effect::product_high, layout::uniform))},
    {0x0bd, form(1), all, one(takes("UFLO", effect::mixed, layout::uniform))},
    {0x0be, form(1), all, takes("UBREV", effect::mixed, layout::uniform)},
    {0x0bf, form(1), all, takes("UPOPC", effect::mixed, layout::uniform)},
    {0x0ca, form(1), since_90,
     one(takes("R2UR", effect::copy, layout::to_uniform))},
    {0x0cb, form(4), sm_120,
     takes("CS2UR", effect::special, layout::to_uniform)},
    {0x0cc, form(1), sm_100,
     takes("CREDUX", effect::mixed, layout::to_uniform)},
    {0x1c2, form(1), sm_8x,
     one(takes("R2UR", effect::copy, layout::to_uniform))},
    {0x1c3, form(4), all, takes("S2UR", effect::special, layout::to_uniform)},
    {0x1c4, form(1), all, takes("REDUX", effect::mixed, layout::to_uniform)},
    {0x02f, form(4), since_90,
     one(takes("ELECT", effect::number, layout::to_uniform))},
    // Memory.
    {0x182,
     form(5),
     all,
     {"LDC", effect::load_constant, layout::from_c, 0, 0, false, false}},
    {0x0b9,
     form(5),
     sm_8x | sm_90,
     {"ULDC", effect::load_constant, layout::to_uniform, 0, 0, false, false}},
    {0x0bb,
     form(5),
     sm_8x | sm_90,
     {"ULDC", effect::load_constant, layout::to_uniform, 0, 0, false, false}},
    {0x1ac,
     form(3),
     since_100,
     {"LDCU", effect::load_constant, layout::to_uniform, 0, 0, false, false}},
    {0x180, form(4), all, reaches("LD", effect::load)},
    {0x181, form(1) | form(4), all, one(reaches("LDG", effect::load))},
    {0x17e, form(4), since_100, reaches("LDG", effect::load_both)},
    {0x17f, form(4), since_100, reaches("STG", effect::store)},
    {0x183, form(4), all, reaches("LDL", effect::load_elsewhere)},
    {0x184, form(4), all, reaches("LDS", effect::load_elsewhere)},
    {0x03b, form(4), all, reaches("LDSM", effect::load_elsewhere)},
    {0x185, form(1) | form(4), all, reaches("ST", effect::store)},
    {0x186, form(1) | form(4), all, reaches("STG", effect::store)},
    {0x187, form(1) | form(4), all, reaches("STL", effect::nothing)},
    {0x188, form(1) | form(4), all, reaches("STS", effect::nothing)},
    {0x044, form(4), since_90, reaches("STSM", effect::nothing)},
    {0x18a, form(4), all, one(reaches("ATOM", effect::atomic))},
    {0x18b, form(1), all, one(reaches("ATOM", effect::atomic))},
    {0x1a2, form(1) | form(4), since_90, one(reaches("ATOM", effect::atomic))},
    {0x1a3, form(1) | form(4), since_90, one(reaches("ATOMG", effect::atomic))},
    {0x1a8, form(1) | form(4), all, one(reaches("ATOMG", effect::atomic))},
    {0x1a9, form(1), all, one(reaches("ATOMG", effect::atomic))},
    {0x18c, form(1) | form(4) | form(7), all,
     reaches("ATOMS", effect::load_elsewhere)},
    {0x18d, form(1), all, reaches("ATOMS", effect::load_elsewhere)},
    // It gives a predicate alone.
    {0x18d, form(2), all, one(reaches("ATOMS", effect::nothing))},
    {0x18e, form(4), sm_8x, reaches("RED", effect::reduction)},
    {0x18e, form(4), since_90, reaches("REDG", effect::reduction)},
    {0x1a6, form(4), since_90, reaches("REDG", effect::reduction)},
    {0x18f, form(4), all, reaches("CCTL", effect::cache_control)},
    {0x140, form(2), sm_100, goes("CCTL", effect::cache_control_uniform)},
    {0x1ae, form(6) | form(7), all, reaches("LDGSTS", effect::copy_to_shared)},
    {0x1b4, form(1) | form(2), only_90_100,
     reaches("UTMALDG", effect::tensor_map)},
    {0x1b5, form(1), only_90_100, reaches("UTMASTG", effect::tensor_map)},
    {0x1b6, form(1), only_90_100, reaches("UTMAREDG", effect::tensor_map)},
    {0x1b8, form(1) | form(2), sm_90, reaches("UTMAPF", effect::tensor_map)},
    {0x1b9, form(4), only_90_100, reaches("UTMACCTL", effect::tensor_map)},
    {0x1b7, form(4), only_90_100, quiet("UTMACMDFLUSH")},
    {0x1aa,
     form(1) | form(4),
     all,
     {"QSPC", effect::nothing, layout::none, 0, 0, true, false}},
    // Waiting.
    {0x02d, form(4), since_90, quiet("PREEXIT")},
    {0x02e, form(4), since_90, quiet("ACQBULK")},
    {0x118, form(4), all, quiet("NOP")},
    {0x11a, form(4), all, quiet("DEPBAR")},
    {0x11b, form(4), since_90, quiet("ENDCOLLECTIVE")},
    {0x11d, form(1) | form(2) | form(5), all, quiet("BAR")},
    {0x142, form(4), all, quiet("BREAK")},
    {0x146, form(4), all, quiet("YIELD")},
    {0x15c, form(4), all, quiet("BPT")},
    {0x15d, form(1) | form(4), all, quiet("NANOSLEEP")},
    {0x192, form(4), all, quiet("MEMBAR")},
    {0x1ab, form(4), all, quiet("ERRBAR")},
    {0x1ab, form(2), since_90, quiet("CGAERRBAR")},
    {0x1af, form(4), all, quiet("LDGDEPBAR")},
    {0x1b0, form(4), all, quiet("ARRIVES")},
    {0x1a7,
     form(2),
     since_90,
     {"SYNCS", effect::nothing, layout::none, 0, 0, true, false}},
    // It arrives at a barrier. It has other bits in place of predicates.
    {0x1a7,
     form(4),
     since_90,
     {"SYNCS", effect::load_elsewhere, layout::memory, 0, 2, false, false}},
    {0x1b1, form(4), since_90, quiet("SYNCS")},
    {0x1b2,
     form(2),
     since_90,
     {"SYNCS", effect::load_elsewhere, layout::to_uniform, 2, 2, true, true}},
    {0x1bd, form(6), only_90_100, quiet("STAS")},
    {0x1c5, form(4), sm_90, quiet("WARPGROUP")},
    {0x1c6, form(1), since_90, quiet("FENCE")},
    {0x1c7, form(4), since_90, quiet("UCGABAR_ARV")},
    {0x1c7, form(6), since_90, quiet("UCGABAR_WAIT")},
    {0x1c8,
     form(4),
     only_90_100,
     {"USETMAXREG", effect::nothing, layout::none, 0, 0, true, true}},
    {0x1c9, form(4), sm_90, quiet("USETSHMSZ")},
    {0x1f0, form(4) | form(6), sm_90, makes("HGMMA", 0, 128, layout::from_c)},
    {0x1f1, form(4) | form(6), sm_90, makes("IGMMA", 0, 128, layout::from_c)},
    {0x1f2, form(4) | form(6), sm_90, makes("BGMMA", 0, 128, layout::from_c)},
    {0x1f3, form(4) | form(6), sm_90, makes("QGMMA", 0, 128, layout::from_c)},
    // The way through the code.
    {0x143, form(1), all, goes("CALL", effect::call_absolute)},
    {0x144, form(4), all, goes("CALL", effect::call)},
    {0x145, form(4), all, goes("BSSY", effect::mark)},
    {0x141, form(4), all, goes("BSYNC", effect::meet)},
    {0x147, form(4), all, goes("BRA", effect::branch)},
    {0x147, form(2), since_90, goes("BRA", effect::branch)},
    {0x148, form(1) | form(4), all, goes("WARPSYNC", effect::collect)},
    {0x149, form(4), all, goes("BRX", effect::branch_indexed)},
    {0x158, form(4), all, goes("BRXU", effect::branch_indexed)},
    {0x14d, form(4), all, goes("EXIT", effect::leave)},
    {0x14e, form(1), sm_8x,
     takes("LEPC", effect::program_counter, layout::none, 2)},
    {0x14e, form(4), since_90,
     takes("LEPC", effect::program_counter, layout::none, 2)},
    {0x150, form(4), all, goes("RET", effect::give_back)},
    {0x155, form(1), all, takes("BMOV", effect::number, layout::none)},
    {0x156, form(1), all, quiet("BMOV")},
};

// For each operation of twelve bits the row of each architecture, or 0.
struct table
{
    std::array<std::array<std::uint8_t, 4>, 4096> row_of{};

    constexpr table()
    {
        static_assert(std::size(rows) < 255);
        for (std::size_t i = 0; i < std::size(rows); i++)
            for (unsigned of = 0; of < 8; of++)
                for (unsigned on = 0; on < 4; on++)
                    if ((rows[i].forms >> of & 1U) != 0 &&
                        (rows[i].on >> on & 1U) != 0)
                        row_of[of << 9 | rows[i].base][on] =
                            static_cast<std::uint8_t>(i + 1);
    }
};
constexpr table operations;

unsigned index_of(std::uint8_t architecture)
{
    return architecture == sm_8x    ? 0
           : architecture == sm_90  ? 1
           : architecture == sm_100 ? 2
                                    : 3;
}

class reader
{
public:
    explicit reader(instruction &out) : out_(out) {}

    // @return whether all fields make sense
    bool read(layout fields, unsigned form)
    {
        switch (fields) {
        case layout::none:
            out_.to = vector_at(16);
            return true;
        case layout::vector:
            out_.to = vector_at(16);
            out_.a = vector_operand(24, 72);
            read_b_and_c(form, false);
            break;
        case layout::from_b:
            out_.to = vector_at(16);
            read_b_and_c(form, false);
            out_.c = {};
            break;
        case layout::uniform:
            out_.to = uniform_at(16);
            out_.a = uniform_operand(24, 72);
            read_b_and_c(form, true);
            break;
        case layout::to_uniform:
            out_.to = uniform_at(16);
            out_.a = vector_operand(24, 128);
            break;
        case layout::from_c:
        case layout::memory:
            out_.to = vector_at(16);
            out_.a = vector_operand(24, 128);
            break;
        case layout::compared:
            out_.a = vector_operand(24, 128);
            read_second(form, false);
            break;
        case layout::compared_uniform:
            out_.a = uniform_operand(24, 128);
            read_second(form, true);
            break;
        }
        return sound_;
    }

    operand uniform_operand(unsigned at, unsigned negated)
    {
        operand made;
        made.reg = uniform_at(at);
        made.is = operand::kind::reg;
        if (made.reg == no_register)
            made = zero();
        made.negative = negated < 128 && out_.bit(negated);
        return made;
    }

    operand vector_operand(unsigned at, unsigned negated) const
    {
        operand made;
        made.reg = vector_at(at);
        made.is = operand::kind::reg;
        if (made.reg == no_register)
            made = zero();
        made.negative = negated < 128 && out_.bit(negated);
        return made;
    }

    operand constant_operand(unsigned offset_at) const
    {
        operand made;
        made.is =
            out_.bit(91) ? operand::kind::elsewhere : operand::kind::constant;
        if (out_.bits(59, 62) != 0) // not known
            made.is = operand::kind::elsewhere;
        made.bank = static_cast<std::uint8_t>(out_.bits(54, 59));
        made.value = static_cast<std::uint32_t>(out_.bits(offset_at, 54));
        made.negative = out_.bit(63);
        return made;
    }

private:
    static operand zero()
    {
        operand made;
        made.is = operand::kind::immediate;
        return made;
    }

    std::uint16_t vector_at(unsigned at) const
    {
        const auto number = out_.bits(at, at + 8);
        return number == 255 ? no_register : static_cast<std::uint16_t>(number);
    }

    std::uint16_t uniform_at(unsigned at)
    {
        const auto number = out_.bits(at, at + 8);
        const bool many = (out_.architecture & since_100) != 0;
        if (number == (many ? 255U : 63U))
            return no_register;
        if (!many && number > 63)
            sound_ = false;
        return static_cast<std::uint16_t>(first_uniform + number);
    }

    operand immediate() const
    {
        operand made;
        made.is = operand::kind::immediate;
        made.value = static_cast<std::uint32_t>(out_.bits(32, 64));
        return made;
    }

    void read_b_and_c(unsigned form, bool uniform)
    {
        const auto reg = [&](unsigned at, unsigned negated) {
            return uniform ? uniform_operand(at, negated)
                           : vector_operand(at, negated);
        };
        switch (form) {
        case 1:
            out_.b = reg(32, 63);
            out_.c = reg(64, 75);
            break;
        case 2:
            out_.b = reg(64, 75);
            out_.c = immediate();
            break;
        case 3:
            out_.b = reg(64, 75);
            out_.c = constant_operand(38);
            break;
        case 4:
            out_.b = immediate();
            out_.c = reg(64, 75);
            break;
        case 5:
            out_.b = constant_operand(38);
            out_.c = reg(64, 75);
            break;
        case 6:
            out_.b = uniform_operand(32, 63);
            out_.c = reg(64, 75);
            break;
        case 7:
            out_.b = reg(64, 75);
            out_.c = uniform_operand(32, 63);
            break;
        default:
            sound_ = false;
        }
    }

    // The second number of a comparison: none other is there.
    void read_second(unsigned form, bool uniform)
    {
        switch (form) {
        case 1:
            out_.b =
                uniform ? uniform_operand(32, 128) : vector_operand(32, 128);
            break;
        case 4:
            out_.b = immediate();
            break;
        case 5:
            out_.b = constant_operand(38);
            break;
        case 6:
            out_.b = uniform_operand(32, 128);
            break;
        default:
            out_.b.is = operand::kind::elsewhere;
        }
    }

    instruction &out_;
    bool sound_ = true;
};

// The predicate that stands before it: uniform operations have uniform ones.
condition condition_of(const instruction &what, bool known)
{
    const auto number = static_cast<std::uint8_t>(what.bits(12, 15));
    const bool negated = what.bit(15);
    const bool always = number == 7 && !negated;
    if (!known)
        return {condition::somehow};
    const char *const name = what.of->name;
    // A move in some of four threads.
    if (std::strcmp(name, "MOV") == 0 && what.bits(9, 12) != 2 &&
        what.bits(72, 76) != 15)
        return {condition::somehow};
    if (always)
        return {};
    if (number == 7 || what.bits(0, 12) == 0x547)
        return {condition::somehow};
    // Which it is for these was not seen.
    for (const char *const each :
         {"S2UR", "CS2UR", "REDUX", "CREDUX", "ELECT", "SYNCS", "UTMALDG",
          "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL", "UTMACMDFLUSH",
          "UCGABAR_ARV", "UCGABAR_WAIT", "USETMAXREG", "USETSHMSZ"})
        if (std::strcmp(name, each) == 0)
            return {condition::somehow};
    const bool uniform = name[0] == 'U' || std::strcmp(name, "LDCU") == 0;
    return {static_cast<std::uint8_t>(number + (uniform ? 8U : 0U) +
                                      (negated ? 16U : 0U))};
}

// An operation may have more conditions, or be of another kind, by bits that
// its row says nothing of. Such a one is not known.
bool has_known_bits(const instruction &what)
{
    // A condition and a mode more, behind the target.
    const auto condition_is = [&](unsigned number) {
        return what.bits(87, 92) == number;
    };
    const auto mode = what.bits(82, 87);
    constexpr unsigned none = 7;
    constexpr unsigned uniform = 16; // the rest is of uniform ones
    switch (what.bits(0, 12)) {
    case 0x343: // CALL
    case 0x944:
    case 0x950: // RET
        return condition_is(none) && mode == 16;
    case 0x949: // BRX
        return condition_is(none) && mode == 0;
    case 0x958: // BRXU
        return condition_is(none + uniform) && mode == 0;
    case 0x547: // BRA, perhaps of any thread
        return condition_is(none + uniform) && what.bits(32, 34) == 1 &&
               (mode == 0 || mode == 4);
    case 0x947:
        return mode == 0 || mode == 4;
    case 0x94d: // EXIT
        return mode == 0 && !what.bit(91);
    case 0xb82: // LDC, whose index may name a bank
        return what.bits(76, 91) == 0 && what.bits(59, 64) == 0;
    case 0xab9: // ULDC
        return what.bits(76, 92) == 0 && what.bits(59, 64) == 0;
    case 0xabb:
    case 0x7ac: // LDCU
        return what.bits(76, 91) == 0 && what.bit(91) && what.bits(59, 64) == 0;
    default:
        return true;
    }
}

bool writes_uniform_predicates(const instruction &what)
{
    return what.of->name[0] == 'U' || std::strcmp(what.of->name, "VOTEU") == 0;
}

// The registers that are filled from shared or local memory.
unsigned width_elsewhere(const instruction &what)
{
    switch (what.bits(0, 9)) {
    case 0x03b: // a matrix
        return 1U << what.bits(72, 74);
    case 0x18c:
    case 0x18d:
        return what.width_of_atomic();
    case 0x1a7: // the state of a barrier
    case 0x1b2:
        return 2;
    default:
        return what.width();
    }
}

} // namespace

std::uint8_t architecture_of(unsigned sm)
{
    switch (sm) {
    case 80:
    case 86:
    case 89:
        return sm_8x;
    case 90:
        return sm_90;
    case 100:
        return sm_100;
    case 120:
        return sm_120;
    default:
        return 0;
    }
}

instruction decode(const unsigned char *at, std::uint8_t architecture)
{
    instruction made;
    std::memcpy(&made.low, at, 8);
    std::memcpy(&made.high, at + 8, 8);
    made.architecture = architecture;
    const auto number = static_cast<unsigned>(made.bits(0, 12));
    const unsigned row = operations.row_of[number][index_of(architecture)];
    if (row != 0)
        made.of = &rows[row - 1].of;
    made.when = condition_of(made, row != 0);
    if (row == 0)
        return made;
    const unsigned of = number >> 9;
    reader fields(made);
    bool sound = fields.read(made.of->fields, of);
    if (made.of->does == effect::load_constant) {
        const bool since = (architecture & since_100) != 0;
        made.b = fields.constant_operand(
            since && made.of->fields == layout::to_uniform ? 37 : 38);
        made.b.negative = false;
        // These have an index in a uniform register.
        if ((number & 0x1ffU) == 0x0bb || (number & 0x1ffU) == 0x1ac) {
            made.a = fields.uniform_operand(24, 128);
            made.b.is = operand::kind::constant;
        } else if (made.of->fields == layout::to_uniform) {
            made.a = {};
            made.a.is = operand::kind::immediate;
        }
    }
    // The second pair of these stands where others have a constant.
    if (made.of->does == effect::choice_wide && of == 3)
        made.c = fields.vector_operand(32, 128);
    if (!sound || !has_known_bits(made))
        made.of = nullptr;
    return made;
}

std::int64_t instruction::distance() const
{
    const auto extend = [](std::uint64_t value, unsigned width) {
        const unsigned rest = 64 - width;
        return static_cast<std::int64_t>(value << rest) >> rest;
    };
    if (of != nullptr && of->does == effect::mark)
        return extend(bits(34, 64), 30) * 4;
    const std::int64_t upper = extend(bits(34, 82), 48);
    if ((architecture & since_90) == 0)
        return upper * 4;
    return (upper * 256 + static_cast<std::int64_t>(bits(16, 24))) * 4;
}

unsigned instruction::width() const
{
    switch (bits(73, 76)) {
    case 5:
        return 2;
    case 6:
    case 7:
        return 4;
    default:
        return 1;
    }
}

space instruction::reaches() const
{
    switch (bits(0, 9)) {
    case 0x17e: // LDG
    case 0x17f: // STG
    case 0x181: // LDG
    case 0x186: // STG
    case 0x18e: // RED
    case 0x1a3: // ATOMG
    case 0x1a6: // RED
    case 0x1a8: // ATOMG
    case 0x1a9: // ATOMG
    case 0x1ae: // LDGSTS, and shared
        return space::global;
    case 0x180: // LD
    case 0x185: // ST
    case 0x18a: // ATOM
    case 0x18b: // ATOM
    case 0x1a2: // ATOM
        return space::generic;
    case 0x03b: // LDSM
    case 0x044: // STSM
    case 0x184: // LDS
    case 0x188: // STS
    case 0x18c: // ATOMS
    case 0x18d: // ATOMS
        return space::shared;
    case 0x183: // LDL
    case 0x187: // STL
        return space::local;
    default:
        return space::none;
    }
}

std::uint16_t instruction::uniform_at(unsigned at) const
{
    const bool many = (architecture & since_100) != 0;
    const auto number = bits(at, at + (many ? 8 : 6));
    return number == (many ? 255U : 63U)
               ? no_register
               : static_cast<std::uint16_t>(first_uniform + number);
}

std::uint16_t instruction::uniform_in_address() const
{
    const auto number = bits(0, 9);
    const auto form = bits(9, 12);
    // One form of the copies to shared memory has it in the other address.
    if (!bit(91) || form == 1 || (number == 0x1ae && form == 6))
        return no_register;
    switch (number) {
    case 0x03b: // those that write no memory
    case 0x17e:
    case 0x180:
    case 0x181:
    case 0x183:
    case 0x184:
    case 0x18f:
        return uniform_at(32);
    default:
        return uniform_at(64);
    }
}

unsigned instruction::width_of_atomic() const
{
    const auto type = bits(73, 76);
    switch (bits(0, 9)) {
    case 0x18b: // that compares first
    case 0x18d:
    case 0x1a9:
        return type == 0 ? 1 : type == 2 ? 2 : 4;
    case 0x1a2: // of floating-point numbers, with one bit more
    case 0x1a3:
        switch (bits(73, 77)) {
        case 0: // two of F16
        case 3: // two of BF16
        case 9: // F32
            return 1;
        case 15: // F64
            return 2;
        default: // vectors, such as four of F32 (11)
            return 4;
        }
    default:
        if (type == 0 || type == 1)
            return 1;
        if (architecture == sm_8x && (type == 3 || type == 4))
            return 1;
        return type == 2 || type == 5 || (architecture == sm_8x && type == 6)
                   ? 2
                   : 4;
    }
}

bool instruction::reads_long_special() const
{
    const auto operation = bits(0, 9);
    return of->does == effect::special &&
           (operation == 0x005 || operation == 0x0cb);
}

bool instruction::writes_pair() const
{
    switch (of->does) {
    case effect::copy:
        return architecture == sm_120 && bit(80) &&
               of->fields != layout::to_uniform;
    case effect::conversion:
        return bits(75, 77) == 3;
    case effect::sum_wide:
        return bits(0, 9) != 0x035 || bit(73);
    case effect::special:
        return reads_long_special() && bit(80);
    case effect::extreme:
        return architecture == sm_120 && bit(74) &&
               (bits(0, 9) == 0x017 || bits(0, 9) == 0x085);
    default:
        return false;
    }
}

unsigned instruction::most_written() const
{
    switch (of->does) {
    case effect::mixed:
    case effect::keep_predicates:
    case effect::sum:
    case effect::product:
    case effect::product_high:
    case effect::scaled_sum:
    case effect::logic:
    case effect::shift:
    case effect::permute:
    case effect::choice:
    case effect::extreme_of_three:
    case effect::extreme_of_sum:
    case effect::exchange:
        return 1;
    case effect::number:
        return std::max(of->writes, of->may_write);
    case effect::load:
    case effect::load_constant:
        return width();
    case effect::copy:
    case effect::conversion:
    case effect::sum_wide:
    case effect::special:
    case effect::extreme:
        return writes_pair() ? 2 : 1;
    case effect::product_wide:
    case effect::choice_wide:
    case effect::program_counter:
        return 2;
    case effect::load_both:
        return 4;
    case effect::atomic:
        return width_of_atomic();
    case effect::load_elsewhere:
        return width_elsewhere(*this);
    case effect::nothing:
    case effect::store:
    case effect::reduction:
    case effect::copy_to_shared:
    case effect::tensor_map:
    case effect::cache_control:
    case effect::cache_control_uniform:
    case effect::compare:
    case effect::of_predicates:
    case effect::set_predicates:
    case effect::branch:
    case effect::branch_indexed:
    case effect::call:
    case effect::give_back:
    case effect::leave:
    case effect::mark:
    case effect::meet:
    case effect::collect:
        return 0;
    default:
        return 8;
    }
}

std::uint16_t instruction::predicates_written() const
{
    if (of->does == effect::set_predicates)
        return static_cast<std::uint16_t>(b.value & 0x7f);
    // Which kind one of these writes was not seen.
    const bool any_kind = std::strcmp(of->name, "SYNCS") == 0;
    const bool uniform = writes_uniform_predicates(*this);
    unsigned made = 0;
    for (const auto &[has, at] :
         {std::pair{of->predicate_81, 81U}, {of->predicate_84, 84U}}) {
        const auto number = bits(at, at + 3);
        if (!has || number == 7)
            continue;
        if (uniform || any_kind)
            made |= 1U << (number + 8);
        if (!uniform || any_kind)
            made |= 1U << number;
    }
    return static_cast<std::uint16_t>(made);
}

std::uint8_t instruction::predicate_of_result() const
{
    const auto number = bits(81, 84);
    if (!of->predicate_81 || number == 7 ||
        (of->predicate_84 && bits(84, 87) == number))
        return no_predicate;
    return static_cast<std::uint8_t>(
        number + (writes_uniform_predicates(*this) ? 8U : 0U));
}

bool instruction::goes_alone() const
{
    return bits(0, 12) == 0x947 && bits(32, 34) == 0 && bits(82, 87) == 0 &&
           !bit(91);
}

bool instruction::has_one_condition() const
{
    return bits(87, 90) == 7 && !bit(90) &&
           (bits(0, 12) == 0x94d || goes_alone());
}

} // namespace emuv::cuda::proof
