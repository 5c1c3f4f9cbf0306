// SPDX-License-Identifier: LGPL-2.1-or-later
// Numbers and truths that follow from the parameters of a launch alone.
#include "proof/terms.hpp"

#include <algorithm>
#include <cstring>

namespace emuv::cuda::proof {

namespace {

using values = std::span<const std::uint32_t>;

// How the code writes comparisons.
enum : std::uint8_t
{
    never = 0,
    less = 1,
    equal = compared::equal,
    less_or_equal = 3,
    greater = 4,
    different = 5,
    greater_or_equal = 6,
    always = 7,
};

bool compare(std::uint8_t how, std::int64_t a, std::int64_t b)
{
    switch (how) {
    case less:
        return a < b;
    case equal:
        return a == b;
    case less_or_equal:
        return a <= b;
    case greater:
        return a > b;
    case different:
        return a != b;
    case greater_or_equal:
        return a >= b;
    default:
        return how == always;
    }
}

// The predicates that a comparison takes.
struct predicates
{
    bool joined; // with what it finds
    bool lower;  // found of the lower halves
};

std::uint32_t comparison(const term &of, std::uint32_t a, std::uint32_t b,
                         predicates given)
{
    const auto wide = [&](std::uint32_t number) -> std::int64_t {
        return (of.more & compared::with_sign) != 0
                   ? std::int64_t{static_cast<std::int32_t>(number)}
                   : std::int64_t{number};
    };
    bool made = compare(of.how, wide(a), wide(b));
    // If the upper halves are the same, the lower ones decide.
    if ((of.more & compared::upper_halves) != 0 && a == b && of.how != never &&
        of.how != always)
        made = given.lower;
    switch (of.more >> compared::join_shift & 3U) {
    case 0:
        return made && given.joined ? 1 : 0;
    case 1:
        return made || given.joined ? 1 : 0;
    default:
        return made != given.joined ? 1 : 0;
    }
}

std::uint32_t logic(std::uint8_t table, std::uint32_t a, std::uint32_t b,
                    std::uint32_t c)
{
    std::uint32_t made = 0;
    for (unsigned i = 0; i < 8; i++)
        if ((table >> i & 1U) != 0)
            made |= ((i & 4U) != 0 ? a : ~a) & ((i & 2U) != 0 ? b : ~b) &
                    ((i & 1U) != 0 ? c : ~c);
    return made;
}

// Four bits choose each byte. The last of them is for its sign alone.
std::uint32_t chosen_bytes(std::uint32_t by, std::uint32_t a, std::uint32_t b)
{
    const std::uint64_t from = std::uint64_t{b} << 32 | a;
    std::uint32_t made = 0;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned choice = by >> (4 * i) & 15U;
        std::uint32_t one = from >> (8 * (choice & 7U)) & 0xff;
        if ((choice & 8U) != 0)
            one = (one & 0x80) != 0 ? 0xff : 0;
        made |= one << (8 * i);
    }
    return made;
}

bool narrow(const term &of, std::span<const unsigned char> from,
            std::uint32_t &made)
{
    const unsigned size = of.how < 2 ? 1 : 2;
    if (of.number > from.size() || from.size() - of.number < size)
        return false;
    std::uint32_t read = from[of.number];
    if (size == 2)
        read |= std::uint32_t{from[of.number + 1]} << 8;
    const std::uint32_t sign = size == 1 ? 0x80 : 0x8000;
    const bool with_sign = (of.how & 1U) != 0;
    made = with_sign && (read & sign) != 0 ? read | ~(2 * sign - 1) : read;
    return true;
}

// @return whether the term makes sense
bool evaluate_one(const term &of, values before,
                  std::span<const unsigned char> from, std::uint32_t &made)
{
    const auto is_there = [&](term_number which) {
        return which < before.size();
    };
    // A truth that is missing is true.
    const auto truth = [&](term_number which, bool turned) {
        return (which == no_term || before[which] != 0) != turned;
    };
    const auto may_be_truth = [&](term_number which) {
        return which == no_term || is_there(which);
    };
    switch (of.is) {
    case term::kind::number:
        made = of.number;
        return true;
    case term::kind::word:
        if (of.number > from.size() || from.size() - of.number < 4)
            return false;
        std::memcpy(&made, from.data() + of.number, 4);
        return true;
    case term::kind::narrow:
        return of.how < 4 && narrow(of, from, made);
    case term::kind::sum:
        if (!is_there(of.a) || !is_there(of.b))
            return false;
        made = before[of.a] + before[of.b];
        return true;
    case term::kind::opposite:
        if (!is_there(of.a))
            return false;
        made = 0U - before[of.a];
        return true;
    case term::kind::logic:
        if (!is_there(of.a) || !is_there(of.b) || !is_there(of.c))
            return false;
        made = logic(of.how, before[of.a], before[of.b], before[of.c]);
        return true;
    case term::kind::permutation:
        if (!is_there(of.a) || !is_there(of.b))
            return false;
        made = chosen_bytes(of.number, before[of.a], before[of.b]);
        return true;
    case term::kind::comparison:
        if (!is_there(of.a) || !is_there(of.b) || !may_be_truth(of.c) ||
            !may_be_truth(of.d))
            return false;
        made = comparison(
            of, before[of.a], before[of.b],
            {.joined = truth(of.c, (of.more & compared::not_c) != 0),
             .lower = truth(of.d, (of.more & compared::not_d) != 0)});
        return true;
    case term::kind::truths: {
        if (!may_be_truth(of.a) || !may_be_truth(of.b) || !may_be_truth(of.c))
            return false;
        const unsigned at =
            (truth(of.a, (of.more & not_a_of_three) != 0) ? 4U : 0U) |
            (truth(of.b, (of.more & not_b_of_three) != 0) ? 2U : 0U) |
            (truth(of.c, (of.more & not_c_of_three) != 0) ? 1U : 0U);
        made = of.how >> at & 1U;
        return true;
    }
    }
    return false;
}

} // namespace

std::optional<std::uint32_t> evaluate(const term &of,
                                      std::span<const std::uint32_t> before,
                                      std::span<const unsigned char> parameters)
{
    std::uint32_t made = 0;
    if (!evaluate_one(of, before, parameters, made))
        return std::nullopt;
    return made;
}

bool hold(std::span<const term> terms, std::span<const premise> premises,
          std::span<const unsigned char> parameters)
{
    std::vector<std::uint32_t> made;
    made.reserve(terms.size());
    for (const term &each : terms) {
        const auto one = evaluate(each, made, parameters);
        if (!one)
            return false;
        made.push_back(*one);
    }
    return std::all_of(premises.begin(), premises.end(),
                       [&](const premise &each) {
                           return each.which < made.size() &&
                                  (made[each.which] != 0) == each.is;
                       });
}

term_number term_list::add(const term &what)
{
    const auto found = numbers_.find(what);
    if (found != numbers_.end())
        return found->second;
    if (all_.size() >= most)
        return no_term;
    const auto made = static_cast<term_number>(all_.size());
    all_.push_back(what);
    numbers_.emplace(what, made);
    return made;
}

std::vector<term> needed(std::span<const term> all,
                         std::vector<premise> &premises)
{
    std::vector<bool> wanted(all.size(), false);
    for (const premise &each : premises)
        wanted[each.which] = true;
    // Each rests on those that come before it.
    for (std::size_t i = all.size(); i-- > 0;)
        if (wanted[i])
            for (const term_number each :
                 {all[i].a, all[i].b, all[i].c, all[i].d})
                if (each != no_term)
                    wanted[each] = true;
    std::vector<term_number> moved(all.size(), no_term);
    std::vector<term> made;
    const auto there = [&](term_number which) {
        return which == no_term ? no_term : moved[which];
    };
    for (std::size_t i = 0; i < all.size(); i++) {
        if (!wanted[i])
            continue;
        moved[i] = static_cast<term_number>(made.size());
        term one = all[i];
        one.a = there(one.a);
        one.b = there(one.b);
        one.c = there(one.c);
        one.d = there(one.d);
        made.push_back(one);
    }
    for (premise &each : premises)
        each.which = moved[each.which];
    return made;
}

} // namespace emuv::cuda::proof
