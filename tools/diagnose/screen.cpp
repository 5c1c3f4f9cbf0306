// SPDX-License-Identifier: GPL-2.0-or-later
// A diagnosis on one screen.
#include "finding.hpp"
#include "text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// Letters, not bytes: the text has signs like ×.
std::size_t letters(std::string_view text)
{
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char c) {
            return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
        }));
}

// @param first  what the first line has already
std::string wrapped(std::string_view text, std::size_t first,
                    std::size_t indent, std::size_t width)
{
    std::string made;
    std::size_t used = first;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::string_view word = text.substr(at, end - at);
        if (!made.empty() && used + 1 + letters(word) > width) {
            made += "\n" + std::string(indent, ' ');
            used = indent;
        } else if (!made.empty()) {
            made += ' ';
            used++;
        }
        made += word;
        used += letters(word);
        at = end + 1;
    }
    return made + "\n";
}

std::string headline(const finding &of)
{
    std::string made;
    if (of.from == source::pytorch_summary ||
        of.from == source::pytorch_snapshot)
        made = fmt::format("{}{}", to_text(of.from),
                           of.ran_out ? ": VRAM ran out"
                                      : ": nothing ran out here");
    else if (of.memory == memory_kind::unknown)
        made = fmt::format("A program was killed, says {}; RAM may have run "
                           "out",
                           to_text(of.from));
    else
        made =
            fmt::format("{} ran out, says {}",
                        of.memory == memory_kind::vram ? "VRAM" : "System RAM",
                        to_text(of.from));
    if (!of.device.empty())
        made += ", on " + of.device;
    if (!of.process.empty())
        made += ": " + of.process;
    if (of.line > 0)
        made += fmt::format(", line {}", of.line);
    if (of.times > 1)
        made += fmt::format(", {} times", of.times);
    return made;
}

std::string figures(const finding &of)
{
    std::string made;
    const auto row = [&](const char *name, const std::optional<figure> &what) {
        if (what)
            made += fmt::format("  {:<26}{:>12}\n", name, size(what->bytes));
    };
    row("asked for", of.asked);
    row("held", of.held);
    row("cached, and not used", of.cached);
    row("all of this process", of.process_total);
    row("free", of.free);
    row("limit", of.limit);
    row("total", of.total);
    row("held at most", of.peak);
    if (of.tokens_asked)
        made +=
            fmt::format("  {:<26}{:>12}\n", "tokens wanted", *of.tokens_asked);
    if (of.tokens_fit)
        made +=
            fmt::format("  {:<26}{:>12}\n", "tokens that fit", *of.tokens_fit);
    return made;
}

std::string remedies(const finding &of, std::size_t width)
{
    std::string made;
    std::size_t number = 0;
    for (const remedy &each : of.remedies) {
        made +=
            fmt::format("{:>3}. ", ++number) +
            wrapped(each.what + ". Price: " + each.price + ".", 5, 5, width);
        // To be typed as it is: never wrapped.
        made += "       " + each.line + "\n";
    }
    return made;
}

} // namespace

std::string screen(const diagnosis &of, std::size_t width)
{
    if (of.findings.empty())
        return {};
    const finding &first = of.findings.front();
    std::string made = wrapped(headline(first), 0, 2, width);
    const std::string table = figures(first);
    if (!table.empty())
        made += "\n" + table;
    made += "\n";
    for (const cause &each : first.causes)
        made += fmt::format("Cause: {}. ", to_text(each.kind)) +
                wrapped(each.why, 9 + letters(to_text(each.kind)), 2, width);
    if (!first.where.empty())
        made += "Where: " + wrapped(first.where, 7, 2, width);
    if (first.at != phase::unknown)
        made += fmt::format("In:    {}\n", to_text(first.at));
    if (!first.tensor.empty())
        made += "Tensor: " + wrapped(first.tensor, 8, 2, width);
    for (const std::string &each : first.same_size)
        made += "Has the size of: " + wrapped(each, 17, 2, width);
    for (const std::string &each : first.notes)
        made += "Note: " + wrapped(each, 6, 2, width);
    if (!first.remedies.empty())
        made += "\nTo do, the cheapest first:\n" + remedies(first, width);
    for (std::size_t i = 1; i < of.findings.size(); i++)
        made += (i == 1 ? "\n" : "") +
                ("Also: " + wrapped(headline(of.findings[i]), 6, 2, width));
    return made;
}

} // namespace emuv::diagnose
