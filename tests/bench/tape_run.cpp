// SPDX-License-Identifier: GPL-2.0-or-later
// Tapes before the made-up card: the engine of this tree, and the oracle.
#include "tape_run.hpp"

#include "apart.hpp"
#include "base/size.hpp"
#include "made_card.hpp"
#include "memory/memory.hpp"
#include "movement/mover.hpp"
#include "oracle.hpp"
#include "results.hpp"
#include "score.hpp"
#include "tape.hpp"
#include "thread_time.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

using namespace emuv::cuda;

namespace bench {

namespace {

constexpr const char *help =
    "movement_bench --tape FILE [--tape FILE]... [OPTION]...\n"
    "\n"
    "Runs recorded programs before a made-up card, by the engine of this "
    "tree.\n"
    "Prints milliseconds a step: natively, at best, and as the engine does.\n"
    "\n"
    "  --share SIZE   bytes of VRAM, as in 12G; or 1.3x: the program needs "
    "1.3\n"
    "                 times its share. May be given again. (1.1x 1.3x 1.6x "
    "2x)\n"
    "  --oracle       only the best that knowing the future allows\n"
    "  --describe     only what each tape holds, as JSON\n"
    "  --away WHAT    mapped or unmapped (unmapped)\n"
    "  --written WHAT made: kernels write what nobody wrote before; all: and\n"
    "                 all else that they name (made)\n"
    "  --in-place HOW once: a kernel reads over the link as often as it "
    "names;\n"
    "                 often: one that computes reads the same again and again\n"
    "                 (once)\n"
    "  --steps N      at least so many steps: the last one recorded comes "
    "again\n"
    "                 (0)\n"
    "  --each         the engine's time for each step, too\n"
    "  --untrusted N  one launch in N is of a kernel that nobody trusts "
    "(none)\n"
    "  --seed N       by which these are drawn (1)\n"
    "  --card FILE    the card's costs (tests/bench/card.json's)\n"
    "  --trace FILE   of the engine, for Perfetto\n"
    "  --json FILE    leave the table there\n"
    "\n"
    "Time is virtual: the figures are the same each time, however busy the\n"
    "machine is. The engine's own computing takes no time.\n";

struct options
{
    std::vector<std::string> tapes;
    std::vector<std::string> shares;
    bool oracle = false;
    bool describe = false;
    bool unmaps = true;
    written how = written::made;
    bool often = false; // kernels that compute read in place many times
    bool each = false;
    unsigned steps = 0;
    unsigned untrusted = 0;
    unsigned seed = 1;
    std::string trace;
};

[[noreturn]] void give_up(const std::string &why)
{
    std::fprintf(stderr, "movement_bench: %s\n", why.c_str());
    std::exit(2);
}

unsigned number_of(const char *option, const char *text)
{
    char *end = nullptr;
    const unsigned long value = std::strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value > 1000000000)
        give_up(std::string(option) + ": '" + text + "' is no number");
    return static_cast<unsigned>(value);
}

options read_options(int count, char **arguments)
{
    options out;
    for (int i = 1; i < count; i++) {
        const std::string_view name = arguments[i];
        const auto value = [&] {
            if (++i == count)
                give_up(std::string(name) + " needs a value");
            return static_cast<const char *>(arguments[i]);
        };
        if (name == "--help") {
            std::fputs(help, stdout);
            std::exit(0);
        }
        if (name == "--oracle") {
            out.oracle = true;
        } else if (name == "--describe") {
            out.describe = true;
        } else if (name == "--tape") {
            out.tapes.emplace_back(value());
        } else if (name == "--share") {
            out.shares.emplace_back(value());
        } else if (name == "--trace") {
            out.trace = value();
        } else if (name == "--seed") {
            out.seed = number_of("--seed", value());
        } else if (name == "--each") {
            out.each = true;
        } else if (name == "--steps") {
            out.steps = number_of("--steps", value());
        } else if (name == "--untrusted") {
            out.untrusted = number_of("--untrusted", value());
        } else if (name == "--away") {
            const std::string_view which = value();
            if (which != "mapped" && which != "unmapped")
                give_up("--away: mapped or unmapped");
            out.unmaps = which == "unmapped";
        } else if (name == "--written") {
            const std::string_view which = value();
            if (which != "made" && which != "all")
                give_up("--written: made or all");
            out.how = which == "all" ? written::all : written::made;
        } else if (name == "--in-place") {
            const std::string_view which = value();
            if (which != "once" && which != "often")
                give_up("--in-place: once or often");
            out.often = which == "often";
        } else if (name == "--card") {
            std::string error;
            const char *const file = value();
            if (!read_costs(file, costs, error))
                give_up(std::string(file) + ": " + error);
        } else {
            give_up("'" + std::string(name) +
                    "' is not understood; see --help");
        }
    }
    if (out.tapes.empty())
        give_up("give --tape FILE; see --help");
    if (out.shares.empty())
        out.shares = {"1.1x", "1.3x", "1.6x", "2x"};
    return out;
}

std::uint64_t share_of(const std::string &text, std::uint64_t peak)
{
    if (!text.empty() && text.back() == 'x') {
        char *end = nullptr;
        const double times = std::strtod(text.c_str(), &end);
        if (*end == 'x' && times >= 0.1 && times <= 1000)
            return static_cast<std::uint64_t>(static_cast<double>(peak) /
                                              times);
        give_up("--share: '" + text + "' is no ratio");
    }
    const emuv::size_reading size = emuv::read_size(text);
    if (size.problem != emuv::size_problem::none || size.bytes == 0)
        give_up("--share: '" + text + "' is no size");
    return size.bytes;
}

// ---- The engine

struct outcome
{
    std::vector<double> step_ms;
    std::uint64_t room_bytes = 0;
};

// The last whole step of a score, to be played again. It may free what the step
// before it allocated, and leave as much to the next: then the new memory takes
// the old one's name.
class last_step
{
public:
    static constexpr std::size_t none = SIZE_MAX;

    last_step(const score &of, const emuv::tape::tape &from)
    {
        std::size_t last = none;
        for (std::size_t i = 0; i < of.items.size(); i++)
            if (of.items[i].what == what::mark)
                begin = std::exchange(last, i);
        if (begin == none)
            return;
        std::vector<std::uint32_t> left;
        std::vector<std::uint32_t> gone;
        for (std::size_t i = begin; i < last; i++) {
            const std::uint32_t which = of.items[i].allocation;
            if (of.items[i].what == what::allocate)
                left.push_back(which);
            else if (of.items[i].what == what::free &&
                     std::erase(left, which) == 0)
                gone.push_back(which);
        }
        // Of one size, the first made takes the place of the first made; of
        // parts, those of one place.
        const auto place_of = [&](std::uint32_t which) {
            const auto &is = from.allocations[which];
            return std::tuple(is.bytes, is.of.allocation, is.of.offset);
        };
        const auto by_size = [&](std::uint32_t one, std::uint32_t other) {
            return std::pair(place_of(one), one) <
                   std::pair(place_of(other), other);
        };
        std::sort(left.begin(), left.end(), by_size);
        std::sort(gone.begin(), gone.end(), by_size);
        const auto same = [&](std::uint32_t one, std::uint32_t other) {
            return place_of(one) == place_of(other);
        };
        if (!std::equal(left.begin(), left.end(), gone.begin(), gone.end(),
                        same))
            return;
        for (std::size_t i = 0; i < left.size(); i++)
            names_.emplace_back(left[i], gone[i]);
        end = last;
    }

    /// The step begins anew: its memory has the names that it had at first.
    void rename(std::vector<CUdeviceptr> &at) const
    {
        for (const auto &[now, then] : names_)
            at[then] = std::exchange(at[now], 0);
    }

    std::size_t begin = none; ///< its mark
    std::size_t end = none;   ///< the next one's; none: it cannot come again

private:
    std::vector<std::pair<std::uint32_t, std::uint32_t>> names_;
};

// Runs a score by the engine.
class player
{
public:
    player(const score &of, const emuv::tape::tape &from, const options &how,
           std::uint64_t share)
        : of_(of), from_(from), how_(how), any_(how.seed),
          calls_((the = &made_, slow_driver())), host_(calls_),
          limits_((rows_.open(nullptr), rows_), 0, share,
                  std::uint64_t{1} << 50),
          shares_({.calls = calls_, .ledgers = {&limits_}}),
          moves_(
              {.calls = calls_,
               .shares = shares_,
               .record = opened_trace(),
               .tell =
                   [](const char *why) { std::fprintf(stderr, "%s\n", why); },
               .unmaps = how.unmaps}),
          memory_({.calls = calls_,
                   .host = host_,
                   .shares = shares_,
                   .movers = {&moves_}}),
          at_(from.allocations.size())
    {}

    outcome run()
    {
        const served hand(made_);
        const std::uint64_t begun = now_ns();
        program_.at = begun;
        const last_step again(of_, from_);
        for (std::size_t i = 0; i < of_.items.size(); i++) {
            play(i);
            if (i != again.end || out_.step_ms.size() >= how_.steps)
                continue;
            again.rename(at_);
            // The program's end comes behind the last mark.
            program_.at += of_.items[again.begin].after;
            program_.at -= of_.items[again.end].after;
            i = again.begin;
        }
        program_.calls(now_ns());
        wait();
        // Without marks, all of it is one step.
        if (out_.step_ms.empty())
            out_.step_ms.push_back(static_cast<double>(now_ns() - begun) / 1e6);
        moves_.stop(nullptr);
        out_.room_bytes = made_.room_bytes;
        return std::move(out_);
    }

private:
    void play(std::size_t place)
    {
        const item &each = of_.items[place];
        if (each.in_graph && each.is_whole && !each.graph_begins) {
            program_.at += each.after;
            return;
        }
        program_.at += each.gap;
        // The library launches the steps of a graph one by one.
        if (each.in_graph && !each.is_whole && !each.graph_begins)
            program_.at += costs.launch_ns;
        sleep_until(program_.at);
        program_.calls(now_ns());
        one(place);
        program_.returns(now_ns(), each.host);
        program_.at += each.after;
    }

    // For the mover, which is made behind it.
    trace &opened_trace()
    {
        if (!how_.trace.empty())
            record_.open(how_.trace.c_str());
        return record_;
    }

    void one(std::size_t place)
    {
        const item &each = of_.items[place];
        switch (each.what) {
        case what::allocate:
            allocate(each.allocation);
            break;
        case what::free:
            release(each);
            break;
        case what::work:
        case what::copy_in:
        case what::copy_out:
            work_at(place);
            break;
        case what::wait:
            break;
        case what::mark:
            if (marked_ != 0)
                out_.step_ms.push_back(static_cast<double>(now_ns() - marked_) /
                                       1e6);
            marked_ = now_ns();
            break;
        }
        if (each.what == what::wait || each.waits)
            wait();
    }

    void allocate(std::uint32_t which)
    {
        const auto &is = from_.allocations[which];
        if (is.kind == emuv::tape::memory_kind::part) {
            at_[which] = at_[is.of.allocation] + is.of.offset;
            moves_.hand_out(at_[which], is.bytes);
            return;
        }
        // The driver's own memory, for small ones.
        const auto not_ours = [&] {
            const std::lock_guard guard(made_.lock);
            at_[which] = made_.next++ << 12;
            return CUDA_SUCCESS;
        };
        const CUresult result =
            is.kind == emuv::tape::memory_kind::ordered
                ? memory_.allocate_async(
                      &at_[which],
                      memory_.in_order().size_for(is.bytes, nullptr, stream_),
                      nullptr, stream_, not_ours)
                : memory_.allocate(&at_[which], is.bytes);
        if (result == CUDA_SUCCESS)
            return;
        std::fprintf(stderr, "allocation %u of %llu bytes: error %d\n", which,
                     static_cast<unsigned long long>(is.bytes),
                     static_cast<int>(result));
        std::_Exit(1); // there are threads
    }

    void release(const item &each)
    {
        const CUdeviceptr at = at_[each.allocation];
        at_[each.allocation] = 0;
        const auto &was = from_.allocations[each.allocation];
        if (was.kind == emuv::tape::memory_kind::part) {
            moves_.take_back(at, was.bytes);
        } else if (each.waits) {
            wait();
            memory_.free(at);
        } else {
            memory_.free_async(at, stream_, [] { return CUDA_SUCCESS; });
        }
    }

    void work_at(std::size_t place)
    {
        const item &first = of_.items[place];
        made_.wait_for_queue();
        const bool untrusted =
            first.is_whole || (how_.untrusted > 0 && first.kind >= 16 &&
                               any_() % how_.untrusted == 0);
        moves_.run(
            stream_,
            [&](work &next) {
                next.what = first.kernel != emuv::tape::none
                                ? (std::uint64_t{1} << 32) + first.kernel
                                : first.kind;
                if (first.kernel != emuv::tape::none)
                    next.kernel = from_.kernels[first.kernel].c_str();
                next.trusted = next.proven = !untrusted;
                next.open_ended = first.kernel != emuv::tape::none;
                if (first.is_whole)
                    return; // nobody looks into it
                for (const emuv::tape::place &each : of_.names_of(first))
                    next.add(at_[each.allocation] + each.offset);
            },
            [&] {
                const std::lock_guard guard(made_.lock);
                enqueue(first);
                for (std::size_t i = place + 1;
                     first.is_whole && i < of_.items.size() &&
                     of_.items[i].in_graph && !of_.items[i].graph_begins;
                     i++)
                    enqueue(of_.items[i]);
                return CUDA_SUCCESS;
            });
    }

    // With the card's lock held.
    void enqueue(const item &each)
    {
        double over = 0;
        for (const use &one : of_.uses_of(each)) {
            const piece &is = of_.pieces[one.piece];
            // Named after its end, or the driver's own.
            if (at_[is.allocation] < first_of_ours)
                continue;
            const CUdeviceptr begin = at_[is.allocation] + is.offset;
            const CUdeviceptr end = begin + is.bytes;
            auto unit = made_.mapped.upper_bound(begin);
            if (unit == made_.mapped.begin())
                continue;
            for (--unit; unit != made_.mapped.end() && unit->first < end;
                 ++unit) {
                card::piece &touched = made_.pieces[unit->second];
                const auto next = std::next(unit);
                const CUdeviceptr until = next != made_.mapped.end()
                                              ? std::min(next->first, end)
                                              : end;
                touched.version += one.writes ? 1 : 0;
                if (touched.ram)
                    over += static_cast<double>(until -
                                                std::max(unit->first, begin)) *
                            1000 / static_cast<double>(costs.in_place);
            }
        }
        if (how_.often && each.what == what::work)
            over *= passes(each);
        std::uint64_t ns = each.ns;
        if (each.what == what::copy_in)
            ns = std::max(ns, each.bytes * 1000 / costs.link_in_alone);
        else if (each.what == what::copy_out)
            ns = std::max(ns, each.bytes * 1000 / costs.link_out_alone);
        made_.enqueue(stream_,
                      {.what = card::request::kernel,
                       .ns = std::max(ns, static_cast<std::uint64_t>(over))});
    }

    // How often a kernel reads what it uses: the time that it takes is enough
    // to read all of it so often from VRAM. A digest is taken at VRAM's rate.
    double passes(const item &each) const
    {
        double bytes = 1;
        for (const use &one : of_.uses_of(each))
            bytes += static_cast<double>(of_.pieces[one.piece].bytes);
        return std::max(1.0, static_cast<double>(each.ns) *
                                 static_cast<double>(costs.digest) / 1000 /
                                 bytes);
    }

    void wait()
    {
        program_.waits(now_ns());
        std::uint64_t until = UINT64_MAX;
        while ((until = made_.busy_until(stream_)) == UINT64_MAX)
            sleep_until(now_ns() + 20000);
        sleep_until(until);
        program_.goes_on(now_ns());
    }

    // The made-up card reserves no address below.
    static constexpr CUdeviceptr first_of_ours = CUdeviceptr{0x1000} << 32;

    const score &of_;
    const emuv::tape::tape &from_;
    const options &how_;
    std::minstd_rand any_;
    card made_;
    const driver calls_;
    numa_store host_;
    ledger_file rows_;
    file_ledger limits_;
    budget shares_;
    trace record_;
    mover moves_;
    memory memory_;
    std::vector<CUdeviceptr> at_;
    const CUstream stream_ = reinterpret_cast<CUstream>(0x20);
    thread_time program_;
    std::uint64_t marked_ = 0;
    outcome out_;
};

double mean_of_first(const std::vector<double> &of, std::size_t most)
{
    const std::size_t count = std::min(of.size(), most);
    double sum = 0;
    for (std::size_t i = 0; i < count; i++)
        sum += of[i];
    return count != 0 ? sum / static_cast<double>(count) : 0;
}

double settled(std::vector<double> of)
{
    if (of.empty())
        return 0;
    of.erase(of.begin(),
             of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2));
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

void describe(const options &how)
{
    std::puts("{\n  \"tapes\": [");
    for (const std::string &path : how.tapes) {
        emuv::tape::tape of;
        emuv::tape::wrong error;
        if (!emuv::tape::read_file(path, of, error))
            give_up(path + ": " + error.why);
        const auto is = emuv::tape::summarize(of);
        const auto field = [](const char *name, std::uint64_t value) {
            std::printf(", \"%s\": %llu", name,
                        static_cast<unsigned long long>(value));
        };
        std::printf("    {\"file\": %s, \"program\": %s, \"card\": %s",
                    text(path.c_str()).c_str(),
                    text(std::string(of.said("program")).c_str()).c_str(),
                    text(std::string(of.said("card")).c_str()).c_str());
        field("time", is.host_ns);
        field("device", is.device_ns);
        field("step", is.step_ns);
        field("peak", is.peak_bytes);
        field("allocations", is.allocations);
        field("launches", is.launches);
        field("timed", of.timed);
        field("kernels", of.kernels.size());
        field("shapes", of.shapes.size());
        field("graphs", is.graph_launches);
        field("copies", is.copies);
        field("copied", is.copied_bytes);
        field("streams", of.streams);
        std::printf(", \"ended\": \"%s\"}%s\n",
                    of.cut     ? "cut"
                    : of.ended ? "yes"
                               : "no",
                    &path == &how.tapes.back() ? "" : ",");
    }
    std::puts("  ]\n}");
}

// A tape's steps at a share, in ms.
struct figures
{
    double native = 0;
    double bound = 0;
    double oracle = 0;
    std::vector<double> steps; // those that moved; none with --oracle

    double first() const { return steps.empty() ? 0 : steps[0]; }
    double moving() const { return steps.empty() ? 0 : settled(steps); }
    double of_limit() const
    {
        return moving() > 0 ? std::max(native, oracle) / moving() : 0;
    }
};

// A tape, and how to play it.
struct recorded
{
    std::string name;
    emuv::tape::tape of;
    score is;
    std::size_t steps_played = 0; // that come again at the end
    double native = 0;            // ms

    std::uint64_t needs_mib() const { return is.peak_bytes / MiB; }
};

void read_recorded(const std::string &path, const options &how, recorded &to)
{
    emuv::tape::wrong error;
    if (!emuv::tape::read_file(path, to.of, error))
        give_up(path + ": " + error.why);
    to.is = make_score(to.of, how.how);
    if (!to.is.problem.empty())
        give_up(path + ": " + to.is.problem);
    to.name = path.substr(path.rfind('/') + 1);
    to.name = to.name.substr(0, to.name.find(".tape"));
    const last_step again(to.is, to.of);
    const bool comes_again = again.end != last_step::none;
    if (how.steps > 0 && !comes_again)
        std::fprintf(stderr, "%s: no step comes again: %s\n", to.name.c_str(),
                     again.begin == last_step::none
                         ? "none has marks"
                         : "the last one leaves other memory than it found");
    // The engine and the limit are of the same steps.
    to.steps_played = comes_again ? how.steps : 0;
    to.native =
        static_cast<double>(
            run_oracle(to.is, UINT64_MAX, costs).settled_ns(to.steps_played)) /
        1e6;
}

// @return false if the run broke off
bool measure(const recorded &tape, const options &how, std::uint64_t share,
             figures &to)
{
    const oracle_bound least = bound_oracle(tape.is, share, costs);
    to.native = tape.native;
    to.oracle =
        static_cast<double>(run_oracle(tape.is, share, costs, tape.steps_played)
                                .settled_ns(tape.steps_played)) /
        1e6;
    // Of the whole tape, as a step's part of it.
    to.bound = static_cast<double>(least.ns) / 1e6 *
               (least.native_ns != 0
                    ? to.native * 1e6 / static_cast<double>(least.native_ns)
                    : 1);
    if (how.oracle)
        return true;
    to.steps = apart(tape.name.c_str(), [&] {
        const outcome did = player(tape.is, tape.of, how, share).run();
        return did.step_ms;
    });
    return !to.steps.empty();
}

void print(const recorded &tape, const options &how, std::uint64_t share,
           const figures &is)
{
    std::printf("%-26s  %10llu  %7llu  %10.2f  %7.2f  %7.2f", tape.name.c_str(),
                static_cast<unsigned long long>(tape.needs_mib()),
                static_cast<unsigned long long>(share / MiB), is.native,
                is.bound, is.oracle);
    if (how.oracle)
        std::puts("");
    else
        std::printf("  %7.2f  %7.2f  %7.2f  %12.2f\n", is.first(),
                    mean_of_first(is.steps, 10), is.moving(), is.of_limit());
    const std::size_t count = how.each ? is.steps.size() : 0;
    for (std::size_t i = 0; i < count; i++)
        std::printf("%s%.1f%s", i % 10 == 0 ? "    " : "  ", is.steps[i],
                    i % 10 == 9 || i + 1 == count ? "\n" : "");
    std::fflush(stdout);
}

void add_row(results &into, const recorded &tape, const options &how,
             std::uint64_t share, const figures &is)
{
    const auto cell = [&](double value) {
        return how.oracle ? std::string("null") : number(value, 2);
    };
    const double ten = how.oracle ? 0 : mean_of_first(is.steps, 10);
    into.row({text(tape.name.c_str()),
              number(static_cast<double>(tape.needs_mib())),
              number(static_cast<double>(share / MiB)), number(is.native, 2),
              number(is.bound, 2), number(is.oracle, 2), cell(is.first()),
              cell(ten), cell(is.moving()), cell(is.of_limit())});
}

bool asks_for_tapes(int count, char **arguments)
{
    return std::any_of(arguments + 1, arguments + count, [](const char *each) {
        const std::string_view name = each;
        return name == "--tape" || name == "--help" || name == "--oracle" ||
               name == "--describe";
    });
}

} // namespace

bool run_tapes(int count, char **arguments, int &status)
{
    if (!asks_for_tapes(count, arguments))
        return false;
    results into("movement_bench", "Recorded programs before a made-up card",
                 count, arguments);
    const options how = read_options(count, arguments);
    status = 0;
    if (how.describe) {
        describe(how);
        return true;
    }
    into.table(nullptr, "ms a step",
               {{"program", "program"},
                {"needs", "needs", "MiB"},
                {"share", "share", "MiB"},
                {"native", "native"},
                {"bound", "bound"},
                {"oracle", "oracle"},
                {"first", "first step"},
                {"ten", "the first ten"},
                {"moving", "moving"},
                {"of_limit", "of the limit", ""}});
    std::puts("program                     needs, MiB    share  native, ms    "
              "bound   oracle    first      ten   moving  of the limit");
    for (const std::string &path : how.tapes) {
        recorded tape;
        read_recorded(path, how, tape);
        for (const std::string &given : how.shares) {
            const std::uint64_t share = share_of(given, tape.is.peak_bytes);
            figures is;
            if (!measure(tape, how, share, is)) {
                status = 1;
                continue;
            }
            print(tape, how, share, is);
            add_row(into, tape, how, share, is);
        }
    }
    status = into.write() != 0 ? 1 : status;
    return true;
}

} // namespace bench
