// SPDX-License-Identifier: LGPL-2.1-or-later
// The stages of a unit's move, and its mappings meanwhile.
#include "base/captures.hpp"
#include "movement/mover.hpp"
#include "store/mapping.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

constexpr char lost_why[] = "an address is lost: the driver maps it no more";

} // namespace

void mover::progressed()
{
    progress_++;
    version_++;
}

// True if the unit may not begin to move, or be mapped nowhere.
bool mover::must_stay(const candidate &which) const
{
    return gate_.must_stay(*which.of, which.index) || stopping_ || gave_up_;
}

mover::motion_ref mover::new_motion(const candidate &which, stage at)
{
    slot &one = which.unit();
    const bool evicts = at != stage::fetch;
    which.of->put(one, evicts ? place::evicting : place::fetching);
    // An earlier stop() or give_up() called off only the motions of that time.
    gate_.begin_move(*which.of, which.index, stopping_ || gave_up_);
    motion made;
    made.of = which.of;
    made.index = which.index;
    made.at = at;
    made.evicts = evicts;
    made.started_ns = moved_ns_ = now_ns();
    made.next_use = which.next_use;
    made.was_away = one.away;
    made.event = events_.take_spare();
    return motions_.insert(motions_.end(), std::move(made));
}

// True if nothing in flight can touch the unit, nor could since its motion
// began.
bool mover::may_move(const motion &which) const
{
    return gate_.may_move(*which.of, which.index);
}

// @param progress  whether the motion has come to anything
void mover::end_motion(motion_ref which, place where, bool progress)
{
    slot &of = which->unit();
    which->of->put(of, where);
    of.rehoused = false;
    gate_.end_move(*which->of, of);
    // It leaves for good only as finish() decides; else it is as it was.
    if (of.away && (where == place::vram || !unmaps_ ||
                    must_stay({which->of, which->index}) ||
                    (!which->evicts && !which->was_away)))
        bring_home(*which->of, of);
    end_coding(*which);
    if (progress)
        progressed();
    else
        version_++;
    events_.put(which->event);
    if (which->digest != motion::none)
        digests_.put(which->digest);
    motions_.erase(which);
    tell_all();
}

// Asks, without the lock, which copies and digests have ended. The device ends
// operations nearly in their order. So the first of a kind that has not ended
// stops the asking.
std::vector<mover::question>
mover::ask_device(std::unique_lock<std::mutex> &lock)
{
    std::vector<question> questions;
    for (auto each = motions_.begin(); each != motions_.end(); ++each)
        if (is_on_device(each->at))
            questions.push_back({each, CUDA_ERROR_NOT_READY});
    if (questions.empty())
        return questions;
    lock.unlock();
    for (const stage at : {stage::fetch, stage::digest, stage::write_back,
                           stage::code, stage::code_copy})
        for (question &each : questions) {
            if (each.about->at != at)
                continue;
            each.answer = calls_.cuEventQuery(each.about->event);
            if (each.answer == CUDA_ERROR_NOT_READY)
                break;
        }
    lock_soon(lock);
    return questions;
}

// The device has ended a copy or a digest, or failed at it.
void mover::take_answer(std::unique_lock<std::mutex> &lock,
                        const question &answered)
{
    const motion_ref which = answered.about;
    if (answered.answer != CUDA_SUCCESS || !may_move(*which) ||
        (which->decodes && !has_decoded(*which)))
        call_off(which);
    else if (which->at == stage::digest)
        compare(lock, which);
    else if (which->at == stage::write_back)
        written(*which);
    else if (which->at == stage::code)
        coded(lock, *which);
    else if (which->at == stage::code_copy)
        keep_coded(*which);
    else if (which->rehouses && which->was_away && may_be_away(*which)) {
        which->done = true; // nothing is mapped at its address already
        finish(which);
    } else
        arrived(lock, *which);
}

// There is room for the unit in system RAM, or an address of it; or it could
// not be had.
void mover::roomed(std::unique_lock<std::mutex> &lock, motion_ref which)
{
    if (which->evicts) {
        if (!which->done || !take_digest(lock, *which))
            end_motion(which, place::vram);
    } else if (which->done && (!which->rehouses ||
                               which->to.peer != which->unit().host.peer)) {
        begin_copy(lock, which);
    } else {
        give_back(which);
    }
}

// True if a unit that is ready to leave is to leave.
bool mover::is_to_leave(const motion &which) const
{
    if (!may_move(which) || stopping_ || gave_up_)
        return false;
    return pace_.moves() || (pace_.arranges() && schedule_.predicts()) ||
           fetches_on_demand() || waiters_ > 0 || wanted_bytes_ > 0 ||
           wishes_ > 0 || exchange_.at == exchange::leaving;
}

// A unit that is ready to leave does so once its frame is wanted.
// @return whether it does, or is called off
bool mover::leave_or_stay(motion_ref which)
{
    if (!is_to_leave(*which)) {
        call_off(which);
        return true;
    }
    if (!wants_frame_of(*which))
        return false;
    which->done = may_be_away(*which);
    if (which->done) // nothing is mapped at its address already
        finish(which);
    else
        hand_over(*which, stage::remap);
    return true;
}

// Takes motions to their next stage, or to their end.
bool mover::advance(std::unique_lock<std::mutex> &lock)
{
    bool any = false;
    for (const question &each : ask_device(lock))
        if (each.answer != CUDA_ERROR_NOT_READY) {
            any = true;
            take_answer(lock, each);
        }
    for (auto at = motions_.begin(); at != motions_.end();) {
        const auto each = at++;
        switch (each->at) {
        case stage::roomed:
            any = true;
            roomed(lock, each);
            break;
        case stage::remapped:
            any = true;
            finish(each);
            break;
        case stage::ready:
            any = leave_or_stay(each) || any;
            break;
        default: // on its way, or in other threads' hands
            break;
        }
    }
    return any;
}

// True if there are too few free frames of the size that this motion would
// leave, with those counted that come free in a moment. Frames of other sizes
// help little, and are VRAM that holds nothing.
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
    return wanted_bytes_ > 0 || alike == 0 || which.unit().said.leaves() ||
           (alike < max_free_bytes && bytes < 2 * max_free_bytes);
}

// Takes a unit out of everybody's reach, before its bytes are read for the way.
// Work that nobody announced faults there, until the unit has come or is
// home again. Otherwise it could write beside a copy, and lose what it writes.
// @return false if the unit has to stay, or the driver refuses
bool mover::hide(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    if (!may_move(which))
        return false;
    if (of.away)
        return true;
    const bool reads = which.evicts && !of.blank;
    if (reads && of.vram_alias == 0) {
        // Nothing is out of reach yet: untrusted work must not wait for calls
        // that may wait for it.
        lock.unlock();
        const CUdeviceptr made = map_alias(calls_, of.vram, of.bytes, device_);
        lock_soon(lock);
        of.vram_alias = made;
        if (made == 0 || !may_move(which))
            return false;
    }
    gate_.begin_remap(of);
    lock.unlock();
    const bool done = calls_.cuMemUnmap(of.at, of.bytes) == CUDA_SUCCESS;
    lock_soon(lock);
    gate_.end_remap(of);
    if (done)
        gate_.set_away(*which.of, of, true);
    tell_all();
    return done && may_move(which);
}

// The copy of a unit has come. A digest of it is one of the room, too. It is
// taken if there is none, or if the room was mapped since: anybody may have
// written there.
void mover::arrived(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    if (which.rehouses || !which.copies || (of.room_is_known && !of.exposed)) {
        hand_over(which, stage::remap);
        return;
    }
    bool begun = false;
    if (!is_hurried(which) && digests_.any_free()) {
        which.digest = digests_.take();
        which.at = stage::digest;
        lock.unlock();
        begun = digests_.begin(which.digest, which.into.alias, of.bytes,
                               which.event);
        lock_soon(lock);
    }
    if (begun)
        return;
    of.room_is_known = false;
    hand_over(which, stage::remap);
}

// True if somebody waits for what has been copied.
bool mover::is_hurried(const motion &which) const
{
    return which.unit().waiting > 0 || gate_.is_closed();
}

// Reads a unit that is to leave, to see whether it has changed. While launches
// wait, one with nothing to compare it with is written back unread.
bool mover::take_digest(std::unique_lock<std::mutex> &lock, motion &which)
{
    if (!hide(lock, which))
        return false;
    const slot &of = which.unit();
    if (of.blank) {
        which.at = stage::ready;
        return true;
    }
    if (fetches_on_demand() && !of.room_is_known)
        return write_back(lock, which);
    which.at = stage::digest;
    lock.unlock();
    const bool begun =
        digests_.begin(which.digest, of.vram_alias, of.bytes, which.event);
    lock_soon(lock);
    return begun;
}

// A unit that equals its copy in system RAM need not be written there.
void mover::compare(std::unique_lock<std::mutex> &lock, motion_ref which)
{
    slot &of = which->unit();
    const digests::value now = digests_.result(which->digest);
    if (!which->evicts) {
        // The room holds the same: nobody can write there meanwhile.
        of.proven = of.proven && of.room_is_known && of.digest == now;
        of.digest = now;
        of.room_is_known = true;
        of.exposed = false;
        hand_over(*which, stage::remap);
        return;
    }
    const bool unchanged = of.room_is_known && of.digest == now;
    if (of.room_is_known)
        of.gets_dirty = !unchanged;
    if (of.coded.of != now)
        packed_.give(of.coded);
    of.digest = now;
    of.proven = true;
    which->is_read = true;
    if (unchanged) {
        which->at = stage::ready;
        begin_coding(lock, *which);
    } else if (!write_back(lock, *which)) {
        end_motion(which, place::vram);
    }
}

// Begins to copy a unit that is to leave.
// @return false if the driver refuses
bool mover::write_back(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    // The copy in system RAM is not valid until the write-back is done.
    of.room_is_known = false;
    which.at = stage::write_back;
    lock.unlock();
    const bool begun =
        lanes_.write_back(of.host.alias, of.vram_alias, of.bytes, which.event);
    lock_soon(lock);
    return begun;
}

void mover::written(motion &which)
{
    which.unit().room_is_known = which.is_read;
    which.wrote = true;
    which.at = stage::ready;
}

// Ends a motion, since somebody needs the unit where it is.
void mover::call_off(motion_ref which)
{
    const bool leaves = which->evicts || which->rehouses;
    trace_.span(leaves ? trace::row::to_ram : trace::row::to_vram, "called off",
                which->started_ns, now_ns(), which->unit().at,
                which->unit().bytes, which->next_use);
    if (which->rehouses)
        rehoused_in_vain(*which);
    else if (!which->evicts)
        frames_.put(which->into);
    else if (which->at == stage::write_back)
        which->unit().room_is_known = false;
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
    if (which->rehouses) {
        rehoused(which);
        return;
    }
    if (which->evicts) {
        // Work that waited for this motion may write to the unit already.
        if (!may_move(*which))
            of.room_is_known = false;
        given_up_++;
        frames_.put({of.vram, of.vram_alias, of.bytes});
        of.vram = 0;
        of.vram_alias = 0;
        of.made = false;
        of.exposed = !of.away;
        host_bytes_ += of.bytes;
        lent_bytes_ += of.host.peer >= 0 ? of.bytes : 0;
    } else {
        // A write may have reached the room: its digest is not of that.
        if (!which->copies && of.exposed)
            of.room_is_known = false;
        if (of.on_file)
            leave_file(*which->of, of);
        of.vram = which->into.handle;
        of.vram_alias = which->into.alias;
        which->of->has_come(of);
        arrived_++;
        which->of->has_been_mapped(of);
        of.made = of.blank;
        host_bytes_ -= of.bytes;
        lent_bytes_ -= of.host.peer >= 0 ? of.bytes : 0;
    }
    const std::uint64_t fetched = which->decodes  ? which->coded.bytes
                                  : which->copies ? of.bytes
                                                  : 0;
    const std::uint64_t evicted = which->wrote ? of.bytes : 0;
    has_moved(*which);
    unreported_.fetched_bytes += fetched;
    unreported_.evicted_bytes += evicted;
    which->of->fetched_bytes += fetched;
    which->of->evicted_bytes += evicted;
    if (which->decodes)
        figures_.decoded(of.bytes, fetched);
    figures_.moved({fetched, evicted}, of.host.peer);
    trace_.crossed(device_, {fetched, evicted}, of.host.peer);
    trace_.span(which->evicts ? trace::row::to_ram : trace::row::to_vram,
                which->decodes  ? "fetch coded"
                : which->copies ? "fetch"
                : which->wrote  ? "write back"
                : which->evicts ? "drop"
                                : "make place",
                which->started_ns, now_ns(), of.at, of.bytes, which->next_use,
                of.host.peer);
    end_motion(which, which->evicts ? place::host : place::vram);
}

condition &mover::jobs(stage of)
{
    return of == stage::room ? to_make_ : to_map_;
}

void mover::hand_over(motion &which, stage to)
{
    which.at = to;
    jobs(to).notify_all();
}

// The motion at this stage whose job comes first; null if there is none.
mover::motion *mover::first_at(stage mine)
{
    // Without a free frame of its size nothing can be fetched, so such an
    // eviction comes first. With one, somebody may wait for the unit that has
    // been fetched.
    const auto urgency = [this](const motion &which) {
        if (!which.evicts)
            return 1;
        return frames_.has(which.unit().bytes) ? 0 : 2;
    };
    motion *first = nullptr;
    for (motion &each : motions_)
        if (each.at == mine &&
            (first == nullptr || urgency(each) > urgency(*first)))
            first = &each;
    return first;
}

// Makes room for a unit in system RAM, or gives its room an address.
// @return false if the driver, or the ledger, refuses
bool mover::make_room(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    room made = of.host; // others read that one meanwhile
    lock.unlock();
    const bool done = make_room(lock, of.bytes, made) &&
                      (!which.rehouses || make_room(lock, of.bytes, which.to));
    enter(lock);
    if (of.host.handle != made.handle) // nothing has been written there
        of.room_is_known = false;
    of.host = made;
    return done;
}

// Maps a unit's new memory at its address.
// @return false if the driver refuses
bool mover::remap(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    gate_.begin_remap(of);
    const auto handle = which.rehouses ? which.to.handle
                        : which.evicts ? of.host.handle
                                       : which.into.handle;
    lock.unlock();
    const bool done = map_at(calls_, of.at, of.bytes, handle, device_);
    enter(lock);
    gate_.end_remap(of);
    if (done) {
        gate_.set_away(*which.of, of, false);
        which.of->has_been_mapped(of);
    }
    return done;
}

// Another thread's whole work: to make rooms, or to map units.
void mover::serve(stage mine)
{
    CUcontext popped = nullptr;
    calls_.cuCtxPushCurrent_v2(context_);
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    const bool makes = mine == stage::room;
    std::unique_lock lock(lock_);
    while (!served_) {
        motion *const next = first_at(mine);
        if (next == nullptr) {
            if (makes && make_slab(lock))
                continue;
            jobs(mine).wait_for(lock, 100000000);
            continue;
        }
        const std::uint64_t start = now_ns();
        next->called_off = !may_move(*next);
        next->done = !next->called_off &&
                     (makes ? make_room(lock, *next) : remap(lock, *next));
        next->at = makes ? stage::roomed : stage::remapped;
        const slot &of = next->unit();
        if (!next->called_off)
            trace_.span(trace::row::calls, makes ? "make room" : "map", start,
                        now_ns(), of.at, of.bytes, next->next_use);
        tell_all();
    }
    lock.unlock();
    calls_.cuCtxPopCurrent_v2(&popped);
}

// Maps a unit where it is, if nothing is mapped at its address. A unit that is
// being fetched is mapped all the same: its copy may wait for the caller. One
// in the file has to come from there first: see bring_back().
bool mover::bring_home(block &around, slot &of)
{
    if (!of.away || of.unmapped || of.on_file)
        return false;
    const std::uint64_t start = now_ns();
    const auto handle = of.in_ram() ? of.host.handle : of.vram;
    // From here on its bytes may change: no copy of them counts.
    of.cancel =
        of.cancel || of.where == place::fetching || of.where == place::evicting;
    of.exposed = of.exposed || of.in_ram();
    bool done = false;
    {
        const beside_captures apart(calls_);
        done = map_at(calls_, of.at, of.bytes, handle, device_);
        if (!done) {
            frames_.drop();
            done = map_at(calls_, of.at, of.bytes, handle, device_);
        }
    }
    gate_.set_away(around, of, false);
    around.has_been_mapped(of);
    if (!done) {
        gave_up_ = true;
        gate_.call_off_all();
        tell_(lost_why);
        figures_.stop(lost_why);
    }
    trace_.span(trace::row::waits, "mapped again", start, now_ns(), of.at,
                of.bytes, schedule_.steps());
    return true;
}

// @return whether any of them was away
bool mover::bring_home(block &of, const segment &those)
{
    bool any = false;
    for (std::size_t i = those.first; of.away > 0 && i < those.end; i++)
        any = bring_home(of, of.slots[i]) || any;
    return any;
}

void mover::bring_all_home()
{
    if (gate_.away() == 0)
        return;
    for (const motion &each : motions_)
        bring_home(*each.of, each.unit());
    for (const block_ref &each : large_)
        bring_home(*each, each->all());
    // Small blocks are hidden only where kernels are checked.
    if (check_ != nullptr)
        for (const auto &[base, each] : blocks_.all())
            bring_home(*each, each->all());
}

// Unmaps all blocks but the fixed ones, and those that work in flight was given
// or may find in a table. A kernel that reaches any other memory is found out.
void mover::hide_the_rest()
{
    if (!gate_.all_trusted() || !settled_)
        return;
    for (const auto &[base, each] : blocks_.all()) {
        if (gate_.may_be_found(*each) || each->moving > 0)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++)
            if (slot &one = each->slots[i];
                each->is_idle(i) && !one.away &&
                calls_.cuMemUnmap(one.at, one.bytes) == CUDA_SUCCESS)
                gate_.set_away(*each, one, true);
    }
}

// Maps all blocks, and waits for the units on their way. Those in the file stay
// there.
void mover::map_all(std::unique_lock<std::mutex> &lock)
{
    bring_all_home();
    changed_.wait(lock, [&] { return gate_.all_mapped_but(away_on_file()); });
}

// Units in the file that are mapped nowhere. One that is about to leave it may
// be mapped already.
unsigned mover::away_on_file() const
{
    unsigned count = 0;
    if (on_file_ == 0) // untrusted work asks each time
        return count;
    for (const auto &[base, each] : blocks_.all())
        for (std::size_t i = 0; each->on_file > 0 && i < each->slots.size();
             i++)
            count += each->slots[i].on_file && each->slots[i].away ? 1 : 0;
    return count;
}

bool mover::bring_one_home()
{
    for (const block_ref &each : large_)
        for (slot &one : each->slots)
            if (one.where == place::host && bring_home(*each, one))
                return true;
    return false;
}

bool mover::start_fetch(std::unique_lock<std::mutex> &lock,
                        const candidate &which)
{
    const slot &one = which.unit();
    if (one.on_file && !one.blank)
        return fetch_from_file(which);
    // The copy is read at the room's second address.
    const bool has_source = one.blank || one.host.alias != 0;
    frame into;
    std::vector<frame> gone;
    if ((!has_source && !rooms_.maps()) || !frames_.take(one.bytes, into, gone))
        return false;
    const motion_ref next = new_motion(which, stage::fetch);
    const bool copies = !one.blank;
    lock.unlock();
    const bool made = frames_.complete(into, gone, copies);
    lock_soon(lock);
    next->into = into;
    if (!made || next->event == nullptr) {
        give_back(next);
        return false;
    }
    if (has_source)
        return begin_copy(lock, next);
    pace_.disturb(); // it takes as long as the copy, once
    hand_over(*next, stage::room);
    return true;
}

// Begins to fetch a unit that has a frame, and a room with a second address.
bool mover::begin_copy(std::unique_lock<std::mutex> &lock, motion_ref which)
{
    const slot &of = which->unit();
    if (!hide(lock, *which)) {
        give_back(which);
        return false;
    }
    // From here on they count, or not, for good: see block::occupy().
    which->copies = !of.blank;
    if (!which->copies) {
        hand_over(*which, stage::remap);
        return true;
    }
    which->at = stage::fetch;
    if (begin_decoding(lock, *which))
        return true;
    const CUdeviceptr from = of.host.alias;
    const CUdeviceptr to =
        which->rehouses ? which->to.alias : which->into.alias;
    lock.unlock();
    const bool begun =
        from != 0 && to != 0 && lanes_.fetch(to, from, of.bytes, which->event);
    lock_soon(lock);
    if (!begun)
        give_back(which);
    return begun;
}

// Ends a fetch of which nothing has come.
void mover::give_back(motion_ref which)
{
    if (which->into.handle != 0)
        frames_.put(which->into);
    if (which->rehouses)
        rehoused_in_vain(*which);
    end_motion(which, place::host, false);
}

// @param spare  a unit whose room this one takes over; or null
bool mover::start_evict(const candidate &which, slot *spare)
{
    slot &one = which.unit();
    bring_home(*which.of, one); // hide() takes it away by the second address
    const motion_ref next = new_motion(which, stage::roomed);
    next->digest = digests_.take();
    if (next->event == nullptr) {
        end_motion(next, place::vram);
        return false;
    }
    if (spare != nullptr)
        one.take_room_of(*spare);
    next->done = one.host.alias != 0;
    if (!next->done) {
        pace_.disturb();
        headroom_.begin(now_ns());
        hand_over(*next, stage::room);
    }
    return true;
}

} // namespace emuv::cuda
