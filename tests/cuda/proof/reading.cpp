// SPDX-License-Identifier: GPL-2.0-or-later
// nvdisasm's reading of an instruction, beside the decoder's.
#include "reading.hpp"

#include "proof/sass_text.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace proof = emuv::cuda::proof;

namespace {

using proof::effect;
using proof::instruction;
using proof::space;

// An operation's text, divided.
struct divided_text
{
    std::string condition; // "@!P0", or nothing
    std::string name;      // without modifiers
    std::string modifiers; // ".E.64", each behind a point
    std::vector<std::string> operands;

    [[nodiscard]] bool has(std::string_view modifier) const
    {
        const std::string all = modifiers + '.';
        return all.find('.' + std::string(modifier) + '.') != std::string::npos;
    }
};

std::string trimmed(std::string_view of)
{
    while (!of.empty() && of.front() == ' ')
        of.remove_prefix(1);
    while (!of.empty() && (of.back() == ' ' || of.back() == ';'))
        of.remove_suffix(1);
    return std::string(of);
}

void erase_all(std::string &from, std::string_view what)
{
    for (auto at = from.find(what); at != std::string::npos;
         at = from.find(what))
        from.erase(at, what.size());
}

divided_text divided(std::string text)
{
    divided_text made;
    text = trimmed(text);
    erase_all(text, ".reuse");
    if (!text.empty() && text[0] == '@') {
        const auto end = text.find(' ');
        made.condition = text.substr(0, end);
        text = trimmed(text.substr(std::min(end, text.size())));
    }
    const auto end = text.find(' ');
    const std::string name = text.substr(0, end);
    made.name = name.substr(0, name.find('.'));
    made.modifiers = name.substr(made.name.size());
    if (end == std::string::npos)
        return made;
    std::string one;
    int depth = 0;
    for (const char each : text.substr(end + 1)) {
        depth += each == '[' || each == '(' ? 1 : 0;
        depth -= each == ']' || each == ')' ? 1 : 0;
        if (each == ',' && depth == 0) {
            made.operands.push_back(trimmed(one));
            one.clear();
        } else {
            one += each;
        }
    }
    made.operands.push_back(trimmed(one));
    return made;
}

// The register, or none for one that reads as zero.
std::optional<std::uint16_t> register_in(std::string_view text)
{
    std::uint16_t first = 0;
    if (text.substr(0, 2) == "UR") {
        first = proof::first_uniform;
        text.remove_prefix(1);
    }
    if (text.empty() || text[0] != 'R')
        return std::nullopt;
    text.remove_prefix(1);
    if (text.substr(0, 1) == "Z")
        return proof::no_register;
    std::size_t digits = 0;
    std::uint16_t number = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9';
         digits++)
        number = static_cast<std::uint16_t>(number * 10 + (text[digits] - '0'));
    if (digits == 0 || (digits < text.size() && text[digits] != '.'))
        return std::nullopt;
    return static_cast<std::uint16_t>(first + number);
}

bool is_predicate(std::string_view text)
{
    if (text.substr(0, 1) == "!")
        text.remove_prefix(1);
    if (text.substr(0, 1) == "U")
        text.remove_prefix(1);
    return text.size() == 2 && text[0] == 'P' &&
           (text[1] == 'T' || (text[1] >= '0' && text[1] <= '9'));
}

std::int64_t number_in(std::string_view text)
{
    const bool negative = text.substr(0, 1) == "-";
    const std::int64_t is = static_cast<std::int64_t>(std::strtoull(
        std::string(text.substr(negative ? 1 : 0)).c_str(), nullptr, 16));
    return negative ? -is : is;
}

// An address between brackets: a register, a uniform one, and a number.
struct address
{
    std::uint16_t reg = proof::no_register;
    std::uint16_t uniform = proof::no_register;
    std::int64_t offset = 0;
    bool is_described = false; // by a uniform register before the brackets
};

address address_in(std::string text)
{
    address made;
    if (text.substr(0, 5) == "desc[") {
        const auto end = text.find(']');
        made.is_described = true;
        made.uniform =
            register_in(text.substr(5, end - 5)).value_or(proof::no_register);
        text = text.substr(end + 1);
    }
    const auto begin = text.find('[');
    const auto end = text.rfind(']');
    std::string_view rest =
        std::string_view(text).substr(begin + 1, end - begin - 1);
    while (!rest.empty()) {
        const auto plus = rest.find('+');
        const std::string_view one = rest.substr(0, plus);
        if (const auto reg = register_in(one); !reg)
            made.offset = number_in(one);
        else if (*reg >= proof::first_uniform && *reg != proof::no_register)
            made.uniform = *reg;
        else if (one[0] == 'R')
            made.reg = *reg;
        rest.remove_prefix(plus == std::string_view::npos ? rest.size()
                                                          : plus + 1);
    }
    return made;
}

struct wanted
{
    const char *name;
    effect does;
    space reaches;
};
constexpr wanted operations[] = {
    {"BRA", effect::branch, space::none},
    {"BRX", effect::branch_indexed, space::none},
    {"BRXU", effect::branch_indexed, space::none},
    {"RET", effect::give_back, space::none},
    {"EXIT", effect::leave, space::none},
    {"BSSY", effect::mark, space::none},
    {"BSYNC", effect::meet, space::none},
    {"WARPSYNC", effect::collect, space::none},
    {"LD", effect::load, space::generic},
    {"ST", effect::store, space::generic},
    {"STG", effect::store, space::global},
    {"ATOM", effect::atomic, space::generic},
    {"ATOMG", effect::atomic, space::global},
    {"RED", effect::reduction, space::global},
    {"REDG", effect::reduction, space::global},
    {"LDGSTS", effect::copy_to_shared, space::global},
    {"LDL", effect::load_elsewhere, space::local},
    {"STL", effect::nothing, space::local},
    {"LDS", effect::load_elsewhere, space::shared},
    {"LDSM", effect::load_elsewhere, space::shared},
    {"STS", effect::nothing, space::shared},
    {"STSM", effect::nothing, space::shared},
    {"LDC", effect::load_constant, space::none},
    {"ULDC", effect::load_constant, space::none},
    {"LDCU", effect::load_constant, space::none},
    {"R2UR", effect::copy, space::none},
    {"P2R", effect::keep_predicates, space::none},
    {"R2P", effect::set_predicates, space::none},
    {"LEPC", effect::program_counter, space::none},
};

// The first operands that nvdisasm prints are written. "P" takes all predicates
// that stand there, "p" takes one, "r" a register, and "o" one that may be
// missing. Behind these there are none but sources.
struct roles
{
    const char *targets;
    std::vector<std::string_view> of;
};
const roles all_roles[] = {
    {"",
     {"ACQBULK",   "ARRIVES",   "BAR",          "BPT",         "BRA",
      "BREAK",     "BRX",       "BRXU",         "BSSY",        "BSYNC",
      "CALL",      "CCTL",      "CGAERRBAR",    "DEPBAR",      "ENDCOLLECTIVE",
      "ERRBAR",    "EXIT",      "FENCE",        "LDGDEPBAR",   "LDGSTS",
      "MEMBAR",    "NANOSLEEP", "NOP",          "PREEXIT",     "RED",
      "REDG",      "RET",       "ST",           "STAS",        "STG",
      "STL",       "STS",       "STSM",         "UCGABAR_ARV", "UCGABAR_WAIT",
      "USETSHMSZ", "UTMACCTL",  "UTMACMDFLUSH", "UTMALDG",     "UTMAPF",
      "UTMAREDG",  "UTMASTG",   "WARPGROUP",    "WARPSYNC",    "YIELD"}},
    {"r", {"BMSK",  "BREV",  "CS2R",   "CS2UR",     "DADD",   "DFMA",  "DMMA",
           "DMUL",  "F2F",   "F2FP",   "F2I",       "F2IP",   "FADD",  "FFMA",
           "FFMA2", "FMNMX", "FMNMX3", "FMUL",      "FRND",   "FSEL",  "FSET",
           "HADD2", "HFMA2", "HGMMA",  "HMMA",      "HMNMX2", "HMUL2", "HSET2",
           "I2F",   "I2FP",  "I2IP",   "IABS",      "IDP",    "IGMMA", "IMMA",
           "LD",    "LDC",   "LDCU",   "LDL",       "LDS",    "LDSM",  "LEPC",
           "MOV",   "MOVM",  "MUFU",   "P2R",       "POPC",   "PRMT",  "QGMMA",
           "QMMA",  "S2R",   "S2UR",   "SEL",       "SGXT",   "SHF",   "UBMSK",
           "UBREV", "UF2I",  "UFADD",  "UFFMA",     "UFMUL",  "UFSEL", "UI2F",
           "UI2FP", "ULDC",  "UMOV",   "UP2UR",     "UPOPC",  "UPRMT", "USEL",
           "USGXT", "USHF",  "VIADD",  "VIADDMNMX", "VIMNMX3"}},
    {"rP",
     {"B2R", "IADD", "IADD3", "IMAD", "LEA", "UIADD3", "UIMAD", "ULEA",
      "UVIMNMX", "VIMNMX"}},
    {"Pr",
     {"ATOM", "ATOMG", "CREDUX", "ELECT", "FLO", "IMNMX", "LOP3", "MATCH",
      "QSPC", "R2UR", "REDUX", "SHFL", "UFLO", "UIMNMX", "ULOP3"}},
    {"Pro", {"LDG"}},
    {"Po", {"ATOMS", "SYNCS", "USETMAXREG"}},
    {"p", {"FCHK"}},
    {"pp",
     {"DSETP", "FSETP", "HSETP2", "ISETP", "PLOP3", "UFSETP", "UISETP",
      "UPLOP3"}},
    {"o", {"BMOV"}}, // to a register, or to a barrier
    {"R2P", {"R2P"}},
    {"VOTE", {"VOTE", "VOTEU"}},
};

const char *targets_of(std::string_view name)
{
    for (const roles &each : all_roles)
        if (std::find(each.of.begin(), each.of.end(), name) != each.of.end())
            return each.targets;
    return nullptr;
}

// The number of a predicate, as the decoder has it: 7 for what is always true.
unsigned predicate_in(std::string_view text)
{
    const bool uniform = text.substr(0, 1) == "U";
    return text.back() == 'T'
               ? 7U
               : static_cast<unsigned>(text.back() - '0') + (uniform ? 8U : 0U);
}

std::uint16_t register_of(const proof::operand &from)
{
    return from.is == proof::operand::kind::reg ? from.reg : proof::no_register;
}

// Compares one instruction.
class comparison
{
public:
    comparison(const reading &from, const instruction &is)
        : from_(from), is_(is), text_(divided(from.text))
    {}

    std::string run()
    {
        // A call of what a register names is not followed.
        if (is_.of == nullptr && text_.name == "CALL" && text_.has("REL") &&
            text_.operands[0][0] == 'R')
            return {};
        if (is_.of == nullptr)
            return "it is not known";
        if (text_.name != is_.of->name)
            return "its name";
        compare_condition();
        for (const wanted &each : operations)
            if (text_.name == each.name) {
                expect(is_.of->does == each.does ||
                           (text_.has("ENL2") &&
                            is_.of->does == effect::load_both),
                       "its effect");
                expect(is_.reaches() == each.reaches, "the memory it reaches");
            }
        if (text_.name == "CALL")
            expect(is_.of->does == (text_.has("ABS") ? effect::call_absolute
                                                     : effect::call),
                   "its effect");
        switch (is_.of->does) {
        case effect::branch:
            compare_branch();
            break;
        case effect::call_absolute:
        case effect::give_back:
            expect(text_.operands[0].substr(0, 1) == "R" &&
                       register_in(text_.operands[0].substr(
                           0, text_.operands[0].find(' '))) == is_.bits(24, 32),
                   "the register of its target");
            break;
        case effect::load_constant:
            compare_constant();
            break;
        case effect::copy:
            if (text_.name == "R2UR")
                compare_copy();
            break;
        case effect::keep_predicates:
        case effect::set_predicates:
            compare_predicates();
            break;
        default:
            break;
        }
        if (from_.distance &&
            (is_.of->does == effect::branch || is_.of->does == effect::mark ||
             is_.of->does == effect::call))
            expect(is_.distance() == *from_.distance, "the way to its target");
        compare_written(is_.of->predicate_81, 81);
        compare_written(is_.of->predicate_84, 84);
        compare_targets();
        if (is_.reaches() != space::none)
            compare_access();
        return why_;
    }

private:
    void expect(bool holds, const char *what)
    {
        if (!holds && why_.empty())
            why_ = what;
    }

    void compare_condition()
    {
        if (is_.when.value == proof::condition::somehow)
            return;
        std::string mine;
        if (is_.when.value != proof::condition::always) {
            mine = "@";
            mine += (is_.when.value & 16U) != 0 ? "!" : "";
            mine += (is_.when.value & 8U) != 0 ? "U" : "";
            mine += 'P';
            mine += static_cast<char>('0' + (is_.when.value & 7U));
        }
        expect(mine == text_.condition, "its condition");
    }

    void compare_branch()
    {
        const bool alone = !text_.has("U") && !text_.has("DIV") &&
                           !text_.has("CONV") && !text_.has("ANY");
        expect(is_.goes_alone() == alone, "that each thread goes alone");
        const bool more = is_predicate(text_.operands[0]);
        expect(is_.has_one_condition() == (alone && !more),
               "that it has one condition");
    }

    // The first operand that is a register.
    std::optional<std::uint16_t> first_register() const
    {
        for (const std::string &each : text_.operands) {
            if (is_predicate(each))
                continue;
            return register_in(each);
        }
        return std::nullopt;
    }

    void compare_copy()
    {
        expect(first_register() == is_.to, "what it writes");
        expect(register_in(text_.operands.back()) == register_of(is_.a),
               "what it reads");
        const bool writes_one = is_predicate(text_.operands[0]);
        const auto number = is_.bits(81, 84);
        expect((number != 7) == writes_one &&
                   (!writes_one || text_.operands[0].back() ==
                                       static_cast<char>('0' + number)),
               "the predicate that it writes");
    }

    void compare_constant()
    {
        expect(first_register() == is_.to, "what it writes");
        expect(is_.width() == width_in_text(), "how much it writes");
        // c[0x0][R1+0x160]
        const std::string &from = text_.operands.back();
        const auto second = from.rfind('[');
        const address at = address_in(from.substr(second));
        expect(from[0] == 'c' && from[1] == '[', "its bank");
        expect(is_.b.is == proof::operand::kind::constant &&
                   number_in(from.substr(2, from.find(']') - 2)) == is_.b.bank,
               "its bank");
        expect(at.offset == static_cast<std::int64_t>(is_.b.value),
               "its offset");
        const std::uint16_t index =
            at.uniform != proof::no_register ? at.uniform : at.reg;
        expect(index == register_of(is_.a), "its index");
    }

    // No predicate is lost by an operation that does not write it. Other forms
    // of these may write one.
    void compare_written(bool is_written, unsigned at)
    {
        const auto number = is_.bits(at, at + 3);
        if (!is_written || number == 7 || text_.name == "USETMAXREG" ||
            (text_.name == "SYNCS" && text_.has("EXCH")))
            return;
        const std::string wanted = "P" + std::to_string(number);
        expect(std::any_of(text_.operands.begin(), text_.operands.end(),
                           [&](const std::string &each) {
                               return each == wanted || each == 'U' + wanted;
                           }),
               "a predicate that it writes");
    }

    // Nothing is written but by what the decoder says.
    void compare_targets()
    {
        const char *const targets = targets_of(text_.name);
        if (targets == nullptr)
            return expect(false, "nobody noted which operands it writes");
        const std::string_view are = targets;
        const auto &of = text_.operands;
        std::size_t at = 0;
        if (are == "R2P") {
            const auto mask = static_cast<unsigned>(number_in(of.back()));
            return expect((is_.predicates_written() & mask) == mask,
                          "a predicate that is written");
        }
        // The last predicate of a vote is its source.
        if (are == "VOTE") {
            for (; at + 1 < of.size(); at++)
                expect_written(of[at]);
            return;
        }
        for (const char role : are) {
            const auto is_one = [&] {
                return at < of.size() && of[at][0] != '!' &&
                       is_predicate(of[at]);
            };
            const bool is_register = at < of.size() && register_in(of[at]);
            if (role == 'P')
                while (is_one())
                    expect_written(of[at++]);
            else if (role == 'p' ? is_one() : is_register)
                expect_written(of[at++]);
            else
                expect(role == 'o', "the form of its operands");
        }
    }

    void expect_written(const std::string &target)
    {
        if (is_predicate(target)) {
            const unsigned number = predicate_in(target);
            return expect(target[0] != '!' &&
                              (number == 7 ||
                               (is_.predicates_written() >> number & 1U) != 0),
                          "a predicate that is written");
        }
        const auto first = register_in(target);
        if (!first)
            return expect(false, "the form of its operands");
        if (*first == proof::no_register)
            return;
        expect(surely_written() <= least_written(),
               "a register that is not written");
        const unsigned count = is_.most_written();
        const std::uint64_t second = is_.bits(64, 72);
        const bool both = is_.of->does == effect::load_both;
        for (unsigned i = 0; i < least_written(); i++) {
            const unsigned reg = *first + i;
            expect((reg >= is_.to && reg < is_.to + count) ||
                       (both && reg >= second && reg < second + count),
                   "a register that is written");
        }
    }

    // The registers whose former content the prover gives up. A loaded value is
    // no address anyway.
    unsigned surely_written() const
    {
        switch (is_.of->does) {
        case effect::number:
            return is_.of->writes;
        case effect::load:
        case effect::load_both:
        case effect::load_elsewhere:
        case effect::atomic:
            return 0;
        default:
            return is_.most_written();
        }
    }

    // The registers that an operation fills, as far as its text tells.
    unsigned least_written() const
    {
        const std::string &name = text_.name;
        const auto has = [&](std::initializer_list<const char *> any) {
            return std::any_of(any.begin(), any.end(), [&](const char *each) {
                return text_.has(each);
            });
        };
        const auto begins = [&](const char *with) {
            return text_.modifiers.rfind(with, 0) == 0;
        };
        if (text_.has("ENL2"))
            return text_.has("256") ? 4 : text_.has("128") ? 2 : 1;
        if (name == "LDSM")
            return has({"4"}) ? 4 : has({"2"}) ? 2 : 1;
        if (name == "DMMA")
            return has({"884", "8x8x4"}) ? 4 : 8;
        if (name == "HMMA" || name == "QMMA")
            return has({"F32"}) ? 4 : 2;
        if (name == "IMMA")
            return has({"8816", "8832"}) ? 2 : 4;
        if (name == "CS2R" || name == "CS2UR")
            return has({"32"}) ? 1 : 2;
        if (name == "F2I")
            return has({"S64", "U64"}) ? 2 : 1;
        if (name == "F2F")
            return begins(".F64") ? 2 : 1;
        if (name == "I2F" || name == "FRND")
            return has({"F64"}) ? 2 : 1;
        if (name == "MATCH" || name == "SHF" || name == "USHF" ||
            name == "VOTE")
            return 1;
        if (name == "DADD" || name == "DFMA" || name == "DMUL" ||
            name == "LEPC" || name == "FFMA2" ||
            has({"WIDE", "S64", "U64", "F64"}))
            return 2;
        return width_in_text();
    }

    void compare_predicates()
    {
        const std::uint64_t byte =
            from_.text.find(".B1") != std::string::npos   ? 1
            : from_.text.find(".B2") != std::string::npos ? 2
            : from_.text.find(".B3") != std::string::npos ? 3
                                                          : 0;
        expect(is_.bits(76, 78) == byte, "its byte");
        expect(number_in(text_.operands.back()) ==
                   static_cast<std::int64_t>(is_.b.value),
               "its mask");
        const std::string &reg =
            text_.name == "P2R" ? text_.operands[2] : text_.operands[1];
        expect(register_in(reg.substr(0, reg.find('.'))) == register_of(is_.a),
               "the register that it reads");
        if (text_.name == "P2R")
            expect(first_register() == is_.to, "what it writes");
    }

    unsigned width_in_text() const
    {
        return text_.has("128") ? 4 : text_.has("64") ? 2 : 1;
    }

    void compare_access()
    {
        std::vector<std::string> addresses;
        for (const std::string &each : text_.operands)
            if (each.find('[') != std::string::npos)
                addresses.push_back(each);
        if (addresses.empty())
            return; // of no address
        const address at = address_in(addresses.back());
        expect(at.reg == register_of(is_.a), "the register of its address");
        // Before sm_90 the text leaves the descriptor out.
        if (from_.sm >= 90 || at.uniform != proof::no_register)
            expect(at.uniform == is_.uniform_in_address(),
                   "the uniform register of its address");
        switch (is_.of->does) {
        case effect::load:
            expect(first_register() == is_.to, "what it writes");
            expect(is_.width() == width_in_text(), "how much it writes");
            break;
        case effect::load_elsewhere:
            if (text_.name != "ATOMS" && text_.name != "LDSM" &&
                text_.operands.size() > 1) {
                expect(first_register() == is_.to, "what it writes");
                expect(is_.width() == width_in_text(), "how much it writes");
            }
            if (text_.name == "ATOMS")
                compare_atomic();
            break;
        case effect::atomic:
            compare_atomic();
            break;
        case effect::nothing:
            if (is_.reaches() == space::local)
                expect(register_in(text_.operands[1]) ==
                           (is_.bits(32, 40) == 255
                                ? proof::no_register
                                : static_cast<std::uint16_t>(is_.bits(32, 40))),
                       "the register that it stores");
            break;
        default:
            break;
        }
        if (is_.reaches() == space::local)
            expect((at.offset & 0xffffff) ==
                       static_cast<std::int64_t>(is_.bits(40, 64)),
                   "its offset");
    }

    void compare_atomic()
    {
        expect(first_register() == is_.to, "what it writes");
        const unsigned width = text_.has("128") ? 4
                               : text_.has("64") || text_.has("F64") ||
                                       text_.has("S64") || text_.has("U64")
                                   ? 2
                                   : 1;
        expect(is_.width_of_atomic() >= width, "how much it writes");
    }

    const reading &from_;
    const instruction &is_;
    const divided_text text_;
    std::string why_;
};

} // namespace

std::string difference(const reading &from)
{
    std::array<unsigned char, 16> code{};
    std::memcpy(code.data(), &from.low, 8);
    std::memcpy(code.data() + 8, &from.high, 8);
    const instruction is =
        proof::decode(code.data(), proof::architecture_of(from.sm));
    std::string why = comparison(from, is).run();
    if (!why.empty())
        why += ": " + proof::describe(is);
    return why;
}
