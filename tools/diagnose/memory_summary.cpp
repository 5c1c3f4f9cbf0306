// SPDX-License-Identifier: GPL-2.0-or-later
// The tables of torch.cuda.memory_summary().
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// The figures of a row: now, at most, ever taken, ever given back.
std::vector<figure> row_of(std::string_view table, std::string_view name)
{
    std::vector<figure> made;
    const std::size_t at = table.find(name);
    if (at == none)
        return made;
    std::string_view rest = table.substr(at + name.size());
    rest = rest.substr(0, rest.find('\n'));
    while (made.size() < 4) {
        const std::size_t bar = rest.find('|');
        if (bar == none)
            break;
        rest = rest.substr(bar + 1);
        const std::size_t first = rest.find_first_not_of(' ');
        const auto next =
            first == none ? std::nullopt : read_figure(rest.substr(first));
        if (!next)
            break;
        made.push_back(*next);
    }
    return made;
}

} // namespace

std::optional<finding> find_memory_summary(std::string_view text)
{
    constexpr std::string_view head = "CUDA memory summary, device ID ";
    const std::size_t at = last(text, head);
    if (at == none)
        return {};
    const std::string_view table = text.substr(at, 12'000);
    const auto held = row_of(table, "| Allocated memory");
    auto reserved = row_of(table, "| GPU reserved memory");
    if (held.empty())
        return {};
    finding made;
    made.from = source::pytorch_summary;
    made.memory = memory_kind::vram;
    made.line = line_of(text, at);
    made.times = count(text, head);
    if (const auto id = number_after(table, head))
        made.device = fmt::format("GPU {}", *id);
    made.held = held.front();
    if (held.size() > 1)
        made.peak = held[1];
    if (!reserved.empty())
        made.cached = figure{minus(reserved[0].bytes, held[0].bytes),
                             plus(reserved[0].slack, held[0].slack)};
    const auto ooms = number_after(table, "CUDA OOMs: ").value_or(0);
    const auto retries =
        number_after(table, "cudaMalloc retries: ").value_or(0);
    made.ran_out = ooms > 0;
    made.notes.push_back(
        fmt::format("Errors for want of memory: {}. Times that the cache was "
                    "given up to avoid one: {}.",
                    ooms, retries));
    const auto split = row_of(table, "| Non-releasable memory");
    if (!split.empty() && made.cached &&
        split.front().bytes > held.front().bytes / 10)
        made.causes.push_back(
            {cause_kind::fragmentation,
             fmt::format("{} are cached in blocks that are partly in use, so "
                         "that they cannot be given back.",
                         size(split.front().bytes))});
    // One table after the other: a program that is watched.
    std::vector<std::uint64_t> now;
    for (auto next = text.find(head); next != none;
         next = text.find(head, next + 1)) {
        const auto row =
            row_of(text.substr(next, 12'000), "| Allocated memory");
        if (!row.empty())
            now.push_back(row.front().bytes);
    }
    if (now.size() >= 3 && std::is_sorted(now.begin(), now.end()) &&
        now.back() - now.front() > now.back() / 10)
        made.causes.push_back(
            {cause_kind::leak,
             fmt::format("The program's memory grew from {} to {} over {} "
                         "tables, and never fell.",
                         size(now.front()), size(now.back()), now.size())});
    return made;
}

} // namespace emuv::diagnose
