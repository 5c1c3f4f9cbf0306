// SPDX-License-Identifier: GPL-2.0-or-later
// Snapshots of PyTorch's caching allocator.
#include "pickle.hpp"
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

using value = pickle::value;

// Containers can be in many places at once, so that walking all is more work
// than the file has bytes. A walk ends here.
class effort
{
public:
    explicit effort(std::size_t bytes) : left_(bytes) {}
    bool spend() { return left_ > 0 && left_-- > 0; }
    [[nodiscard]] bool spent() const { return left_ == 0; }

private:
    std::size_t left_;
};

struct group // blocks of one size
{
    std::uint64_t count = 0;
    value frames;
};

struct device_sums
{
    std::uint64_t reserved = 0;
    std::uint64_t held = 0;
    std::uint64_t largest_free = 0;
    std::uint64_t free_pieces = 0;
    std::uint64_t segments = 0;
    std::map<std::uint64_t, group> by_size;
};

std::string place_of(const pickle &file, value frames)
{
    const auto &all = file.items(frames);
    const std::size_t most = std::min<std::size_t>(all.size(), 64);
    for (std::size_t i = 0; i < most; i++) {
        const std::string_view name = file.text(file.at(all[i], "filename"));
        if (name.size() < 3 || !name.ends_with(".py") ||
            name.find("site-packages") != none)
            continue;
        const std::size_t slash = name.rfind('/');
        return cleaned(fmt::format(
            "{}:{}, in {}",
            (slash == none ? name : name.substr(slash + 1)).substr(0, 80),
            file.number(file.at(all[i], "line")),
            file.text(file.at(all[i], "name")).substr(0, 80)));
    }
    return {};
}

void add_segment(const pickle &file, value segment, device_sums &to,
                 effort &left)
{
    to.segments++;
    to.reserved =
        plus(to.reserved, file.number(file.at(segment, "total_size")));
    for (const value &block : file.items(file.at(segment, "blocks"))) {
        if (!left.spend())
            return;
        const std::uint64_t bytes = file.number(file.at(block, "size"));
        if (file.text(file.at(block, "state")) != "inactive") {
            to.held = plus(to.held, bytes);
            // Many sizes are no leak. Those that come first are kept.
            if (to.by_size.size() < 4096 || to.by_size.contains(bytes)) {
                group &same = to.by_size[bytes];
                same.count++;
                if (same.count == 1)
                    same.frames = file.at(block, "frames");
            }
        } else {
            to.free_pieces++;
            to.largest_free = std::max(to.largest_free, bytes);
        }
    }
}

// The device that refused last, by the recorded histories of all; or none.
std::optional<std::size_t>
refusing(const pickle &file, const std::vector<value> &histories, effort &left)
{
    std::optional<std::size_t> found;
    std::uint64_t latest = 0;
    for (std::size_t i = 0; i < histories.size(); i++)
        for (const value &entry : file.items(histories[i])) {
            if (!left.spend())
                return found;
            if (file.text(file.at(entry, "action")) != "oom")
                continue;
            const std::uint64_t when = file.number(file.at(entry, "time_us"));
            if (!found || when >= latest) {
                found = i;
                latest = when;
            }
        }
    return found;
}

// A device's recorded history: what the program held there over time, and the
// last refusal.
void read_history(const pickle &file, const std::vector<value> &history,
                  finding &into, effort &left)
{
    if (history.empty())
        return;
    // The least that was held in each quarter, counted from the start.
    std::array<std::int64_t, 4> least{};
    least.fill(INT64_MAX);
    std::int64_t now = 0;
    std::uint64_t allocations = 0;
    for (std::size_t i = 0; i < history.size() && left.spend(); i++) {
        const value &entry = history[i];
        const std::string_view what = file.text(file.at(entry, "action"));
        const auto bytes = static_cast<std::int64_t>(std::min<std::uint64_t>(
            file.number(file.at(entry, "size")), std::uint64_t{1} << 50));
        if (what == "alloc") {
            now = std::min(now + bytes, std::int64_t{1} << 60);
            allocations++;
        } else if (what == "free_completed") {
            now = std::max(now - bytes, -(std::int64_t{1} << 60));
        } else if (what == "oom") {
            into.asked = figure{static_cast<std::uint64_t>(bytes), 0};
            into.free = figure{file.number(file.at(entry, "device_free")), 0};
            into.where = place_of(file, file.at(entry, "frames"));
            into.times += into.ran_out ? 1 : 0;
            into.ran_out = true;
        }
        std::int64_t &of = least[i * 4 / history.size()];
        of = std::min(of, now);
    }
    constexpr std::int64_t much = std::int64_t{64} << 20;
    if (allocations >= 100 && least[0] < least[1] && least[1] < least[2] &&
        least[2] < least[3] && least[3] - least[1] > much)
        into.causes.push_back(
            {cause_kind::leak,
             fmt::format("The program's memory never falls back: its least "
                         "rose by {} over the second half of {} allocations.",
                         size(static_cast<std::uint64_t>(least[3] - least[1])),
                         allocations)});
}

void describe(const pickle &file, int device, const device_sums &sums,
              finding &into)
{
    into.device = fmt::format("GPU {}", device);
    into.held = figure{sums.held, 0};
    into.cached = figure{minus(sums.reserved, sums.held), 0};
    into.notes.push_back(
        fmt::format("{} segments; {} free pieces in them, the largest of {}.",
                    sums.segments, sums.free_pieces, size(sums.largest_free)));
    std::vector<std::pair<std::uint64_t, const group *>> largest;
    for (const auto &[bytes, each] : sums.by_size)
        largest.emplace_back(bytes, &each);
    const std::size_t shown = std::min<std::size_t>(largest.size(), 3);
    std::partial_sort(largest.begin(),
                      largest.begin() + static_cast<std::ptrdiff_t>(shown),
                      largest.end(), [](const auto &a, const auto &b) {
                          return times(a.first, a.second->count) >
                                 times(b.first, b.second->count);
                      });
    for (std::size_t i = 0; i < shown; i++) {
        const auto &[bytes, each] = largest[i];
        const std::string place = place_of(file, each->frames);
        into.notes.push_back(fmt::format(
            "{} of {} are {} blocks of {}{}{}.",
            size(times(bytes, each->count)), size(sums.held), each->count,
            size(bytes), place.empty() ? "" : ", the first from ", place));
    }
}

// The device that a finding is about: the one that refused, or the fullest, or
// the one with the longest history.
int device_of(const pickle &file, const std::map<int, device_sums> &devices,
              const std::vector<value> &histories, effort &left)
{
    if (const auto refused = refusing(file, histories, left))
        return static_cast<int>(std::min<std::size_t>(*refused, 63));
    const auto fullest = std::max_element(
        devices.begin(), devices.end(), [](const auto &a, const auto &b) {
            return a.second.reserved < b.second.reserved;
        });
    if (fullest != devices.end())
        return fullest->first;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < histories.size() && left.spend(); i++)
        if (file.items(histories[i]).size() >
            file.items(histories[longest]).size())
            longest = i;
    return static_cast<int>(std::min<std::size_t>(longest, 63));
}

// Tells of the other devices of a snapshot.
void add_others(const std::map<int, device_sums> &devices, int device,
                finding &into)
{
    constexpr std::size_t most = 7;
    std::size_t count = 0;
    for (const auto &[number, sums] : devices)
        if (number != device && count++ < most)
            into.notes.push_back(fmt::format(
                "On GPU {}: {} held, {} cached.", number, size(sums.held),
                size(minus(sums.reserved, sums.held))));
}

} // namespace

bool looks_like_pickle(std::string_view data)
{
    return data.size() > 2 && data[0] == '\x80' && data[1] >= 1 && data[1] <= 5;
}

std::optional<finding> find_snapshot(std::string_view data,
                                     std::string &problem)
{
    pickle file(data);
    if (!file.read()) {
        problem = "a pickle, but no plain data: " + file.problem();
        return {};
    }
    // Since 2.0 a dict; before, and by memory_snapshot(), the segments alone.
    value segments = file.at(file.root(), "segments");
    if (segments.is != pickle::kind::list)
        segments = file.root();
    std::map<int, device_sums> devices;
    effort left(data.size());
    bool has_segment = false;
    for (const value &each : file.items(segments)) {
        if (!left.spend())
            break;
        if (file.at(each, "total_size").is != pickle::kind::integer ||
            file.at(each, "blocks").is != pickle::kind::list)
            continue;
        has_segment = true;
        const std::uint64_t device = file.number(file.at(each, "device"));
        if (device < 64)
            add_segment(file, each, devices[static_cast<int>(device)], left);
    }
    const value traces = file.at(file.root(), "device_traces");
    if (!has_segment && traces.is != pickle::kind::list) {
        problem = "a pickle, but no snapshot of torch.cuda.memory";
        return {};
    }
    finding made;
    made.from = source::pytorch_snapshot;
    made.memory = memory_kind::vram;
    made.ran_out = false;
    const auto &histories = file.items(traces);
    const int device = device_of(file, devices, histories, left);
    const auto its = devices.find(device);
    if (its != devices.end())
        describe(file, device, its->second, made);
    else
        made.device = fmt::format("GPU {}", device);
    if (static_cast<std::size_t>(device) < histories.size())
        read_history(file,
                     file.items(histories[static_cast<std::size_t>(device)]),
                     made, left);
    add_others(devices, device, made);
    if (left.spent()) {
        problem = "a snapshot whose parts contain one another: it was not "
                  "made by PyTorch";
        return {};
    }
    if (made.asked && made.cached && its != devices.end() &&
        made.cached->bytes >= made.asked->bytes &&
        its->second.largest_free < made.asked->bytes)
        made.causes.push_back(
            {cause_kind::fragmentation,
             fmt::format("{} are cached, but the largest piece has {}.",
                         size(made.cached->bytes),
                         size(its->second.largest_free))});
    if (made.asked)
        made.same_size = tensors_of(*made.asked);
    return made;
}

} // namespace emuv::diagnose
