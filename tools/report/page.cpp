// SPDX-License-Identifier: GPL-2.0-or-later
// The report as a page of HTML. pugixml escapes all text; the page's own
// policy forbids it to load or to run anything.
#include "report/page.hpp"

#include "report/chart.hpp"
#include "report/style.hpp"
#include "report/words.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include <fmt/format.h>

#include <pugixml.hpp>

namespace emuv::report {

namespace {

using node = pugi::xml_node;

// An element with text. HTML knows no empty ones but its own few, so text that
// is empty is a dash.
node add(node into, const char *name, const std::string &text,
         const char *of = nullptr)
{
    node made = into.append_child(name);
    if (of != nullptr)
        made.append_attribute("class") = of;
    made.text() = text.empty() ? "-" : text.c_str();
    return made;
}

// An element that gets others.
node open(node into, const char *name, const char *of = nullptr)
{
    node made = into.append_child(name);
    if (of != nullptr)
        made.append_attribute("class") = of;
    return made;
}

struct heading
{
    const char *text;
    bool number = false;
    bool wide = false;
};

// A table whose rows are added one by one.
class table
{
public:
    table(node into, std::vector<heading> headings)
        : headings_(std::move(headings))
    {
        node made = open(open(into, "div", "scroll"), "table");
        node row = open(open(made, "thead"), "tr");
        for (const heading &each : headings_)
            add(row, "th", *each.text != '\0' ? each.text : "\u00a0",
                each.number ? "n" : nullptr);
        body_ = open(made, "tbody");
    }

    void row(const std::vector<std::string> &cells)
    {
        node made = open(body_, "tr");
        for (std::size_t i = 0; i < cells.size(); i++)
            add(made, "td", cells[i],
                headings_[i].number ? "n"
                : headings_[i].wide ? "name"
                                    : nullptr);
    }

private:
    std::vector<heading> headings_;
    node body_;
};

// A figure of a run, in words and as a number.
struct fact
{
    const char *name;
    std::function<std::optional<double>(const run &)> of;
    std::string (*say)(double);
};

std::vector<fact> facts(source from)
{
    const bool trace = from == source::trace;
    using optional = std::optional<double>;
    std::vector<fact> out = {
        {trace ? "time traced" : "time recorded",
         [](const run &of) { return optional(of.seconds); }, say_seconds},
        {trace ? "peak in VRAM" : "peak on the card",
         [](const run &of) { return of.peak_vram; }, say_bytes},
        {trace ? "peak in system RAM" : "peak pinned",
         [](const run &of) { return of.peak_ram; }, say_bytes},
        {trace ? "came to VRAM" : "copied to the card",
         [](const run &of) { return optional(of.to_vram); }, say_bytes},
        {trace ? "went to RAM" : "copied to the host",
         [](const run &of) { return optional(of.to_ram); }, say_bytes},
        {trace ? "lost to waiting for memory" : "waited for the card",
         [](const run &of) { return optional(of.waited); }, say_seconds}};
    if (trace)
        out.push_back(
            {"read in place",
             [](const run &of) { return optional(of.missed + of.unforeseen); },
             say_bytes});
    else
        out.push_back(
            {"a step", [](const run &of) { return of.step; }, say_seconds});
    return out;
}

void add_facts(node body, const run &of)
{
    node all = open(body, "div", "facts");
    for (const fact &each : facts(of.from)) {
        const auto value = each.of(of);
        if (!value)
            continue;
        node made = open(all, "div", "fact");
        add(made, "b", each.say(*value));
        add(made, "span", each.name);
    }
}

// "12 % more"
std::string change(double from, double to)
{
    if (from == to)
        return "the same";
    if (from <= 0)
        return "-";
    const double off = 100 * (to / from - 1);
    if (std::abs(off) < 0.5)
        return "about the same";
    return fmt::format("{:.0f} % {}", std::min(std::abs(off), 9999.0),
                       off > 0 ? "more" : "less");
}

void add_comparison(node body, std::span<const run> runs)
{
    table made(body, {{"", false, true},
                      {"first", true},
                      {"second", true},
                      {"second against first", true}});
    const bool alike = runs[0].from == runs[1].from;
    for (const fact &each : facts(runs[0].from)) {
        const auto a = each.of(runs[0]);
        const auto b = each.of(runs[1]);
        if (!a && !b)
            continue;
        made.row({each.name, a ? each.say(*a) : "-", b ? each.say(*b) : "-",
                  a && b && alike ? change(*a, *b) : "-"});
    }
}

// The charts of one run, in an order that all runs share.
std::vector<chart> charts_of(const run &of)
{
    std::vector<chart> out;
    const bool trace = of.from == source::trace;
    const auto base = [&](std::string title) {
        chart made;
        made.title = std::move(title);
        made.part_seconds = of.part_seconds;
        made.seconds = of.seconds;
        return made;
    };
    for (const device_memory &each : of.devices) {
        const std::string where = of.devices.size() > 1
                                      ? fmt::format(", device {}", each.device)
                                      : "";
        if (!each.held.empty()) {
            chart held = base("Memory held" + where);
            held.tracks = each.held;
            out.push_back(std::move(held));
        }
        chart link = base((trace ? "Over the link" : "Copies") + where);
        link.as = shape::mirrored;
        link.in = unit::rate;
        link.color = 2;
        link.tracks = each.crossed;
        out.push_back(link);
        if (each.lent.empty())
            continue;
        link.title = "To and from other cards" + where;
        link.tracks = each.lent;
        out.push_back(std::move(link));
    }
    chart waits = base(trace ? "Time lost to waiting for memory"
                             : "Time that the program waited");
    waits.in = unit::share;
    waits.color = 4;
    waits.tracks = {of.waits};
    for (double &each : waits.tracks[0].values)
        each = of.part_seconds > 0 ? std::min(each / of.part_seconds, 1.0) : 0;
    out.push_back(std::move(waits));
    for (chart &each : out)
        each.most = most_of(each);
    return out;
}

// Gives the charts in one place the same axes, where they are of one kind.
void share_axes(std::vector<std::vector<chart>> &of, std::size_t place)
{
    double most = 0;
    double seconds = 0;
    const auto each_alike = [&](auto &&what) {
        for (auto &each : of)
            if (place < each.size() && place < of[0].size() &&
                each[place].title == of[0][place].title)
                what(each[place]);
    };
    each_alike([&](const chart &each) {
        most = std::max(most, each.most);
        seconds = std::max(seconds, each.seconds);
    });
    each_alike([&](chart &each) {
        each.most = most;
        each.seconds = seconds;
    });
}

void add_charts(node body, std::span<const run> runs)
{
    add(body, "h2", "Over time");
    std::vector<std::vector<chart>> all;
    for (const run &each : runs)
        all.push_back(each.seconds > 0 ? charts_of(each)
                                       : std::vector<chart>());
    std::size_t rows = 0;
    for (const auto &each : all)
        rows = std::max(rows, each.size());
    if (rows == 0) {
        add(body, "p", "Nothing to draw: no time passed.");
        return;
    }
    for (std::size_t i = 0; i < rows; i++) {
        share_axes(all, i);
        node row = open(body, "div", runs.size() > 1 ? "runs two" : "runs");
        for (std::size_t k = 0; k < all.size(); k++)
            if (i < all[k].size()) {
                chart &each = all[k][i];
                if (runs.size() > 1)
                    each.title += k == 0 ? " (first)" : " (second)";
                draw(row, each);
            }
    }
}

void add_events(node body, const run &of)
{
    if (of.moved.empty())
        return;
    const bool trace = of.from == source::trace;
    add(body, "h2", trace ? "What moved, and why" : "Copies");
    table made(body, {{"row"},
                      {"event"},
                      {"times", true},
                      {"bytes", true},
                      {"time", true},
                      {"meaning", false, true}});
    for (const sum &each : of.moved)
        made.row({each.row, each.name,
                  say_count(static_cast<double>(each.count)),
                  say_bytes(each.bytes), say_seconds(each.seconds),
                  std::string(meaning(each.row, each.name))});
}

void add_holders(node body, const run &of)
{
    if (of.holders.empty())
        return;
    if (of.from == source::trace) {
        add(body, "h2", "Memory that crossed the link most");
        table made(body, {{"address", false, true},
                          {"bytes", true},
                          {"came to VRAM", true},
                          {"went to RAM", true},
                          {"moves", true}});
        for (const holder &each : of.holders)
            made.row({each.what, say_bytes(each.bytes), say_bytes(each.to_vram),
                      say_bytes(each.to_ram),
                      say_count(static_cast<double>(each.moves))});
        add(body, "p",
            "Units that lie one behind the other are taken for one piece.",
            "quiet");
        return;
    }
    add(body, "h2", "The biggest holders, when most was held");
    table made(body, {{"allocation", false, true},
                      {"made by"},
                      {"bytes", true},
                      {"of the peak", true},
                      {"since", true}});
    for (const holder &each : of.holders)
        made.row({each.what, each.kind, say_bytes(each.bytes),
                  say_share(each.bytes, of.peak_vram.value_or(0)),
                  say_seconds(each.since)});
}

void add_kernels(node body, const run &of)
{
    if (of.kernels.empty())
        return;
    if (of.from == source::trace) {
        add(body, "h2", "Kernels that are not trusted");
        table made(body, {{"kernel", false, true}, {"why", false, true}});
        for (const kernel &each : of.kernels)
            made.row({each.name, each.why});
        return;
    }
    add(body, "h2", "Kernels that took most time");
    table made(body,
               {{"kernel", false, true}, {"launches", true}, {"time", true}});
    for (const kernel &each : of.kernels)
        made.row({each.name, say_count(static_cast<double>(each.count)),
                  say_seconds(each.seconds)});
}

void add_score(node body, const score &of)
{
    add(body, "h2", "The estimate beside what came");
    std::string head = of.model;
    for (const std::string &each : {of.job, of.gpu})
        head += each.empty() ? "" : (head.empty() ? "" : ", ") + each;
    add(body, "p", head, "quiet");
    table made(body, {{"", false, true},
                      {"low", true},
                      {"likely", true},
                      {"high", true},
                      {"came", true},
                      {"", false, true}});
    for (const score_line &each : lines_of(of))
        made.row({each.what, each.low, each.likely, each.high, each.came,
                  each.verdict});
}

// Without a run of its own, an estimate has the peaks of this one.
score with_peaks_of(const run &of, score expected)
{
    if (expected.came || !of.peak_vram)
        return expected;
    came is;
    is.peak_vram = *of.peak_vram + of.peak_cards.value_or(0);
    is.peak_ram = of.from == source::trace ? of.peak_ram.value_or(0) : 0;
    if (of.step)
        is.step_ms = *of.step * 1e3;
    expected.came = is;
    return expected;
}

void add_head(node html, const std::string &title, std::string_view maker)
{
    node head = open(html, "head");
    head.append_child("meta").append_attribute("charset") = "utf-8";
    const auto meta = [&](const char *key, const char *name,
                          const std::string &content) {
        node made = head.append_child("meta");
        made.append_attribute(key) = name;
        made.append_attribute("content") = content.c_str();
    };
    meta("http-equiv", "Content-Security-Policy",
         "default-src 'none'; style-src 'unsafe-inline'");
    meta("name", "viewport", "width=device-width, initial-scale=1");
    meta("name", "generator", std::string(maker));
    add(head, "title", title);
    add(head, "style", std::string(style()));
}

void add_run(node body, const run &of)
{
    for (const std::string &each : sentences(of))
        add(body, "p", each);
    for (const std::string &each : of.notes)
        add(body, "p", each, "note");
}

} // namespace

std::string page(std::span<const run> runs,
                 const std::optional<score> &expected, std::string_view maker)
{
    pugi::xml_document document;
    document.append_child(pugi::node_doctype).set_value("html");
    node html = open(document, "html");
    html.append_attribute("lang") = "en";
    const bool two = runs.size() > 1;
    const std::string name =
        runs[0].file.substr(runs[0].file.find_last_of('/') + 1);
    add_head(html, name + (two ? " and another: emuV" : ": emuV"), maker);
    node body = open(html, "body");
    add(body, "h1", two ? "Two runs compared" : "Memory of " + name);
    for (std::size_t i = 0; i < runs.size(); i++) {
        const run &of = runs[i];
        std::string about = of.from == source::trace ? "trace " : "tape ";
        about += of.file;
        for (const auto &[key, value] : of.about)
            if (key == "program" || key == "card")
                about += fmt::format("; {}: {}", key, value);
        add(body, "p",
            two ? fmt::format("{}: {}", i == 0 ? "First" : "Second", about)
                : about,
            "quiet file");
    }
    if (two)
        add_comparison(body, runs);
    else
        add_facts(body, runs[0]);
    for (std::size_t i = 0; i < runs.size(); i++) {
        if (two)
            add(body, "h2", i == 0 ? "The first run" : "The second run");
        add_run(body, runs[i]);
    }
    if (expected)
        add_score(body, with_peaks_of(runs.back(), *expected));
    add_charts(body, runs);
    for (std::size_t i = 0; i < runs.size(); i++) {
        node part = two ? open(body, "section") : body;
        if (two)
            add(part, "h2",
                i == 0 ? "Details of the first" : "Details of the second");
        add_events(part, runs[i]);
        add_holders(part, runs[i]);
        add_kernels(part, runs[i]);
    }
    add(body, "footer", fmt::format("Written by {}.", maker));
    std::ostringstream out;
    document.save(out, "", pugi::format_raw | pugi::format_no_declaration,
                  pugi::encoding_utf8);
    return out.str() + "\n";
}

} // namespace emuv::report
