// SPDX-License-Identifier: LGPL-2.1-or-later
// Untrusted work: memory moves until the device is at it, and stands still and
// is mapped while it runs.
#include "base/captures.hpp"
#include "movement/mover.hpp"
#include "store/placement.hpp"

#include <algorithm>

#include <sys/prctl.h>

namespace emuv::cuda {

namespace {

// How long the device may wait for motions that are nearly over, and for
// fetches. Motions that are called off have to be made again, which takes the
// link as long as the wait saves.
constexpr std::uint64_t settle_ns = 300000;
constexpr std::uint64_t settle_fetches_ns = 3000000;

// A look at barriers is as far from the next.
constexpr std::uint64_t nap_ns = 15000;

// The time that a fetch takes beside its copy; and its copy, over a fast link.
constexpr std::uint64_t fetch_around_ns = 100000;
constexpr std::uint64_t fast_link_bytes_per_ns = 48;
constexpr std::uint64_t usual_pace = 64; // see fetch_pace_
constexpr std::uint64_t slowest_pace = 4 * usual_pace;

// Untrusted work that has run within this time runs again, it seems.
constexpr std::uint64_t lately_ns = 100000000;

// Untrusted work in a row between which nothing could move.
constexpr unsigned most_in_vain = 64;

} // namespace

// True if stopping movement as briefly as possible is worth it.
bool mover::moves_beside_untrusted() const
{
    // Units in the file cannot be mapped while the device waits.
    return settled_ && check_ == nullptr && file_ == nullptr &&
           host_bytes_ > 0 && moves_ahead() &&
           for_untrusted_.is_left(schedule_.steps());
}

// True if memory moves, or will as soon as untrusted work has ended.
bool mover::stands_still_briefly() const
{
    return gate_.all_trusted() || moves_beside_untrusted();
}

// True if untrusted work runs, or has just run, or is about to. Memory that is
// mapped nowhere would keep the device waiting.
bool mover::is_untrusted_about() const
{
    return !gated_.empty() || !draining_.empty() || !gate_.all_trusted() ||
           (untrusted_ns_ != 0 && now_ns() - untrusted_ns_ < lately_ns);
}

// True if the device comes to untrusted work before a fetch that begins now
// would be over.
bool mover::is_untrusted_near() const
{
    if (gated_.empty() && draining_.empty())
        return false;
    const std::uint64_t now = now_ns();
    std::uint64_t left = UINT64_MAX;
    for (const CUstream each : draining_)
        left = std::min(left, flights_.until_idle_ns(each, now));
    left = std::min(left, flights_.until_ns(now, [this](const flight &each) {
        return is_gated(each.barrier);
    }));
    std::uint64_t bytes = max_moving_bytes;
    for (const motion &each : motions_)
        bytes += each.at == stage::fetch && each.copies ? each.unit().bytes : 0;
    return left < fetch_around_ns +
                      bytes / fast_link_bytes_per_ns * fetch_pace_ / usual_pace;
}

// True if the device has not been let go past it yet.
bool mover::is_gated(barriers::ticket which) const
{
    return which != barriers::none &&
           std::any_of(gated_.begin(), gated_.end(), [which](const auto &each) {
               return each.barrier == which;
           });
}

// A barrier for untrusted work that is about to be handed over; none where the
// program has to wait in its stead.
barriers::ticket mover::gate_untrusted(const flight &begun)
{
    // Once it stops, nobody looks any more. And a stream may be captured that
    // the driver has wait for this one.
    if (stopping_ || gave_up_ || open_captures.load() > 0)
        return barriers::none;
    const barriers::ticket made = barriers_.take();
    if (made != barriers::none) {
        gated_.push_back({made, false, begun.kernel, begun.why});
        to_open_.notify_all();
    }
    return made;
}

// Has the stream wait at the work's barrier. Without the lock, as whatever the
// driver may wait with.
void mover::raise_barrier(flight &begun, CUstream stream)
{
    if (begun.barrier == barriers::none ||
        barriers_.raise(begun.barrier, stream))
        return;
    // It may have been reached, and opened, all the same.
    std::unique_lock lock = enter();
    if (!is_gated(begun.barrier))
        return;
    std::erase_if(gated_, [&](const auto &each) {
        return each.barrier == begun.barrier;
    });
    begun.barrier = barriers::none; // the device may come to a part of it
    begin_untrusted();
    map_all(lock);
}

// Untrusted work has ended, or nobody follows it any more. Then the device may
// yet come to its barrier, which is not taken again before all such work ends.
void mover::end_untrusted(const flight &which, bool seen)
{
    for (auto &each : gated_)
        if (which.barrier != barriers::none && each.barrier == which.barrier) {
            each.landed = true; // without having begun: see open_gate()
            return;
        }
    gate_.end(false);
    if (seen && which.barrier != barriers::none)
        barriers_.put(which.barrier);
}

// Untrusted work goes ahead once all is mapped.
void mover::begin_untrusted()
{
    untrusted_ns_ = now_ns();
    // It may write to what lies in system RAM, over the link.
    if (gate_.all_trusted() && host_bytes_ > 0)
        for (const block_ref &each : large_)
            each->may_change(each->all());
    revive_all();
    gate_.begin(false);
    bring_all_home();
    tell_all();
}

// Lets motions end that are nearly over, and begins none.
void mover::settle(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t start = now_ns();
    bool waits_for_copy = false;
    const auto is_awaited = [&](const motion &each) {
        const std::uint64_t waited = now_ns() - start;
        const bool ends =
            each.at == stage::remap || each.at == stage::remapped ||
            each.at == stage::write_back || (!each.evicts && !each.rehouses);
        if (!ends || !may_move(each) ||
            waited > (each.evicts ? settle_ns : settle_fetches_ns))
            return false;
        waits_for_copy =
            waits_for_copy || (each.at == stage::fetch && waited > settle_ns);
        return true;
    };
    gate_.close();
    settling_++;
    while (!gave_up_ && !stopping_ && gate_.all_trusted() &&
           std::any_of(motions_.begin(), motions_.end(), is_awaited)) {
        to_look_.notify_all();
        changed_.wait_for(lock, 20000);
    }
    settling_--;
    gate_.reopen();
    fetch_pace_ = waits_for_copy
                      ? std::min(fetch_pace_ + usual_pace / 4, slowest_pace)
                      : std::max(fetch_pace_ - 1, usual_pace);
    trace_.span(trace::row::waits, "settles", start, now_ns(), 0, 0,
                schedule_.steps());
}

// The program waits until its stream has nothing to do, and memory moves
// meanwhile. The stream may itself wait for the program: then this is in vain,
// and seldom tried again.
void mover::drain(std::unique_lock<std::mutex> &lock, CUstream stream)
{
    const std::uint64_t start = now_ns();
    if (flights_.any_unmarked()) {
        lock.unlock();
        flights_.mark();
        lock_soon(lock);
    }
    draining_.push_back(stream);
    const auto is_busy = [&] {
        const flight *const oldest = in_flight().oldest(stream);
        return oldest != nullptr && oldest->begun_ns <= start;
    };
    // That stream is several, of as many threads.
    while (stream != CU_STREAM_PER_THREAD && !gave_up_ && !stopping_ &&
           is_busy()) {
        to_look_.notify_all();
        changed_.wait_for(lock, 1000000);
        if (now_ns() - start > patience_ns) {
            for_untrusted_.lose(schedule_.steps());
            break;
        }
    }
    draining_.erase(std::find(draining_.begin(), draining_.end(), stream));
    trace_.span(trace::row::waits, "drains", start, now_ns(), 0, 0,
                schedule_.steps());
    settle(lock);
    note_standstill();
    begin_untrusted();
}

// Movement is of no use where nothing comes of it between any two.
void mover::note_standstill()
{
    if (std::exchange(arrived_before_, arrived_) != arrived_)
        in_vain_ = 0;
    else if (++in_vain_ >= most_in_vain) {
        in_vain_ = 0;
        for_untrusted_.lose(schedule_.steps());
    }
}

// Another thread's whole work: to open the gate for untrusted work as the
// device comes to it. The mover's own may wait for the driver, which may wait
// for that work; this one calls nothing that does.
void mover::keep_gate()
{
    CUcontext popped = nullptr;
    calls_.cuCtxPushCurrent_v2(context_);
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    std::unique_lock lock(lock_);
    const auto is_reached = [this](const gated &each) {
        return barriers_.is_reached(each.barrier);
    };
    while (!served_) {
        if (gated_.empty()) {
            to_open_.wait_for(lock, 100000000);
        } else if (std::any_of(gated_.begin(), gated_.end(), is_reached)) {
            const std::uint64_t start = now_ns();
            const gated first =
                *std::find_if(gated_.begin(), gated_.end(), is_reached);
            settle(lock);
            open_gate(lock, is_reached);
            figures_.stood(first.kernel, first.why, now_ns() - start);
        } else {
            lock.unlock();
            sleep_ns(nap_ns);
            enter(lock);
        }
    }
    // Nothing moves any more.
    open_gate(lock, [](const gated &) { return true; });
    lock.unlock();
    calls_.cuCtxPopCurrent_v2(&popped);
}

// For work at the barriers that @p ready says.
template <typename Ready>
void mover::open_gate(std::unique_lock<std::mutex> &lock, Ready ready)
{
    const auto rest = std::partition(gated_.begin(), gated_.end(), ready);
    const std::vector<gated> now(gated_.begin(), rest);
    gated_.erase(gated_.begin(), rest);
    for (const gated &each : now)
        if (!each.landed) {
            note_standstill();
            begin_untrusted();
        }
    revive_all();
    // A unit that another thread is mapping comes home afterwards. As movement
    // ends, some may be left in the file.
    while (!gate_.all_mapped_but(on_file_)) {
        bring_all_home();
        if (!gate_.all_mapped_but(on_file_))
            changed_.wait_for(lock, 1000000);
    }
    for (const gated &each : now)
        barriers_.lower(each.barrier);
    version_++;
}

} // namespace emuv::cuda
