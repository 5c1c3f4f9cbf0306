// SPDX-License-Identifier: GPL-2.0-or-later
// The cause, by the figures. A cause is named where figures show it, and not
// otherwise.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

std::uint64_t bytes_of(const std::optional<figure> &of)
{
    return of ? of->bytes : 0;
}

void judge_fragmentation(finding &of)
{
    const std::uint64_t cached = bytes_of(of.cached);
    const std::uint64_t asked = bytes_of(of.asked);
    const bool is_told =
        std::any_of(of.causes.begin(), of.causes.end(), [](const cause &each) {
            return each.kind == cause_kind::fragmentation;
        });
    if (!of.cached || !of.asked || is_told)
        return;
    const std::uint64_t held = bytes_of(of.held);
    if (cached >= asked && cached >= held / 20)
        of.causes.push_back(
            {cause_kind::fragmentation,
             fmt::format("The allocator keeps {} that nothing uses, more than "
                         "the {} asked for: it is in pieces.",
                         size(cached), size(asked))});
    else if (cached > held / 4 && cached > 256 * MiB)
        of.causes.push_back(
            {cause_kind::fragmentation,
             fmt::format("The allocator keeps {} in pieces that nothing uses.",
                         size(cached))});
}

void judge_others(finding &of)
{
    if (!of.total || !of.free || !of.asked)
        return;
    const bool exact = of.process_total.has_value();
    const std::uint64_t own =
        exact ? of.process_total->bytes
              : plus(bytes_of(of.held), bytes_of(of.cached));
    const std::uint64_t other =
        minus(minus(of.total->bytes, of.free->bytes), own);
    // Without the process's own figure, its context is among the others.
    const std::uint64_t much =
        exact ? 512 * MiB
              : std::max<std::uint64_t>(3 * GiB / 2, of.total->bytes / 8);
    if (other < much || other < of.asked->bytes / 2)
        return;
    of.causes.push_back(
        {cause_kind::others,
         fmt::format("{} of the card are held by {}.", size(other),
                     exact ? "other processes"
                           : "other processes and CUDA's own needs")});
}

void judge_limit(finding &of)
{
    if (!of.free || !of.asked || of.under_emuv)
        return;
    if (of.limit && of.from == source::pytorch)
        of.causes.push_back({cause_kind::limit,
                             fmt::format("The program limits itself to {} "
                                         "(set_per_process_memory_fraction).",
                                         size(of.limit->bytes))});
    else if (of.free->bytes > plus(of.asked->bytes, of.asked->slack) &&
             of.memory == memory_kind::vram)
        of.causes.push_back(
            {cause_kind::limit,
             fmt::format("{} are free, more than the {} asked for. So a limit "
                         "refuses (a share of emuV's or of a vGPU, the "
                         "program's own), or the machine has no RAM to map it.",
                         size(of.free->bytes), size(of.asked->bytes))});
}

void judge_size(finding &of)
{
    const std::uint64_t asked = bytes_of(of.asked);
    const std::uint64_t total = of.total ? of.total->bytes : bytes_of(of.limit);
    if (total == 0 || asked == 0)
        return;
    if (asked > total)
        of.causes.push_back(
            {cause_kind::oversized,
             fmt::format("One piece of {} is larger than all {} of it.",
                         size(asked), size(total))});
    else if (asked >= total / 4)
        of.causes.push_back({cause_kind::oversized,
                             fmt::format("One piece of {} is {} of it all.",
                                         size(asked), percent(asked, total))});
    const std::uint64_t free = bytes_of(of.free);
    if (of.free && asked > free)
        of.causes.push_back(
            {cause_kind::too_small,
             fmt::format("{} were asked for, and {} are free: {} are missing.",
                         size(asked), size(free), size(asked - free))});
    else if (!of.free && of.held && plus(of.held->bytes, asked) > total)
        of.causes.push_back(
            {cause_kind::too_small,
             fmt::format("{} in use and {} more are beyond {}.",
                         size(of.held->bytes), size(asked), size(total))});
}

} // namespace

void judge(finding &of)
{
    if (!of.ran_out) {
        if (of.causes.empty())
            of.causes.push_back(
                {cause_kind::unknown, "Nothing ran out as this was recorded."});
        return;
    }
    // Those that know their limits have said why.
    if (of.from != source::emuv && of.from != source::vllm) {
        judge_fragmentation(of);
        judge_others(of);
        judge_limit(of);
        judge_size(of);
    }
    if (of.causes.empty())
        of.causes.push_back(
            {cause_kind::unknown,
             of.from == source::ggml && of.asked
                 ? fmt::format("The card had no room for a buffer of {}. The "
                               "text does not say how much was free.",
                               size(of.asked->bytes))
                 : std::string("The text does not say what was held or "
                               "free.")});
    // A piece is too large, or others are there, before all is too small.
    std::stable_sort(of.causes.begin(), of.causes.end(),
                     [](const cause &a, const cause &b) {
                         const auto rank = [](cause_kind each) {
                             switch (each) {
                             case cause_kind::leak:
                                 return 0;
                             case cause_kind::others:
                             case cause_kind::limit:
                                 return 1;
                             case cause_kind::fragmentation:
                                 return 2;
                             case cause_kind::oversized:
                                 return 3;
                             case cause_kind::too_small:
                                 return 4;
                             case cause_kind::unknown:
                                 break;
                             }
                             return 5;
                         };
                         return rank(a.kind) < rank(b.kind);
                     });
}

} // namespace emuv::diagnose
