// SPDX-License-Identifier: GPL-2.0-or-later
// The screen of `emuvctl top`, drawn.
#include "bars.hpp"
#include "view.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace emuvctl::watch {

namespace {

constexpr int least_width = 40;
constexpr int least_height = 8;
constexpr int graph_height = 5; // lines, with the one above it
constexpr int tall_enough = 18; // lines, to have graphs

std::string rate_text(double bytes)
{
    return emuv::format_size(static_cast<std::uint64_t>(std::llround(bytes)));
}

std::string percent_text(double share)
{
    return fmt::format("{:.0f}%", 100 * share);
}

std::string duration_text(double seconds)
{
    if (seconds < 90)
        return fmt::format("{:.0f} s", seconds);
    if (seconds < 5400)
        return fmt::format("{:.0f} min", seconds / 60);
    return fmt::format("{:.1f} h", seconds / 3600);
}

double share_of(std::uint64_t part, std::uint64_t whole)
{
    return whole == 0 ? 0
                      : static_cast<double>(part) / static_cast<double>(whole);
}

struct list_column
{
    std::string_view heading;
    int width;
    order by;
    std::string (*text)(const line &);
};

// From the left, as many as there is room for behind the name.
constexpr list_column list_columns[] = {
    {"PID", 7, order::pid,
     [](const line &l) {
         return l.pid != 0 ? std::to_string(l.pid) : std::string();
     }},
    {"VRAM", 6, order::vram,
     [](const line &l) { return emuv::format_size(l.vram); }},
    {"OF", 4, order::vram,
     [](const line &l) {
         return l.vram_limit != 0 ? percent_text(share_of(l.vram, l.vram_limit))
                                  : std::string();
     }},
    {"RAM", 6, order::ram,
     [](const line &l) { return emuv::format_size(l.ram); }},
    {"RES", 6, order::resident,
     [](const line &l) {
         return l.resident ? emuv::format_size(*l.resident) : std::string();
     }},
    {"FETCH/S", 7, order::fetched,
     [](const line &l) {
         return l.moved ? rate_text(l.moved->fetched) : std::string("-");
     }},
    {"EVICT/S", 7, order::evicted,
     [](const line &l) {
         return l.moved ? rate_text(l.moved->evicted) : std::string("-");
     }},
    {"HIT", 4, order::hits,
     [](const line &l) {
         return l.hits ? percent_text(*l.hits) : std::string("-");
     }},
    {"STALL", 5, order::stalled,
     [](const line &l) {
         return l.moved ? percent_text(l.moved->stalled) : std::string("-");
     }},
};

constexpr int least_name = 14;

// How many columns there is room for, and the width that is left for the name.
int columns_in(int width, int &name)
{
    int used = least_name;
    int count = 0;
    for (const auto &one : list_columns) {
        if (used + 1 + one.width > width)
            break;
        used += 1 + one.width;
        count++;
    }
    name = least_name + width - used;
    return count;
}

void put_right(frame &to, int y, int end, std::string_view text, style look)
{
    to.put(y, end - static_cast<int>(text.size()), text, look);
}

} // namespace

void view::draw_title(frame &to, std::string_view clock) const
{
    const sample *const last = history_.last();
    std::size_t clients = 0;
    std::size_t instances = 0;
    if (last != nullptr) {
        instances = last->instances.size();
        for (const auto &one : last->instances)
            clients += one.info.clients;
    }
    to.paint(0, 0, to.width(), style::title);
    const int x = to.put(0, 1,
                         fmt::format("emuvctl top  {} instance{}, {} client{}",
                                     instances, instances == 1 ? "" : "s",
                                     clients, clients == 1 ? "" : "s"),
                         style::title);
    if (paused_)
        to.put(0, x + 2, "PAUSED", style::warning);
    put_right(to, 0, to.width() - 1,
              fmt::format("every {:g} s  {}", looks_.interval, clock),
              style::title);
}

// Draws the chosen instance, in two lines.
// @return the line behind them
int view::draw_instance(frame &to, const instance_sample &one) const
{
    const auto &info = one.info;
    draw_shares(to, {1, 0, to.width()}, info);
    const holder who{info.id, 0};
    const auto moved = history_.rates_of(who);
    const auto hits = history_.hits_of(who);
    std::string text =
        fmt::format("{}  hits {}  stalled {}  spills {}  faults {}",
                    info.name(), hits ? percent_text(*hits) : "-",
                    moved ? percent_text(moved->stalled) : "-",
                    info.moved.spills, info.moved.faults);
    int x = to.put(2, 0, text, style::plain);
    if (const auto left = history_.seconds_until_full(info.id))
        put_right(
            to, 2, to.width(),
            fmt::format("  full in {} at this growth", duration_text(*left)),
            style::warning);
    else if (share_of(info.physical_used_bytes + info.virtual_used_bytes,
                      info.total_bytes()) > 0.95)
        put_right(to, 2, to.width(), "  nearly full", style::warning);
    else if (x + 22 < to.width())
        put_right(to, 2, to.width(),
                  fmt::format("resident {} of {}",
                              emuv::format_size(info.resident_bytes),
                              emuv::format_size(info.virtual_used_bytes)),
                  style::soft);
    return 3;
}

void view::draw_graphs(frame &to, const instance_sample &one, int y,
                       int height) const
{
    const auto &points = history_.points_of(one.info.id);
    const int half = to.width() / 2;
    std::vector<double> held;
    std::vector<double> fetched;
    std::vector<double> evicted;
    double fastest = 0;
    const auto total = static_cast<double>(one.info.total_bytes());
    const auto shown =
        std::min(points.size(), static_cast<std::size_t>(half - 1));
    for (auto at = points.end() - static_cast<std::ptrdiff_t>(shown);
         at != points.end(); ++at) {
        held.push_back(total > 0 ? (at->vram + at->ram) / total : 0);
        fetched.push_back(at->fetched);
        evicted.push_back(at->evicted);
        fastest = std::max({fastest, at->fetched, at->evicted});
    }
    for (auto *const list : {&fetched, &evicted})
        for (double &value : *list)
            value = fastest > 0 ? value / fastest : 0;
    to.put(
        y, 0,
        fmt::format("held, of {}", emuv::format_size(one.info.total_bytes())),
        style::heading);
    to.put(y, half, "link", style::heading);
    int x = to.put(
        y, half + 6,
        fmt::format("to VRAM {}/s",
                    rate_text(points.empty() ? 0 : points.back().fetched)),
        style::in);
    to.put(y, x + 2,
           fmt::format("to RAM {}/s",
                       rate_text(points.empty() ? 0 : points.back().evicted)),
           style::out);
    // The link's two ways stand above each other.
    const int below = (height - 1) / 2;
    draw_graph(to, {y + 1, 0, half - 1, height - 1}, held, style::vram,
               looks_.unicode);
    draw_graph(to, {y + 1, half, to.width() - half, height - 1 - below},
               fetched, style::in, looks_.unicode);
    draw_graph(to, {y + height - below, half, to.width() - half, below},
               evicted, style::out, looks_.unicode);
}

void view::draw_line(frame &to, int y, const line &one, bool selected) const
{
    int name = 0;
    const int count = columns_in(to.width(), name);
    std::string text = one.name;
    if (how_.tree && !one.is_instance())
        text = "  " + text;
    else if (!how_.tree)
        text += fmt::format(" emuv{}", one.who.instance);
    to.put(y, 0, text.substr(0, static_cast<std::size_t>(name)),
           one.is_instance() ? style::heading : style::plain);
    int x = name;
    for (const auto &column :
         std::span(list_columns).first(static_cast<std::size_t>(count))) {
        x += 1 + column.width;
        put_right(to, y, x, column.text(one), style::plain);
    }
    if (selected)
        to.paint(y, 0, to.width(), style::selected);
}

void view::draw_list(frame &to, int y)
{
    int name = 0;
    const int count = columns_in(to.width(), name);
    to.paint(y, 0, to.width(), style::heading);
    to.put(y, 0, how_.by == order::name ? "*NAME" : "NAME", style::heading);
    int x = name;
    bool marked = false;
    for (const auto &column :
         std::span(list_columns).first(static_cast<std::size_t>(count))) {
        x += 1 + column.width;
        const bool by_this = column.by == how_.by && !marked;
        marked = marked || by_this;
        put_right(to, y, x, (by_this ? "*" : "") + std::string(column.heading),
                  style::heading);
    }
    page_ = static_cast<std::size_t>(std::max(1, to.height() - y - 2));
    top_ = std::min(top_, index_);
    if (index_ >= top_ + page_)
        top_ = index_ - page_ + 1;
    if (lines_.size() <= page_)
        top_ = 0;
    for (std::size_t i = 0; i < page_ && top_ + i < lines_.size(); i++)
        draw_line(to, y + 1 + static_cast<int>(i), lines_[top_ + i],
                  top_ + i == index_);
    if (!lines_.empty())
        return;
    const sample *const last = history_.last();
    std::string_view why = "no process to be seen; t shows instances";
    if (last == nullptr)
        why = "";
    else if (!last->loaded)
        why = "the emuv module is not loaded";
    else if (last->instances.empty())
        why = "there are no instances; 'emuvctl create' makes one";
    else if (!how_.filter.empty())
        why = "the filter leaves nothing; F4 and Esc clear it";
    to.put(y + 1, 0, why, style::soft);
}

void view::draw_sorting(frame &to, int y) const
{
    constexpr int width = 12;
    for (std::size_t i = 0; i < orders.size(); i++) {
        const int at = y + 1 + static_cast<int>(i);
        if (at >= to.height() - 1)
            break;
        const style look = i == sorting_ ? style::selected : style::heading;
        to.put(at, 0, std::string(width, ' '), look);
        to.put(at, 1, orders[i].second, look);
    }
}

void view::draw_foot(frame &to) const
{
    const int y = to.height() - 1;
    if (!message_.empty()) {
        to.put(y, 0, message_, style::warning);
        return;
    }
    switch (mode_) {
    case mode::killing:
        to.put(y, 0,
               fmt::format("end {} {}?  t: SIGTERM  9: SIGKILL  other: no",
                           victim_.pid, victim_.name),
               style::warning);
        return;
    case mode::filtering:
        to.put(y, 0, fmt::format("filter: {}_", how_.filter), style::title);
        return;
    case mode::searching:
        to.put(y, 0, fmt::format("search: {}_", search_), style::title);
        return;
    case mode::sorting:
        to.put(y, 0, "up, down and Enter: sort by;  Esc: as before",
               style::title);
        return;
    default:
        break;
    }
    constexpr std::string_view quit = "F10Quit";
    int x = 0;
    for (const auto &[key, what] :
         {std::pair<std::string_view, std::string_view>{"F1", "Help"},
          {"F3", "Search"},
          {"F4", "Filter"},
          {"F5", how_.tree ? "List" : "Tree"},
          {"F6", "SortBy"},
          {"F9", "Kill"},
          {"Z", paused_ ? "Go on" : "Pause"},
          {"F10", "Quit"}}) {
        // Help and the way out are always there.
        const auto room = static_cast<std::size_t>(to.width() - x);
        const std::size_t wanted = key.size() + what.size();
        if (key != "F10" && wanted + 1 + quit.size() > room)
            continue;
        x = to.put(y, x, key, style::plain);
        x = to.put(y, x, what, style::title) + 1;
    }
    if (!how_.filter.empty())
        to.put(y, x + 1, "[" + how_.filter + "]", style::warning);
}

void view::draw_help(frame &to)
{
    constexpr std::string_view text[] = {
        "Keys, as in htop and nvtop",
        "",
        "  Up Down PgUp PgDn Home End   choose a line",
        "  F3 /   search; F3 or n: the next      F4 \\   filter",
        "  F5 t   tree or list of processes      F6 > .  sort by",
        "  M VRAM  R RAM  L link  S stalls  N PID         sort by that",
        "  I      turn the order around          + -     rising, falling",
        "  F9 k   end a process; it asks         Z p     pause",
        "  F1 h   this help                      F10 q   quit",
        "",
        "OF is the part of its share of VRAM that an instance holds. RES is "
        "RAM",
        "that has pages now; the rest of RAM is reserved ( : in the bar).",
        "HIT: of the bytes given to work, those in VRAM. STALL: the part of "
        "the",
        "time that work waited for memory. Bytes moved are the program's word.",
        "",
        "Any key goes back.",
    };
    for (int y = 1; const auto &one : text) {
        to.put(y, 0, one, y == 1 ? style::heading : style::plain);
        y++;
    }
}

frame view::draw(int width, int height, std::string_view clock)
{
    frame to(width, height);
    if (width < least_width || height < least_height) {
        to.put(0, 0, fmt::format("{}x{} is too small", width, height),
               style::warning);
        return to;
    }
    draw_title(to, clock);
    if (mode_ == mode::help) {
        draw_help(to);
        return to;
    }
    int y = 1;
    if (const auto *const one = chosen_instance()) {
        y = draw_instance(to, *one);
        if (height >= tall_enough) {
            // A third of a tall screen is for graphs.
            const int lines = std::max(graph_height, height / 3 - 2);
            draw_graphs(to, *one, y, lines);
            y += lines;
        }
    }
    draw_list(to, y);
    if (mode_ == mode::sorting)
        draw_sorting(to, y);
    draw_foot(to);
    return to;
}

} // namespace emuvctl::watch
