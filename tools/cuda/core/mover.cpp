// SPDX-License-Identifier: LGPL-2.1-or-later
// Moving units between VRAM and system RAM, ahead of their use.
#include "mover.hpp"

#include "captures.hpp"
#include "mapping.hpp"

#include <algorithm>

#include <sys/prctl.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// What is under way at once. To VRAM: enough that the link has no pause. There,
// but not mapped yet: mapping may lag behind a little. Free, so that there is
// always a frame to go on with; more would only be VRAM that holds nothing. On
// its way out: what the digest is taken of, since that waits for a gap between
// the program's own kernels, and what need not leave yet.
constexpr std::size_t max_motions = 12;
static_assert(max_motions <= digests::max_under_way);
constexpr std::uint64_t max_coming_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_arrived_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_free_bytes = std::uint64_t{96} << 20;
constexpr std::uint64_t max_leaving_bytes = std::uint64_t{256} << 20;
// What of VRAM is planned for all that, and for what lies there ahead of its
// use: it takes the place of what could have stayed, and is moved in its stead.
// N bytes in a circle over B then cost more than N-B.
constexpr std::uint64_t moving_bytes = std::uint64_t{192} << 20;
// What leaves as planned makes room for whatever is due next, as soon as it has
// left. Other room is taken, and what was to stay leaves, only for what is due
// within so many bytes.
constexpr std::uint64_t max_ahead_bytes = std::uint64_t{256} << 20;
// Looking for something to do takes time in which launches have to wait.
constexpr std::uint64_t look_again_ns = 100000;
constexpr std::size_t let_in_after = 32; // blocks, a microsecond or two
// How long a round may stand still until it is clear that it should not: so
// many times what moving everything would take over a slow link.
constexpr std::uint64_t patient_rounds = 8;
constexpr std::uint64_t slow_link_bytes_per_ns = 25;
constexpr std::uint64_t rest_after_ns = 10000000;
// Nothing to do for so long is the program's own affair, and no part of a
// round.
constexpr std::uint64_t pause_ns = 10000000;
constexpr std::uint64_t report_after_ns = 100000000;
constexpr std::uint64_t min_spare_bytes = std::uint64_t{512} << 20;
// In blocks below that frameworks keep their many small tensors, at ever new
// places, which every kernel reads again and again. They come to VRAM at their
// first use, and stay.
constexpr std::uint64_t min_block_bytes = std::uint64_t{4} << 20;
// Without a schedule, units change places for what they were used for. One that
// comes has been used so often, lately, and so many times as often as the one
// that leaves. All of that may take a part of the time, and looking for it,
// too.
constexpr std::uint64_t hot_uses = 8;
constexpr std::uint64_t times_as_hot = 2;
constexpr std::uint64_t exchange_part = 20;
constexpr std::uint64_t exchange_look_ns = 10000000;
constexpr std::uint64_t exchange_patience_ns = 200000000;
constexpr std::size_t hottest_units = 16;
// A launch waits for memory that is on its way. If nothing at all arrives or
// ends for so long, then what it waits for may be waiting for it.
constexpr std::uint64_t patience_ns = 200000000;

// How much work may wait behind what runs, where memory moves: all that the
// device has in hand keeps its blocks where they are. Enough for the program to
// do other things for a moment. And for how long one piece may keep it from
// going on.
constexpr std::uint64_t max_lead_ns = 5000000;
constexpr std::uint64_t max_departed_ns = max_lead_ns / 10; // not counted
constexpr std::uint64_t lead_patience_ns = 20000000;

// Of work in flight; more are made, and given up again.
constexpr std::size_t max_spare_lists = 1024;

// How long the past may show no way until what was left unmapped, since it did,
// is mapped again: a third of a millisecond each, for which launches wait.
constexpr std::uint64_t astray_ns = 100000000;

// How long the end of a process waits for what may never end.
constexpr std::uint64_t leave_after_ns = 2000000000;

constexpr char lost_why[] = "an address is lost: the driver maps it no more";

} // namespace

mover::mover(const driver &calls, ledger &limits, int device, bool always,
             bool unmaps, trace *record, void (*tell)(const char *why))
    : calls_(calls), limits_(limits), device_(device), unmaps_(unmaps),
      trace_(record), tell_(tell), pace_(always), flights_(calls),
      frames_(calls, limits, device), rooms_(calls, limits, device),
      events_(calls), digests_(calls), lanes_(calls)
{}

mover::~mover()
{
    stop(nullptr);
}

// ---- Blocks

void mover::add(CUdeviceptr base, std::uint64_t bytes, CUcontext context,
                const std::vector<unit> &units, std::size_t first_host,
                const std::vector<std::uint64_t> &tokens)
{
    const block_ref made(new block);
    made->base = base;
    made->bytes = bytes;
    made->small = bytes < min_block_bytes;
    made->slots.reserve(units.size());
    std::uint64_t host = 0;
    for (std::size_t i = 0; i < units.size(); i++) {
        slot next;
        next.at = units[i].at;
        next.bytes = units[i].bytes;
        if (i < first_host) {
            next.where = place::vram;
            next.vram = units[i].handle;
        } else {
            next.host.handle = units[i].handle;
            next.host.charged = !tokens.empty();
            next.host.token = tokens.empty() ? 0 : tokens[i - first_host];
            host += next.bytes;
        }
        made->add(next);
    }
    const std::lock_guard guard(lock_);
    for (use_mark &each : made->marks)
        each.uses.use(uses_); // it has been made for something
    blocks_.add(made);
    blocks_version_++;
    if (!made->small)
        large_.push_back(made);
    host_bytes_ += host;
    if (host > 0 && !active() && !gave_up_)
        start(context);
    changed_.notify_all();
}

bool mover::remove(CUdeviceptr base, remains &left)
{
    std::unique_lock lock(lock_);
    const block_ref gone = blocks_.remove(base);
    if (!gone)
        return false;
    blocks_version_++;
    std::erase(large_, gone);
    schedule_.forget(base);
    hold_still(*gone);
    if (gone->moving > 0) // others may wait until all is mapped
        bring_home(*gone);
    changed_.wait(lock, [&] { return gone->moving == 0; });
    for (slot &each : gone->slots) {
        unit next{each.at, each.bytes, 0};
        const bool in_vram = each.where == place::vram;
        next.handle = in_vram ? each.vram : each.host.handle;
        unmap_alias(calls_, each.vram_alias, each.bytes);
        if (in_vram) {
            left.physical_bytes += each.bytes;
            if (each.host.handle != 0)
                rooms_.drop(each.bytes, each.host);
        } else {
            host_bytes_ -= each.bytes;
            unmap_alias(calls_, each.host.alias, each.bytes);
            if (each.host.charged)
                left.charges.push_back({each.bytes, each.host.token});
        }
        left.units.push_back(next);
        left.host.push_back(!in_vram);
        left.away.push_back(each.away);
        away_ -= each.away ? 1 : 0;
    }
    changed_.notify_all();
    return true;
}

block_ref mover::block_of(CUdeviceptr address)
{
    block *const found = blocks_.around(address);
    return found != nullptr ? block_ref(found) : block_ref();
}

void mover::fix(CUdeviceptr address)
{
    std::unique_lock lock(lock_);
    const block_ref found = block_of(address);
    if (!found)
        return;
    hold_still(*found);
    bring_home(*found);
    // What still moves is called off, and all of it is mapped meanwhile: its
    // end may wait for the caller.
    changed_.wait(lock, [&] { return found->mapped(); });
}

block_ref mover::hold(CUdeviceptr address)
{
    if (!active())
        return {};
    std::unique_lock lock = enter();
    block_ref found = block_of(address);
    if (!found)
        return {};
    found->in_flight++; // as work that changes nothing
    bring_home(*found);
    changed_.wait(lock, [&] { return found->mapped(); });
    return found;
}

void mover::let_go(block &held)
{
    const std::unique_lock lock = enter();
    held.in_flight--;
    version_++;
    changed_.notify_all();
}

std::optional<mover::stretch> mover::stretch_at(CUdeviceptr address)
{
    const std::unique_lock lock = enter();
    const block_ref of = block_of(address);
    if (!of)
        return {};
    // A motion that can no longer be called off ends in a moment.
    const auto in_ram = [&](const slot &one) {
        for (const motion &each : motions_)
            if (&each.unit() == &one && each.at == stage::remapped && each.done)
                return each.evicts;
        return one.in_ram();
    };
    auto at =
        std::find_if(of->slots.begin(), of->slots.end(), [&](const slot &each) {
            return address - each.at < each.bytes;
        });
    if (at == of->slots.end())
        return {};
    stretch out{in_ram(*at), 0};
    while (at != of->slots.end() && in_ram(*at) == out.in_ram)
        ++at;
    out.bytes = at != of->slots.end() ? at->at - address : UINT64_MAX;
    return out;
}

void mover::fix_those_in(const std::vector<CUdeviceptr> &words)
{
    std::vector<CUdeviceptr> found;
    {
        const std::unique_lock lock = enter();
        if (blocks_.empty() || gave_up_)
            return;
        for (const CUdeviceptr word : words) {
            const block *const of = blocks_.around(word);
            if (of != nullptr && !of->fixed && of->begins_at(word))
                found.push_back(word);
        }
    }
    for (const CUdeviceptr each : found)
        fix(each);
}

void mover::hold_still(block &of)
{
    of.hold_still();
    changed_.notify_all();
}

void mover::fix_all(const char *why)
{
    std::unique_lock lock(lock_);
    give_up(why);
    map_all(lock);
}

void mover::shed()
{
    const std::lock_guard guard(lock_);
    frames_.drop();
    // What is in VRAM needs no place in system RAM until it leaves.
    for (const auto &[base, each] : blocks_.all()) {
        if (each->moving > 0)
            continue;
        for (slot &one : each->slots) {
            if (one.where != place::vram || !one.host.charged)
                continue;
            rooms_.drop(one.bytes, one.host);
            one.digested = false;
        }
    }
}

// ---- The program's work

// What the work touches, by its addresses: once for each block.
std::vector<touched> mover::follow(work &announced)
{
    std::vector<touched> all;
    if (!spare_lists_.empty()) {
        all = std::move(spare_lists_.back());
        spare_lists_.pop_back();
    }
    std::uint64_t what = announced.what;
    for (std::uint32_t i = 0; i < announced.count; i++) {
        const CUdeviceptr address = announced.names[i];
        block *const of = blocks_.around(address);
        if (of == nullptr)
            continue;
        touch part{of->base, UINT32_MAX, 0};
        // Nothing that is worth moving begins at an odd place.
        if (!of->small && address % 16 == 0) {
            what = (what ^ address) * 0x9e3779b97f4a7c15u;
            part = of->touched_from(address);
        }
        // First to last of what is touched there.
        const auto same =
            std::find_if(all.begin(), all.end(), [&](const touched &other) {
                return &*other.of == of;
            });
        if (same == all.end()) {
            all.push_back({block_ref(of), part, 0, 0, false});
            continue;
        }
        same->part.first = std::min(same->part.first, part.first);
        same->part.last = std::max(same->part.last, part.last);
    }
    announced.what = what;
    for (touched &each : all)
        if (each.names_units() && reach_.to_the_end(what ^ each.of->base))
            each.part.last =
                static_cast<std::uint32_t>(each.of->slots.size() - 1);
    return all;
}

// What names no unit says nothing of what comes next.
bool mover::note(std::uint64_t what, const std::vector<touched> &all)
{
    noted_.clear();
    for (const touched &each : all)
        if (each.names_units())
            noted_.push_back(each.part);
    return !noted_.empty() &&
           schedule_.note(what, noted_.data(), noted_.size());
}

// Whether what these steps repeat is a round of the program's.
bool mover::recurs(const std::vector<touched> &all, std::uint64_t lag)
{
    const std::uint64_t step = schedule_.steps();
    const auto counts = [](const touched &each) {
        return !each.of->small && each.names_units();
    };
    if (std::any_of(all.begin(), all.end(), counts))
        recurrence_.step(lag);
    for (const touched &each : all) {
        if (!counts(each))
            continue;
        const auto [first, end] = each.units();
        for (std::size_t i = first; i < end; i++) {
            use_mark &one = each.of->marks[i];
            recurrence_.touches(one.bytes, one.step == 0 ? recurrence::never
                                                         : step - one.step);
            one.step = step;
        }
    }
    return recurrence_.holds();
}

// What work is about to use, by where it is.
void mover::count_use(const std::vector<touched> &all, bool foreseen)
{
    uses_ += all.empty() ? 0 : 1;
    for (const touched &each : all) {
        const auto [first, end] = each.units();
        for (std::size_t i = first; i < end; i++) {
            use_mark &one = each.of->marks[i];
            const bool in_ram =
                each.of->in_ram > 0 && each.of->slots[i].in_ram();
            (in_ram ? unreported_.miss_bytes : unreported_.hit_bytes) +=
                one.bytes;
            one.uses.use(uses_);
        }
    }
    unreported_.faults += foreseen && missing_bytes(all) > 0 ? 1 : 0;
}

// Tells the instance, now and then.
void mover::report(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t now = now_ns();
    if (unreported_ == counters{} || now - reported_ns_ < report_after_ns)
        return;
    const counters said = std::exchange(unreported_, {});
    reported_ns_ = now;
    lock.unlock();
    limits_.report(said);
    lock_soon(lock);
}

// Waits until little enough waits behind what runs. What runs may itself wait
// for the program: then this is in vain, and seldom tried again. Where streams
// have work side by side, one must not wait for another.
// @return whether time has passed
bool mover::hold_back(std::unique_lock<std::mutex> &lock, CUstream stream)
{
    // That one is several, of as many threads.
    if (stream == CU_STREAM_PER_THREAD)
        return false;
    if (departed_ns_.load() > max_departed_ns)
        in_flight();
    std::uint64_t start = 0;
    std::uint64_t since = 0;
    std::uint64_t begun = 0; // what runs
    while (settled_ && host_bytes_ > 0 && unvouched_ == 0 && moves_ahead() &&
           !gave_up_ && !stopping_ && flights_.streams() == 1 &&
           flights_.behind_oldest_ns(stream) > max_lead_ns &&
           for_device_.is_left(schedule_.steps())) {
        flight *const oldest = flights_.oldest(stream);
        const std::uint64_t now = now_ns();
        start = start == 0 ? now : start;
        if (oldest->begun_ns != begun) {
            begun = oldest->begun_ns;
            since = now;
        } else if (now - since > lead_patience_ns + 2 * oldest->expected_ns) {
            oldest->waited_for = true;
            for_device_.lose(schedule_.steps());
            break;
        }
        changed_.wait_for(lock, lead_patience_ns / 8);
    }
    if (begun != 0 && trace_ != nullptr)
        trace_->span(trace::row::waits, "ahead", start, now_ns(), 0, 0,
                     schedule_.steps());
    return begun != 0;
}

// Waits for what the work needs, as long as anything moves at all: for what is
// small, which then stays, and, where the past shows the way, for all of it.
void mover::await(std::unique_lock<std::mutex> &lock,
                  const std::vector<touched> &work)
{
    if (missing_bytes(work) == 0)
        return;
    std::vector<touched> all = work;
    std::erase_if(all, [ahead = moves_ahead()](const touched &each) {
        return ahead ? !each.says_what() : !each.of->small;
    });
    std::uint64_t bytes = missing_bytes(all);
    if (bytes == 0 || bytes > limits_.read().physical_bytes / 2 ||
        !for_memory_.is_left(schedule_.steps()))
        return;
    const std::uint64_t start = now_ns();
    for (const touched &each : all)
        if (each.of->small)
            awaited_.push_back(each.of);
    const auto wait = [&](int change) {
        for (const touched &each : all) {
            const auto [first, end] = each.units();
            for (std::size_t i = first; i < end; i++)
                each.of->slots[i].waiting += static_cast<unsigned>(change);
        }
    };
    wait(1);
    waiters_++;
    version_++;
    std::uint64_t seen = progress_;
    std::uint64_t since = start;
    std::uint64_t least = bytes;
    std::uint64_t nearer = start;
    while (!gave_up_ && !stopping_ && (bytes = missing_bytes(all)) > 0) {
        changed_.notify_all();
        changed_.wait_for(lock, 20000000);
        if (hopeless_ == progress_) {
            if (trace_ != nullptr)
                trace_->span(trace::row::waits, "hopeless", start, now_ns(),
                             all.front().part.base, bytes, 0);
            break;
        }
        const std::uint64_t now = now_ns();
        if (progress_ != seen) {
            seen = progress_;
            since = now;
        }
        if (bytes < least) {
            least = bytes;
            nearer = now;
        }
        // What moves all the time may be other threads' work alone.
        if (now - since > patience_ns || now - nearer > 5 * patience_ns) {
            for_memory_.lose(schedule_.steps());
            break;
        }
    }
    waiters_--;
    version_++;
    wait(-1);
    unreported_.stalled_ns += now_ns() - start;
    for (const touched &each : all)
        if (each.of->small)
            awaited_.erase(
                std::find(awaited_.begin(), awaited_.end(), each.of));
    if (trace_ != nullptr)
        trace_->span(trace::row::waits, "launch", start, now_ns(),
                     all.front().part.base, bytes, 0);
}

// The program's threads go first: their launches wait for the lock.
std::unique_lock<std::mutex> mover::enter()
{
    std::unique_lock lock(lock_, std::try_to_lock);
    if (lock.owns_lock())
        return lock;
    enter(lock);
    return lock;
}

void mover::enter(std::unique_lock<std::mutex> &lock)
{
    entering_.fetch_add(1);
    lock_soon(lock, 2000);
    entering_.fetch_sub(1);
}

void mover::let_in(std::unique_lock<std::mutex> &lock)
{
    if (entering_.load() == 0)
        return;
    lock.unlock();
    for (unsigned i = 0; i < 2000 && entering_.load() > 0; i++)
        pause_cpu();
    lock_soon(lock);
}

// Nobody follows the work that begins now.
bool mover::let_pass()
{
    passing_.fetch_add(1);
    return false;
}

bool mover::begin(work &announced, CUstream stream, flight &begun)
{
    CUcontext current = nullptr;
    calls_.cuCtxGetCurrent(&current);
    std::unique_lock<std::mutex> lock;
    for (bool held = false;; held = true) {
        // What is captured does not run now; whoever launches the graph is
        // asked.
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        if (calls_.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE)
            return let_pass();
        lock = enter();
        if (held || current != context_ || !hold_back(lock, stream))
            break;
        lock.unlock();
    }
    // Another context's work cannot be followed from here.
    if (!gave_up_ && !stopping_ && current != context_)
        give_up("the program uses several contexts on one device");
    if (gave_up_ || stopping_) {
        map_all(lock); // the last remap may be under way yet
        return let_pass();
    }
    begun.vouched = announced.vouched;
    if (!announced.vouched) {
        cancel_all();
        if (unvouched_ == 0 && host_bytes_ > 0)
            for (const block_ref &each : large_)
                each->may_change();
        unvouched_++;
        map_all(lock);
    }
    begun.blocks = follow(announced);
    const auto &all = begun.blocks;
    const std::uint64_t steps = schedule_.steps();
    const bool expected = note(announced.what, all);
    begun.step = schedule_.steps() != steps ? schedule_.steps() : 0;
    begun.lag = schedule_.lag();
    if (begun.lag != 0 && begun.step > begun.lag)
        begun.expected_ns = times_.of(begun.step - begun.lag);
    begun.recurs = recurs(all, begun.lag);
    // Once, however many begin before the first of them is in flight.
    if (const std::uint64_t since = std::exchange(idle_since_ns_, 0);
        since != 0 && now_ns() - since > pause_ns)
        pace_.paused(now_ns() - since);
    version_++;
    if (announced.vouched && unvouched_ == 0) {
        await(lock, all);
        await_exchange(lock, all);
    }
    const std::uint64_t missed = trace_ != nullptr ? missing_bytes(all) : 0;
    if (missed > 0) {
        const std::uint64_t now = now_ns();
        trace_->span(trace::row::waits, expected ? "missed" : "not expected",
                     now, now, all.front().part.base, missed,
                     schedule_.steps());
    }
    for (touched &each : begun.blocks) {
        // It may write to them: what was copied does not count.
        each.of->call_off();
        each.of->may_change();
        each.of->in_flight++;
        // What is a large part of all VRAM would never be there as a whole.
        const bool learns = announced.vouched && announced.open_ended &&
                            each.names_units() && !each.of->fixed &&
                            each.of->bytes <= share_bytes_ / 4;
        each.work = learns ? announced.what ^ each.of->base : 0;
    }
    for (const touched &each : all)
        bring_home(*each.of);
    const auto mapped = [&] {
        return std::all_of(all.begin(), all.end(), [](const touched &each) {
            return each.of->mapped();
        });
    };
    if (!mapped()) {
        const std::uint64_t start = now_ns();
        changed_.wait(lock, mapped);
        if (trace_ != nullptr)
            trace_->span(trace::row::waits, "being mapped", start, now_ns(),
                         all.front().part.base, 0, schedule_.steps());
    }
    count_use(all, announced.vouched && moves_ahead());
    for (touched &one : begun.blocks) {
        const block &of = *one.of;
        const std::size_t count = of.slots.size();
        const auto [first, end] = one.units();
        one.complete =
            (of.fixed ? of.ram_bytes(0, count) : of.ram_bytes(first, end)) == 0;
        one.beyond = one.work != 0 ? of.ram_bytes(end, count) : 0;
    }
    begun.begun_ns = now_ns();
    begun.event = events_.take();
    return true;
}

void mover::end(flight &&begun, CUstream stream, bool running)
{
    const bool followed =
        begun.event != nullptr &&
        calls_.cuEventRecord(begun.event, stream) == CUDA_SUCCESS;
    // What failed may have begun all the same.
    begun.failed = !running;
    begun.handed_over_ns = now_ns();
    const bool departed = followed && depart(stream, std::move(begun));
    if (departed && !resting_.load())
        return; // it looks again in a moment
    const std::unique_lock guard = enter();
    // Whoever starts movement anew waits for all that is not followed.
    if (!departed) {
        if (running && !followed)
            give_up("work on a stream could not be followed");
        ended(begun);
    }
    changed_.notify_all();
}

// Without the mover's lock, for which a launch may have to wait.
// @return false, and nothing has been taken, where movement has ended
bool mover::depart(CUstream stream, flight &&begun)
{
    std::unique_lock lock(departing_, std::defer_lock);
    lock_soon(lock);
    if (!active())
        return false;
    departed_.emplace_back(stream, std::move(begun));
    any_departed_.store(true);
    departed_ns_.fetch_add(departed_.back().second.expected_ns);
    return true;
}

// What is in flight, with what has departed since somebody asked.
flights &mover::in_flight()
{
    if (!any_departed_.load())
        return flights_;
    {
        std::unique_lock lock(departing_, std::defer_lock);
        lock_soon(lock);
        departures_.swap(departed_);
        any_departed_.store(false);
        departed_ns_.store(0);
    }
    for (auto &[stream, which] : departures_)
        flights_.add(stream, std::move(which));
    departures_.clear();
    return flights_;
}

void mover::ended(flight &which)
{
    for (const touched &each : which.blocks)
        each.of->in_flight--;
    which.blocks.clear();
    if (spare_lists_.size() < max_spare_lists)
        spare_lists_.push_back(std::move(which.blocks));
    unvouched_ -= which.vouched ? 0 : 1;
    events_.put(which.event);
}

void mover::cancel_all()
{
    for (motion &each : motions_)
        each.unit().cancel = true;
}

void mover::give_up(const char *why)
{
    if (!gave_up_)
        tell_(why);
    gave_up_ = true;
    cancel_all();
    bring_all_home();
    changed_.notify_all();
}

// ---- The thread that moves

void mover::start(CUcontext context)
{
    if (context == nullptr)
        return;
    context_ = context;
    share_bytes_ = limits_.read().physical_bytes;
    stopping_ = settled_ = false;
    preparing_ = true;
    // Nobody followed what ran since the last time.
    for (const block_ref &each : large_)
        each->may_change();
    active_.store(true);
    if (!thread_.start(
            [](void *self) -> void * {
                static_cast<mover *>(self)->loop();
                return nullptr;
            },
            this)) {
        active_.store(false);
        give_up("its thread could not be started");
    }
}

void mover::stop(CUcontext context)
{
    const std::lock_guard ending(ending_);
    {
        const std::lock_guard guard(lock_);
        if (context == nullptr)
            gave_up_ = true;
        else if (context == context_)
            ending_it_++;
        if (!active() || (context != nullptr && context != context_))
            return;
        stopping_ = true;
        cancel_all();
        changed_.notify_all();
    }
    thread_.join();
    // The context may live on, with work in flight that nobody follows now, and
    // with the blocks that it is of.
    const std::lock_guard guard(lock_);
    {
        // Whoever departs from here on sees it.
        const std::lock_guard departing(departing_);
        active_.store(false);
    }
    for (flight &each : in_flight().abandon())
        ended(each);
    exchange_ = {};
    if (unreported_ != counters{})
        limits_.report(std::exchange(unreported_, {}));
    // With the program the driver goes, too, and what this thread had of it.
    if (context != nullptr)
        events_.destroy();
    else
        events_.forget();
}

void mover::leave()
{
    {
        std::unique_lock lock(lock_);
        gave_up_ = stopping_ = true;
        const std::uint64_t start = now_ns();
        while (active() && preparing_) {
            if (now_ns() - start > leave_after_ns)
                return;
            changed_.wait_for(lock, 10000000);
        }
    }
    stop(nullptr);
}

void mover::resume(CUcontext context)
{
    const std::lock_guard guard(lock_);
    if (context != context_ || (ending_it_ > 0 && --ending_it_ > 0))
        return;
    if (host_bytes_ > 0 && !active() && !gave_up_)
        start(context);
}

void mover::gone(CUcontext context)
{
    const std::lock_guard guard(lock_);
    if (context != context_)
        return;
    // Who saw it alive a moment ago may yet say so.
    ending_it_ = 0;
    if (!active())
        context_ = nullptr;
}

bool mover::prepare()
{
    int least = 0;
    int greatest = 0;
    calls_.cuCtxGetStreamPriorityRange(&least, &greatest);
    if (!lanes_.open(greatest) || !digests_.open(greatest))
        return false;
    // What ran before anybody followed it, and what slips past just now; and
    // captures, which waiting would break. The driver may refuse to wait.
    while (passing_.load() > 0 || open_captures.load() > 0) {
        {
            const std::lock_guard guard(lock_);
            if (stopping_)
                return false;
        }
        usleep(open_captures.load() > 0 ? 1000 : 50);
    }
    for (;;) {
        const CUresult result = calls_.cuCtxSynchronize();
        if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            return result == CUDA_SUCCESS;
        {
            const std::lock_guard guard(lock_);
            if (stopping_)
                return false;
        }
        usleep(1000);
    }
}

void mover::loop()
{
    prctl(PR_SET_NAME, "emuv-mover");
    prctl(PR_SET_TIMERSLACK, 1000);
    CUcontext popped = nullptr;
    bool ready = calls_.cuCtxPushCurrent_v2(context_) == CUDA_SUCCESS;
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    ready = ready && prepare();

    // Mapping takes half a millisecond for a unit, making room ten.
    thread mapper;
    thread maker;
    served_ = false;
    ready = ready &&
            mapper.start(
                [](void *self) -> void * {
                    prctl(PR_SET_NAME, "emuv-mapper");
                    static_cast<mover *>(self)->serve(stage::remap);
                    return nullptr;
                },
                this) &&
            maker.start(
                [](void *self) -> void * {
                    prctl(PR_SET_NAME, "emuv-maker");
                    static_cast<mover *>(self)->serve(stage::room);
                    return nullptr;
                },
                this);

    std::unique_lock lock(lock_);
    settled_ = ready;
    preparing_ = false;
    changed_.notify_all();
    if (!ready && !stopping_)
        give_up("its copies could not be set up");
    std::uint64_t last_work_ns = 0;
    while (!stopping_ || !motions_.empty()) {
        report(lock);
        // Here, since a thread that ends may have lost the driver already.
        if ((stopping_ || gave_up_) && away_ > 0) {
            bring_all_home();
            changed_.notify_all();
        }
        bool busy = retire(lock);
        let_in(lock);
        busy = advance(lock) || busy;
        let_in(lock);
        if (!stopping_ && !gave_up_)
            busy = (wanted_bytes_ > 0 ? give_way() : decide(lock)) || busy;
        let_in(lock);
        if (busy)
            continue;
        const bool waiting =
            waiters_ > 0 || std::any_of(motions_.begin(), motions_.end(),
                                        [](const motion &each) {
                                            return each.at != stage::ready;
                                        });
        const std::uint64_t now = now_ns();
        if (waiting || !in_flight().empty())
            last_work_ns = now;
        // Whoever launches pays for waking a thread that sleeps, and for each
        // of its questions to the driver.
        if (waiting) {
            changed_.wait_for(lock, waiters_ > 0 ? 20000 : 50000);
        } else if (now - last_work_ns < rest_after_ns) {
            changed_.wait_for(lock, 200000);
        } else {
            resting_.store(true);
            // From here on whoever hands over wakes it, with the lock.
            if (!any_departed_.load())
                changed_.wait_for(lock, 100000000);
            resting_.store(false);
        }
    }
    bring_all_home();
    changed_.notify_all();
    served_ = true;
    to_map_.notify_all();
    to_make_.notify_all();
    const auto left = frames_.take_all();
    lock.unlock();
    mapper.join();
    maker.join();
    frames_.drop(left);
    digests_.close();
    lanes_.close();
    calls_.cuCtxPopCurrent_v2(&popped);
}

// Takes note of work that has ended. Each question takes a lock of the driver's
// that launching takes, so nobody asks again at once, but for what was not
// asked about.
// @return whether there may be more
bool mover::retire(std::unique_lock<std::mutex> &lock)
{
    if (in_flight().empty())
        return false;
    bool failed = false;
    auto landed = flights_.land(lock, failed);
    for (flights::landing &each : landed) {
        for (const touched &given : each.which.blocks)
            given.of->used();
        learn_reach(each);
        if (each.which.step != 0) {
            times_.add(each.which.step,
                       each.which.waited_for ? 0 : each.busy_ns);
            keep_pace(each.which.lag, each.which.recurs);
        }
        ended(each.which);
        progressed();
    }
    if (failed) // the context is lost
        give_up("the device reports an error");
    if (in_flight().empty())
        idle_since_ns_ = now_ns();
    if (!landed.empty())
        changed_.notify_all();
    return landed.size() >= flights::asked_at_once;
}

// What work that has just been seen to end says of how far it reaches.
void mover::learn_reach(const flights::landing &from)
{
    if (!from.took)
        return;
    const flight &which = from.which;
    bool complete = true;
    for (const touched &each : which.blocks) {
        complete = complete && each.complete;
        if (!each.complete && each.work != 0 && from.is_first && moves_ahead())
            reach_.lacked(each.work);
    }
    if (!complete)
        return;
    for (const touched &each : which.blocks)
        if (each.work != 0 &&
            reach_.ended(each.work, each.beyond, *from.took) &&
            trace_ != nullptr)
            trace_->span(trace::row::waits, "reaches further", which.begun_ns,
                         which.begun_ns, each.of->base, each.beyond, 0);
}

// A step has ended, as many after the one that looked like it.
void mover::keep_pace(std::uint64_t lag, bool recurs)
{
    const auto now_is = [this] {
        return pace_.moves()      ? "moves from here"
               : pace_.arranges() ? "is arranged from here"
                                  : "stands still from here";
    };
    // On their way to their places, or not there yet.
    if (pace_.arranges() &&
        std::any_of(motions_.begin(), motions_.end(), [](const motion &each) {
            return each.at != stage::ready && !each.of->small;
        }))
        pace_.disturb();
    const char *const before = now_is();
    const std::uint64_t now = now_ns();
    pace_.ended(lag, now,
                patient_rounds * (host_bytes_ + moving_bytes) /
                    slow_link_bytes_per_ns,
                recurs);
    if (!pace_.arranges())
        arrangement_.forget();
    if (trace_ != nullptr && now_is() != before)
        trace_->span(trace::row::waits, now_is(), now, now, 0, host_bytes_,
                     lag);
}

// Whether the past shows the way, and following it is worth it.
bool mover::moves_ahead() const
{
    return schedule_.predicts() && pace_.moves();
}

// Whether that has been otherwise for a while. A program that does something
// else for a moment comes back to what it did.
bool mover::is_astray()
{
    const std::uint64_t now = now_ns();
    if (moves_ahead())
        led_ns_ = now;
    return now - led_ns_ > astray_ns;
}

void mover::progressed()
{
    progress_++;
    version_++;
}

mover::motion_ref mover::new_motion(const candidate &which, stage at)
{
    slot &one = which.unit();
    const bool evicts = at != stage::fetch;
    which.of->put(one, evicts ? place::evicting : place::fetching);
    one.cancel = false;
    which.of->moving++;
    motion made;
    made.of = which.of;
    made.index = which.index;
    made.at = at;
    made.evicts = evicts;
    made.started_ns = now_ns();
    made.next_use = which.next_use;
    made.event = events_.take();
    return motions_.insert(motions_.end(), std::move(made));
}

// Whether nothing in flight can touch the unit, nor has since it began.
bool mover::may_move(const motion &which) const
{
    return !which.unit().cancel && unvouched_ == 0 && which.of->in_flight == 0;
}

// @param progress  whether anything has come of it
void mover::end_motion(motion_ref which, place where, bool progress)
{
    slot &of = which->unit();
    which->of->put(of, where);
    of.cancel = false;
    which->of->moving--;
    if (of.away && (which->of->in_flight > 0 || which->of->fixed ||
                    unvouched_ > 0 || stopping_ || gave_up_))
        bring_home(*which->of, of);
    if (progress)
        progressed();
    else
        version_++;
    events_.put(which->event);
    if (which->evicts)
        digests_.put(which->digest);
    motions_.erase(which);
    changed_.notify_all();
}

// Takes motions a stage further, or to their end.
bool mover::advance(std::unique_lock<std::mutex> &lock)
{
    // What has been handed to one of our streams ends in its order, nearly: the
    // first that has not ends the asking.
    struct question
    {
        motion_ref about;
        CUresult answer;
    };
    std::vector<question> questions;
    for (auto each = motions_.begin(); each != motions_.end(); ++each)
        if (each->at == stage::fetch || each->at == stage::digest ||
            each->at == stage::write_back)
            questions.push_back({each, CUDA_ERROR_NOT_READY});
    if (!questions.empty()) {
        lock.unlock();
        for (const stage at : {stage::fetch, stage::digest, stage::write_back})
            for (question &each : questions) {
                if (each.about->at != at)
                    continue;
                each.answer = calls_.cuEventQuery(each.about->event);
                if (each.answer == CUDA_ERROR_NOT_READY)
                    break;
            }
        lock_soon(lock);
    }
    bool any = false;
    for (const question &each : questions) {
        if (each.answer == CUDA_ERROR_NOT_READY)
            continue;
        any = true;
        if (each.answer != CUDA_SUCCESS || !may_move(*each.about))
            call_off(each.about);
        else if (each.about->at == stage::digest)
            compare(lock, each.about);
        else if (each.about->at == stage::write_back)
            written(*each.about);
        else
            hand_over(*each.about, stage::remap);
    }
    for (auto at = motions_.begin(); at != motions_.end();) {
        const auto each = at++;
        switch (each->at) {
        case stage::roomed:
            any = true;
            if (!each->done || !take_digest(lock, *each))
                end_motion(each, place::vram);
            break;
        case stage::remapped:
            any = true;
            finish(each);
            break;
        case stage::ready:
            if (!may_move(*each) || stopping_ || gave_up_ ||
                (!pace_.moves() &&
                 !(pace_.arranges() && schedule_.predicts()) && waiters_ == 0 &&
                 wanted_bytes_ == 0 && exchange_.at != exchange::leaving)) {
                any = true;
                call_off(each);
            } else if (wants_frame_of(*each)) {
                any = true;
                hand_over(*each, stage::remap);
            }
            break;
        default: // on its way, or in other threads' hands
            break;
        }
    }
    return any;
}

// Whether there are too few frames like the one that this motion would leave,
// those counted that will be in a moment. Those of other sizes are of little
// use for what it makes room for, and yet VRAM that holds nothing.
bool mover::wants_frame_of(const motion &which) const
{
    const std::uint64_t size = which.unit().bytes;
    std::uint64_t bytes = frames_.bytes();
    std::uint64_t alike = frames_.bytes(size);
    for (const motion &each : motions_)
        if (each.at == stage::remap && each.evicts) {
            bytes += each.unit().bytes;
            alike += each.unit().bytes == size ? size : 0;
        }
    return wanted_bytes_ > 0 || alike == 0 ||
           (alike < max_free_bytes && bytes < 2 * max_free_bytes);
}

// Reads the unit that shall leave, to see whether it has changed.
bool mover::take_digest(std::unique_lock<std::mutex> &lock, motion &which)
{
    if (!may_move(which))
        return false;
    which.at = stage::digest;
    const slot &of = which.unit();
    lock.unlock();
    const bool begun =
        digests_.begin(which.digest, of.at, of.bytes, which.event);
    lock_soon(lock);
    return begun;
}

// What is the same as its copy in system RAM need not be written there.
void mover::compare(std::unique_lock<std::mutex> &lock, motion_ref which)
{
    slot &of = which->unit();
    const digests::value now = digests_.result(which->digest);
    const bool unchanged = of.digested && of.digest == now;
    of.digest = now;
    if (unchanged) {
        which->at = stage::ready;
        return;
    }
    // The copy in system RAM is of another time until this one is done.
    of.digested = false;
    which->at = stage::write_back;
    lock.unlock();
    const bool begun =
        lanes_.write_back(of.host.alias, of.at, of.bytes, which->event);
    lock_soon(lock);
    if (!begun)
        end_motion(which, place::vram);
}

void mover::written(motion &which)
{
    which.unit().digested = true;
    which.wrote = true;
    which.at = stage::ready;
}

// Somebody needs the unit where it is.
void mover::call_off(motion_ref which)
{
    if (trace_ != nullptr)
        trace_->span(which->evicts ? trace::row::to_ram : trace::row::to_vram,
                     "called off", which->started_ns, now_ns(),
                     which->unit().at, which->unit().bytes, which->next_use);
    if (!which->evicts)
        frames_.put(which->into);
    else if (which->at == stage::write_back)
        which->unit().digested = false;
    end_motion(which, which->evicts ? place::vram : place::host);
}

// The unit is mapped elsewhere, or could not be.
void mover::finish(motion_ref which)
{
    slot &of = which->unit();
    if (which->called_off) {
        call_off(which);
        return;
    }
    if (!which->done) {
        give_up("a unit could not be mapped");
        call_off(which);
        return;
    }
    if (which->evicts) {
        // What waited for this may write there already.
        if (!may_move(*which))
            of.digested = false;
        given_up_++;
        frames_.put({of.vram, of.vram_alias, of.bytes});
        of.vram = 0;
        of.vram_alias = 0;
        host_bytes_ += of.bytes;
    } else {
        of.vram = which->into.handle;
        of.vram_alias = which->into.alias;
        which->of->has_come(of);
        host_bytes_ -= of.bytes;
    }
    unreported_.fetched_bytes += which->evicts ? 0 : of.bytes;
    unreported_.evicted_bytes += which->wrote ? of.bytes : 0;
    if (trace_ != nullptr)
        trace_->span(which->evicts ? trace::row::to_ram : trace::row::to_vram,
                     !which->evicts ? "fetch"
                     : which->wrote ? "write back"
                                    : "drop",
                     which->started_ns, now_ns(), of.at, of.bytes,
                     which->next_use);
    end_motion(which, which->evicts ? place::host : place::vram);
}

// ---- What takes the driver long, on threads of its own

condition &mover::jobs(stage of)
{
    return of == stage::room ? to_make_ : to_map_;
}

void mover::hand_over(motion &which, stage to)
{
    which.at = to;
    jobs(to).notify_all();
}

void mover::serve(stage mine)
{
    CUcontext popped = nullptr;
    calls_.cuCtxPushCurrent_v2(context_);
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    std::unique_lock lock(lock_);
    while (!served_) {
        motion *next = nullptr;
        // Without a frame of its size nothing can be fetched; with one, what
        // has been fetched is what somebody waits for.
        const auto urgency = [this](const motion &which) {
            if (!which.evicts)
                return 1;
            return frames_.has(which.unit().bytes) ? 0 : 2;
        };
        for (motion &each : motions_)
            if (each.at == mine &&
                (next == nullptr || urgency(each) > urgency(*next)))
                next = &each;
        if (next == nullptr) {
            jobs(mine).wait_for(lock, 100000000);
            continue;
        }
        slot &of = next->unit();
        const std::uint64_t start = now_ns();
        next->called_off = !may_move(*next);
        if (next->called_off) {
            next->done = false;
        } else if (mine == stage::room) {
            lock.unlock();
            const bool done = rooms_.make(of.bytes, of.host);
            enter(lock);
            next->done = done;
        } else {
            of.unmapped = true;
            unmapped_++;
            const bool was_away = of.away;
            const bool is_away = next->evicts && may_be_away(*next);
            lock.unlock();
            const bool done =
                is_away    ? calls_.cuMemUnmap(of.at, of.bytes) == CUDA_SUCCESS
                : was_away ? map_at(calls_, of.at, of.bytes, next->into.handle,
                                    device_)
                : next->evicts ? map(of, of.host.handle, of.vram)
                               : map(of, next->into.handle, of.host.handle);
            enter(lock);
            of.unmapped = false;
            unmapped_--;
            next->done = done;
            if (done && was_away != is_away)
                set_away(*next->of, of, is_away);
        }
        next->at = mine == stage::room ? stage::roomed : stage::remapped;
        if (trace_ != nullptr)
            trace_->span(trace::row::calls,
                         mine == stage::room ? "make room"
                         : of.away           ? "unmap"
                                             : "map",
                         start, now_ns(), of.at, of.bytes, next->next_use);
        changed_.notify_all();
    }
    lock.unlock();
    calls_.cuCtxPopCurrent_v2(&popped);
}

std::uint64_t mover::next_use_of(block &of, std::size_t index) const
{
    if (of.slots[index].waiting > 0)
        return 0;
    return schedule_.next_use(of.base, static_cast<std::uint32_t>(index),
                              of.slots[index].next);
}

// Whether no unit of the block is used sooner.
bool mover::is_first_of_block(block &of, std::size_t index) const
{
    const std::uint64_t use = next_use_of(of, index);
    for (std::size_t i = 0; i < of.slots.size(); i++)
        if (next_use_of(of, i) < use)
            return false;
    return true;
}

// What has been fetched for uses up to this one that have not ended.
std::uint64_t mover::ahead_bytes(std::uint64_t next_use) const
{
    std::uint64_t bytes = 0;
    for (const block_ref &each : large_)
        for (std::size_t i = 0; each->fresh > 0 && i < each->slots.size(); i++)
            if (each->slots[i].fresh && each->slots[i].where == place::vram &&
                (each->in_flight > 0 || next_use_of(*each, i) <= next_use))
                bytes += each->slots[i].bytes;
    return bytes;
}

mover::traffic mover::look_at_traffic() const
{
    traffic out;
    for (const motion &each : motions_) {
        const std::uint64_t bytes = each.unit().bytes;
        if (each.evicts) {
            out.evicting++;
            out.leaving_bytes += bytes;
        } else {
            out.fetching++;
            (each.at == stage::fetch ? out.coming_bytes : out.arrived_bytes) +=
                bytes;
        }
    }
    return out;
}

// Whether a unit is on its way out, as planned or as arranged. Once half its
// gap is over it is on its way back, and no sooner: it would leave again.
bool mover::is_passing(const slot &one, std::uint64_t next_use) const
{
    return next_use > 0 &&
           (pace_.arranges() ? one.stays_away
                             : one.passes() && next_use >= one.next.gap / 2);
}

// Of the units that nothing in flight can touch, that which is needed last.
// @param fits  whether one may be it, by when it is needed
template <typename Fits>
candidate mover::needed_last(Fits fits) const
{
    candidate out;
    for (const block_ref &each : large_) {
        if (each->fixed || each->in_flight > 0)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const std::uint64_t use = next_use_of(*each, i);
            if ((!out.of || use > out.next_use) && fits(each->slots[i], use))
                out = {each, i, use};
        }
    }
    return out;
}

// Whether there is a frame of that size, or one may be made without any other's
// being given up.
bool mover::may_fit(std::uint64_t bytes, std::uint64_t free_bytes) const
{
    return frames_.has(bytes) ||
           (bytes <= free_bytes && frames_.may_make(bytes));
}

// Launches do not wait for the end of it.
// @param free_bytes  what is left of the share
// @return nothing where there are other blocks meanwhile
std::optional<mover::survey>
mover::look_around(std::unique_lock<std::mutex> &lock, std::uint64_t free_bytes)
{
    survey out;
    const std::uint64_t blocks = blocks_version_;
    out.ram = look_for_rooms(rooms_.below());
    const bool arranges = pace_.arranges();
    const bool has_way = arranges || pace_.moves();
    // Those found so far. Others hold a block, which would be counted at each.
    struct found
    {
        block *of = nullptr;
        std::size_t index = 0;
        std::uint64_t next_use = 0;
        void name(candidate &as) const
        {
            if (of != nullptr && of->in_flight == 0)
                as = {block_ref(of), index, next_use};
        }
    };
    found wanted{nullptr, 0, schedule::never};
    found fitting{nullptr, 0, schedule::never};
    found passer;
    found victim;
    found newcomer;
    // Where nobody waits for it, what has just been used has the most time to
    // come; of the rest, a program that runs ahead may call off all.
    const auto is_sooner = [&](std::uint64_t use, std::uint64_t than) {
        if (!arranges || use == 0 || than == 0 || than == schedule::never)
            return use < than;
        return use != schedule::never && use > than;
    };
    for (const block_ref &each : awaited_)
        for (std::size_t i = 0; i < each->slots.size(); i++)
            if (!each->fixed && each->in_flight == 0 &&
                each->slots[i].where == place::host)
                wanted = {&*each, i, 0};
    for (std::size_t at = 0; at < large_.size(); at++) {
        if (at % let_in_after == 0) {
            let_in(lock);
            if (blocks != blocks_version_)
                return {};
        }
        const block_ref &each = large_[at];
        if (each->fixed)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            const std::uint64_t use = next_use_of(*each, i);
            out.used_bytes += use != schedule::never ? one.bytes : 0;
            out.vram_bytes += one.vram != 0 ? one.bytes : 0;
            out.ram_bytes += one.in_ram() ? one.bytes : 0;
            out.idle_room_bytes += one.has_idle_room() ? one.bytes : 0;
            if (each->in_flight > 0)
                continue;
            const bool passing = is_passing(one, use);
            if (one.where == place::host && (!passing || !has_way)) {
                if (is_sooner(use, wanted.next_use))
                    wanted = {&*each, i, use};
                if (is_sooner(use, fitting.next_use) &&
                    may_fit(one.bytes, free_bytes))
                    fitting = {&*each, i, use};
            }
            if (!out.ram.may_leave(one))
                continue;
            found &leaves = passing                ? passer
                            : one.host.handle != 0 ? victim
                                                   : newcomer;
            if (use > leaves.next_use)
                leaves = {&*each, i, use};
        }
    }
    wanted.name(out.wanted);
    fitting.name(out.fitting);
    passer.name(out.passer);
    victim.name(out.victim);
    newcomer.name(out.newcomer);
    return out;
}

// Starts the one thing that is most worth it.
bool mover::decide(std::unique_lock<std::mutex> &lock)
{
    if (!settled_ || unvouched_ > 0 || host_bytes_ == 0)
        return false;
    if (away_ > 0 && is_astray() && bring_one_home())
        return true;
    if (!schedule_.predicts() && waiters_ == 0)
        return change_places(lock);
    if (exchange_.at == exchange::leaving ||
        (exchange_.at == exchange::coming &&
         exchange_.in.unit().where != place::fetching))
        end_exchange();
    // Nothing has changed since there was nothing to do.
    const std::uint64_t state = version_;
    if (state == decided_ || (waiters_ == 0 && now_ns() < look_again_ns_))
        return false;
    const traffic under_way = look_at_traffic();
    const usage share = limits_.read();
    const std::uint64_t part = share.physical_bytes / 8;
    const bool may_fetch =
        under_way.fetching < max_motions &&
        (under_way.fetching == 0 ||
         (under_way.coming_bytes < std::min(max_coming_bytes, part) &&
          under_way.arrived_bytes < std::min(max_arrived_bytes, part)));
    const bool may_evict =
        under_way.evicting < max_motions && digests_.any_free() &&
        (under_way.leaving_bytes == 0 ||
         under_way.leaving_bytes < std::min(max_leaving_bytes, part));
    if (!may_fetch && !may_evict) {
        decided_ = state;
        look_again_ns_ = now_ns() + look_again_ns;
        return false;
    }
    const auto seen = look_around(lock, share.physical_free_bytes());
    if (!seen)
        return true;
    const survey &units = *seen;
    const candidate &wanted = units.wanted;
    const std::uint64_t arriving =
        under_way.coming_bytes + under_way.arrived_bytes;
    const std::uint64_t vram_bytes =
        units.vram_bytes + frames_.bytes() + arriving;
    const std::uint64_t space =
        vram_bytes - std::min(vram_bytes, std::min(moving_bytes, 2 * part));
    const std::uint64_t excess =
        units.used_bytes - std::min(units.used_bytes, space);
    if (moves_ahead() &&
        planner_.is_due(schedule_, recurrence_.has_been_seen(), excess)) {
        const std::uint64_t bytes =
            planner_.plan(lock, large_, schedule_, times_);
        if (trace_ != nullptr) {
            const std::uint64_t now = now_ns();
            trace_->span(trace::row::waits, "planned", now, now, 0, bytes,
                         schedule_.lag());
        }
        version_++;
        return true;
    }
    if (pace_.arranges()) {
        const std::uint64_t fits =
            frames_.bytes() + arriving + share.physical_free_bytes();
        if (arrangement_.is_due(
                schedule_, units.ram_bytes - std::min(units.ram_bytes, fits))) {
            arrangement_.arrange(lock, large_, schedule_);
            version_++;
            return true;
        }
    }
    if (wanted.of) {
        const std::uint64_t size = wanted.unit().bytes;
        const std::uint64_t room =
            share.physical_free_bytes() + frames_.bytes();
        const auto is_due = [&](const candidate &which) {
            return which.next_use == 0 || !pace_.moves() ||
                   ahead_bytes(which.next_use) + arriving <
                       std::min(max_ahead_bytes, part);
        };
        const bool has_way = waiters_ > 0 || pace_.moves();
        // Frames are made anew, of others, where none of that size comes free
        // as planned, and only for what is due: it takes the driver as long as
        // to fetch the unit.
        const bool fits = may_fit(size, share.physical_free_bytes());
        const auto is_alike = [&](const slot &one, std::uint64_t use) {
            return one.bytes == size && is_passing(one, use) &&
                   units.ram.may_leave(one) &&
                   (pace_.arranges() || (has_way && use > wanted.next_use + 1));
        };
        const candidate alike =
            fits || !may_evict ? candidate() : needed_last(is_alike);
        const bool comes_free = std::any_of(
            motions_.begin(), motions_.end(), [size](const motion &each) {
                return each.evicts && each.unit().bytes == size;
            });
        const bool due = is_due(wanted);
        const bool remakes =
            due && (wanted.next_use == 0 || !(comes_free || alike.of));
        const candidate &next = fits || remakes ? wanted : units.fitting;
        // Standing still, what has come free may be of use all the same.
        const auto is_left_there = [&] {
            return waiters_ == 0 && !pace_.moves() && room < next.unit().bytes;
        };
        // What a launch names of the same block calls off what comes.
        const auto is_in_time = [&] {
            return (&next == &wanted ? due : is_due(next)) ||
                   (frames_.has(next.unit().bytes) &&
                    is_first_of_block(*next.of, next.index));
        };
        if (may_fetch && next.of && !is_left_there() && is_in_time()) {
            if (start_fetch(lock, next)) {
                if (pace_.arranges() && !next.of->small)
                    pace_.disturb();
                return true;
            }
            // Its copy failed, and what was chosen may be gone meanwhile.
            if (version_ != state)
                return false;
        }
        // Room for one more unit is slow to make and takes memory. As much
        // again as lies there is enough to take turns with, and what stays away
        // for clearly longer is worth it: sooner or later everything that
        // leaves has just been used. Where another's room is at hand that is
        // taken, and worth it if nothing is lost with it: else two would take
        // turns to rob each other, and be written back each time.
        const auto worth_a_room = [&](std::uint64_t bytes) {
            const slot *const other = spare_room(bytes);
            return other != nullptr
                       ? !other->digested
                       : units.idle_room_bytes < host_bytes_ + min_spare_bytes;
        };
        const bool grows =
            units.newcomer.of &&
            units.newcomer.next_use / 8 * 7 >= units.victim.next_use &&
            worth_a_room(units.newcomer.unit().bytes);
        const candidate &last =
            grows || !units.victim.of ? units.newcomer : units.victim;
        // What stays in VRAM leaves only where nothing else can.
        const bool as_planned = static_cast<bool>(units.passer.of);
        const candidate &leaves = alike.of && !comes_free ? alike
                                  : as_planned            ? units.passer
                                                          : last;
        const bool short_of_frames =
            room < size &&
            under_way.leaving_bytes < (waiters_ > 0 ? max_coming_bytes : 1) &&
            due;
        // Where it is arranged, nobody waits for what comes.
        const bool arranges = pace_.arranges() && as_planned;
        const bool worth_it =
            arranges || (has_way && leaves.next_use > wanted.next_use + 1 &&
                         (as_planned || leaves.next_use == schedule::never ||
                          short_of_frames));
        if (may_evict && leaves.of && worth_it && start_evict(leaves)) {
            if (arranges)
                pace_.disturb();
            return true;
        }
    }
    decided_ = state;
    look_again_ns_ = now_ns() + look_again_ns;
    // Who waits, waits in vain if nothing is on its way or can end.
    if (waiters_ > 0 && motions_.empty() && in_flight().empty()) {
        hopeless_ = progress_;
        changed_.notify_all();
    }
    return false;
}

// Where nobody can tell what comes next, what is used more often belongs into
// VRAM: now and then a unit there and one in system RAM change places.
bool mover::change_places(std::unique_lock<std::mutex> &lock)
{
    if (exchange_.at == exchange::none)
        return begin_exchange(lock);
    const candidate &in = exchange_.in;
    if (exchange_.at == exchange::leaving) {
        const place out = exchange_.out.unit().where;
        if (out == place::evicting)
            return false;
        const bool possible = out == place::host && !in.of->fixed &&
                              in.unit().where == place::host;
        // What is used often is in use now and then: just now, perhaps.
        if (possible && in.of->in_flight > 0 &&
            now_ns() - exchange_.begun_ns < exchange_patience_ns)
            return false;
        if (possible && in.of->in_flight == 0) {
            exchange_.at = exchange::coming;
            if (start_fetch(lock, in))
                return true;
        }
        // VRAM that holds nothing is of no use to anybody.
        frames_.drop();
    } else if (in.unit().where == place::fetching) {
        return false;
    }
    end_exchange();
    return false;
}

// Whether it came to anything or not, it has taken its time.
void mover::end_exchange()
{
    const std::uint64_t now = now_ns();
    const std::uint64_t took =
        std::min(now - exchange_.begun_ns, exchange_patience_ns);
    exchange_after_ns_ =
        std::max(exchange_after_ns_, now + exchange_part * took);
    exchange_ = {};
    changed_.notify_all();
}

bool mover::begin_exchange(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t now = now_ns();
    if (now < exchange_after_ns_ || !motions_.empty() || !digests_.any_free())
        return false;
    exchange_after_ns_ = now + exchange_look_ns;
    struct unit_heat
    {
        candidate which;
        std::uint64_t uses;
    };
    std::vector<unit_heat> hot;
    for (const block_ref &each : large_)
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            const std::uint64_t uses = each->marks[i].uses.at(uses_);
            if (!each->fixed && each->in_flight == 0 &&
                one.where == place::host && uses >= hot_uses * heat::one_use)
                hot.push_back({{each, i, 0}, uses});
        }
    std::sort(
        hot.begin(), hot.end(),
        [](const unit_heat &a, const unit_heat &b) { return a.uses > b.uses; });
    hot.resize(std::min(hot.size(), hottest_units));
    const std::uint64_t space =
        limits_.read().physical_free_bytes() + frames_.bytes();
    leeway ram = look_for_rooms(rooms_.below());
    if (idle_room_bytes() >= host_bytes_ + min_spare_bytes)
        ram = look_for_rooms(0); // that is enough: no more is made
    for (const unit_heat &each : hot) {
        exchange_ = {exchange::coming, {}, each.which, now};
        const std::uint64_t wanted = each.which.unit().bytes;
        const std::uint64_t state = version_;
        if (space >= wanted && start_fetch(lock, each.which))
            return true;
        exchange_ = {};
        if (version_ != state)
            return false;
        // The card may be full before the share is.
        candidate out;
        std::uint64_t coldest = each.uses / times_as_hot;
        for (const block_ref &of : large_)
            for (std::size_t i = 0; i < of->slots.size(); i++) {
                const slot &one = of->slots[i];
                const std::uint64_t uses = of->marks[i].uses.at(uses_);
                if (!of->fixed && of->in_flight == 0 && ram.may_leave(one) &&
                    one.bytes + space >= wanted && uses < coldest) {
                    coldest = uses;
                    out = {of, i, schedule::never};
                }
            }
        if (out.of && start_evict(out)) {
            exchange_ = {exchange::leaving, out, each.which, now};
            return true;
        }
    }
    return false;
}

// What changes places is there in a moment: work that needs it waits, where it
// would keep it away for good otherwise.
void mover::await_exchange(std::unique_lock<std::mutex> &lock,
                           const std::vector<touched> &all)
{
    const auto comes = [&] {
        return exchange_.at == exchange::coming && !gave_up_ && !stopping_ &&
               exchange_.in.unit().where == place::fetching &&
               !exchange_.in.unit().cancel &&
               std::any_of(all.begin(), all.end(), [&](const touched &each) {
                   return each.of == exchange_.in.of;
               });
    };
    if (!comes())
        return;
    const std::uint64_t start = now_ns();
    while (comes() && now_ns() - start < patience_ns)
        changed_.wait_for(lock, 20000000);
    unreported_.stalled_ns += now_ns() - start;
}

// Whether a unit has room in system RAM that it does not need, and another can
// use: it is in VRAM, to stay there as far as is planned.
bool mover::is_room_spare(const block &of, const slot &one) const
{
    const bool leaves =
        pace_.arranges() ? one.stays_away : one.leaves_for != never_leaves;
    return one.where == place::vram && one.host.charged &&
           (!leaves || of.fixed) && (one.host.alias != 0 || rooms_.maps());
}

// Such a one. With its room a unit loses what is left of it there, and has to
// be written back as a whole: best one of which that is so anyway, and next one
// that is mapped already.
slot *mover::spare_room(std::uint64_t bytes) const
{
    slot *found = nullptr;
    for (const block_ref &each : large_)
        for (slot &one : each->slots) {
            if (one.bytes != bytes || !is_room_spare(*each, one))
                continue;
            const auto worth = [](const slot &which) {
                return (which.digested ? 0 : 2) + (which.host.alias != 0);
            };
            if (found == nullptr || worth(one) > worth(*found))
                found = &one;
        }
    return found;
}

mover::leeway mover::look_for_rooms(std::uint64_t more_below) const
{
    leeway out;
    out.more_below = more_below;
    out.maps = rooms_.maps();
    if (more_below == UINT64_MAX && out.maps)
        return out;
    for (const block_ref &each : large_)
        for (const slot &one : each->slots)
            if (is_room_spare(*each, one) && !out.spares(one.bytes))
                out.spare.push_back(one.bytes);
    return out;
}

// What there is of system RAM for units that are in VRAM.
std::uint64_t mover::idle_room_bytes() const
{
    std::uint64_t bytes = 0;
    for (const block_ref &each : large_)
        for (const slot &one : each->slots)
            bytes += one.has_idle_room() ? one.bytes : 0;
    return bytes;
}

bool mover::leeway::spares(std::uint64_t size) const
{
    return std::find(spare.begin(), spare.end(), size) != spare.end();
}

bool mover::leeway::may_leave(const slot &one) const
{
    if (one.where != place::vram)
        return false;
    if (one.host.handle != 0)
        return one.host.alias != 0 || maps;
    return (maps && one.bytes < more_below) || spares(one.bytes);
}

// Whether the unit need not be mapped in system RAM: nothing of its block will
// be used before it is back, for all that is known.
bool mover::may_be_away(const motion &which) const
{
    return unmaps_ && moves_ahead() && !stopping_ && !gave_up_ &&
           next_use_of(*which.of, which.index) != schedule::never &&
           is_first_of_block(*which.of, which.index);
}

void mover::set_away(block &around, slot &of, bool away)
{
    of.away = away;
    around.away = away ? around.away + 1 : around.away - 1;
    away_ = away ? away_ + 1 : away_ - 1;
}

// Maps a unit in system RAM, if nothing is mapped at its address. What a copy
// is on its way for is mapped all the same: the copy may wait for the caller.
bool mover::bring_home(block &around, slot &of)
{
    if (!of.away || !of.in_ram() || of.unmapped)
        return false;
    const std::uint64_t start = now_ns();
    bool done = false;
    {
        const beside_captures apart(calls_);
        done = map_at(calls_, of.at, of.bytes, of.host.handle, device_);
        if (!done) {
            frames_.drop();
            done = map_at(calls_, of.at, of.bytes, of.host.handle, device_);
        }
    }
    set_away(around, of, false);
    if (!done) {
        gave_up_ = true;
        cancel_all();
        tell_(lost_why);
    }
    if (trace_ != nullptr)
        trace_->span(trace::row::waits, "mapped again", start, now_ns(), of.at,
                     of.bytes, schedule_.steps());
    return true;
}

void mover::bring_home(block &of)
{
    for (slot &each : of.slots) {
        if (of.away == 0)
            return;
        bring_home(of, each);
    }
}

void mover::bring_all_home()
{
    if (away_ == 0)
        return;
    for (const block_ref &each : large_)
        bring_home(*each);
}

// The same, and waits for what is on its way.
void mover::map_all(std::unique_lock<std::mutex> &lock)
{
    bring_all_home();
    changed_.wait(lock, [&] { return unmapped_ == 0 && away_ == 0; });
}

bool mover::bring_one_home()
{
    for (const block_ref &each : large_)
        for (slot &one : each->slots)
            if (one.where == place::host && bring_home(*each, one))
                return true;
    return false;
}

// The one moment at which an address of the program's is not mapped.
bool mover::map(slot &of, CUmemGenericAllocationHandle to,
                CUmemGenericAllocationHandle from)
{
    const remapping result = remap(calls_, of.at, of.bytes, to, from, device_);
    if (result == remapping::lost)
        tell_(lost_why);
    return result == remapping::done;
}

bool mover::start_fetch(std::unique_lock<std::mutex> &lock,
                        const candidate &which)
{
    const slot &one = which.unit();
    frame into;
    std::vector<frame> gone;
    if (!frames_.take(one.bytes, into, gone))
        return false;
    const motion_ref next = new_motion(which, stage::fetch);
    const CUdeviceptr from = one.away ? one.host.alias : one.at;
    lock.unlock();
    const bool made = frames_.complete(into, gone);
    const bool begun = made && next->event != nullptr &&
                       lanes_.fetch(into.alias, from, one.bytes, next->event);
    lock_soon(lock);
    next->into = into;
    if (begun)
        return true;
    if (made)
        frames_.put(into);
    end_motion(next, place::host, false);
    return false;
}

bool mover::start_evict(const candidate &which)
{
    const motion_ref next = new_motion(which, stage::roomed);
    slot &one = which.unit();
    next->digest = digests_.take();
    if (next->event == nullptr) {
        end_motion(next, place::vram);
        return false;
    }
    if (slot *const spare =
            one.host.handle == 0 ? spare_room(one.bytes) : nullptr)
        one.take_room_of(*spare);
    next->done = one.host.alias != 0;
    if (!next->done) {
        pace_.disturb();
        hand_over(*next, stage::room);
    }
    return true;
}

// ---- Room for what cannot be in system RAM

bool mover::make_way(std::uint64_t bytes)
{
    std::unique_lock lock = enter();
    if (!active() || bytes > limits_.read().physical_bytes)
        return limits_.charge_physical(bytes);
    wanted_bytes_ += bytes;
    std::uint64_t seen = given_up_;
    std::uint64_t since = now_ns();
    bool charged = false;
    while (!(charged = limits_.charge_physical(bytes)) && !gave_up_ &&
           !stopping_) {
        changed_.notify_all();
        changed_.wait_for(lock, 1000000);
        const std::uint64_t now = now_ns();
        const bool at_rest =
            settled_ && in_flight().empty() && motions_.empty();
        if (given_up_ != seen) {
            seen = given_up_;
            since = now;
        } else if (now - since > (at_rest ? patience_ns : 10 * patience_ns)) {
            break;
        }
    }
    wanted_bytes_ -= bytes;
    version_++;
    return charged;
}

// Gives up frames, and sends away as much as is wanted: what is needed last
// first.
bool mover::give_way()
{
    const bool dropped = !frames_.empty();
    frames_.drop();
    if (dropped) {
        given_up_++;
        changed_.notify_all();
    }
    std::uint64_t coming = limits_.read().physical_free_bytes();
    for (const motion &each : motions_)
        coming += each.evicts ? each.unit().bytes : 0;
    if (coming >= wanted_bytes_ || !settled_ || unvouched_ > 0 ||
        !digests_.any_free())
        return dropped;
    const leeway ram = look_for_rooms(rooms_.below());
    const candidate leaves = needed_last(
        [&](const slot &one, std::uint64_t) { return ram.may_leave(one); });
    return (leaves.of && start_evict(leaves)) || dropped;
}

} // namespace emuv::cuda
