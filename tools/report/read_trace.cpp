// SPDX-License-Identifier: GPL-2.0-or-later
// Reads traces as they come, and keeps sums of them alone: a trace may be
// larger than memory, cut off, or made to harm.
#include "report/bytes.hpp"
#include "report/read_tape.hpp"
#include "report/run.hpp"
#include "report/timeline.hpp"
#include "report/words.hpp"

#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <system_error>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <tape.hpp>

namespace emuv::report {

namespace {

using json = nlohmann::json;

constexpr std::size_t most_depth = 32;
constexpr std::size_t most_rows = 1024;
constexpr std::size_t most_sums = 64;
constexpr std::size_t most_units = std::size_t{1} << 16;
constexpr std::size_t most_kernels = 200;
constexpr unsigned most_devices = 16;
constexpr std::size_t most_holders = 10;
constexpr double most_us = 1e15;    // 30 years
constexpr double most_bytes = 1e18; // of one event

constexpr std::array<std::string_view, 4> rows = {"to VRAM", "to RAM", "waits",
                                                  "calls"};

// An event, as far as it is asked.
struct event
{
    std::string phase;
    std::string name;
    double pid = 0;
    double tid = 0;
    double at_us = 0;
    double lasts_us = 0;
    // Of its arguments.
    std::string address;
    std::string says; // "name" of a thread, "kernel"
    std::string why;
    double bytes = 0;  // or bytes a second
    bool lent = false; // it names a card that lends
};

bool is_within(double value, double most)
{
    return value >= 0 && value <= most;
}

// Adds events up.
class sums
{
public:
    explicit sums(run &out) : out_(out)
    {
        waits_ = time_.add_track(timeline::kind::amount);
        moved_in_ = time_.add_track(timeline::kind::amount);
        moved_out_ = time_.add_track(timeline::kind::amount);
    }

    void take(event &each)
    {
        if (each.phase == "M") {
            name_row(each);
            return;
        }
        if (!is_within(each.at_us, most_us) ||
            !is_within(each.lasts_us, most_us) ||
            !is_within(each.bytes, most_bytes)) {
            odd_++;
            return;
        }
        if (each.phase == "X")
            span(each);
        else if (each.phase == "C")
            count(each);
        else if (each.phase == "i" && each.name == "not trusted")
            not_trusted(each);
        else
            foreign_++;
    }

    // True if any event is the library's.
    [[nodiscard]] bool any() const { return !rows_.empty(); }
    void finish();

private:
    struct unit
    {
        double bytes = 0;
        double in = 0;
        double out = 0;
        std::uint64_t moves = 0;
    };
    struct device
    {
        std::size_t vram;
        std::size_t ram;
        std::size_t in;
        std::size_t out;
        std::size_t cards;
        std::size_t from_cards;
        std::size_t to_cards;
        double vram_bytes = 0;
        double ram_bytes = 0;
        double cards_bytes = 0;
        bool is_lent = false; // it has counters of other cards
        double at = 0;        // of the last level, seconds
    };

    void name_row(const event &each);
    void span(const event &each);
    void count(const event &each);
    void not_trusted(event &each);
    sum &sum_of(std::string_view row, const std::string &name);
    void unit_moves(const event &each, double in, double out);
    device *device_of(std::string_view track, std::string_view &name);
    void add_devices();
    void add_holders();

    run &out_;
    timeline time_;
    std::size_t waits_;
    std::size_t moved_in_;
    std::size_t moved_out_;
    std::map<std::pair<double, double>, std::string_view> rows_;
    std::unordered_map<std::uint64_t, unit> units_;
    std::map<unsigned, device> devices_;
    double counted_in_ = 0; // bytes over the link, by the counters
    std::uint64_t odd_ = 0; // events with impossible figures
    std::uint64_t foreign_ = 0;
    std::uint64_t more_kernels_ = 0;
};

void sums::name_row(const event &each)
{
    const auto *const is = std::find(rows.begin(), rows.end(), each.says);
    if (each.name == "thread_name" && is != rows.end() &&
        rows_.size() < most_rows)
        rows_[{each.pid, each.tid}] = *is;
}

sum &sums::sum_of(std::string_view row, const std::string &name)
{
    const bool full = out_.moved.size() >= most_sums;
    for (sum &each : out_.moved)
        if (each.row == row && each.name == name)
            return each;
    if (full) {
        sum &last = out_.moved.back();
        last.row = "others";
        last.name = "others";
        return last;
    }
    out_.moved.push_back({.row = std::string(row), .name = name});
    return out_.moved.back();
}

void sums::unit_moves(const event &each, double in, double out)
{
    std::uint64_t address = 0;
    const std::string_view text = each.address;
    if (!text.starts_with("0x"))
        return;
    std::from_chars(text.data() + 2, text.data() + text.size(), address, 16);
    if (units_.size() >= most_units && !units_.contains(address)) {
        out_.holders_are_all = false;
        return;
    }
    unit &of = units_[address];
    of.bytes = each.bytes;
    of.in += in;
    of.out += out;
    of.moves++;
}

void sums::span(const event &each)
{
    const auto row = rows_.find({each.pid, each.tid});
    if (row == rows_.end()) {
        foreign_++;
        return;
    }
    const double from = each.at_us / 1e6;
    const double lasts = each.lasts_us / 1e6;
    time_.reach(from);
    time_.reach(from + lasts);
    sum &to = sum_of(row->second, clean(each.name, 60));
    to.count++;
    to.bytes += each.bytes;
    to.seconds += lasts;

    const bool waits = row->second == "waits";
    const bool moves = row->second == rows[0] || row->second == rows[1];
    if (waits && each.name == "missed")
        out_.missed += each.bytes;
    else if (waits && each.name == "not expected")
        out_.unforeseen += each.bytes;
    else if (waits && (each.name == "launch" || each.name == "being mapped" ||
                       each.name == "mapped again" || each.name == "settles" ||
                       each.name == "drains")) {
        out_.waited += lasts;
        time_.amount(waits_, from, from + lasts, lasts);
    } else if (moves && each.name != "called off") {
        const double in = each.name == "fetch" ? each.bytes : 0;
        const double out = each.name == "write back" ? each.bytes : 0;
        out_.to_vram += in;
        out_.to_ram += out;
        out_.from_cards += each.lent ? in : 0;
        out_.to_cards += each.lent ? out : 0;
        time_.amount(moved_in_, from, from + lasts, in);
        time_.amount(moved_out_, from, from + lasts, out);
        unit_moves(each, in, out);
    }
}

// The device that a counter is of: "VRAM" or "VRAM, device 1".
sums::device *sums::device_of(std::string_view track, std::string_view &name)
{
    constexpr std::string_view behind = ", device ";
    unsigned number = 0;
    const auto at = track.find(behind);
    name = track.substr(0, at);
    if (at != std::string_view::npos) {
        const auto digits = track.substr(at + behind.size());
        const auto read = std::from_chars(
            digits.data(), digits.data() + digits.size(), number);
        if (read.ec != std::errc() || number >= most_devices)
            return nullptr;
    }
    const auto found = devices_.find(number);
    if (found != devices_.end())
        return &found->second;
    using kind = timeline::kind;
    return &devices_
                .emplace(number,
                         device{.vram = time_.add_track(kind::level),
                                .ram = time_.add_track(kind::level),
                                .in = time_.add_track(kind::amount),
                                .out = time_.add_track(kind::amount),
                                .cards = time_.add_track(kind::level),
                                .from_cards = time_.add_track(kind::amount),
                                .to_cards = time_.add_track(kind::amount)})
                .first->second;
}

void sums::count(const event &each)
{
    struct known
    {
        std::string_view name;
        std::size_t device::*track;
        double device::*level; // null: a rate
        std::optional<double> run::*peak;
    };
    static constexpr std::array<known, 7> all = {{
        {"VRAM", &device::vram, &device::vram_bytes, &run::peak_vram},
        {"system RAM", &device::ram, &device::ram_bytes, &run::peak_ram},
        {"other cards", &device::cards, &device::cards_bytes, &run::peak_cards},
        {"link to VRAM", &device::in, nullptr, nullptr},
        {"link to RAM", &device::out, nullptr, nullptr},
        {"cards to VRAM", &device::from_cards, nullptr, nullptr},
        {"VRAM to cards", &device::to_cards, nullptr, nullptr},
    }};
    const std::string_view stem =
        std::string_view(each.name).substr(0, each.name.find(','));
    const auto *const is =
        std::find_if(all.begin(), all.end(),
                     [&](const known &one) { return one.name == stem; });
    std::string_view name;
    device *const of = is != all.end() ? device_of(each.name, name) : nullptr;
    if (of == nullptr) {
        foreign_++;
        return;
    }
    const double at = each.at_us / 1e6;
    of->is_lent = of->is_lent || is->track == &device::cards;
    if (is->level != nullptr) {
        of->*is->level = each.bytes;
        time_.level(of->*is->track, at, each.bytes);
        of->at = at;
        double sum = 0;
        for (const auto &[number, other] : devices_)
            sum += other.*is->level;
        auto &peak = out_.*is->peak;
        peak = std::max(peak.value_or(0), sum);
        return;
    }
    // The rate holds from there on to the levels that were counted with it.
    const double bytes = each.bytes * std::max(of->at - at, 0.0);
    if (bytes == 0)
        return;
    counted_in_ += is->track == &device::in || is->track == &device::from_cards
                       ? bytes
                       : 0;
    time_.amount(of->*is->track, at, of->at, bytes);
}

void sums::not_trusted(event &each)
{
    if (out_.kernels.size() >= most_kernels) {
        more_kernels_++;
        return;
    }
    out_.kernels.push_back({.name = clean(each.says), .why = clean(each.why)});
}

void sums::add_devices()
{
    const double width = time_.width();
    const auto rates = [&](std::size_t track) {
        std::vector<double> values = time_.values(track);
        for (double &each : values)
            each /= width;
        return values;
    };
    if (devices_.empty() && out_.to_vram + out_.to_ram > 0) {
        out_.devices.push_back(
            {0,
             {},
             {{"to VRAM", rates(moved_in_)}, {"to RAM", rates(moved_out_)}}});
        out_.notes.emplace_back("The trace has no counters: it is of a version "
                                "before them. So it does not tell how much "
                                "memory was held.");
        return;
    }
    // Counters may stand elsewhere than the library puts them.
    const bool by_spans =
        devices_.size() == 1 && counted_in_ < out_.to_vram / 2;
    for (const auto &[number, of] : devices_) {
        out_.devices.push_back(
            {number,
             {{"VRAM", time_.values(of.vram)},
              {"system RAM", time_.values(of.ram)}},
             {{"to VRAM", rates(by_spans ? moved_in_ : of.in)},
              {"to RAM", rates(by_spans ? moved_out_ : of.out)}}});
        device_memory &made = out_.devices.back();
        if (!of.is_lent)
            continue;
        made.held.push_back({"other cards", time_.values(of.cards)});
        made.lent = {{"from cards", rates(of.from_cards)},
                     {"to cards", rates(of.to_cards)}};
    }
}

// Units that lie one behind the other, of one size, are taken to be one piece
// of memory.
void sums::add_holders()
{
    std::vector<std::pair<std::uint64_t, unit>> all(units_.begin(),
                                                    units_.end());
    std::sort(all.begin(), all.end(),
              [](const auto &a, const auto &b) { return a.first < b.first; });
    double size = 0;
    double end = -1;
    for (const auto &[address, of] : all) {
        const auto at = static_cast<double>(address);
        if (at == end && of.bytes <= size) {
            holder &to = out_.holders.back();
            to.bytes += of.bytes;
            to.to_vram += of.in;
            to.to_ram += of.out;
            to.moves += of.moves;
            size = of.bytes; // a smaller one is the last
        } else {
            out_.holders.push_back({.what = fmt::format("{:#x}", address),
                                    .bytes = of.bytes,
                                    .to_vram = of.in,
                                    .to_ram = of.out,
                                    .moves = of.moves});
            size = of.bytes;
        }
        end = at + of.bytes;
    }
    std::stable_sort(out_.holders.begin(), out_.holders.end(),
                     [](const holder &a, const holder &b) {
                         return a.to_vram + a.to_ram > b.to_vram + b.to_ram;
                     });
    if (out_.holders.size() > most_holders)
        out_.holders.resize(most_holders);
}

void sums::finish()
{
    out_.seconds = time_.last() - time_.first();
    out_.part_seconds = time_.width();
    if (!time_.empty())
        add_devices();
    out_.waits = {"waiting", time_.values(waits_)};
    add_holders();
    std::stable_sort(
        out_.moved.begin(), out_.moved.end(), [](const sum &a, const sum &b) {
            const auto place = [](const sum &of) {
                return std::find(rows.begin(), rows.end(), of.row) -
                       rows.begin();
            };
            return place(a) != place(b) ? place(a) < place(b)
                                        : a.seconds > b.seconds;
        });
    if (out_.moved.empty())
        out_.notes.emplace_back("Nothing moved while the trace was written.");
    if (!out_.holders_are_all)
        out_.notes.push_back(fmt::format(
            "More than {} pieces of memory moved. The table of the largest "
            "knows those that came first.",
            say_count(most_units)));
    if (more_kernels_ > 0)
        out_.notes.push_back(
            fmt::format("{} more kernels are not trusted.",
                        say_count(static_cast<double>(more_kernels_))));
    if (odd_ > 0)
        out_.notes.push_back(
            fmt::format("{} events have impossible figures, and were left out.",
                        say_count(static_cast<double>(odd_))));
    if (foreign_ > 0)
        out_.notes.push_back(
            fmt::format("{} events are not emuV's, and were left out.",
                        say_count(static_cast<double>(foreign_))));
}

// Finds the events in JSON as it is read: an array of them, or an object whose
// "traceEvents" is one.
class reader final : public nlohmann::json_sax<json>
{
public:
    explicit reader(sums &to) : to_(to) {}

    // Why the parser stopped; empty if all was read.
    [[nodiscard]] const std::string &why() const { return why_; }
    // True if it came to an event.
    [[nodiscard]] bool any_events() const { return any_events_; }

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t value) override
    {
        return number(static_cast<double>(value));
    }
    bool number_unsigned(number_unsigned_t value) override
    {
        return number(static_cast<double>(value));
    }
    bool number_float(number_float_t value, const string_t &) override
    {
        return number(value);
    }
    bool string(string_t &value) override
    {
        if (in_event()) {
            if (key_ == "ph")
                now_.phase = std::move(value);
            else if (key_ == "name")
                now_.name = std::move(value);
        } else if (in_arguments()) {
            if (key_ == "address")
                now_.address = std::move(value);
            else if (key_ == "name" || key_ == "kernel")
                now_.says = std::move(value);
            else if (key_ == "why")
                now_.why = std::move(value);
        }
        return true;
    }
    bool binary(binary_t &) override { return true; }

    bool key(string_t &value) override
    {
        key_ = std::move(value);
        if (is_.size() == 1)
            top_key_ = key_;
        return true;
    }
    bool start_object(std::size_t) override
    {
        if (event_at_ == 0 && is_events()) {
            event_at_ = is_.size() + 1;
            any_events_ = true;
            now_ = {};
        } else if (in_event() && key_ == "args") {
            arguments_ = true;
        }
        return open('{');
    }
    bool end_object() override
    {
        is_.pop_back();
        if (event_at_ == 0)
            return true;
        if (is_.size() < event_at_) {
            event_at_ = 0;
            to_.take(now_);
        } else if (is_.size() == event_at_) {
            arguments_ = false;
        }
        return true;
    }
    bool start_array(std::size_t) override { return open('['); }
    bool end_array() override
    {
        is_.pop_back();
        return true;
    }
    bool parse_error(std::size_t, const std::string &,
                     const json::exception &) override
    {
        why_ = "no JSON";
        return false;
    }

private:
    bool number(double value)
    {
        if (in_event()) {
            if (key_ == "pid")
                now_.pid = value;
            else if (key_ == "tid")
                now_.tid = value;
            else if (key_ == "ts")
                now_.at_us = value;
            else if (key_ == "dur")
                now_.lasts_us = value;
        } else if (in_arguments() && (key_ == "bytes" || key_ == "bytes/s")) {
            now_.bytes = value;
        } else if (in_arguments() && key_ == "card") {
            now_.lent = true;
        }
        return true;
    }
    bool open(char what)
    {
        is_ += what;
        if (is_.size() <= most_depth)
            return true;
        why_ = "nested too deeply";
        return false;
    }
    [[nodiscard]] bool is_events() const
    {
        return is_ == "[" || (is_ == "{[" && top_key_ == "traceEvents");
    }
    [[nodiscard]] bool in_event() const
    {
        return event_at_ != 0 && is_.size() == event_at_;
    }
    [[nodiscard]] bool in_arguments() const
    {
        return arguments_ && is_.size() == event_at_ + 1;
    }

    sums &to_;
    std::string is_; // the objects and arrays that are open
    std::string key_;
    std::string top_key_;
    std::size_t event_at_ = 0; // how many are open within an event; 0: outside
    bool arguments_ = false;
    bool any_events_ = false;
    event now_;
    std::string why_;
};

run read_events(const std::string &name, bytes &from)
{
    run out;
    out.file = clean(name);
    sums all(out);
    reader into(all);
    const bool whole = json::sax_parse(from.begin(), bytes::end(), &into);
    if (!all.any()) {
        const std::string called = clean(name) + ": ";
        if (into.any_events())
            throw unreadable(called + "a trace, but none of emuV's: no row of "
                                      "it is \"to VRAM\" or \"waits\"");
        throw unreadable(called +
                         (whole ? "JSON, but no trace: it has no events"
                                : "not a trace of emuV's: it is no JSON that "
                                  "has events"));
    }
    if (!whole) {
        out.cut = true;
        out.why_cut =
            from.too_long() ? fmt::format("a text of more than {} KiB",
                                          bytes::token_bytes >> 10)
            : from.at_end() ? "the file ends in the middle of an event"
                            : into.why();
        out.notes.push_back(
            fmt::format("The trace is not whole. At byte {}: {}. The report "
                        "is of what stands before.",
                        from.count(), out.why_cut));
    }
    all.finish();
    return out;
}

} // namespace

run read_trace(const std::string &name, std::string_view content)
{
    bytes from([&](char *to, std::size_t most) {
        const std::size_t count = std::min(most, content.size());
        std::memcpy(to, content.data(), count);
        content.remove_prefix(count);
        return count;
    });
    return read_events(name, from);
}

run read(const std::string &path)
{
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        throw std::system_error(errno, std::generic_category(), clean(path));
    const auto some = [&](char *to, std::size_t most) {
        for (;;) {
            const ssize_t got = ::read(file.get(), to, most);
            if (got >= 0)
                return static_cast<std::size_t>(got);
            if (errno != EINTR)
                throw std::system_error(errno, std::generic_category(),
                                        clean(path));
        }
    };
    // A pipe gives as much as was written at once.
    std::array<char, 512> head;
    std::size_t count = 0;
    for (std::size_t got = 1; got > 0 && count < head.size(); count += got)
        got = some(head.data() + count, head.size() - count);
    const std::string_view begins(head.data(), count);
    const std::string_view magic(tape::magic.data(), tape::magic.size());
    const bool packed = begins.starts_with("\x1f\x8b") ||
                        begins.starts_with("\x28\xb5\x2f\xfd");
    const std::span begun(reinterpret_cast<const unsigned char *>(head.data()),
                          count);
    if (begins.starts_with(magic))
        return read_tape(path, file.get(), begun);
    if (packed) {
        try {
            return read_tape(path, file.get(), begun);
        } catch (const unreadable &problem) {
            throw unreadable(
                fmt::format("{}; it is {}", problem.what(), kind_of(begins)));
        }
    }
    if (const std::string is = kind_of(begins); !is.empty())
        throw unreadable(fmt::format("{}: neither a trace nor a tape: it is {}",
                                     clean(path), is));
    std::string_view rest = begins;
    bytes from([&](char *to, std::size_t most) {
        if (rest.empty())
            return some(to, most);
        const std::size_t taken = std::min(most, rest.size());
        std::memcpy(to, rest.data(), taken);
        rest.remove_prefix(taken);
        return taken;
    });
    return read_events(path, from);
}

} // namespace emuv::report
