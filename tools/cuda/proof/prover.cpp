// SPDX-License-Identifier: LGPL-2.1-or-later
// Reads off a kernel's machine code which of its parameters its accesses go by.
//
// The state before an instruction says of each register what may be in it: sums
// of words of the constant banks and numbers. Half an address is a sum with the
// word of half a parameter in it. States go forward through the code, and are
// joined where ways meet, until nothing changes. Then each access is looked at.
// Its lower half has to have a parameter's lower word on every way, and its
// upper half that parameter's upper word.
//
// A function is gone through once. Each register holds a mark of its own there.
// One that still has its mark at the return has what it had at the call.
#include "proof/prover.hpp"

#include "base/address.hpp"
#include "proof/sass.hpp"
#include "proof/terms.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace emuv::cuda::proof {

namespace {

constexpr std::size_t bytes_of_one = 16;
constexpr std::size_t longest = 512 * 1024; // instructions
constexpr std::size_t most_steps = 24 * 1024 * 1024;
// A state that is handed on counts as so many steps.
constexpr std::size_t steps_of_state = 16;
// Steps to find out which premises a proof needs, and how many it may have.
constexpr std::size_t most_steps_for_premises = std::size_t{2} << 20;
constexpr std::size_t most_premises = 64;
constexpr std::size_t most_cells = 1024; // on the stack
// Cells for all that is reached by other numbers: for words whose address 8
// divides, and for the others. No offset is as large.
constexpr std::uint32_t anywhere[] = {0xfffffff8, 0xfffffffc};
// All states may take so much.
constexpr std::size_t most_state_bytes = std::size_t{192} << 20;

// Numbers of elements become numbers of bytes by so many bits at most.
constexpr std::uint64_t most_scale = 4;

// A word lies in a constant bank, or in one of these.
enum : std::uint32_t
{
    bank_shift = 20,
    parameter_bank = 0,
    address_bank = 4,
    indexed_bank = 0x10, // of bank 0, at an index
    window_bank = 0x11,  // the upper half of the window of shared memory
};
constexpr std::uint32_t word(std::uint32_t bank, std::uint32_t offset)
{
    return bank << bank_shift | offset;
}

// A value that goes by no word is one of these. Those from `loaded` on come
// from memory, and may be addresses.
enum : std::uint8_t
{
    nothing_else = 0,
    a_number = 1,
    loaded = 2,
    loaded_from_constants = 3,
    loaded_from_shared = 4,
    loaded_from_local = 5,
    loaded_from_call = 6,
    loaded_from_elsewhere = 7,
};

obstacle obstacle_of(std::uint8_t level)
{
    switch (level) {
    case loaded_from_constants:
        return obstacle::from_constants;
    case loaded_from_shared:
        return obstacle::from_shared;
    case loaded_from_local:
        return obstacle::from_local;
    case loaded_from_call:
        return obstacle::from_call;
    default:
        return obstacle::from_memory;
    }
}

enum class content : std::uint8_t
{
    open,
    known, // the number
    mark,  // of a function and a register
    term,  // what the parameters of the launch make it
};

// The contents that a register may have.
struct value
{
    std::uint16_t words = 0;           // a set: that there is a word in the sum
    std::uint8_t other = nothing_else; // that there is none
    std::uint8_t added = nothing_else; // to the word
    bool less = false; // a word, or what was loaded, was taken away
    content has = content::open;
    std::uint32_t number = 0;

    friend bool operator==(const value &, const value &) = default;
    [[nodiscard]] bool is(std::uint32_t what) const
    {
        return has == content::known && number == what;
    }
    [[nodiscard]] bool known() const { return has == content::known; }
    [[nodiscard]] bool is_term() const { return has == content::term; }
    [[nodiscard]] bool empty() const
    {
        return words == 0 && other == nothing_else;
    }
};

value a_value(std::uint8_t level)
{
    value made;
    made.other = level;
    return made;
}

value known_number(std::uint32_t number)
{
    value made = a_value(a_number);
    made.has = content::known;
    made.number = number;
    return made;
}

std::uint8_t highest(const value &of)
{
    return std::max(
        {of.other, of.added,
         of.words != 0 ? std::uint8_t{a_number} : std::uint8_t{nothing_else}});
}

// Sets of words, each of which has a number.
class word_sets
{
public:
    static constexpr std::size_t most_words = 64;
    static constexpr std::size_t most_sets = 60000;

    word_sets() { sets_.emplace_back(); }

    // @return 0 if there are too many
    std::uint16_t of(std::uint32_t one) { return number({one}); }

    std::uint16_t join(std::uint16_t a, std::uint16_t b)
    {
        if (a == b || b == 0)
            return a;
        if (a == 0)
            return b;
        const std::uint32_t key =
            std::uint32_t{std::min(a, b)} << 16 | std::max(a, b);
        const auto found = joined_.find(key);
        if (found != joined_.end())
            return found->second;
        std::vector<std::uint32_t> both;
        std::set_union(sets_[a].begin(), sets_[a].end(), sets_[b].begin(),
                       sets_[b].end(), std::back_inserter(both));
        const std::uint16_t made = number(std::move(both));
        joined_.emplace(key, made);
        return made;
    }

    const std::vector<std::uint32_t> &words(std::uint16_t set) const
    {
        return sets_[set];
    }
    [[nodiscard]] bool full() const { return full_; }

private:
    std::uint16_t number(std::vector<std::uint32_t> words)
    {
        const auto found = numbers_.find(words);
        if (found != numbers_.end())
            return found->second;
        if (words.size() > most_words || sets_.size() >= most_sets) {
            full_ = true;
            return 0;
        }
        const auto made = static_cast<std::uint16_t>(sets_.size());
        sets_.push_back(words);
        numbers_.emplace(std::move(words), made);
        return made;
    }

    std::vector<std::vector<std::uint32_t>> sets_;
    std::map<std::vector<std::uint32_t>, std::uint16_t> numbers_;
    std::unordered_map<std::uint32_t, std::uint16_t> joined_;
    bool full_ = false;
};

// The value that a register has if a condition holds. Another register may keep
// that condition: it holds if this is not 0, or its opposite does if it is.
struct refinement
{
    condition when;
    std::uint16_t kept = no_register;
    value has;
};

// Predicates: the uniform ones from 8 on.
constexpr std::size_t predicates = 16;
constexpr std::size_t always_true = 7; // of either kind

struct state
{
    std::vector<value> values; // of registers, then of cells on the stack
    std::vector<refinement> refined;
    // The terms that say when they are true.
    std::array<term_number, predicates> truths = no_truths();
    // The register of each that is not 0 where the predicate is true.
    std::array<std::uint16_t, predicates> kept = no_registers();
    std::bitset<first_uniform> keep; // those that conditions may go by

    static std::array<std::uint16_t, predicates> no_registers()
    {
        std::array<std::uint16_t, predicates> none;
        none.fill(no_register);
        return none;
    }
    static std::array<term_number, predicates> no_truths()
    {
        std::array<term_number, predicates> none;
        none.fill(no_term);
        return none;
    }
};

// Two registers in the middle of an exchange: see prover::exchange().
struct exchanged
{
    std::uint16_t both = no_register; // holds the exclusive or of both
    std::uint16_t one = no_register;  // the other of the two
    value of_both;                    // their values before
    value of_one;
    bool half_done = false; // the other one has the first one's value
};

class prover
{
public:
    explicit prover(const kernel_code &kernel,
                    std::span<const unsigned char> parameters = {})
        : kernel_(kernel), given_(parameters)
    {}

    // Of all launches.
    verdict run()
    {
        verdict made;
        read_code();
        look(made);
        return finished(std::move(made));
    }

    // Of launches like the one whose parameters are given.
    verdict run_for_launch()
    {
        verdict made;
        read_code();
        settles_ = true;
        look(made);
        if (made.proven()) {
            spent_ = 0;
            leave_out({settled_.begin(), settled_.end()}, made);
        }
        return finished(std::move(made));
    }

private:
    using index = std::uint32_t; // of an instruction
    static constexpr index nowhere = 0xffffffff;

    struct callee
    {
        index entry_point = 0;
        std::map<index, state> calls; // by the call
        std::set<index> returns;      // the blocks that do
    };

    // The premises of the last look.
    std::vector<premise> premises() const
    {
        std::vector<premise> made;
        for (const term_number each : settled_)
            made.push_back({each, truth_of_[each] != 0});
        return made;
    }

    verdict finished(verdict made)
    {
        made.instructions = static_cast<std::uint32_t>(code_.size());
        if (made.premises.size() > most_premises) {
            made.premises.clear();
            if (made.proven())
                made.why = obstacle::too_long;
        }
        // One that is about a launch says so, though all launches are like it.
        if (settles_ && made.premises.empty())
            made.premises.push_back(
                {add({.is = term::kind::number, .number = 1}), true});
        made.terms = needed(terms_.all(), made.premises);
        if (!made.proven()) {
            made.bases.clear();
            made.any_parameter = made.by_descriptor = false;
        }
        return made;
    }

    // Finds out which premises the proof does without.
    void leave_out(const std::vector<term_number> &those, verdict &made)
    {
        const auto middle =
            those.begin() + static_cast<std::ptrdiff_t>(those.size() / 2);
        for (const std::vector<term_number> &half :
             {std::vector(middle, those.end()),
              std::vector(those.begin(), middle)}) {
            if (half.empty() || spent_ > most_steps_for_premises)
                continue;
            const auto before = left_out_;
            left_out_.insert(half.begin(), half.end());
            verdict other;
            look(other);
            spent_ += steps_;
            if (other.proven()) {
                made = std::move(other);
                continue;
            }
            left_out_ = before;
            if (half.size() > 1)
                leave_out(half, made);
        }
    }

    void fail(obstacle why, index where)
    {
        if (why_ != obstacle::none)
            return;
        why_ = why;
        where_ = where;
    }

    // --- values ---

    value joined(const value &a, const value &b)
    {
        if (a == b)
            return a;
        value made;
        made.words = sets_.join(a.words, b.words);
        made.other = std::max(a.other, b.other);
        made.added = std::max(a.added, b.added);
        made.less = a.less || b.less;
        if (a.has == b.has && a.number == b.number) {
            made.has = a.has;
            made.number = a.number;
        }
        return made;
    }

    static value without_content(value of)
    {
        of.has = content::open;
        of.number = 0;
        return of;
    }

    // A register that was never written holds some number.
    static value or_number(const value &of)
    {
        if (!of.empty())
            return of;
        value made = of;
        made.other = a_number;
        return made;
    }

    value sum(const value &first, const value &second)
    {
        if (first.is(0))
            return second;
        if (second.is(0))
            return first;
        if (first.known() && second.known())
            return known_number(first.number + second.number);
        const value a = or_number(first);
        const value b = or_number(second);
        value made;
        made.words = sets_.join(a.words, b.words);
        if (a.other != nothing_else && b.other != nothing_else)
            made.other = std::max(a.other, b.other);
        made.less = a.less || b.less;
        // To a word of one, anything of the other.
        made.added = std::max(a.added, b.added);
        if (a.words != 0)
            made.added = std::max(made.added, b.other);
        if (b.words != 0)
            made.added = std::max(made.added, a.other);
        return with_sum(made, first, second);
    }

    // The result of an operation other than adding is no address, unless memory
    // had a part in it.
    static value mixed(const value &a, const value &b = {}, const value &c = {})
    {
        std::uint8_t level = a_number;
        for (const value *const of : {&a, &b, &c})
            level = std::max(level, highest(*of));
        return a_value(level);
    }

    value negated(const value &of, bool whole)
    {
        if (whole && of.known())
            return known_number(0U - of.number);
        value made = mixed(of);
        made.less = of.less || of.words != 0 || made.other >= loaded;
        if (whole && of.is_term())
            return with_term(made,
                             {.is = term::kind::opposite, .a = term_of(of)});
        return made;
    }

    // --- what the parameters decide ---

    term_number add(const term &what)
    {
        const std::size_t before = terms_.all().size();
        const term_number made = terms_.add(what);
        if (terms_.all().size() == before)
            return made;
        const auto is = evaluate(what, truth_of_, given_);
        truth_of_.push_back(is.value_or(0));
        constant_.push_back(is_constant(what));
        if (!is)
            senseless_.insert(made);
        return senseless_.count(made) != 0 ? no_term : made;
    }

    // True if it is the same in each launch.
    bool is_constant(const term &what) const
    {
        const auto changes = [this](term_number each) {
            return each != no_term && !constant_[each];
        };
        return what.is != term::kind::word && what.is != term::kind::narrow &&
               !changes(what.a) && !changes(what.b) && !changes(what.c) &&
               !changes(what.d);
    }

    term_number term_of(const value &of)
    {
        if (!settles_)
            return no_term;
        if (of.known())
            return add({.is = term::kind::number, .number = of.number});
        return of.is_term() ? static_cast<term_number>(of.number) : no_term;
    }

    value with_term(value of, const term &what)
    {
        const term_number made = settles_ ? add(what) : no_term;
        of.has = made != no_term ? content::term : content::open;
        of.number = made != no_term ? made : 0;
        return of;
    }

    // The sum that two numbers make, where both follow from parameters.
    value with_sum(const value &of, const value &a, const value &b)
    {
        if (!a.is_term() && !b.is_term())
            return of;
        const term_number first = term_of(a);
        const term_number second = term_of(b);
        if (first == no_term || second == no_term)
            return of;
        return with_term(of, {.is = term::kind::sum, .a = first, .b = second});
    }

    value with_bytes(const value &of, std::uint32_t by, const value &a,
                     const value &b)
    {
        const term_number first = term_of(a);
        const term_number second = term_of(b);
        if (first == no_term || second == no_term)
            return of;
        return with_term(of, {.is = term::kind::permutation,
                              .a = first,
                              .b = second,
                              .number = by});
    }

    // @return whether an instruction takes effect, where the parameters decide
    std::optional<bool> decided(term_number truth, bool turned)
    {
        if (truth == no_term || left_out_.count(truth) != 0)
            return std::nullopt;
        if (!constant_[truth])
            settled_.insert(truth);
        return (truth_of_[truth] != 0) != turned;
    }
    std::optional<bool> decided(condition when)
    {
        if (!settles_ || when.value >= condition::somehow)
            return std::nullopt;
        return decided(now_.truths[when.value & 15U], (when.value & 16U) != 0);
    }
    // By the predicate that is one of its operands.
    std::optional<bool> decided_by_operand(const instruction &what)
    {
        const auto number = what.bits(87, 90);
        const bool turned = what.bit(90);
        if (number == always_true)
            return !turned;
        const bool uniform = what.of->name[0] == 'U';
        return settles_
                   ? decided(now_.truths[number + (uniform ? 8 : 0)], turned)
                   : std::nullopt;
    }

    std::optional<bool> decided_by_uniform(const instruction &what)
    {
        const auto number = what.bits(24, 27);
        const bool turned = what.bit(27);
        if (number == always_true)
            return !turned;
        return settles_ ? decided(now_.truths[number + 8], turned)
                        : std::nullopt;
    }

    // A truth among the operands of what makes one. None is for true.
    // @return false if it does not follow from the parameters
    bool truth_at(const instruction &what, unsigned at, bool uniform,
                  term_number &truth) const
    {
        const auto number = what.bits(at, at + 3);
        truth = number == always_true ? no_term
                                      : now_.truths[number + (uniform ? 8 : 0)];
        return number == always_true || truth != no_term;
    }

    term_number comparison(const instruction &what)
    {
        const bool uniform = what.of->name[0] == 'U';
        term made;
        made.is = term::kind::comparison;
        made.how = static_cast<std::uint8_t>(what.bits(76, 79));
        made.more = static_cast<std::uint8_t>(
            (what.bit(73) ? compared::with_sign : 0U) |
            (what.bit(72) ? compared::upper_halves : 0U) |
            what.bits(74, 76) << compared::join_shift |
            (what.bit(90) ? compared::not_c : 0U) |
            (what.bit(72) && what.bit(71) ? compared::not_d : 0U));
        // Of 64 bits at once.
        const bool wide = what.architecture == sm_120 && what.bit(80);
        if (what.bit(79) || (what.bit(80) && !wide) || what.bits(74, 76) == 3 ||
            what.b.is == operand::kind::elsewhere ||
            !truth_at(what, 87, uniform, made.c) ||
            (what.bit(72) && !truth_at(what, 68, uniform, made.d)))
            return no_term;
        if (!wide)
            return compared_terms(made, get(what, what.a), get(what, what.b));
        // An immediate operand has one half.
        if (what.bit(72) || (what.b.is == operand::kind::immediate &&
                             (what.b.value >> 31) != 0))
            return no_term;
        const auto upper = [&](const operand &of) {
            return of.is == operand::kind::immediate ? known_number(0)
                                                     : get(what, of, 1);
        };
        term low;
        low.is = term::kind::comparison;
        low.how = made.how;
        made.d = compared_terms(low, get(what, what.a), get(what, what.b));
        made.more |= compared::upper_halves;
        return made.d != no_term
                   ? compared_terms(made, upper(what.a), upper(what.b))
                   : no_term;
    }

    term_number compared_terms(term made, const value &a, const value &b)
    {
        if (!a.is_term() && !b.is_term() && (!a.known() || !b.known()))
            return no_term;
        made.a = term_of(a);
        made.b = term_of(b);
        return made.a != no_term && made.b != no_term ? add(made) : no_term;
    }

    term_number function_of_predicates(const instruction &what)
    {
        const bool uniform = what.of->name[0] == 'U';
        term made;
        made.is = term::kind::truths;
        made.how = static_cast<std::uint8_t>(what.bits(72, 77) << 3 |
                                             what.bits(64, 67));
        made.more =
            static_cast<std::uint8_t>((what.bit(90) ? not_a_of_three : 0U) |
                                      (what.bit(80) ? not_b_of_three : 0U) |
                                      (what.bit(71) ? not_c_of_three : 0U));
        if (!truth_at(what, 87, uniform, made.a) ||
            !truth_at(what, 77, uniform, made.b) ||
            !truth_at(what, 68, uniform || what.bit(67), made.c))
            return no_term;
        return add(made);
    }

    // The term of the first of two predicates that it writes.
    term_number truth_of(const instruction &what)
    {
        if (!settles_ || what.when.value != condition::always)
            return no_term;
        switch (what.of->does) {
        case effect::compare:
            return comparison(what);
        case effect::of_predicates:
            return function_of_predicates(what);
        case effect::logic:
            return truth_made_;
        default:
            return no_term;
        }
    }

    // --- operands ---

    value constant(std::uint32_t bank, std::uint32_t offset)
    {
        if (offset % 4 != 0)
            return a_value(bank == parameter_bank ? a_number
                                                  : loaded_from_elsewhere);
        value made;
        switch (bank) {
        case parameter_bank:
            if (offset >= kernel_.parameters + kernel_.parameter_bytes)
                return a_value(loaded_from_elsewhere);
            made.words = sets_.of(word(bank, offset));
            if (offset >= kernel_.parameters)
                return with_term(made, {.is = term::kind::word,
                                        .number = offset - kernel_.parameters});
            return made;
        case 2: // the compiler's
            return a_value(a_number);
        case 3:
            return a_value(loaded_from_constants);
        case address_bank:
            if (kernel_.addresses.count(offset & ~7U) == 0)
                return a_value(loaded_from_elsewhere);
            made.words = sets_.of(word(bank, offset));
            return made;
        default:
            return a_value(loaded_from_elsewhere);
        }
    }

    value get(std::uint16_t reg, condition when) const
    {
        if (reg == no_register)
            return known_number(0);
        const std::size_t at = index_of(reg);
        return at < followed_ ? content_at(at, when) : value();
    }

    // The content of a register, or of a cell on the stack.
    const value &content_at(std::size_t at, condition when) const
    {
        const refinement &refined = now_.refined[at];
        return goes_by(now_, refined, when) ? refined.has : now_.values[at];
    }

    // True if a value is what a register has where a condition holds.
    static bool goes_by(const state &in, const refinement &of, condition when)
    {
        if (when.value >= condition::somehow ||
            of.when.value >= condition::somehow)
            return false;
        if (of.kept == no_register && of.when == when)
            return true;
        const std::uint16_t by =
            of.kept != no_register ? of.kept : in.kept[of.when.value & 15U];
        return by != no_register && by == in.kept[when.value & 15U] &&
               (of.when.value & 16U) == (when.value & 16U);
    }

    // @param half  0 or 1: of a pair
    value get(const instruction &what, const operand &of, unsigned half = 0)
    {
        value made;
        switch (of.is) {
        case operand::kind::none:
            return known_number(0);
        case operand::kind::reg:
            made = get(next(of.reg, half), what.when);
            break;
        case operand::kind::immediate:
            return half == 0 ? known_number(of.value) : a_value(a_number);
        case operand::kind::constant:
            made = constant(of.bank, of.value + 4 * half);
            break;
        case operand::kind::elsewhere:
            made = a_value(loaded_from_constants);
            break;
        }
        return made;
    }

    value signed_operand(const instruction &what, const operand &of,
                         bool carries, unsigned half = 0)
    {
        const value made = get(what, of, half);
        return of.negative ? negated(made, !carries && half == 0) : made;
    }

    void set(const instruction &what, std::uint16_t reg, value made)
    {
        if (reg == no_register || reg >= registers)
            return;
        const std::size_t at = index_of(reg);
        if (at >= followed_) // that it is written was not foreseen
            return fail(obstacle::broken, 0);
        hold(what, at, made);
    }

    // A register is written: what an exchange knows of it is no longer so, and
    // no condition goes by it.
    void written(std::size_t at)
    {
        if (at < std::min<std::size_t>(vectors_, first_uniform) &&
            now_.keep.test(at)) {
            now_.keep.reset(at);
            for (std::uint16_t &each : now_.kept)
                if (each == at)
                    each = no_register;
            for (refinement &each : now_.refined)
                if (each.kept == at)
                    each = {};
        }
        if (exchanged_.both != no_register &&
            (at == index_of(exchanged_.both) || at == index_of(exchanged_.one)))
            exchanged_ = {};
    }

    void hold(const instruction &what, std::size_t at, const value &made)
    {
        written(at);
        refinement &refined = now_.refined[at];
        value &has = now_.values[at];
        if (what.when.value == condition::always) {
            has = made;
            refined = {};
            return;
        }
        // The old value stays if the condition does not hold.
        if (goes_by(now_, refined, what.when.opposite()))
            has = joined(refined.has, made);
        else
            has = joined(has, made);
        if (what.when.value < condition::somehow)
            refined = {what.when, no_register, made};
        else
            refined = {};
    }

    void set_run(const instruction &what, unsigned count, const value &made)
    {
        for (unsigned i = 0; i < count; i++)
            set(what, next(what.to, i), made);
    }

    void may_set(std::uint16_t reg, const value &made)
    {
        const std::size_t at = index_of(reg);
        if (reg == no_register || at >= followed_)
            return;
        written(at);
        now_.values[at] = joined(now_.values[at], made);
        now_.refined[at] = {};
    }

    static std::uint16_t next(std::uint16_t reg, unsigned by)
    {
        // Behind the last one there is the one that reads as zero.
        const unsigned end = reg < first_uniform ? 255U : first_uniform + 255U;
        return reg == no_register || reg + by >= end
                   ? no_register
                   : static_cast<std::uint16_t>(reg + by);
    }

    // --- predicates ---

    void forget(std::uint8_t predicate)
    {
        now_.truths[predicate] = no_term;
        const std::uint16_t kept = now_.kept[predicate];
        now_.kept[predicate] = no_register;
        for (refinement &each : now_.refined) {
            if (each.when.value >= condition::somehow ||
                each.kept != no_register ||
                (each.when.value & 15U) != predicate)
                continue;
            if (kept == no_register)
                each = {};
            else
                each.kept = kept;
        }
    }

    // A register is not 0 exactly where a predicate is true.
    void keep(std::size_t predicate, std::uint16_t reg)
    {
        now_.kept[predicate] = reg;
        now_.keep.set(reg);
    }

    // Of a comparison for inequality with 0 the register, or none.
    std::uint16_t compared_with_zero(const instruction &what) const
    {
        const bool is_zero =
            what.b.is == operand::kind::immediate && what.b.value == 0;
        const bool plain = what.bits(72, 73) == 0 && what.bits(74, 76) == 0 &&
                           what.bits(79, 81) == 0 && what.bits(87, 90) == 7 &&
                           !what.bit(90);
        const bool differs = what.bits(76, 79) == 5;
        if (what.of->does != effect::compare ||
            what.of->fields != layout::compared ||
            what.when.value != condition::always || !is_zero || !plain ||
            !differs || what.a.is != operand::kind::reg ||
            what.a.reg >= std::min<std::size_t>(vectors_, first_uniform))
            return no_register;
        return what.a.reg;
    }

    void forget_predicates(const instruction &what)
    {
        if (what.of->does == effect::set_predicates)
            return set_predicates(what);
        const term_number truth = truth_of(what);
        const std::uint32_t written = what.predicates_written();
        for (std::uint8_t i = 0; i < predicates; i++)
            if ((written >> i & 1U) != 0)
                forget(i);
        const std::uint8_t result = what.predicate_of_result();
        if (result == no_predicate)
            return;
        now_.truths[result] = truth;
        if (const std::uint16_t by = compared_with_zero(what);
            by != no_register)
            keep(result, by);
    }

    // The byte of a register that holds predicates begins at this bit.
    static unsigned first_predicate_bit(const instruction &what)
    {
        return static_cast<unsigned>(what.bits(76, 78)) * 8;
    }

    // Those of the mask, in a byte, as far as the parameters decide them.
    term_number number_of_predicates(const instruction &what)
    {
        const std::uint32_t mask = what.b.value & 0x7f;
        const unsigned first = first_predicate_bit(what);
        const value rest = get(what, what.a);
        term_number all = term_of(rest);
        if (all == no_term || mask != what.b.value)
            return no_term;
        if (!rest.is(0))
            all = both(all, ~(mask << first));
        for (unsigned i = 0; i < 7; i++) {
            if ((mask >> i & 1U) == 0)
                continue;
            term_number one = now_.truths[i];
            for (unsigned j = 0; j < first + i && one != no_term; j++)
                one = add({.is = term::kind::sum, .a = one, .b = one});
            if (all == no_term || one == no_term)
                return no_term;
            all = add({.is = term::kind::sum, .a = all, .b = one});
        }
        return all;
    }

    // The bits of a term that a number has, too.
    term_number both(term_number of, std::uint32_t number)
    {
        const term_number mask =
            add({.is = term::kind::number, .number = number});
        const term_number none = add({.is = term::kind::number});
        if (of == no_term || mask == no_term || none == no_term)
            return no_term;
        return add({.is = term::kind::logic,
                    .how = 0xc0,
                    .a = of,
                    .b = mask,
                    .c = none});
    }

    // The truth of a number: that it is not 0.
    term_number is_any(term_number of)
    {
        const term_number none = add({.is = term::kind::number});
        if (of == no_term || none == no_term)
            return no_term;
        return add(
            {.is = term::kind::comparison, .how = 5, .a = of, .b = none});
    }

    void set_predicates(const instruction &what)
    {
        const std::uint32_t written = what.predicates_written();
        const term_number from = what.when.value == condition::always
                                     ? term_of(get(what, what.a))
                                     : no_term;
        for (std::uint8_t i = 0; i < 7; i++)
            if ((written >> i & 1U) != 0) {
                forget(i);
                const unsigned at = first_predicate_bit(what) + i;
                now_.truths[i] = is_any(both(from, 1U << at));
            }
    }

    void keep_predicates(const instruction &what)
    {
        value made = mixed(get(what, what.a));
        const term_number is = number_of_predicates(what);
        if (is != no_term) {
            made.has = content::term;
            made.number = is;
        }
        set(what, what.to, made);
        const std::uint64_t mask = what.b.value;
        const bool one = mask != 0 && mask < 0x80 && (mask & (mask - 1)) == 0;
        if (one && what.b.is == operand::kind::immediate &&
            what.a.is == operand::kind::immediate &&
            what.when.value == condition::always && what.to < vectors_)
            keep(static_cast<std::size_t>(std::countr_zero(mask)), what.to);
    }

    // Takes the values that go with a condition.
    static void assume(state &of, condition when)
    {
        if (when.value >= condition::somehow)
            return;
        for (std::size_t i = 0; i < of.values.size(); i++)
            if (goes_by(of, of.refined[i], when))
                of.values[i] = of.refined[i].has;
    }

    // --- instructions ---

    value logic(const instruction &what, const value &a, const value &b,
                const value &c)
    {
        const value plain = mixed_logic(what, a, b, c);
        if (a.is_term() || b.is_term() || c.is_term()) {
            const term_number of_a = term_of(a);
            const term_number of_b = term_of(b);
            const term_number of_c = term_of(c);
            if (of_a != no_term && of_b != no_term && of_c != no_term)
                return with_term(
                    plain, {.is = term::kind::logic,
                            .how = static_cast<std::uint8_t>(what.bits(72, 80)),
                            .a = of_a,
                            .b = of_b,
                            .c = of_c});
        }
        return plain;
    }

    static value mixed_logic(const instruction &what, const value &a,
                             const value &b, const value &c)
    {
        const auto table = static_cast<unsigned>(what.bits(72, 80));
        const value *const of[] = {&a, &b, &c};
        const value *only = nullptr;
        unsigned known = 0; // their upper bits, as the table's index has them
        unsigned bit = 0;
        for (unsigned i = 0; i < 3; i++) {
            const unsigned weight = 4U >> i;
            if (of[i]->known()) {
                if ((of[i]->number >> 31) != 0)
                    known |= weight;
            } else if (only == nullptr) {
                only = of[i];
                bit = weight;
            } else {
                return mixed(a, b, c);
            }
        }
        if (only == nullptr)
            return a_value(a_number);
        // An address with its lower bits changed is still that address.
        if ((table >> known & 1U) == 0 && (table >> (known | bit) & 1U) != 0)
            return without_content(*only);
        return mixed(a, b, c);
    }

    // A sum with a number that is multiplied by a power of two. Of the upper
    // half's, the lower word gives but the bits that leave it: its sign, and no
    // part of an address.
    void scaled_sum(const instruction &what)
    {
        const bool carries = what.bit(74);
        const bool upper = what.bit(80);
        const bool extended = what.bit(73);
        const auto by = what.bits(75, 80);
        const value a = get(what, what.a);
        const value b = signed_operand(what, what.b, carries);
        value made;
        if (!upper) {
            const value left = by == 0 && !what.a.negative ? a : mixed(a);
            made = sum(left, b);
        } else {
            const value c = extended ? a_value(a_number) : get(what, what.c);
            value left = by <= most_scale ? mixed(c) : mixed(a, c);
            if (by == 0 && !extended && !what.a.negative)
                left = c;
            made = sum(left, b);
        }
        set(what, what.to, carries ? without_content(made) : made);
    }

    void numbers(const instruction &what)
    {
        for (unsigned i = 0; i < what.of->may_write; i++)
            if (i < what.of->writes)
                set(what, next(what.to, i), a_value(a_number));
            else
                may_set(next(what.to, i), a_value(a_number));
    }

    void set_pair(const instruction &what, const value &low, const value &high)
    {
        set(what, what.to, low);
        set(what, next(what.to, 1), high);
    }

    void copy(const instruction &what)
    {
        const bool to_uniform = what.of->fields == layout::to_uniform;
        const operand &from = to_uniform ? what.a : what.b;
        const value low = signed_operand(what, from, false);
        if (what.writes_pair())
            set_pair(what, low, signed_operand(what, from, false, 1));
        else
            set(what, what.to, low);
    }

    void plain_sum(const instruction &what)
    {
        const bool of_two = what.bits(0, 9) == 0x036;
        const bool carries = what.bit(74) && !of_two;
        const value made = sum(sum(signed_operand(what, what.a, carries),
                                   signed_operand(what, what.b, carries)),
                               of_two ? known_number(0)
                                      : signed_operand(what, what.c, carries));
        set(what, what.to, carries ? without_content(made) : made);
    }

    void wide_sum(const instruction &what)
    {
        const bool third = what.bits(0, 9) == 0x097;
        const bool carries = what.bit(74);
        value made[2];
        for (unsigned half = 0; half < 2; half++) {
            const bool more = carries || half != 0;
            made[half] = sum(signed_operand(what, what.a, more, half),
                             signed_operand(what, what.b, more, half));
            if (third)
                made[half] =
                    sum(made[half], signed_operand(what, what.c, more, half));
        }
        set(what, what.to, carries ? without_content(made[0]) : made[0]);
        if (what.writes_pair())
            set(what, next(what.to, 1), without_content(made[1]));
    }

    void product(const instruction &what)
    {
        const bool carries = what.bit(74);
        const value made =
            sum(factor(what, get(what, what.a), get(what, what.b)),
                signed_operand(what, what.c, carries));
        set(what, what.to, carries ? without_content(made) : made);
    }

    void wide_product(const instruction &what)
    {
        const auto c = [&](unsigned half) {
            const value made = get(what, what.c, half);
            return what.c.negative ? negated(made, false) : made;
        };
        const value low = factor(what, get(what, what.a), get(what, what.b));
        const value c_low = c(0);
        const value c_high = c(1);
        // The upper half of a product is no half of an address.
        set_pair(what, without_content(sum(low, c_low)),
                 without_content(sum(a_value(a_number), c_high)));
    }

    void upper_product(const instruction &what)
    {
        set(what, what.to,
            without_content(sum(mixed(get(what, what.a), get(what, what.b)),
                                signed_operand(what, what.c, what.bit(74)))));
    }

    void shift(const instruction &what)
    {
        // The sign of a number.
        const bool sign = what.bits(73, 75) == 2 && what.bit(76) &&
                          what.bit(80) && get(what, what.b).is(31);
        set(what, what.to,
            sign ? a_value(a_number)
                 : mixed(get(what, what.a), get(what, what.c)));
    }

    void permute(const instruction &what)
    {
        const value a = get(what, what.a);
        const value by = get(what, what.b);
        const value c = get(what, what.c);
        value made = mixed(a, by, c);
        if (what.bits(72, 75) == 0 && by.known()) {
            if ((by.number & 0xffff) == 0x3210)
                made = a;
            else if ((by.number & 0xffff) == 0x7654)
                made = c;
            else if (a.is_term() || c.is_term())
                made = with_bytes(made, by.number & 0xffff, a, c);
        }
        set(what, what.to, made);
    }

    void choice(const instruction &what)
    {
        const value a = signed_operand(what, what.a, false);
        const value b = signed_operand(what, what.b, false);
        // Those of floating-point numbers may take the sign away.
        const bool plain = what.bits(0, 9) == 0x007 || what.bits(0, 9) == 0x087;
        const auto first = plain ? decided_by_operand(what) : std::nullopt;
        if (first)
            set(what, what.to, *first ? a : b);
        else
            set(what, what.to,
                plain ? joined(a, b) : without_content(joined(a, b)));
    }

    void wide_choice(const instruction &what)
    {
        // The forms with the second operand in the third one's place.
        const operand &other = what.bits(9, 12) == 6 ? what.b : what.c;
        const value low = joined(get(what, what.a, 0), get(what, other, 0));
        const value high = joined(get(what, what.a, 1), get(what, other, 1));
        set_pair(what, low, high);
    }

    void extreme(const instruction &what)
    {
        const value low = joined(get(what, what.a), get(what, what.b));
        if (!what.writes_pair())
            return set(what, what.to, low);
        set_pair(what, low, joined(get(what, what.a, 1), get(what, what.b, 1)));
    }

    void load_both(const instruction &what)
    {
        set_run(what, what.most_written(), a_value(loaded));
        const auto second = what.bits(64, 72);
        for (unsigned i = 0; second != 255 && i < 4; i++)
            set(what, static_cast<std::uint16_t>(second + i), a_value(loaded));
    }

    void program_counter(const instruction &what, index at)
    {
        // The first form gives its own place, the second one that of an
        // instruction close behind it.
        const bool own = what.bits(0, 12) == 0x34e;
        value made = a_value(a_number);
        if (own)
            made = known_number(at * 16);
        else if (what.bits(32, 64) == 0)
            made = known_number((at + 1) * 16 +
                                static_cast<std::uint32_t>(what.bits(24, 32)));
        set_pair(what, made, a_value(a_number));
    }

    // Compilers exchange two registers by three exclusive ors. The first leaves
    // that of both in one of them. The second leaves this one's former content
    // in the other, and the third the other's in this one.
    // @return false if it is none of the three
    bool exchange(const instruction &what)
    {
        constexpr std::uint64_t exclusive_or = 0x3c; // of A and B
        const bool is_first = what.to == what.a.reg;
        // Two registers, and no bit that nobody knows.
        if (what.bits(72, 80) != exclusive_or || what.bits(9, 12) != 1 ||
            what.bits(40, 64) != 0 || what.when.value != condition::always ||
            what.a.is != operand::kind::reg ||
            what.b.is != operand::kind::reg || what.a.reg == what.b.reg ||
            what.a.reg == no_register || what.b.reg == no_register ||
            (!is_first && what.to != what.b.reg))
            return false;
        const std::uint16_t from = is_first ? what.b.reg : what.a.reg;
        const exchanged before = exchanged_;
        if (before.both == from && before.one == what.to && !before.half_done) {
            set(what, what.to, before.of_both);
            exchanged_ = before;
            exchanged_.half_done = true;
        } else if (before.both == what.to && before.one == from &&
                   before.half_done) {
            set(what, what.to, before.of_one);
        } else {
            const value mine = get(what.to, what.when);
            const value others = get(from, what.when);
            set(what, what.to,
                logic(what, get(what, what.a), get(what, what.b),
                      get(what, what.c)));
            exchanged_ = {what.to, from, mine, others, false};
        }
        return true;
    }

    // Its predicate says whether it is not 0. The last one joins in.
    void plain_logic(const instruction &what)
    {
        if (exchange(what))
            return;
        const value made = logic(what, get(what, what.a), get(what, what.b),
                                 get(what, what.c));
        if (made.is_term() && what.bits(87, 90) == always_true &&
            what.bit(90) && !what.bit(80))
            truth_made_ = is_any(term_of(made));
        set(what, what.to, made);
    }

    // D of A and B, where D may be one of them: all operands are read before
    // anything is set.
    void step(const instruction &what, index at)
    {
        truth_made_ = no_term;
        const auto a = [&] { return get(what, what.a); };
        const auto b = [&] { return get(what, what.b); };
        const auto c = [&] { return get(what, what.c); };
        const auto put = [&](const value &made) { set(what, what.to, made); };
        switch (what.of->does) {
        case effect::number:
            numbers(what);
            break;
        case effect::conversion:
            set_run(what, what.most_written(), a_value(a_number));
            break;
        case effect::mixed:
            put(mixed(a(), b(), c()));
            break;
        case effect::keep_predicates:
            keep_predicates(what);
            break;
        case effect::copy:
            copy(what);
            break;
        case effect::sum:
            plain_sum(what);
            break;
        case effect::sum_wide:
            wide_sum(what);
            break;
        case effect::product:
            product(what);
            break;
        case effect::product_wide:
            wide_product(what);
            break;
        case effect::product_high:
            upper_product(what);
            break;
        case effect::scaled_sum:
            scaled_sum(what);
            break;
        case effect::logic:
            plain_logic(what);
            break;
        case effect::shift:
            shift(what);
            break;
        case effect::permute:
            permute(what);
            break;
        case effect::choice:
            choice(what);
            break;
        case effect::choice_wide:
            wide_choice(what);
            break;
        case effect::extreme:
            extreme(what);
            break;
        case effect::extreme_of_three:
            put(without_content(joined(joined(a(), b()), c())));
            break;
        case effect::extreme_of_sum:
            put(without_content(joined(sum(a(), b()), c())));
            break;
        case effect::exchange:
            put(without_content(a()));
            break;
        case effect::load_constant:
            load_constant(what);
            break;
        case effect::special:
            special(what);
            break;
        case effect::load:
            set_run(what, what.most_written(), a_value(loaded));
            break;
        case effect::load_both:
            load_both(what);
            break;
        case effect::load_elsewhere:
            load_elsewhere(what);
            break;
        case effect::atomic:
            set_run(what, what.most_written(), a_value(loaded));
            break;
        case effect::program_counter:
            program_counter(what, at);
            break;
        case effect::nothing:
            if (what.bits(0, 9) == 0x187 && !stack_.empty())
                store_on_stack(what);
            break;
        default:
            break;
        }
        forget_predicates(what);
    }

    // A product, or its other factor if one is 1.
    value factor(const instruction &what, const value &a, const value &b)
    {
        if (a.is(0) || b.is(0))
            return known_number(0);
        if (what.a.negative || what.b.negative)
            return mixed(a, b);
        if (a.is(1))
            return b;
        if (b.is(1))
            return a;
        return mixed(a, b);
    }

    void load_constant(const instruction &what)
    {
        const auto type = what.bits(73, 76);
        const value by = get(what, what.a);
        const bool exact = by.known();
        const std::uint32_t offset = what.b.value + (exact ? by.number : 0);
        const unsigned width = what.width();
        for (unsigned i = 0; i < width; i++) {
            value made;
            if (what.b.is != operand::kind::constant)
                made = a_value(loaded_from_constants);
            else if (type < 4 && exact && what.b.bank == parameter_bank &&
                     offset >= kernel_.parameters && width == 1)
                made = with_term(a_value(a_number),
                                 {.is = term::kind::narrow,
                                  .how = static_cast<std::uint8_t>(type),
                                  .number = offset - kernel_.parameters});
            else if (type < 4) // less than a word
                made = a_value(what.b.bank == parameter_bank || what.b.bank == 2
                                   ? std::uint8_t{a_number}
                                   : std::uint8_t{loaded_from_constants});
            else if (exact)
                made = constant(what.b.bank, offset + 4 * i);
            else if (what.b.bank == parameter_bank)
                // Words that are loaded one by one make no address.
                made.words = sets_.of(word(
                    indexed_bank, width > 1 ? (offset + 4 * i) & 4U : 16U));
            else if (what.b.bank == 2)
                made = a_value(a_number);
            else
                made = a_value(loaded_from_constants);
            set(what, next(what.to, i), made);
        }
    }

    void special(const instruction &what)
    {
        const auto which = what.bits(72, 80);
        const bool pair = what.writes_pair();
        value made = a_value(a_number);
        if (which == 255)
            made = known_number(0);
        else if (which == 47 && !what.reads_long_special()) {
            made = {};
            made.words = sets_.of(word(window_bank, 4));
        }
        set(what, what.to, made);
        if (pair)
            set(what, next(what.to, 1), made);
    }

    void load_elsewhere(const instruction &what)
    {
        const bool local = what.reaches() == space::local;
        if (local && !stack_.empty())
            return load_from_stack(what);
        set_run(what, what.most_written(),
                a_value(local ? loaded_from_local : loaded_from_shared));
    }

    // --- the way through the code ---

    bool in_code(std::int64_t at) const
    {
        return at >= 0 && at % 16 == 0 &&
               static_cast<std::uint64_t>(at) / 16 < code_.size();
    }

    index target_of(const instruction &what, index at)
    {
        const std::int64_t to = (std::int64_t{at} + 1) * 16 + what.distance();
        return in_code(to) ? static_cast<index>(to / 16) : nowhere;
    }

    // One more state is kept.
    bool has_memory()
    {
        return ++kept_states_ * followed_ *
                   (sizeof(value) + sizeof(refinement)) <=
               most_state_bytes;
    }

    // Hands a state on to where a block begins.
    void flow(index to, const state &with)
    {
        if (to >= code_.size()) {
            fail(obstacle::broken, to);
            return;
        }
        // Register 1 changes once more: see find_stack().
        const index entry_point = kernel_.entry_point / 16;
        if (to >= entry_point && to < end_of_change_ &&
            (to != entry_point || states_[to] != nullptr))
            reaches_stack_ = true;
        if (!begins_[to]) {
            // Code that was gone through as the middle of a block.
            begins_[to] = true;
            again_ = true;
            return;
        }
        if ((steps_ += steps_of_state) > most_steps)
            return fail(obstacle::too_long, to);
        auto &there = states_[to];
        if (there == nullptr) {
            if (!has_memory())
                return fail(obstacle::too_long, to);
            there = std::make_unique<state>(with);
            ready_.insert(to);
            return;
        }
        bool changed = false;
        for (std::size_t i = 0; i < predicates; i++)
            if (there->truths[i] != with.truths[i] &&
                there->truths[i] != no_term) {
                there->truths[i] = no_term;
                changed = true;
            }
        for (std::size_t i = 0; i < predicates; i++)
            if (there->kept[i] != with.kept[i] &&
                there->kept[i] != no_register) {
                there->kept[i] = no_register;
                changed = true;
            }
        for (std::size_t i = 0; i < followed_; i++) {
            const value made = joined(there->values[i], with.values[i]);
            if (!(made == there->values[i])) {
                there->values[i] = made;
                changed = true;
            }
            refinement &refined = there->refined[i];
            const refinement &other = with.refined[i];
            if (refined.when.value == condition::always)
                continue;
            if (other.when == refined.when && other.kept == refined.kept) {
                const value both = joined(refined.has, other.has);
                if (!(both == refined.has)) {
                    refined.has = both;
                    changed = true;
                }
            } else {
                refined = {};
                changed = true;
            }
        }
        if (changed)
            ready_.insert(to);
    }

    static void drop_refinements(state &of)
    {
        std::fill(of.refined.begin(), of.refined.end(), refinement{});
        of.kept = state::no_registers();
    }

    void enter(const instruction &what, index at)
    {
        const index to = target_of(what, at);
        if (to == nowhere) {
            fail(obstacle::foreign_call, at);
            return;
        }
        auto found = callee_at_.find(to);
        if (found == callee_at_.end()) {
            if (callees_.size() >= 60000)
                return fail(obstacle::too_long, at);
            found = callee_at_.emplace(to, callees_.size()).first;
            callees_.push_back({});
            callees_.back().entry_point = to;
        }
        const std::size_t number = found->second;
        callee &of = callees_[number];
        state there = now_;
        drop_refinements(there);
        if (of.calls.count(at) == 0 && !has_memory())
            return fail(obstacle::too_long, at);
        of.calls[at] = there;
        for (std::size_t i = 0; i < followed_; i++) {
            there.values[i].has = content::mark;
            there.values[i].number =
                static_cast<std::uint32_t>(number << 16 | i);
        }
        flow(to, there);
        // Another value may come back now.
        for (const index each : of.returns)
            ready_.insert(each);
    }

    void leave_call(const instruction &what, index at, index block)
    {
        const operand reg = {operand::kind::reg, false, 0,
                             static_cast<std::uint16_t>(what.bits(24, 32)), 0};
        if (reg.reg == 255)
            return fail(obstacle::lost_return, at);
        const value to = get(what, reg);
        // The distance leads to the begin of the code.
        const std::int64_t from = (std::int64_t{at} + 1) * 16 + what.distance();
        if (from != 0)
            return fail(obstacle::lost_return, at);
        const auto target = [&](const value &of) -> index {
            const std::int64_t there = from + std::int64_t{of.number};
            return of.known() && in_code(there) ? static_cast<index>(there / 16)
                                                : nowhere;
        };
        if (to.known()) {
            const index there = target(to);
            if (there == nowhere)
                return fail(obstacle::lost_return, at);
            flow(there, now_);
            return;
        }
        if (to.has != content::mark)
            return fail(obstacle::lost_return, at);
        const std::size_t number = to.number >> 16;
        const std::size_t kept = to.number & 0xffff;
        callee &of = callees_[number];
        of.returns.insert(block);
        const state here = now_;
        for (const auto &[call, before] : of.calls) {
            const index there = target(before.values[kept]);
            if (there == nowhere)
                return fail(obstacle::lost_return, call);
            state back = here;
            drop_refinements(back);
            for (std::size_t i = 0; i < followed_; i++) {
                value &each = back.values[i];
                if (each.has != content::mark)
                    continue;
                if (each.number >> 16 == number)
                    each = before.values[each.number & 0xffff];
                else
                    each = without_content(each);
            }
            flow(there, back);
            if (again_ || why_ != obstacle::none)
                return;
        }
    }

    static bool is_harmless(std::string_view name)
    {
        return name == "__assertfail" || name == "vprintf" ||
               name == "malloc" || name == "free";
    }

    void call_absolute(const instruction &what, index at)
    {
        const auto reg = static_cast<std::uint16_t>(what.bits(24, 32));
        const value target = get(reg == 255 ? no_register : reg, what.when);
        const auto &words = sets_.words(target.words);
        if (target.other != nothing_else || words.size() != 1 ||
            words[0] >> bank_shift != address_bank ||
            target.added != nothing_else)
            return fail(obstacle::indirect_call, at);
        const auto found =
            kernel_.addresses.find(words[0] & ((1U << bank_shift) - 1));
        if (found == kernel_.addresses.end() || !is_harmless(found->second))
            return fail(obstacle::foreign_call, at);
        // By the rules for calls.
        const value back = get(20, {});
        if (!back.known() || !in_code(back.number))
            return fail(obstacle::lost_return, at);
        state there = now_;
        drop_refinements(there);
        there.truths = state::no_truths();
        // Its arguments and its answer; the others are kept, or not used.
        for (std::size_t i = 4; i < 16; i++)
            there.values[i] = a_value(loaded_from_call);
        flow(back.number / 16, there);
    }

    // @return whether the next instruction may come behind it
    bool branch(const instruction &what, index at)
    {
        // By a uniform predicate of its own.
        const auto taken =
            what.bits(0, 12) == 0x547 ? decided_by_uniform(what) : std::nullopt;
        if (taken && !*taken)
            return true;
        const index to = target_of(what, at);
        if (to == nowhere) {
            fail(obstacle::broken, at);
            return false;
        }
        state there = now_;
        if (what.goes_alone())
            assume(there, what.when);
        flow(to, there);
        const bool alone = what.has_one_condition();
        if (alone)
            assume(now_, what.when.opposite());
        return what.when.value != condition::always || !(alone || taken);
    }

    // The same.
    bool turn(const instruction &what, index at, index block)
    {
        const bool always = what.when.value == condition::always;
        switch (what.of->does) {
        case effect::branch:
            return branch(what, at);
        case effect::branch_indexed: {
            const auto found = kernel_.targets.find(at * 16);
            if (found == kernel_.targets.end() || found->second.empty()) {
                fail(obstacle::indirect_branch, at);
                return false;
            }
            for (const std::uint32_t each : found->second) {
                if (!in_code(each)) {
                    fail(obstacle::broken, at);
                    return false;
                }
                flow(each / 16, now_);
            }
            return !always;
        }
        case effect::call:
            enter(what, at);
            return !always;
        case effect::call_absolute:
            call_absolute(what, at);
            return !always;
        case effect::give_back:
            leave_call(what, at, block);
            return !always;
        case effect::leave: {
            const bool alone = what.has_one_condition();
            if (alone)
                assume(now_, what.when.opposite());
            return !(always && alone);
        }
        case effect::meet: {
            // A barrier that was moved may be any other one.
            const auto barrier = static_cast<unsigned>(what.bits(16, 20));
            for (const auto &[of, targets] : apart_)
                for (const index to : targets)
                    if (moves_barriers_ || of == barrier)
                        flow(to, now_);
            return true;
        }
        case effect::collect: {
            if (!what.bit(86)) // it has no target
                return true;
            const index to = target_of(what, at);
            if (to == nowhere) {
                fail(obstacle::broken, at);
                return false;
            }
            flow(to, now_);
            return true;
        }
        default:
            return true;
        }
    }

    // The instruction as it takes effect, or null if it does not.
    const instruction *in_effect(const instruction &what, instruction &changed)
    {
        const auto is = decided(what.when);
        if (!is)
            return &what;
        if (!*is)
            return nullptr;
        changed = what;
        changed.when = {};
        return &changed;
    }

    // Goes through a block, from what is so at its begin.
    void go(index block)
    {
        now_ = *states_[block];
        exchanged_ = {};
        for (index at = block;; at++) {
            if (at >= code_.size())
                return fail(obstacle::broken, at);
            if (at != block && begins_[at]) {
                flow(at, now_);
                return;
            }
            if (code_[at].of == nullptr)
                return fail(obstacle::unknown_code, at);
            if (++steps_ > most_steps)
                return fail(obstacle::too_long, at);
            instruction changed;
            const instruction *const taken = in_effect(code_[at], changed);
            if (taken == nullptr)
                continue;
            const instruction &what = *taken;
            step(what, at);
            if (!turn(what, at, block))
                return;
            if (why_ != obstacle::none || again_)
                return;
        }
    }

    // Finds the points where blocks begin, as far as that can be seen before.
    void find_blocks()
    {
        begins_.assign(code_.size(), false);
        begins_[kernel_.entry_point / 16] = true;
        const auto begin = [&](index at) {
            if (at < code_.size())
                begins_[at] = true;
        };
        for (index at = 0; at < code_.size(); at++) {
            const instruction &what = code_[at];
            if (what.of == nullptr)
                continue;
            switch (what.of->does) {
            case effect::branch:
            case effect::call:
            case effect::collect:
                begin(target_of(what, at));
                [[fallthrough]];
            case effect::branch_indexed:
            case effect::call_absolute:
            case effect::give_back:
            case effect::leave:
            case effect::meet:
                begin(at + 1);
                break;
            case effect::mark:
                begin(target_of(what, at));
                break;
            default:
                break;
            }
        }
        for (const auto &[at, targets] : kernel_.targets)
            for (const std::uint32_t each : targets)
                begin(each / 16);
        moves_barriers_ = std::any_of(
            code_.begin(), code_.end(), [](const instruction &each) {
                return each.of != nullptr && each.bits(0, 9) == 0x156;
            });
        // Threads that meet go on behind the point where they do.
        for (index at = 0; at < code_.size(); at++) {
            const instruction &what = code_[at];
            if (what.of == nullptr || what.of->does != effect::mark)
                continue;
            const index to = target_of(what, at);
            const auto barrier = static_cast<unsigned>(what.bits(16, 20));
            const auto meets_at = [&](index where) {
                return where < code_.size() && code_[where].of != nullptr &&
                       code_[where].of->does == effect::meet &&
                       code_[where].bits(16, 20) == barrier;
            };
            if (to == nowhere)
                continue;
            if (moves_barriers_ ||
                (!meets_at(to) && !(to > 0 && meets_at(to - 1))))
                apart_[barrier].insert(to);
        }
    }

    // A register that no instruction writes is not followed.
    void find_registers()
    {
        // Calls have rules about the first ones.
        vectors_ = 24;
        uniforms_ = 0;
        const auto writes = [this](std::size_t first, unsigned count) {
            if (count == 0 || first >= registers)
                return;
            if (first < first_uniform)
                vectors_ = std::max(vectors_, first + count);
            else
                uniforms_ = std::max(uniforms_, first + count - first_uniform);
        };
        for (const instruction &what : code_) {
            if (what.of == nullptr)
                continue;
            writes(what.to, what.most_written());
            if (what.of->does == effect::load_both)
                writes(what.bits(64, 72), 4);
        }
        vectors_ = std::min<std::size_t>(vectors_, first_uniform);
        uniforms_ = std::min<std::size_t>(uniforms_, registers - first_uniform);
        followed_ = vectors_ + uniforms_;
        for (auto &[offset, at] : stack_)
            at = followed_++;
    }

    // The index of a register among those that are followed, or behind all.
    std::size_t index_of(std::uint16_t reg) const
    {
        if (reg < first_uniform)
            return reg < vectors_ ? reg : followed_;
        const std::size_t number = reg - first_uniform;
        return number < uniforms_ ? vectors_ + number : followed_;
    }

    // --- the thread's own memory ---

    static bool is_local(const instruction &what)
    {
        return what.reaches() == space::local;
    }

    // True if it names one cell: register 1 plus a number.
    static bool names_cell(const instruction &what)
    {
        return !what.bit(91) && what.bits(24, 32) == 1 &&
               stack_offset(what) % 4 == 0;
    }

    static std::uint32_t stack_offset(const instruction &what)
    {
        return static_cast<std::uint32_t>(what.bits(40, 64));
    }

    static bool writes_stack_pointer(const instruction &what)
    {
        const auto covers = [](std::uint64_t first, unsigned count) {
            return first <= 1 && first + count > 1;
        };
        return covers(what.to, what.most_written()) ||
               (what.of->does == effect::load_both &&
                covers(what.bits(64, 72), 4));
    }

    // The compiler keeps on the stack what registers do not suffice for, and
    // arrays. That is followed if the thread's own memory is reached by its own
    // operations alone. An access that might reach any memory has to go by a
    // parameter: see may_be_stack(). Register 1 plus a number names one cell.
    // Any other address may be that of any cell. Register 1 changes only
    // before, and once: no way leads back to where it does.
    void find_stack()
    {
        const index entry_point = kernel_.entry_point / 16;
        index begin_of_use = nowhere;
        end_of_change_ = entry_point;
        bool even = false; // 8 divides the offsets of pairs
        bool odd = false;
        for (index at = 0; at < code_.size(); at++) {
            const instruction &what = code_[at];
            if (what.of == nullptr)
                continue;
            const bool to_entry_point = (what.of->does == effect::branch ||
                                         what.of->does == effect::call) &&
                                        target_of(what, at) == entry_point;
            if (to_entry_point || what.of->does == effect::call_absolute)
                return stack_.clear();
            if (writes_stack_pointer(what)) {
                // A way back to code before the entry point may come later.
                if (at < entry_point)
                    return stack_.clear();
                end_of_change_ = at + 1;
            }
            if (!is_local(what))
                continue;
            begin_of_use = std::min(begin_of_use, at);
            if (!names_cell(what))
                stack_[anywhere[0]] = stack_[anywhere[1]] = 0;
            else if (what.width() > 1)
                (stack_offset(what) % 8 == 0 ? even : odd) = true;
            for (unsigned i = 0; names_cell(what) && i < what.width(); i++)
                stack_[(stack_offset(what) + 4 * i) & 0xffffff] = 0;
            if (stack_.size() > most_cells)
                return stack_.clear();
        }
        // The card faults if it does not divide their addresses.
        is_stack_aligned_ = even && !odd;
        bool straight =
            end_of_change_ <= begin_of_use && entry_point <= begin_of_use;
        for (index at = entry_point + 1; at < end_of_change_; at++)
            straight = straight && !begins_[at];
        if (!straight)
            stack_.clear();
    }

    // A cell on the stack that an instruction names.
    std::size_t cell_of(const instruction &what, unsigned by) const
    {
        return stack_.find((stack_offset(what) + 4 * by) & 0xffffff)->second;
    }

    void store_on_stack(const instruction &what)
    {
        const auto from = static_cast<std::uint16_t>(what.bits(32, 40));
        const bool whole = what.bits(73, 76) >= 4;
        const auto stored = [&](unsigned i) {
            return or_number(
                get(from == 255 ? no_register : next(from, i), what.when));
        };
        for (unsigned i = 0; i < what.width(); i++)
            if (names_cell(what))
                hold(what, cell_of(what, i),
                     whole ? stored(i) : a_value(loaded_from_local));
            else
                store_anywhere(what, i, whole ? stored(i) : mixed(stored(i)));
    }

    // True if a cell may be the one that an address by an index names.
    bool may_be_cell(const instruction &what, unsigned by,
                     std::uint32_t offset) const
    {
        return !is_stack_aligned_ || what.width() == 1 ||
               offset % 8 == 4 * (by % 2);
    }

    void store_anywhere(const instruction &by, unsigned i, const value &what)
    {
        for (const auto &[offset, at] : stack_)
            if (may_be_cell(by, i, offset)) {
                now_.values[at] = joined(now_.values[at], what);
                now_.refined[at] = {};
            }
    }

    value load_from_anywhere(const instruction &by, unsigned i)
    {
        value made;
        for (const auto &[offset, at] : stack_)
            if (may_be_cell(by, i, offset))
                made = joined(made, now_.values[at]);
        // Nobody knows that what was loaded is what is read here.
        for (std::uint8_t *const level : {&made.other, &made.added})
            if (*level >= loaded)
                *level = std::max(*level, std::uint8_t{loaded_from_local});
        return without_content(made);
    }

    void load_from_stack(const instruction &what)
    {
        const bool whole = what.bits(73, 76) >= 4;
        for (unsigned i = 0; i < what.width(); i++) {
            value made = names_cell(what)
                             ? content_at(cell_of(what, i), what.when)
                             : load_from_anywhere(what, i);
            if (made.empty())
                made = a_value(loaded_from_local);
            set(what, next(what.to, i), whole ? made : mixed(made));
        }
    }

    // --- accesses ---

    struct address
    {
        value low;
        value high;
    };

    // @return whether it is a descriptor that the driver gives, and no address
    bool is_drivers(const value &of) const
    {
        if (of.words == 0 || of.other != nothing_else || of.added > a_number)
            return false;
        const auto &words = sets_.words(of.words);
        return std::all_of(words.begin(), words.end(), [&](std::uint32_t each) {
            return each < kernel_.parameters;
        });
    }

    address uniform_pair(std::uint16_t reg) const
    {
        if (reg == no_register)
            return {known_number(0), known_number(0)};
        return {or_number(get(reg, {})), or_number(get(next(reg, 1), {}))};
    }

    std::optional<address> address_in(const instruction &what, index at)
    {
        const operand &reg = what.a;
        const bool is_register = reg.is == operand::kind::reg;
        const auto number = what.bits(0, 9);
        const auto of = what.bits(9, 12);
        const bool plain = number == 0x180 || number == 0x181 ||
                           number == 0x185 || number == 0x186 ||
                           number == 0x17e || number == 0x17f;
        const bool has_uniform = what.bit(91) && of != 1;
        const bool long_always =
            number == 0x1ae || number == 0x17e || number == 0x17f;
        // The upper half of the register's address is not taken.
        const bool narrow =
            plain && !long_always && has_uniform && !what.bit(90);
        if (!long_always && !what.bit(72)) {
            fail(obstacle::short_address, at);
            return std::nullopt;
        }
        address made = {known_number(0), known_number(0)};
        if (is_register) {
            made.low = or_number(get(reg.reg, what.when));
            made.high = narrow ? known_number(0)
                               : or_number(get(next(reg.reg, 1), what.when));
        }
        const std::uint16_t uniform = what.uniform_in_address();
        if (uniform != no_register) {
            const address more = uniform_pair(uniform);
            if (!(is_drivers(more.low) && is_drivers(more.high) &&
                  is_register)) {
                made.low = sum(made.low, more.low);
                made.high = sum(made.high, more.high);
            }
        }
        return made;
    }

    void check(const instruction &what, index at)
    {
        switch (what.of->does) {
        case effect::tensor_map:
            return check_descriptor(what, at);
        case effect::cache_control_uniform:
            accesses_++;
            return take(uniform_pair(what.uniform_at(24)), at, means::address);
        case effect::cache_control:
            // All of a cache.
            if (what.a.is != operand::kind::reg && !what.bit(91))
                return;
            break;
        case effect::load:
        case effect::load_both:
        case effect::store:
        case effect::atomic:
        case effect::reduction:
        case effect::copy_to_shared:
            break;
        default:
            return;
        }
        const auto found = address_in(what, at);
        if (!found)
            return;
        accesses_++;
        take(*found, at,
             what.reaches() == space::generic ? means::generic
                                              : means::address);
    }

    void check_descriptor(const instruction &what, index at)
    {
        const std::uint16_t reg = what.uniform_at(24);
        accesses_++;
        by_descriptor_ = true;
        if (reg == no_register)
            return fail(obstacle::descriptor, at);
        take(uniform_pair(reg), at, means::descriptor);
    }

    // Notes a word that an address goes by, or why it may not.
    // @return false if nothing can go by the word
    bool go_by(std::uint32_t each, const address &of, index at, bool descriptor)
    {
        const bool more = of.high.added >= loaded;
        const std::uint32_t bank = each >> bank_shift;
        const std::uint32_t offset = each & ((1U << bank_shift) - 1);
        const bool drivers =
            bank == parameter_bank && offset < kernel_.parameters;
        if (descriptor && (!drivers || more)) {
            fail(obstacle::descriptor, at);
        } else if (bank == parameter_bank && !drivers) {
            const std::uint32_t which = offset - kernel_.parameters;
            if (more && is_no_address(which))
                return fail(obstacle_of(of.high.added), at), true;
            bool &checked = bases_.emplace(which, false).first->second;
            checked = checked || more;
        } else if (bank == indexed_bank) {
            if (more)
                fail(obstacle::indexed, at);
            else
                indexed_ = true;
        } else if (drivers) {
            if (more)
                fail(obstacle_of(of.high.added), at);
        } else if (bank == address_bank) {
            const auto variable = kernel_.addresses.find(offset);
            if (variable == kernel_.addresses.end() ||
                !variable->second.empty())
                fail(obstacle::no_parameter, at);
        } else {
            return false;
        }
        return true;
    }

    // In the launch at hand. Then this holds for those alone that have the same
    // upper half there.
    bool is_no_address(std::uint32_t parameter)
    {
        if (!settles_ || base{parameter, true}.holds(given_))
            return false;
        const term_number here =
            add({.is = term::kind::word, .number = parameter + 4});
        if (here == no_term)
            return false;
        const term_number same = add(
            {.is = term::kind::comparison,
             .how = compared::equal,
             .a = here,
             .b = add({.is = term::kind::number, .number = truth_of_[here]})});
        if (same != no_term)
            settled_.insert(same);
        return true;
    }

    // @return whether both halves may be those of one parameter
    bool may_be_parameter(const address &of) const
    {
        const auto &high = sets_.words(of.high.words);
        const auto &low = sets_.words(of.low.words);
        return std::any_of(low.begin(), low.end(), [&](std::uint32_t each) {
            return std::binary_search(high.begin(), high.end(), each + 4);
        });
    }

    // True if an address of any memory may be the thread's own, as far as its
    // upper half tells. The driver gives that of the stack as a constant, or in
    // a special register.
    bool may_be_stack(const address &of) const
    {
        const auto &high = sets_.words(of.high.words);
        return of.high.other != nothing_else ||
               !std::all_of(high.begin(), high.end(), [&](std::uint32_t each) {
                   const std::uint32_t bank = each >> bank_shift;
                   const std::uint32_t offset = each & ((1U << bank_shift) - 1);
                   return bank == address_bank || bank == indexed_bank ||
                          (bank == parameter_bank &&
                           offset >= kernel_.parameters);
               });
    }

    // By what an instruction reaches memory.
    enum class means : std::uint8_t
    {
        address,    // of global memory
        generic,    // or of the thread's own, or of shared memory
        descriptor, // in memory
    };

    // Finds the parameters that an address goes by.
    void take(const address &of, index at, means by)
    {
        const bool descriptor = by == means::descriptor;
        reaches_stack_ =
            reaches_stack_ || (by == means::generic && may_be_stack(of));
        const std::uint8_t other = std::max(of.low.other, of.high.other);
        if (other >= loaded)
            return fail(descriptor             ? obstacle::descriptor
                        : may_be_parameter(of) ? obstacle::perhaps_loaded
                                               : obstacle_of(other),
                        at);
        const bool more = of.high.added >= loaded;
        // The parameter may be one end of a distance, and what was loaded the
        // address.
        if (more && of.high.less)
            return fail(obstacle_of(of.high.added), at);
        const auto &low = sets_.words(of.low.words);
        const auto &high = sets_.words(of.high.words);
        bool found = false;
        for (const std::uint32_t each : low)
            if (std::binary_search(high.begin(), high.end(), each + 4))
                found = go_by(each, of, at, descriptor) || found;
        // A window of the thread's own memory.
        if (!found && by == means::generic && !more)
            found = std::binary_search(high.begin(), high.end(),
                                       word(window_bank, 4));
        if (!found)
            fail(descriptor ? obstacle::descriptor : obstacle::no_parameter,
                 at);
    }

    void read_code()
    {
        const std::uint8_t on = architecture_of(kernel_.sm);
        const std::size_t count = kernel_.code.size() / bytes_of_one;
        if (on == 0)
            unreadable_ = obstacle::architecture;
        else if (count == 0 || kernel_.code.size() % bytes_of_one != 0 ||
                 kernel_.entry_point % bytes_of_one != 0 ||
                 kernel_.entry_point / bytes_of_one >= count ||
                 kernel_.parameters >= 1U << 16 ||
                 kernel_.parameter_bytes >= 1U << 16)
            unreadable_ = obstacle::broken;
        else if (count > longest)
            unreadable_ = obstacle::too_long;
        else if (kernel_.relocated)
            unreadable_ = obstacle::foreign_call;
        if (unreadable_ != obstacle::none)
            return;
        code_.reserve(count);
        for (std::size_t i = 0; i < count; i++)
            code_.push_back(decode(kernel_.code.data() + i * bytes_of_one, on));
        find_blocks();
        find_stack();
        find_registers();
    }

    // The look does not hold if the stack is reached in another way.
    // @return whether it has to be looked at again
    bool give_up_stack()
    {
        if (!reaches_stack_ || stack_.empty())
            return false;
        stack_.clear();
        find_registers();
        return true;
    }

    // Looks at all of the code that can be reached.
    void look(verdict &made)
    {
        do {
            why_ = unreadable_;
            where_ = 0;
            steps_ = 0;
            accesses_ = 0;
            bases_.clear();
            indexed_ = by_descriptor_ = false;
            reaches_stack_ = false;
            do
                flow_through();
            while (again_ && why_ == obstacle::none);
            if (why_ == obstacle::none)
                check_all();
        } while (give_up_stack());
        if (sets_.full())
            fail(obstacle::too_long, 0);
        made.why = why_;
        made.where = where_ == nowhere ? 0 : where_ * 16;
        made.accesses = accesses_;
        made.any_parameter = indexed_;
        made.by_descriptor = by_descriptor_;
        for (const auto &[offset, checked] : bases_)
            made.bases.push_back({offset, checked});
        made.premises = premises();
    }

    void flow_through()
    {
        again_ = false;
        settled_.clear();
        if (why_ != obstacle::none)
            return;
        states_.clear();
        states_.resize(code_.size());
        ready_.clear();
        callees_.clear();
        callee_at_.clear();
        kept_states_ = 0;
        state first;
        first.values.resize(followed_);
        first.refined.resize(followed_);
        flow(kernel_.entry_point / 16, first);
        while (!ready_.empty() && why_ == obstacle::none && !again_) {
            const index block = *ready_.begin();
            ready_.erase(ready_.begin());
            go(block);
        }
    }

    // Looks at the accesses, now that nothing changes any more.
    void check_all()
    {
        for (index block = 0; block < code_.size(); block++) {
            if (states_[block] == nullptr)
                continue;
            now_ = *states_[block];
            exchanged_ = {};
            for (index at = block; at < code_.size(); at++) {
                if (at != block && begins_[at])
                    break;
                instruction changed;
                const instruction *const taken = in_effect(code_[at], changed);
                if (taken == nullptr)
                    continue;
                const instruction &what = *taken;
                check(what, at);
                if (why_ != obstacle::none)
                    return;
                step(what, at);
            }
        }
    }

    const kernel_code &kernel_;
    const std::span<const unsigned char> given_;
    obstacle unreadable_ = obstacle::none;
    std::vector<instruction> code_;
    std::vector<bool> begins_;
    std::vector<std::unique_ptr<state>> states_;
    std::set<index> ready_;
    std::vector<callee> callees_;
    std::map<index, std::size_t> callee_at_;
    // Places where threads may go on that do not meet there, by their barrier.
    std::map<unsigned, std::set<index>> apart_;
    bool moves_barriers_ = false; // from one number to another
    word_sets sets_;
    state now_;
    exchanged exchanged_; // in this block
    // Those that are written: of the first kind, and uniform ones.
    std::size_t vectors_ = 0;
    std::size_t uniforms_ = 0;
    std::size_t followed_ = registers; // ... and cells on the stack
    std::size_t steps_ = 0;
    std::size_t kept_states_ = 0;
    bool again_ = false;

    // Places on the stack, by their offset from register 1.
    std::map<std::uint32_t, std::size_t> stack_;
    index end_of_change_ = 0;       // of register 1
    bool is_stack_aligned_ = false; // to pairs of words
    bool reaches_stack_ = false;    // perhaps, by an address of any memory

    // Of a proof for launches with certain parameters.
    bool settles_ = false; // conditions that they decide
    term_list terms_;
    std::vector<std::uint32_t> truth_of_; // of each term, in this launch
    std::vector<bool> constant_;          // of each, in all
    std::set<term_number> senseless_;
    term_number truth_made_ = no_term; // by the operation under way
    std::set<term_number> settled_;    // on which the last look relies
    std::set<term_number> left_out_;   // those are not settled
    std::size_t spent_ = 0;            // in steps, to leave some out

    obstacle why_ = obstacle::none;
    index where_ = 0;
    std::uint32_t accesses_ = 0;
    std::map<std::uint32_t, bool> bases_;
    bool indexed_ = false;
    bool by_descriptor_ = false;
};

} // namespace

const char *describe(obstacle what)
{
    switch (what) {
    case obstacle::none:
        return "proven";
    case obstacle::architecture:
        return "an architecture that is not known";
    case obstacle::too_long:
        return "too long";
    case obstacle::broken:
        return "code that makes no sense";
    case obstacle::unknown_code:
        return "an instruction that is not known";
    case obstacle::indirect_branch:
        return "an indirect branch";
    case obstacle::indirect_call:
        return "an indirect call";
    case obstacle::foreign_call:
        return "a call of other code";
    case obstacle::lost_return:
        return "a return whose target is not known";
    case obstacle::no_parameter:
        return "an address of no single parameter";
    case obstacle::from_memory:
        return "an address from memory";
    case obstacle::from_constants:
        return "an address from constant memory";
    case obstacle::from_shared:
        return "an address from shared memory";
    case obstacle::from_local:
        return "an address from local memory";
    case obstacle::from_call:
        return "an address from a call";
    case obstacle::indexed:
        return "an indexed parameter plus a loaded value";
    case obstacle::descriptor:
        return "a descriptor in memory";
    case obstacle::short_address:
        return "an address of 32 bits";
    case obstacle::perhaps_loaded:
        return "an address of a parameter, or from memory";
    }
    return "?";
}

bool base::holds(std::span<const unsigned char> parameters) const
{
    std::uint64_t value = 0;
    if (!to_be_checked)
        return true;
    if (offset > parameters.size() || parameters.size() - offset < sizeof value)
        return false;
    std::memcpy(&value, parameters.data() + offset, sizeof value);
    return may_be_address(value);
}

bool hold(std::span<const base> bases,
          std::span<const unsigned char> parameters)
{
    return std::all_of(bases.begin(), bases.end(), [&](const base &each) {
        return each.holds(parameters);
    });
}

verdict prove(const kernel_code &kernel)
{
    return prover(kernel).run();
}

verdict prove(const kernel_code &kernel,
              std::span<const unsigned char> parameters)
{
    return prover(kernel, parameters).run_for_launch();
}

} // namespace emuv::cuda::proof
