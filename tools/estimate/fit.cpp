// SPDX-License-Identifier: GPL-2.0-or-later
// A job against a card: what spills, and how large it can be.
#include "fit.hpp"

#include <algorithm>
#include <cmath>

namespace emuv::estimate {

namespace {

constexpr double mib = 1 << 20;
constexpr double gib = 1 << 30;

double up_to(double bytes, double unit)
{
    return std::ceil(bytes / unit) * unit;
}

// The largest whole number for which something holds; it holds for each that is
// smaller. 0: for none. @p most: no larger one is tried
template <typename Holds>
double largest(double most, Holds holds)
{
    if (!holds(1.0))
        return 0;
    double good = 1;
    double bad = most + 1;
    while (good * 2 < bad)
        if (holds(good * 2))
            good *= 2;
        else
            bad = good * 2;
    while (bad - good > 1) {
        const double middle = std::floor((good + bad) / 2);
        (holds(middle) ? good : bad) = middle;
    }
    return good;
}

} // namespace

std::string_view word(verdict is)
{
    switch (is) {
    case verdict::fits:
        return "fits";
    case verdict::may_spill:
        return "may spill";
    case verdict::spills:
        return "spills";
    default:
        return "too large";
    }
}

fit hold(const model &of, const job &as, const needs &has, const machine &on)
{
    fit out;
    const auto over = [&](double peak) {
        return std::max(0.0, peak - on.vram);
    };
    out.spilled = {over(has.peak.low), over(has.peak.likely),
                   over(has.peak.high)};
    out.verdict = out.spilled.high == 0     ? verdict::fits
                  : out.spilled.likely == 0 ? verdict::may_spill
                                            : verdict::spills;
    const bool too_much = on.spills_to_none || on.ram != 0;
    if (has.context.likely >= on.vram ||
        (too_much && out.spilled.likely > on.ram))
        out.verdict = verdict::too_large;

    constexpr double most_batch = 1 << 20;
    const auto batch = [&](double range::*answer) {
        return largest(most_batch, [&](double size) {
            job tried = as;
            tried.batch = size;
            return compute(of, tried).peak.*answer <= on.vram;
        });
    };
    out.largest_batch = batch(&range::likely);
    out.sure_batch = batch(&range::high);
    if (writes(of)) {
        const double images =
            as.images * of.tokens_in_text(as.image_width, as.image_height);
        // Positions that are learned end.
        const double most = static_cast<double>(
            of.text.positions != 0 ? of.text.positions : most_tokens);
        const auto length = [&](double range::*answer) {
            return largest(most, [&](double size) {
                job tried = as;
                tried.sequence = size;
                return compute(of, tried).peak.*answer <= on.vram;
            });
        };
        out.longest = length(&range::likely);
        out.sure_longest = length(&range::high);
        (out.longest > 0) ? out.longest += images : 0;
        (out.sure_longest > 0) ? out.sure_longest += images : 0;
    }

    out.whole = whole_pass(of, as, has, on, out.spilled);
    if (as.mode == mode::inference && writes(of)) {
        out.token = one_token(of, as, has, on, out.spilled);
        if (out.spilled.likely > 0)
            out.cpu_token = token_with_cpu(
                *out.token, on, read_by_token(of, as, has), out.token->crosses);
    }
    // Whole quarters of a GiB are easy to read.
    const double whole = up_to(has.peak.high, 256 * mib);
    out.physical =
        std::min(whole, std::floor(on.vram / (256 * mib)) * 256 * mib);
    out.virtual_ = has.peak.high > out.physical
                       ? up_to((has.peak.high - out.physical) * 1.05, gib)
                       : 0;
    return out;
}

} // namespace emuv::estimate
