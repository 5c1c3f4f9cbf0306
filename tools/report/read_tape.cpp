// SPDX-License-Identifier: GPL-2.0-or-later
// Reads tapes for what they tell of memory over time.
#include "report/read_tape.hpp"

#include "report/run.hpp"
#include "report/timeline.hpp"
#include "report/words.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include <tape.hpp>

namespace emuv::report {

namespace {

constexpr std::size_t most_listed = 10;
constexpr std::size_t most_about = 16;

constexpr std::array<const char *,
                     static_cast<std::size_t>(tape::memory_kind::count)>
    kinds = {"cuMemAlloc", "in stream order",     "mapped handles",
             "managed",    "pinned (system RAM)", "graphs' own",
             "parts"};

std::size_t index(tape::memory_kind of)
{
    return static_cast<std::size_t>(of);
}

// Plays a tape, call by call.
class player
{
public:
    player(const tape::tape &in, run &out)
        : in_(in), out_(out), alive_(in.allocations.size())
    {
        for (std::size_t i = 0; i < kinds.size(); i++)
            held_tracks_[i] = time_.add_track(timeline::kind::level);
        waits_ = time_.add_track(timeline::kind::amount);
        to_card_ = time_.add_track(timeline::kind::amount);
        from_card_ = time_.add_track(timeline::kind::amount);
    }

    void play()
    {
        time_.reach(0);
        for (const tape::step &each : in_.steps)
            one(each);
        add_kernels();
        finish();
    }

private:
    void one(const tape::step &each);
    void change(std::uint32_t which, bool comes);
    void copy(const tape::step &each, double from);
    void launch(const tape::step &each);
    void waited(double from, double lasts);
    void add_kernels();
    void finish();

    const tape::tape &in_;
    run &out_;
    timeline time_;
    std::array<std::size_t, kinds.size()> held_tracks_{};
    std::array<double, kinds.size()> held_{};
    std::array<bool, kinds.size()> seen_{};
    std::size_t waits_ = 0;
    std::size_t to_card_ = 0;
    std::size_t from_card_ = 0;
    std::vector<bool> alive_;
    tape::graph_memory of_graphs_;
    double now_ = 0;     // seconds
    double on_card_ = 0; // bytes
    double peak_ = 0;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> of_kernels_; // ns
    std::map<std::uint32_t, std::pair<std::uint64_t, double>> of_graphs_ns_;
};

void player::change(std::uint32_t which, bool comes)
{
    const tape::allocation &is = in_.allocations[which];
    if (alive_[which] == comes || is.kind == tape::memory_kind::part)
        return;
    alive_[which] = comes;
    const std::size_t of = index(is.kind);
    const auto bytes = static_cast<double>(is.bytes);
    held_[of] += comes ? bytes : -bytes;
    seen_[of] = true;
    time_.level(held_tracks_[of], now_, held_[of]);
    if (!tape::on_device(is.kind)) {
        out_.peak_ram = std::max(out_.peak_ram.value_or(0), held_[of]);
        return;
    }
    on_card_ += comes ? bytes : -bytes;
    peak_ = std::max(peak_, on_card_);
}

void player::waited(double from, double lasts)
{
    out_.waited += lasts;
    time_.amount(waits_, from, from + lasts, lasts);
}

void player::copy(const tape::step &each, double from)
{
    const bool into = each.to.allocation != tape::none &&
                      tape::on_device(in_.allocations[each.to.allocation].kind);
    const bool out_of =
        each.from.allocation != tape::none &&
        tape::on_device(in_.allocations[each.from.allocation].kind);
    const auto bytes = static_cast<double>(each.bytes);
    const bool to_card = each.way == tape::copy_kind::to_device ||
                         (each.way == tape::copy_kind::any && into && !out_of);
    const bool from_card =
        each.way == tape::copy_kind::to_host ||
        (each.way == tape::copy_kind::any && out_of && !into);
    if (to_card) {
        out_.to_vram += bytes;
        time_.amount(to_card_, from, now_, bytes);
    } else if (from_card) {
        out_.to_ram += bytes;
        time_.amount(from_card_, from, now_, bytes);
    }
    const char *const name = to_card     ? "to the card"
                             : from_card ? "to the host"
                                         : "on the card";
    auto found = std::find_if(out_.moved.begin(), out_.moved.end(),
                              [&](const sum &is) { return is.name == name; });
    if (found == out_.moved.end())
        found = out_.moved.insert(found, {.row = "copies", .name = name});
    found->count++;
    found->bytes += bytes;
    found->seconds += now_ - from;
    if (each.waits)
        waited(from, now_ - from);
}

void player::launch(const tape::step &each)
{
    if (each.what == tape::code::graph_launch) {
        auto &of = of_graphs_ns_[each.which];
        of.first++;
        const std::uint64_t ns =
            each.ns != 0 ? each.ns : in_.graphs[each.which].ns;
        of.second += static_cast<double>(ns);
        return;
    }
    const std::size_t kernel = in_.shapes[each.which].kernel;
    if (of_kernels_.empty())
        of_kernels_.resize(in_.kernels.size());
    of_kernels_[kernel].first++;
    of_kernels_[kernel].second += tape::time_of(in_, each, 0);
}

void player::one(const tape::step &each)
{
    const double from = now_ + static_cast<double>(each.gap) / 1e9;
    now_ = from + static_cast<double>(each.took) / 1e9;
    switch (each.what) {
    case tape::code::allocate:
    case tape::code::free:
        change(each.which, each.what == tape::code::allocate);
        break;
    case tape::code::launch:
    case tape::code::graph_launch:
        launch(each);
        break;
    case tape::code::graph:
    case tape::code::graph_changed:
    case tape::code::graph_gone:
        of_graphs_.change(in_, each, [this](std::uint32_t which, bool comes) {
            change(which, comes);
        });
        break;
    case tape::code::copy:
        copy(each, from);
        break;
    case tape::code::synchronize:
        waited(from, now_ - from);
        break;
    default:
        break;
    }
    time_.reach(now_);
}

void player::add_kernels()
{
    for (std::size_t i = 0; i < of_kernels_.size(); i++)
        if (of_kernels_[i].first > 0)
            out_.kernels.push_back(
                {.name = clean(in_.kernels[i]),
                 .count = of_kernels_[i].first,
                 .seconds = static_cast<double>(of_kernels_[i].second) / 1e9});
    std::uint64_t graphs = 0;
    double ns = 0;
    for (const auto &[which, of] : of_graphs_ns_) {
        graphs += of.first;
        ns += of.second;
    }
    if (graphs > 0)
        out_.kernels.push_back(
            {.name = "CUDA graphs", .count = graphs, .seconds = ns / 1e9});
    std::stable_sort(
        out_.kernels.begin(), out_.kernels.end(),
        [](const kernel &a, const kernel &b) { return a.seconds > b.seconds; });
    if (out_.kernels.size() > most_listed)
        out_.kernels.resize(most_listed);
}

void player::finish()
{
    const auto rates = [&](std::size_t track) {
        std::vector<double> values = time_.values(track);
        for (double &each : values)
            each /= time_.width();
        return values;
    };
    out_.seconds = now_;
    out_.part_seconds = time_.width();
    out_.peak_vram = peak_;
    device_memory made;
    for (std::size_t i = 0; i < kinds.size(); i++)
        if (seen_[i])
            made.held.push_back({kinds[i], time_.values(held_tracks_[i])});
    made.crossed = {{"to the card", rates(to_card_)},
                    {"to the host", rates(from_card_)}};
    out_.devices.push_back(std::move(made));
    out_.waits = {"waiting", time_.values(waits_)};
}

// The largest allocations that there are when the card holds most.
void add_holders(const tape::tape &in, run &out)
{
    std::vector<bool> alive(in.allocations.size());
    std::vector<double> born(in.allocations.size());
    std::vector<bool> at_peak;
    tape::graph_memory of_graphs;
    double seconds = 0;
    std::uint64_t now = 0;
    std::uint64_t peak = 0;
    const auto change = [&](std::uint32_t which, bool comes) {
        const tape::allocation &is = in.allocations[which];
        if (!tape::takes_vram(is.kind) || alive[which] == comes)
            return;
        alive[which] = comes;
        born[which] = comes ? seconds : born[which];
        now += comes ? is.bytes : -is.bytes;
    };
    const auto each_step = [&](auto &&behind) {
        for (const tape::step &each : in.steps) {
            seconds += static_cast<double>(each.gap + each.took) / 1e9;
            if (each.what == tape::code::allocate ||
                each.what == tape::code::free)
                change(each.which, each.what == tape::code::allocate);
            else if (each.what == tape::code::graph ||
                     each.what == tape::code::graph_changed ||
                     each.what == tape::code::graph_gone)
                of_graphs.change(in, each, change);
            else
                continue;
            if (behind())
                return;
        }
    };
    each_step([&] {
        peak = std::max(peak, now);
        return false;
    });
    alive.assign(alive.size(), false);
    of_graphs = {};
    seconds = 0;
    now = 0;
    each_step([&] { return now == peak; });

    std::vector<std::uint32_t> held;
    for (std::uint32_t i = 0; i < alive.size(); i++)
        if (alive[i])
            held.push_back(i);
    std::stable_sort(
        held.begin(), held.end(), [&](std::uint32_t a, std::uint32_t b) {
            return in.allocations[a].bytes > in.allocations[b].bytes;
        });
    if (held.size() > most_listed)
        held.resize(most_listed);
    for (const std::uint32_t each : held) {
        const tape::allocation &is = in.allocations[each];
        out.holders.push_back({.what = fmt::format("allocation {}", each),
                               .kind = kinds[index(is.kind)],
                               .bytes = static_cast<double>(is.bytes),
                               .since = born[each]});
    }
}

} // namespace

run read_tape(const std::string &path, int file,
              std::span<const unsigned char> begun)
{
    tape::tape of;
    tape::wrong error;
    if (!tape::read_file(file, begun, of, error))
        throw unreadable(fmt::format("{}: {}", clean(path), error.why));
    run out;
    out.file = clean(path);
    out.from = source::tape;
    for (const auto &[key, value] : of.about)
        if (out.about.size() < most_about)
            out.about.emplace_back(clean(key, 40), clean(value));
    player(of, out).play();
    add_holders(of, out);
    const tape::summary is = tape::summarize(of);
    if (is.step_ns != 0)
        out.step = static_cast<double>(is.step_ns) / 1e9;
    out.cut = of.cut;
    out.ended = of.ended;
    if (of.cut)
        out.notes.emplace_back("The tape ends within a record. The report is "
                               "of what stands before.");
    else if (!of.ended)
        out.notes.emplace_back("The program was ended: its last 50 ms may be "
                               "missing.");
    out.notes.emplace_back("A tape is of a program without a limit: nothing "
                           "spills, and nothing moves by itself.");
    return out;
}

} // namespace emuv::report
