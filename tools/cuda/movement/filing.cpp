// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that has no room in system RAM: units go to the file, and come back
// before anything may touch them.
#include "movement/mover.hpp"
#include "store/mapping.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace emuv::cuda {

namespace {

// So much at a time passes through memory that the processor reads.
constexpr std::uint64_t piece_bytes = std::uint64_t{8} << 20;
// Units that come from the file ahead of their use. Each takes system RAM from
// another.
constexpr std::size_t most_ahead = 2;
// A unit that did not come ahead of its use is not tried again so soon.
constexpr std::uint64_t ahead_again_ns = 100000000;
constexpr std::uint64_t look_again_ns = 1000000;

// No errors of a file's, but of what happens around it.
constexpr int other_bytes = EBADMSG;
constexpr int not_copied = EREMOTEIO;

} // namespace

bool mover::open(filer &by) const
{
    if (calls_.cuStreamCreate(&by.stream, CU_STREAM_NON_BLOCKING) !=
            CUDA_SUCCESS ||
        calls_.cuMemHostAlloc(&by.memory, piece_bytes + file_store::alignment,
                              0) != CUDA_SUCCESS)
        return false;
    by.staging = reinterpret_cast<char *>(round_up(
        reinterpret_cast<std::uint64_t>(by.memory), file_store::alignment));
    return true;
}

void mover::close(filer &by) const
{
    if (by.memory != nullptr)
        calls_.cuMemFreeHost(by.memory);
    if (by.stream != nullptr)
        calls_.cuStreamDestroy_v2(by.stream);
    by = {};
}

// Another thread's whole work: to take units from the file, and to put others
// there for want of system RAM.
void mover::keep_file()
{
    CUcontext popped = nullptr;
    calls_.cuCtxPushCurrent_v2(context_);
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    filer by;
    if (!open(by))
        close(by); // nothing can be copied, as is told then
    std::unique_lock lock(lock_);
    while (!served_) {
        const auto awaited = std::find_if(
            recalls_.begin(), recalls_.end(),
            [](const auto &each) { return is_awaited(each.which.unit()); });
        if (awaited != recalls_.end())
            take_back(lock, by, *awaited);
        else if (!requests_.empty() && !requests_.front()->done)
            grant(lock, by, *requests_.front());
        else if (!recalls_.empty())
            take_back(lock, by, recalls_.front());
        else
            to_file_.wait_for(lock, 100000000);
    }
    for (ram_request *each : requests_)
        each->done = true;
    tell_all();
    lock.unlock();
    close(by);
    calls_.cuCtxPopCurrent_v2(&popped);
}

// Memory that is made in the file is mapped nowhere. So untrusted work ends
// first, and none begins before the block is one of ours, or is given up.
bool mover::charge_file(std::uint64_t bytes)
{
    std::unique_lock lock = enter();
    std::uint64_t seen = progress_;
    const std::uint64_t start = now_ns();
    std::uint64_t since = start;
    while (file_ != nullptr && !gave_up_ && !gate_.all_trusted() &&
           now_ns() - since < patience_for_file_ns_ &&
           now_ns() - start < most_ns_) {
        changed_.wait_for(lock, 20000000);
        if (progress_ != seen) {
            seen = progress_;
            since = now_ns();
        }
    }
    if (file_ == nullptr || gave_up_ || !gate_.all_trusted() ||
        limits_.read().virtual_free_bytes() < bytes ||
        !budget_.charge_file(device_, bytes, true))
        return false;
    making_in_file_++;
    return true;
}

void mover::uncharge_file(std::uint64_t bytes)
{
    const std::unique_lock lock = enter();
    budget_.uncharge_file(device_, bytes);
    making_in_file_--;
    tell_all();
}

// All units, if any is in the file: none of the others is to go there while
// those come.
mover::parts mover::all_parts() const
{
    parts all;
    if (on_file_ > 0)
        for (const block_ref &each : large_)
            all.emplace_back(each, each->all());
    return all;
}

// The same of some work's units.
// @param and_tables  the blocks that tables name as well
mover::parts mover::parts_of(const std::vector<touched> &all,
                             bool and_tables) const
{
    parts some;
    if (on_file_ == 0)
        return some;
    for (const touched &each : all)
        some.emplace_back(each.of, each.whole);
    if (and_tables)
        for (const block_ref &each : gate_.in_tables())
            some.emplace_back(each, each->all());
    return some;
}

// Of these units, the bytes in the file.
std::uint64_t mover::bytes_on_file(const parts &all)
{
    std::uint64_t sum = 0;
    for (const auto &[of, those] : all)
        for (std::size_t i = those.first; of->on_file > 0 && i < those.end; i++)
            sum += of->slots[i].on_file ? of->slots[i].bytes : 0;
    return sum;
}

// True if all memory together has no room for these units.
bool mover::are_too_many(const parts &all) const
{
    std::vector<const slot *> units;
    for (const auto &[of, those] : all)
        for (std::size_t i = those.first; i < those.end; i++)
            units.push_back(&of->slots[i]);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    std::uint64_t sum = 0;
    for (const slot *each : units)
        sum += each->bytes;
    const usage now = limits_.read();
    return sum > now.physical_bytes + now.virtual_bytes - now.file_bytes;
}

// True if emuv-filer is there, or will be.
bool mover::is_served() const
{
    return files_ || (preparing_ && !stopping_);
}

// A context that is about to end may stay, and movement in it goes on then.
// Waits for what becomes of it.
// @return false where movement does not go on, and memory is in the file
bool mover::await_return()
{
    std::unique_lock lock = enter();
    await_return(lock);
    if (active() || on_file_ == 0)
        return true;
    tell_of_lack(on_file_bytes_);
    return false;
}

void mover::await_return(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t start = now_ns();
    while (ending_it_ > 0 && !gave_up_ && now_ns() - start < most_ns_)
        changed_.wait_for(lock, 20000000);
}

// Waits until none of these units is in the file: what goes on next needs them
// mapped. None goes there meanwhile. One thread at a time: two would keep each
// other's units from making way.
// @param tells  whether work is refused if they do not come
// @return false where they cannot come back: there is no room for them, or the
//   file fails. They stay there, then.
bool mover::bring_back(std::unique_lock<std::mutex> &lock, const parts &all,
                       bool tells)
{
    if (on_file_ == 0 || bytes_on_file(all) == 0)
        return true;
    const std::uint64_t start = now_ns();
    mark_all(lock);
    bool comes = !are_too_many(all);
    std::uint64_t since = start;
    for (std::uint64_t seen = progress_; comes && is_bringing_ && is_served();
         comes = now_ns() - since < most_ns_) {
        changed_.wait_for(lock, 20000000);
        if (std::exchange(seen, progress_) != progress_)
            since = now_ns();
    }
    if (comes && !is_bringing_) {
        is_bringing_ = true;
        await_from_file(lock, all);
        is_bringing_ = false;
        tell_all();
    }
    const std::uint64_t left = bytes_on_file(all);
    const std::uint64_t end = now_ns();
    figures_.waited(figures::cause::link, start, end);
    trace_.span(trace::row::waits, "file", start, end, all.front().first->base,
                left, schedule_.steps());
    if (left > 0 && tells)
        tell_of_lack(left);
    else if (left == 0)
        told_of_refusal_ = false;
    return left == 0;
}

// The same for work. While it waits, another thread may copy a table that names
// more.
bool mover::bring_back(std::unique_lock<std::mutex> &lock, const flight &of)
{
    while (on_file_ > 0) {
        const parts needed = parts_of(of.blocks, of.reads_tables);
        if (bytes_on_file(needed) == 0)
            break;
        if (!bring_back(lock, needed))
            return false;
    }
    return true;
}

// Has these units come, as long as that may be. Earlier work that nobody
// followed ends before any can.
void mover::await_from_file(std::unique_lock<std::mutex> &lock,
                            const parts &all)
{
    const auto each_unit = [&all](auto use) {
        for (const auto &[of, those] : all)
            for (std::size_t i = those.first; i < those.end; i++)
                use(of, i, of->slots[i]);
    };
    each_unit([](const block_ref &, std::size_t, slot &one) {
        one.kept++;
        one.no_way = false;
    });
    const std::uint64_t start = now_ns();
    bool failed = false;
    while (bytes_on_file(all) > 0 && !failed && is_served()) {
        each_unit([&](const block_ref &of, std::size_t i, const slot &one) {
            failed = failed || (one.on_file && one.no_way);
            if (one.on_file && !one.no_way)
                ask_back({of, i, 0});
        });
        failed = failed || (preparing_ && now_ns() - start > most_ns_);
        if (!failed)
            changed_.wait_for(lock, 20000000);
    }
    each_unit([](const block_ref &, std::size_t, slot &one) { one.kept--; });
    if (failed)
        forget_recalls();
}

// Says that work is refused. Once for each time in a row.
void mover::tell_of_lack(std::uint64_t bytes)
{
    if (std::exchange(told_of_refusal_, true))
        return;
    char text[256];
    std::snprintf(text, sizeof text,
                  "work is refused as out of memory: %s that it needs are in "
                  "the file, and cannot come back%s; nothing is lost",
                  show_size(bytes).text,
                  preparing_ ? " while a stream is captured, or work runs that "
                               "began before"
                             : " to system RAM");
    tell_of_tier_(text);
}

// Waits until no memory at all is in the file. Blocks may come to be there
// while others come from there.
bool mover::bring_all_back(std::unique_lock<std::mutex> &lock)
{
    std::uint64_t since = now_ns();
    std::uint64_t seen = progress_;
    while (making_in_file_ > 0 || on_file_ > 0) {
        if (std::exchange(seen, progress_) != progress_)
            since = now_ns();
        if (now_ns() - since > most_ns_) {
            tell_of_lack(on_file_bytes_);
            return false;
        }
        if (making_in_file_ > 0)
            changed_.wait_for(lock, 20000000);
        else if (!bring_back(lock, all_parts()))
            return false;
    }
    return true;
}

// Unmarked work would keep units from leaving for good.
void mover::mark_all(std::unique_lock<std::mutex> &lock)
{
    if (!flights_.any_unmarked())
        return;
    lock.unlock();
    flights_.mark();
    lock_soon(lock);
}

// Has a unit come from the file, unless it is on its way.
void mover::ask_back(const candidate &which)
{
    slot &one = which.unit();
    to_file_.notify_all();
    if (recall_of(one) != nullptr || !one.on_file || one.where != place::host)
        return; // it is on its way, or about to be made in VRAM
    recalls_.push_back({which});
    one.no_way = false;
    which.of->put(one, place::fetching);
    one.rehoused = true;
    gate_.begin_move(*which.of, which.index, false);
}

// @return null where it is not to come
mover::recall *mover::recall_of(const slot &one)
{
    const auto found = std::find_if(
        recalls_.begin(), recalls_.end(),
        [&one](const recall &each) { return &each.which.unit() == &one; });
    return found != recalls_.end() ? &*found : nullptr;
}

// True if somebody waits for a unit in the file.
bool mover::is_awaited(const slot &one)
{
    return one.kept > 0 || one.waiting > 0;
}

// Units that nobody waits for stay in the file, unless one comes just now.
void mover::forget_recalls()
{
    std::erase_if(recalls_, [this](const recall &each) {
        slot &one = each.which.unit();
        if (each.begun || (is_awaited(one) && is_served()))
            return false;
        each.which.of->put(one, place::host);
        one.rehoused = false;
        gate_.end_move(*each.which.of, one);
        return true;
    });
    tell_all();
}

// Has a unit come to system RAM from where it is fetched next.
// @return whether it is on its way now
bool mover::fetch_from_file(const candidate &which)
{
    if (!files_ || recalls_.size() >= most_ahead ||
        (which.unit().no_way && now_ns() < recall_after_ns_))
        return false;
    ask_back(which);
    pace_.disturb();
    return true;
}

// Waits for system RAM to come free. Not for emuv-filer itself.
// @param waits  for work that keeps units from leaving
bool mover::ask_for_ram(std::unique_lock<std::mutex> &lock, std::uint64_t bytes,
                        bool waits)
{
    ram_request mine{bytes, waits};
    if (waits)
        mark_all(lock);
    if (!files_)
        return false;
    requests_.push_back(&mine);
    to_file_.notify_all();
    // emuv-filer has it in hand, and answers all before it ends.
    while (!mine.done)
        changed_.wait_for(lock, 20000000);
    std::erase(requests_, &mine);
    to_file_.notify_all(); // for the next one
    return mine.granted;
}

// Makes a room, for which others may go to the file. Not locked.
bool mover::make_room(std::unique_lock<std::mutex> &lock, std::uint64_t bytes,
                      room &made)
{
    // Coded copies of others are worth less.
    if (packed_.is_asked_for() && made.handle == 0 &&
        limits_.read().memory_free_bytes() < bytes) {
        enter(lock);
        packed_.drop(bytes);
        lock.unlock();
    }
    if (file_ == nullptr)
        return rooms_.make(bytes, made);
    if (rooms_by_file_.make(bytes, made))
        return true;
    enter(lock);
    const bool granted = ask_for_ram(lock, bytes, false);
    lock.unlock();
    // The last one notes that there is no room.
    return (granted && rooms_by_file_.make(bytes, made)) ||
           rooms_.make(bytes, made);
}

void mover::grant(std::unique_lock<std::mutex> &lock, const filer &by,
                  ram_request &wish)
{
    std::uint64_t freed = 0;
    while (freed < wish.bytes) {
        const std::uint64_t some =
            free_ram(lock, by, 0, [&wish] { return wish.waits; });
        if (some == 0)
            break;
        freed += some;
    }
    wish.granted = freed >= wish.bytes;
    wish.done = true;
    tell_all();
}

// Frees system RAM of one unit: an idle room's, or that of a unit that goes to
// the file.
// @param later_than  only of a unit that is used later than that
// @param waits  tells whether to wait for work that keeps units from leaving
// @return bytes; 0 where none can be had
template <typename Waits>
std::uint64_t mover::free_ram(std::unique_lock<std::mutex> &lock,
                              const filer &by, std::uint64_t later_than,
                              Waits waits)
{
    std::uint64_t seen = progress_;
    const std::uint64_t start = now_ns();
    std::uint64_t since = start;
    for (;;) {
        // Coded copies are worth less than what comes.
        if (const std::uint64_t bytes = packed_.drop(max_moving_bytes);
            bytes > 0)
            return bytes;
        if (const std::uint64_t bytes = drop_idle_room(later_than); bytes > 0)
            return bytes;
        const auto next = find_to_file(later_than);
        if (next) {
            const std::uint64_t bytes = next->unit().bytes;
            if (put_on_file(lock, by, *next))
                return bytes;
            if (file_is_stuck_)
                return 0;
        }
        if (progress_ != seen) {
            seen = progress_;
            since = now_ns();
        }
        const std::uint64_t now = now_ns();
        // Work that called off one on its way may have ended by now.
        const bool in_vain = !next && is_quiet();
        if (!waits() || in_vain || served_ || stopping_ || gave_up_ ||
            now - since > patience_for_file_ns_ || now - start > most_ns_)
            return 0;
        // A motion that waits for system RAM ends in vain, and lets its unit
        // go.
        for (ram_request *each : requests_)
            each->done = each->done || !each->waits;
        tell_all();
        changed_.wait_for(lock, look_again_ns);
    }
}

// True if nothing keeps units where they are, and is about to end.
bool mover::is_quiet()
{
    return in_flight().empty() && motions_.empty() && waiters_ == 0 &&
           holding_ == 0 && !figures_.is_handing_over();
}

// Gives up the room of a unit in VRAM, of the one that is used last.
// @return its bytes; 0 where there is none
std::uint64_t mover::drop_idle_room(std::uint64_t later_than)
{
    slot *last = nullptr;
    std::uint64_t last_use = later_than;
    for (const block_ref &each : large_)
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            slot &one = each->slots[i];
            if (!one.has_idle_room() || !one.host.charged || one.host.peer >= 0)
                continue;
            const std::uint64_t use = next_use_of(*each, i);
            if (use >= last_use) {
                last = &one;
                last_use = use;
            }
        }
    if (last == nullptr)
        return 0;
    rooms_.drop(last->bytes, last->host);
    last->room_is_known = false;
    version_++;
    return last->bytes;
}

// The unit in system RAM that is used last, of those that may leave. If
// nothing tells, it is the one that was used first.
std::optional<candidate> mover::find_to_file(std::uint64_t later_than)
{
    std::optional<candidate> last;
    std::uint64_t last_step = 0;
    for (const block_ref &each : large_) {
        if (each->fixed || each->in_table)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            if (one.where != place::host || one.on_file || !one.host.charged ||
                one.host.peer >= 0 || one.waiting > 0 || one.kept > 0 ||
                one.pins > 0)
                continue;
            candidate found{each, i, next_use_of(*each, i)};
            const std::uint64_t step = each->marks[i].step;
            if (found.next_use < later_than || must_stay(found) ||
                (last &&
                 (found.next_use < last->next_use ||
                  (found.next_use == last->next_use && step >= last_step))))
                continue;
            last = std::move(found);
            last_step = step;
        }
    }
    return last;
}

// Puts a unit from its room into the file, and gives the room up. As with all
// that moves, it is out of reach before it is read.
// @return false if it stays where it was
bool mover::put_on_file(std::unique_lock<std::mutex> &lock, const filer &by,
                        const candidate &which)
{
    slot &one = which.unit();
    block &of = *which.of;
    file_is_stuck_ = !budget_.charge_file(device_, one.bytes, false);
    if (file_is_stuck_)
        return false;
    const std::uint64_t start = now_ns();
    const bool was_away = one.away;
    motion leaving;
    leaving.of = which.of;
    leaving.index = which.index;
    of.put(one, place::fetching);
    one.rehoused = true;
    gate_.begin_move(of, which.index, stopping_ || gave_up_);
    bool safe = true;
    if (one.host.alias == 0) {
        const auto handle = one.host.handle;
        lock.unlock();
        const CUdeviceptr made = map_alias(calls_, handle, one.bytes, device_);
        lock_soon(lock);
        one.host.alias = made;
        safe = made != 0;
    }
    safe = safe && hide(lock, leaving);
    // From here on its contents count, or not, for good: see block::occupy().
    const bool copies = safe && !one.blank;
    const std::uint64_t number = copies ? file_->take(one.bytes) : 0;
    int error = 0;
    if (copies) {
        const CUdeviceptr from = one.host.alias;
        lock.unlock();
        error =
            number == 0 ? ENOSPC : write_to_file(by, from, one.bytes, number);
        enter(lock);
    }
    const bool stays_put = may_move(leaving);
    const bool leaves = safe && error == 0 && stays_put;
    of.put(one, place::host);
    one.rehoused = false;
    gate_.end_move(of, one);
    if (leaves) {
        room gone = std::exchange(one.host, {});
        one.file = number;
        note_on_file(of, one);
        rooms_.drop(one.bytes, gone);
        write_error_ = copies ? 0 : write_error_;
        figures_.filed({0, copies ? one.bytes : 0});
        trace_.span(trace::row::to_ram, copies ? "to file" : "drop to file",
                    start, now_ns(), one.at, one.bytes, which.next_use);
        progressed();
    } else {
        file_->give(number);
        budget_.uncharge_file(device_, one.bytes);
        if (one.away && (!was_away || must_stay(which)))
            bring_home(of, one);
        // Or the driver refuses, and would again.
        file_is_stuck_ = error != 0 || (!safe && stays_put);
        if (error != 0)
            tell_of_file(error, true);
        version_++;
    }
    tell_all();
    return leaves;
}

// Takes a unit from the file, to a new room. If system RAM has none, it comes
// to VRAM that is free. Nothing is mapped at its address.
void mover::take_back(std::unique_lock<std::mutex> &lock, const filer &by,
                      recall &next)
{
    next.begun = true;
    const candidate which = next.which;
    slot &one = which.unit();
    block &of = *which.of;
    const std::uint64_t start = now_ns();
    room made;
    frame into;
    bool has_room = false;
    bool has_frame = false;
    for (;;) {
        std::vector<frame> gone;
        lock.unlock();
        has_room = rooms_by_file_.make(one.bytes, made);
        enter(lock);
        if (!has_room && wanted_bytes_ == 0 &&
            frames_.take(one.bytes, into, gone)) {
            lock.unlock();
            has_frame = frames_.complete(into, gone, true);
            enter(lock);
        }
        // Ahead of its use, it takes the place of what is used later. The next
        // uses may be foretold in another way by now.
        const std::uint64_t use =
            is_awaited(one) ? 0 : next_use_of(of, which.index);
        if (has_room || has_frame ||
            free_ram(lock, by, use, [&one] { return is_awaited(one); }) == 0)
            break;
    }
    const bool comes = has_room || has_frame;
    const bool copies = comes && !one.blank;
    int error = 0;
    if (copies) {
        const std::uint64_t number = one.file;
        const CUdeviceptr to = has_room ? made.alias : into.alias;
        lock.unlock();
        error = read_from_file(by, to, one.bytes, number);
        if (error != 0) // once more: what the device holds may yet be right
            error = read_from_file(by, to, one.bytes, number);
        enter(lock);
    }
    std::erase_if(recalls_, [&one](const recall &each) {
        return &each.which.unit() == &one;
    });
    of.put(one, place::host);
    one.rehoused = false;
    gate_.end_move(of, one);
    if (comes && error == 0) {
        leave_file(of, one);
        read_error_ = copies ? 0 : read_error_;
        one.host = made;
        lent_bytes_ += made.peer >= 0 ? one.bytes : 0;
        if (has_frame) {
            of.put(one, place::vram);
            host_bytes_ -= one.bytes;
            one.vram = into.handle;
            one.vram_alias = into.alias;
            one.room_is_known = one.exposed = one.made = false;
            of.has_come(one);
            arrived_++;
            bring_home(of, one);
        }
        figures_.filed({copies ? one.bytes : 0, 0});
        trace_.span(trace::row::to_vram, copies ? "from file" : "make room",
                    start, now_ns(), one.at, one.bytes, which.next_use);
        progressed();
    } else {
        if (has_room)
            rooms_.drop(one.bytes, made);
        if (has_frame)
            frames_.put(into);
        one.no_way = true;
        recall_after_ns_ = now_ns() + ahead_again_ns;
        if (error != 0)
            tell_of_file(error, false);
        version_++;
    }
    tell_all();
}

bool mover::copy(const filer &by, CUdeviceptr to, CUdeviceptr from,
                 std::uint64_t bytes) const
{
    return by.staging != nullptr &&
           calls_.cuMemcpyAsync(to, from, bytes, by.stream) == CUDA_SUCCESS &&
           calls_.cuStreamSynchronize(by.stream) == CUDA_SUCCESS;
}

// Not locked.
// @return 0 or an errno
int mover::write_to_file(const filer &by, CUdeviceptr from, std::uint64_t bytes,
                         std::uint64_t number) const
{
    content_digest sum;
    for (std::uint64_t at = 0; at < bytes; at += piece_bytes) {
        const std::uint64_t next = std::min(bytes - at, piece_bytes);
        if (!copy(by, reinterpret_cast<CUdeviceptr>(by.staging), from + at,
                  next))
            return not_copied;
        sum.add(by.staging, next);
        if (const int error = file_->write(number, at, by.staging, next);
            error != 0)
            return error;
    }
    file_->note(number, sum.sum());
    return 0;
}

// Not locked. The room has nothing that counts before all of it is right.
// @return 0 or an errno
int mover::read_from_file(const filer &by, CUdeviceptr to, std::uint64_t bytes,
                          std::uint64_t number) const
{
    content_digest sum;
    for (std::uint64_t at = 0; at < bytes; at += piece_bytes) {
        const std::uint64_t next = std::min(bytes - at, piece_bytes);
        if (const int error = file_->read(number, at, by.staging, next);
            error != 0)
            return error;
        sum.add(by.staging, next);
        if (!copy(by, to + at, reinterpret_cast<CUdeviceptr>(by.staging), next))
            return not_copied;
    }
    return sum.sum() == file_->noted(number) ? 0 : other_bytes;
}

// The unit has no room from here on, and is charged to the file. A digest of
// its former room says nothing of the next one.
void mover::note_on_file(block &of, slot &one)
{
    one.on_file = true;
    one.room_is_known = false;
    one.no_way = false;
    of.on_file++;
    on_file_++;
    on_file_bytes_ += one.bytes;
}

// Its bytes in the file, if it has any, are of no use any more.
void mover::leave_file(block &of, slot &one)
{
    file_->give(std::exchange(one.file, 0));
    budget_.uncharge_file(device_, one.bytes);
    one.on_file = false;
    of.on_file--;
    on_file_--;
    on_file_bytes_ -= one.bytes;
}

// Once for each error in a row.
void mover::tell_of_file(int error, bool writing)
{
    if (std::exchange(writing ? write_error_ : read_error_, error) == error)
        return;
    char text[256];
    if (error == other_bytes)
        std::snprintf(text, sizeof text,
                      "THE FILE HAS OTHER BYTES THAN WERE WRITTEN: work that "
                      "needs them is refused as out of memory");
    else
        std::snprintf(text, sizeof text,
                      writing ? "the file cannot be written: %s; memory stays "
                                "in system RAM"
                              : "the file cannot be read: %s; work that needs "
                                "that memory is refused as out of memory",
                      error == not_copied ? "the driver copies no more"
                                          : std::strerror(error));
    tell_of_tier_(text);
}

} // namespace emuv::cuda
