// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's work: its memory is there before it begins, and it is followed
// to its end.
#include "movement/mover.hpp"

#include <algorithm>
#include <cstring>

namespace emuv::cuda {

namespace {

// How long a round may stand still until it clearly should not: patient_rounds
// times as long as moving everything over a slow link.
constexpr std::uint64_t patient_rounds = 8;
constexpr std::uint64_t slow_link_bytes_per_ns = 25;
// A pause of this length is the program's own affair, and no part of a round.
constexpr std::uint64_t pause_ns = 10000000;

// How much work may wait behind the oldest in flight while memory moves: all
// work in flight keeps its blocks in place. It is enough for the program to do
// other things for a moment. One work may hold the program back for
// lead_patience_ns.
constexpr std::uint64_t max_lead_ns = 5000000;
// The same where untrusted work is among it: beside such work little time is
// left in which memory moves. So it is where memory has just begun to stand
// still, or to move again. Work may take a thousand times as long then, and all
// that waits has to be sat out.
constexpr std::uint64_t least_lead_ns = 500000;
constexpr std::uint64_t max_departed_ns = max_lead_ns / 10; // not counted
constexpr std::uint64_t lead_patience_ns = 20000000;
constexpr std::uint64_t slow_patience_ns = 1000000000; // of such work

// Lists of ended work to keep. More are made, and freed again.
constexpr std::size_t max_spare_lists = 1024;

// Adds what work touches in an allocation. In each, that is one run of units,
// from the first to the last.
void join(std::vector<touched> &all, touched reached)
{
    const auto same =
        std::find_if(all.begin(), all.end(), [&](const touched &other) {
            return other.begin == reached.begin;
        });
    if (same == all.end()) {
        all.push_back(std::move(reached));
        return;
    }
    same->given.first = std::min(same->given.first, reached.given.first);
    same->given.last = std::max(same->given.last, reached.given.last);
}

// Notes what one of the work's addresses says about what it touches.
//
// Nothing worth moving begins at the end of a block. A pointer may begin a view
// of a tensor, and then 16 need not divide it: it tells no step from another.
// @param i        which of its addresses, one in `of` or at its end
// @param reached  out: what of that block is given, as far as that is known
// @param what     in, out: identifies the work
void note_extent(const work &announced, std::uint32_t i, block &of,
                 bool is_in_it, touched &reached, std::uint64_t &what)
{
    const CUdeviceptr address = announced.addresses[i];
    const bool is_aligned = address % 16 == 0;
    if (of.small || !is_in_it || !(is_aligned || announced.pointers[i]))
        return;
    if (is_aligned)
        what = (what ^ address) * 0x9e3779b97f4a7c15u;
    reached.given = of.touched_from(address);
}

} // namespace

// The allocations that the work touches, by its addresses, each once. Work that
// may reach more is not trusted.
// @param what  out: identifies the work, with what it is given
std::vector<touched> mover::follow(work &announced, std::uint64_t &what)
{
    std::vector<touched> all;
    if (!spare_lists_.empty()) {
        all = std::move(spare_lists_.back());
        spare_lists_.pop_back();
    }
    what = announced.what;
    for (std::uint32_t i = 0; i < announced.count; i++) {
        const CUdeviceptr address = announced.addresses[i];
        const auto meant = blocks_.meant_by(address);
        if (!announced.may_go_by(i)) {
            meant.each([address](block &of) { of.give(address); });
            continue;
        }
        // The hooks that announce copies search the memory that those read.
        if (meant.around == nullptr && announced.kernel != nullptr) {
            const auto table = gate_.follow_table(address, all);
            // A proven kernel takes no address from there.
            announced.trusted =
                announced.trusted &&
                (announced.proven || table == gate::table::followed);
            if (table == gate::table::denied)
                give_up(unreadable_why);
        }
        meant.each([&](block &of) {
            if (is_end_of_given(of, address, announced))
                join(all, {of, address - 1});
            if (!reaches_memory_in(of, address, announced))
                return;
            of.give(address);
            if (announced.kernel != nullptr)
                add_next_part(of, address, all);
            touched reached(of, address);
            note_extent(announced, i, of, &of == meant.around, reached, what);
            join(all, std::move(reached));
        });
    }
    // Rounds that vary divide blocks in ever new ways. So an address that was
    // named earlier does not tell where a tensor ends.
    const std::uint64_t whole_bytes = schedule_.varies() ? share_bytes_ / 8 : 0;
    for (touched &each : all)
        if (each.knows_units() &&
            (each.bytes <= whole_bytes || reach_.to_the_end(what ^ each.begin)))
            each.given.last = each.whole.end - 1;
    return all;
}

// Notes a step in the schedule. Work that names no unit predicts nothing.
bool mover::note(std::uint64_t what, const std::vector<touched> &all)
{
    noted_.clear();
    for (const touched &each : all) {
        if (!each.knows_units())
            continue;
        if (each.of->renewed == 0) {
            noted_.push_back(each.given);
            continue;
        }
        // Units that are shared with others may not begin anew with it.
        const auto [first, end] = each.units();
        for (std::size_t i = first; i < end; i++) {
            const bool anew = std::exchange(each.of->slots[i].renewed, false);
            each.of->renewed -= anew ? 1 : 0;
            const auto at = static_cast<std::uint32_t>(i);
            if (i > first && noted_.back().anew == anew)
                noted_.back().last = at;
            else
                noted_.push_back({each.given.base, at, at, anew});
        }
    }
    return !noted_.empty() &&
           schedule_.note(what, noted_.data(), noted_.size());
}

// Learns how long its memory was idle, and foretells how long it will be.
void mover::foretell(std::uint64_t kind, const std::vector<touched> &all)
{
    if (std::none_of(all.begin(), all.end(),
                     [](const touched &each) { return each.knows_units(); }))
        return;
    reuse_.begin(kind);
    std::uint32_t which = 0;
    for (const touched &each : all) {
        which++;
        if (!each.knows_units())
            continue;
        const auto [first, end] = each.units();
        for (std::size_t i = first; i < end; i++)
            reuse_.use(each.of->marks[i].again, which);
    }
}

// True if these steps repeat a round of the program.
bool mover::recurs(const std::vector<touched> &all, std::uint64_t lag)
{
    const std::uint64_t step = schedule_.steps();
    const auto counts = [](const touched &each) {
        return !each.of->small && each.knows_units();
    };
    if (std::any_of(all.begin(), all.end(), counts))
        recurrence_.step(lag);
    for (const touched &each : all) {
        if (!counts(each))
            continue;
        const auto [first, end] = each.units();
        for (std::size_t i = first; i < end; i++) {
            use_mark &one = each.of->marks[i];
            figures_.uses(one.step, one.bytes);
            recurrence_.touches(one.bytes, one.step == 0 ? recurrence::never
                                                         : step - one.step);
            one.step = step;
        }
    }
    return recurrence_.holds();
}

// Counts the bytes that work is about to use, by their place.
void mover::count_use(const std::vector<touched> &all, bool foreseen)
{
    uses_ += all.empty() ? 0 : 1;
    std::uint64_t missed = 0;
    for (const touched &each : all) {
        const auto [first, end] = each.units();
        for (std::size_t i = first; i < end; i++) {
            use_mark &one = each.of->marks[i];
            const bool in_ram =
                each.of->in_ram > 0 && each.of->slots[i].in_ram();
            (in_ram ? unreported_.miss_bytes : unreported_.hit_bytes) +=
                one.bytes;
            missed += in_ram ? one.bytes : 0;
            one.uses.use(uses_);
            if (each.of->told > 0)
                is_used(*each.of, each.of->slots[i]);
        }
    }
    figures_.missed(missed);
    unreported_.faults += foreseen && missing_bytes(all) > 0 ? 1 : 0;
}

// True if little work may wait behind the running kernel. Its blocks cannot
// move. Only its end shows if standing still is much slower.
bool mover::keeps_near() const
{
    return schedule_.predicts() && (pace_.moves() || pace_.has_just_changed());
}

// Waits until little enough work waits behind the oldest in flight. The oldest
// may itself wait for the program: then this wait is in vain, and seldom tried
// again. If several streams have work, none waits for another.
// @return whether time has passed
bool mover::hold_back(std::unique_lock<std::mutex> &lock, CUstream stream)
{
    // This name stands for several streams, one for each thread.
    if (stream == CU_STREAM_PER_THREAD)
        return false;
    if (flights_.departed_ns() > max_departed_ns)
        in_flight();
    std::uint64_t start = 0;
    std::uint64_t since = 0;
    std::uint64_t begun = 0; // when the oldest began
    bool in_vain = false;
    while (settled_ && host_bytes_ > 0 && stands_still_briefly() &&
           keeps_near() && !gave_up_ && !stopping_ && flights_.streams() == 1 &&
           flights_.is_ahead(stream,
                             gated_.empty() && !pace_.has_just_changed()
                                 ? max_lead_ns
                                 : least_lead_ns,
                             now_ns()) &&
           for_device_.is_left(schedule_.steps())) {
        flight *const oldest = flights_.oldest(stream);
        const std::uint64_t now = now_ns();
        start = start == 0 ? now : start;
        if (oldest->begun_ns != begun) {
            begun = oldest->begun_ns;
            since = now;
        } else if (oldest->waited_for ||
                   now - since >
                       (pace_.has_just_changed()
                            ? slow_patience_ns
                            : lead_patience_ns + 2 * oldest->expected_ns)) {
            oldest->waited_for = true;
            for_device_.lose(schedule_.steps());
            in_vain = true;
            break;
        }
        changed_.wait_for(lock, lead_patience_ns / 8);
        in_flight(); // other threads may launch meanwhile
    }
    if (begun != 0 && !in_vain)
        for_device_.regain();
    if (in_vain && pace_.has_just_changed())
        pace_.paused(now_ns() - since); // that is no slowness
    if (begun != 0)
        trace_.span(trace::row::waits, "ahead", start, now_ns(), 0, 0,
                    schedule_.steps());
    return begun != 0;
}

// True if launches fetch what they name: nothing tells what is needed next, nor
// ever has.
bool mover::fetches_on_demand() const
{
    return settled_ && check_ == nullptr && !schedule_.predicts() &&
           (!planner_.has_planned() || (pace_.moves() && reuse_.tells()));
}

// Waits for the units that the work needs, as long as anything moves at all. It
// waits for small blocks, which then stay in VRAM, and for units that the
// program has asked for. While moves_ahead() holds, it waits for all other
// units, too. So it does while nothing is predicted: a fetch costs the link
// once each way, and a kernel may read in place many times.
void mover::await(std::unique_lock<std::mutex> &lock,
                  const std::vector<touched> &work)
{
    if (missing_bytes(work) == 0)
        return;
    std::vector<touched> all = work;
    const bool on_demand = fetches_on_demand();
    const bool comes = moves_ahead() || on_demand;
    std::erase_if(all, [this, comes](const touched &each) {
        return comes ? !each.says_what()
                     : !each.of->small && !is_asked_for(each);
    });
    std::uint64_t bytes = missing_bytes(all);
    if (bytes == 0 || bytes > limits_.read().physical_bytes / 2 ||
        !for_memory_.is_left(schedule_.steps()))
        return;
    has_fetched_ = has_fetched_ || on_demand;
    const std::uint64_t start = now_ns();
    wanted_ns_ = start;
    // Unmarked work may keep those units from moving.
    if (flights_.any_unmarked()) {
        lock.unlock();
        flights_.mark();
        lock_soon(lock);
        bytes = missing_bytes(all);
    }
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
    while (!gave_up_ && !stopping_ && bytes > 0) {
        to_look_.notify_all();
        changed_.wait_for(lock, 20000000);
        bytes = missing_bytes(all);
        if (hopeless_ == progress_ && bytes > 0) {
            trace_.span(trace::row::waits, "hopeless", start, now_ns(),
                        all.front().given.base, bytes, 0);
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
        // All that moves may be for other threads' work.
        if (now - since > patience_ns || now - nearer > 5 * patience_ns) {
            for_memory_.lose(schedule_.steps());
            break;
        }
    }
    waiters_--;
    version_++;
    wait(-1);
    const std::uint64_t waited_ns = now_ns() - start;
    unreported_.stalled_ns += waited_ns;
    figures_.waited(figures::cause::link, start, start + waited_ns);
    headroom_.waited(waited_ns);
    for (const touched &each : all)
        if (each.of->small)
            awaited_.erase(
                std::find(awaited_.begin(), awaited_.end(), each.of));
    trace_.span(trace::row::waits, "launch", start, now_ns(),
                all.front().given.base, bytes, 0);
}

// Lets work pass that nobody follows.
mover::admission mover::let_pass()
{
    passing_.fetch_add(1);
    return admission::passing;
}

// The same, once all is mapped.
mover::admission mover::let_pass_mapped(std::unique_lock<std::mutex> &lock)
{
    if (!bring_all_back(lock))
        return admission::refused;
    map_all(lock); // the last remap may still be under way
    return let_pass();
}

// Takes the lock for work that is about to be handed over, once its stream need
// not be held back any more.
// @return false for captured work, which does not run now: the launch of its
//   graph is announced
bool mover::enter_in_turn(std::unique_lock<std::mutex> &lock, CUstream stream,
                          CUcontext current)
{
    for (bool waited = false;; waited = true) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        if (calls_.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
            status != CU_STREAM_CAPTURE_STATUS_NONE)
            return false;
        lock = enter();
        if (waited || current != context_ || !hold_back(lock, stream))
            return true;
        lock.unlock();
    }
}

// Notes the blocks whose addresses the work may leave in memory.
void mover::note_those_left(const work &announced)
{
    for (std::uint32_t i = 0; i < announced.left; i++)
        blocks_.meant_by(announced.addresses[i]).each([this](block &of) {
            gate_.note_in_table(of);
        });
}

// Maps all blocks that tables name, and waits for units that other threads map.
// One in the file was named since bring_back(): note_table() has it come, and
// its table is not there before.
void mover::map_tables(std::unique_lock<std::mutex> &lock)
{
    const auto mapped = [this] {
        return gate_.all_mapped() ||
               std::all_of(gate_.in_tables().begin(), gate_.in_tables().end(),
                           [](const block_ref &each) {
                               return each->mapped() || each->on_file > 0;
                           });
    };
    if (mapped())
        return;
    const std::uint64_t start = now_ns();
    for (const block_ref &each : gate_.in_tables())
        bring_home(*each, each->all());
    tell_all();
    changed_.wait(lock, mapped);
    figures_.waited(figures::cause::mapping, start, now_ns());
}

// Gives the work its step in the schedule, and what the schedule knows of it.
// @return whether the step was expected
bool mover::foresee(const work &announced, std::uint64_t what, CUstream stream,
                    flight &begun)
{
    const std::uint64_t steps = schedule_.steps();
    const bool expected = check_ == nullptr && note(what, begun.blocks);
    foretell(announced.what, begun.blocks);
    begun.step = schedule_.steps() != steps ? schedule_.steps() : 0;
    begun.lag = schedule_.lag();
    if (begun.is_foreseen()) {
        begun.expected_ns = times_.of(begun.step - begun.lag);
        begun.least_ns = std::min(begun.expected_ns,
                                  times_.least_of(begun.step - begun.lag));
    }
    // CU_STREAM_PER_THREAD names a stream for each thread.
    begun.brief = announced.trusted && announced.open_ended &&
                  begun.is_foreseen() &&
                  begun.expected_ns < flights::max_unmarked_ns &&
                  stream != CU_STREAM_PER_THREAD;
    begun.recurs = recurs(begun.blocks, begun.lag);
    return expected;
}

// A pause counts once, even if several works begin before the first of them is
// in flight.
void mover::end_pause()
{
    if (const std::uint64_t since = std::exchange(idle_since_ns_, 0);
        since != 0 && now_ns() - since > pause_ns)
        pace_.paused(now_ns() - since);
}

// Records that work begins without all of its memory in VRAM.
void mover::trace_missing(const std::vector<touched> &all, bool expected)
{
    const std::uint64_t missed = trace_.is_on() ? missing_bytes(all) : 0;
    if (missed == 0)
        return;
    const std::uint64_t now = now_ns();
    trace_.span(trace::row::waits, expected ? "missed" : "not expected", now,
                now, all.front().given.base, missed, schedule_.steps());
}

// Keeps the work's blocks in place until it ends.
void mover::hold_blocks(const work &announced, std::uint64_t what,
                        std::vector<touched> &all)
{
    for (touched &each : all) {
        gate_.hold(*each.of, each.whole);
        // An allocation that is a large part of all VRAM would never be there
        // as a whole.
        const bool learns = announced.trusted && announced.open_ended &&
                            each.knows_units() && !each.of->fixed &&
                            each.bytes <= share_bytes_ / 4;
        each.work = learns ? what ^ each.begin : 0;
    }
}

// Maps all of the work's blocks, and waits for units that other threads map.
void mover::map_those(std::unique_lock<std::mutex> &lock,
                      const std::vector<touched> &all)
{
    std::uint64_t start = 0;
    for (const touched &each : all) {
        const std::uint64_t begun = each.of->away > 0 ? now_ns() : 0;
        if (bring_home(*each.of, each.whole) && start == 0)
            start = begun;
    }
    const auto mapped = [&] {
        return std::all_of(all.begin(), all.end(), [](const touched &each) {
            return each.of->mapped(each.whole);
        });
    };
    if (!mapped()) {
        const std::uint64_t begun = now_ns();
        start = start == 0 ? begun : start;
        changed_.wait(lock, mapped);
        trace_.span(trace::row::waits, "being mapped", begun, now_ns(),
                    all.front().given.base, 0, schedule_.steps());
    }
    if (start != 0)
        figures_.waited(figures::cause::mapping, start, now_ns());
}

// Has movement go on until the device comes to the untrusted work. Without a
// barrier, it goes on until the stream has nothing else to do.
void mover::gate_or_drain(std::unique_lock<std::mutex> &lock, CUstream stream,
                          flight &begun)
{
    begun.barrier = gate_untrusted(begun);
    if (begun.barrier != barriers::none)
        return;
    const std::uint64_t start = now_ns();
    drain(lock, stream);
    map_all(lock);
    figures_.waited(figures::cause::standing, start, now_ns());
}

// In a check, only the work's own memory is within its reach.
void mover::begin_check(std::unique_lock<std::mutex> &lock,
                        const work &announced)
{
    const std::uint64_t start = now_ns();
    while (preparing_ && now_ns() - start < 10 * patience_ns)
        changed_.wait_for(lock, patience_ns / 10);
    running_ = announced.kernel;
    running_proven_ = announced.trusted && announced.proven;
    hide_the_rest();
}

// Notes how much of its memory the work finds in VRAM: see learn_reach().
void mover::note_places(std::vector<touched> &all)
{
    for (touched &one : all) {
        const block &of = *one.of;
        const auto [first, end] = one.units();
        one.complete = (of.fixed ? of.ram_bytes(one.whole.first, one.whole.end)
                                 : of.ram_bytes(first, end)) == 0;
        one.beyond = one.work != 0 ? of.ram_bytes(end, one.whole.end) : 0;
    }
}

// Leaves those addresses that trust relies on which are in no allocation. Of
// one that is the end of a block and the begin of another, both are named.
// @return whether there is none
bool mover::relies_on_blocks(work &announced)
{
    std::uint32_t left = 0;
    for (std::uint32_t i = 0; announced.trusted && i < announced.base_count;
         i++) {
        const CUdeviceptr address = announced.bases[i].address;
        const auto meant = blocks_.meant_by(address);
        bool is_in_use = !meant.any();
        meant.each([&](const block &of) {
            is_in_use = is_in_use || of.is_in_use(address);
        });
        if (!is_in_use) // the driver would say that it is mapped
            announced.doubt(announced.bases[i]);
        else if (!meant.any())
            announced.bases[left++] = announced.bases[i];
    }
    announced.base_count = left;
    return left == 0;
}

// Asks the driver about them, and the system. A kernel may be given an address
// in the program's own memory that it does not use. With a loaded number added
// such an address may be anything. Once one is unknown a name decides, unless
// one of that kind is unknown, too. Not locked.
void mover::ask_about_bases(work &announced) const
{
    const auto is_known = [this](const work::base &which) {
        unsigned type = 0;
        if (calls_.cuPointerGetAttribute(&type,
                                         CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         which.address) == CUDA_SUCCESS &&
            type != 0)
            return true;
        std::vector<CUdeviceptr> word;
        return !which.is_added_to &&
               read_table(reinterpret_cast<const void *>(which.address),
                          sizeof(CUdeviceptr), word) == reading::done;
    };
    for (std::uint32_t i = 0; announced.trusted && i < announced.base_count;
         i++) {
        const work::base &each = announced.bases[i];
        if ((announced.proven || each.is_added_to) && !is_known(each))
            announced.doubt(each);
    }
    announced.base_count = 0;
}

mover::admission mover::begin(work &announced, CUstream stream, flight &begun)
{
    CUcontext current = nullptr;
    calls_.cuCtxGetCurrent(&current);
    std::unique_lock<std::mutex> lock;
    if (!enter_in_turn(lock, stream, current))
        return let_pass();
    settle_taken_back();
    if (!gave_up_ && !stopping_ && !relies_on_blocks(announced)) {
        lock.unlock();
        ask_about_bases(announced);
        if (!enter_in_turn(lock, stream, current))
            return let_pass();
    }
    if (stopping_ && on_file_ > 0)
        await_return(lock);
    // Another context's work cannot be followed from here.
    if (!gave_up_ && !stopping_ && current != context_)
        give_up("the program uses several contexts on one device");
    std::uint64_t what = 0;
    if (!gave_up_ && !stopping_)
        begun.blocks = follow(announced, what);
    if (gave_up_ || stopping_)
        return let_pass_mapped(lock);
    // From here on the lock is kept until it counts as begun: then no memory
    // goes to the file, and none is made there.
    if (!announced.trusted && !bring_all_back(lock))
        return admission::refused;
    announced.count_launch();
    begun.trusted = announced.trusted;
    begun.reads_tables =
        announced.trusted && !announced.proven && announced.kernel != nullptr;
    begun.kernel = announced.kernel;
    begun.why = announced.why;
    if (check_ != nullptr)
        check_->begins(announced);
    const bool beside = !announced.trusted && moves_beside_untrusted();
    if (!announced.trusted && !beside) {
        const std::uint64_t start = gate_.all_mapped() ? 0 : now_ns();
        begin_untrusted();
        map_all(lock);
        if (start != 0)
            figures_.waited(figures::cause::standing, start, now_ns());
    }
    note_those_left(announced);
    const bool expected = foresee(announced, what, stream, begun);
    end_pause();
    version_++;
    if (check_ == nullptr &&
        (beside || (announced.trusted && stands_still_briefly()))) {
        await(lock, begun.blocks);
        await_exchange(lock, begun.blocks);
    }
    if (!bring_back(lock, begun))
        return admission::refused;
    holding_++;
    trace_missing(begun.blocks, expected);
    hold_blocks(announced, what, begun.blocks);
    if (begun.reads_tables)
        gate_.begin_reading(any_dead_);
    map_those(lock, begun.blocks);
    if (begun.reads_tables)
        map_tables(lock);
    if (beside)
        gate_or_drain(lock, stream, begun);
    if (check_ != nullptr)
        begin_check(lock, announced);
    count_use(begun.blocks, announced.trusted && moves_ahead());
    note_places(begun.blocks);
    figures_.begins();
    holding_--;
    // The lock is let go, since the driver may wait in any call.
    lock.unlock();
    begun.event = events_.take();
    flights_.mark_before(stream, begun);
    raise_barrier(begun, stream);
    begun.begun_ns = now_ns();
    return admission::followed;
}

void mover::end(flight &&begun, CUstream stream, bool running)
{
    // Work that failed may have begun all the same.
    begun.failed = !running;
    begun.handed_over_ns = now_ns();
    const auto how = flights_.depart(stream, std::move(begun));
    figures_.handed_over();
    if (check_ != nullptr && how == flights::departure::followed) {
        await_end();
        return;
    }
    if (how == flights::departure::followed && !resting_.load())
        return; // the mover looks again in a moment
    const std::unique_lock guard = enter();
    // Movement that starts anew waits for all work that is not followed.
    if (how != flights::departure::followed) {
        if (running && how == flights::departure::lost)
            device_failed("work on a stream could not be followed", {&begun});
        ended(begun, false);
        note_emptiness();
    }
    tell_all();
}

// Takes note if the device has nothing to do. Work that is being handed over
// may run before it is in flight.
void mover::note_emptiness()
{
    const bool is_handing_over = figures_.is_handing_over();
    if (is_handing_over || !in_flight().empty())
        return;
    idle_since_ns_ = now_ns();
    figures_.empties(schedule_.steps(), idle_since_ns_);
}

// The driver answered a question about work with an error.
// @param ended  work that may have, and is not in flight any more
void mover::device_failed(const char *why,
                          const std::vector<const flight *> &ended)
{
    if (check_ != nullptr) {
        if (const CUresult error = calls_.cuCtxSynchronize();
            error != CUDA_SUCCESS)
            check_->failed(running_, running_proven_, error);
    } else if (faulted_ != nullptr &&
               std::any_of(ended.begin(), ended.end(), [this](auto each) {
                   return each->event != nullptr &&
                          calls_.cuEventQuery(each->event) ==
                              CUDA_ERROR_ILLEGAL_ADDRESS;
               })) {
        std::vector<const char *> names;
        std::uint64_t first_ns = UINT64_MAX;
        const auto suspect = [&](const flight &which) {
            first_ns = std::min(first_ns, which.begun_ns);
            if (which.trusted && which.kernel != nullptr &&
                std::none_of(names.begin(), names.end(), [&](const char *name) {
                    return std::strcmp(name, which.kernel) == 0;
                }))
                names.push_back(which.kernel);
        };
        for (const flight *each : ended)
            suspect(*each);
        in_flight().each(suspect);
        // With all memory in reach, the fault is the program's own.
        if (!names.empty() && gate_.any_out_of_reach_since(first_ns))
            faulted_(names);
    }
    give_up(why);
}

// Waits until nothing is in flight. So a forbidden access is seen to be one of
// the work that has just begun. That work may wait for the program: then this
// wait is in vain, and seldom tried again.
void mover::await_end()
{
    std::unique_lock lock = enter();
    checked_++;
    if (!for_device_.is_left(checked_))
        return;
    const std::uint64_t start = now_ns();
    waiters_++;
    while (!in_flight().empty() && !gave_up_ && !stopping_) {
        to_look_.notify_all();
        changed_.wait_for(lock, 20000000);
        if (now_ns() - start > 10 * patience_ns) {
            for_device_.lose(checked_);
            break;
        }
    }
    waiters_--;
}

void mover::stream_waits()
{
    flights_.mark_all();
}

// The work in flight, with the work that has departed since the last call.
flights &mover::in_flight()
{
    flights_.arrive();
    return flights_;
}

// @param seen  true if it is known to have ended
void mover::ended(flight &which, bool seen)
{
    for (const touched &each : which.blocks)
        gate_.let_go(*each.of, each.whole);
    if (!which.trusted)
        end_untrusted(which, seen);
    if (which.reads_tables)
        gate_.end_reading();
    which.blocks.clear();
    if (spare_lists_.size() < max_spare_lists)
        spare_lists_.push_back(std::move(which.blocks));
    events_.put(which.event);
}

// Takes note of work that has ended. Each question takes a lock of the driver
// that launches take, too. So nobody asks again at once, unless some work was
// not asked about.
// @return whether more may have ended
bool mover::retire(std::unique_lock<std::mutex> &lock)
{
    if (in_flight().empty())
        return false;
    bool failed = false;
    auto landed = flights_.land(lock, failed);
    if (failed) { // the context is lost
        std::vector<const flight *> ends;
        for (const flights::landing &each : landed)
            ends.push_back(&each.which);
        device_failed("the device reports an error", ends);
    }
    const std::uint64_t now = landed.empty() ? 0 : now_ns();
    for (flights::landing &each : landed) {
        figures_.landed(each, schedule_.steps(), now);
        for (const touched &given : each.which.blocks)
            given.of->used(given.whole);
        learn_reach(each);
        if (each.which.step != 0) {
            const bool counts = !each.which.waited_for;
            times_.add(each.which.step, counts ? each.busy_ns : 0,
                       counts ? each.least_ns : 0,
                       each.which.is_foreseen()
                           ? each.which.step - each.which.lag
                           : 0);
            keep_pace(each.which.lag, each.which.recurs);
        }
        ended(each.which, true);
        progressed();
    }
    note_emptiness();
    if (!landed.empty())
        tell_all();
    return landed.size() >= flights::asked_at_once;
}

// Learns from ended work how far it reaches.
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
        if (each.work != 0 && reach_.ended(each.work, each.beyond, *from.took))
            trace_.span(trace::row::waits, "reaches further", which.begun_ns,
                        which.begun_ns, each.of->base, each.beyond, 0);
}

// A step has ended, @p lag steps after the one that looked like it.
void mover::keep_pace(std::uint64_t lag, bool recurs)
{
    const auto now_is = [this] {
        return pace_.moves()      ? "moves from here"
               : pace_.arranges() ? "is arranged from here"
                                  : "stands still from here";
    };
    // Units are on their way to their arranged places, or not there yet.
    if (pace_.arranges() &&
        std::any_of(motions_.begin(), motions_.end(), [](const motion &each) {
            return each.at != stage::ready && !each.of->small;
        }))
        pace_.disturb();
    const char *const before = now_is();
    const std::uint64_t now = now_ns();
    // Rounds that vary are compared as well where they have as many steps.
    pace_.ended(lag, now,
                patient_rounds * (host_bytes_ + headroom::least_bytes) /
                    slow_link_bytes_per_ns,
                recurs);
    if (!pace_.arranges())
        arrangement_.forget();
    if (now_is() == before)
        return;
    headroom_.begin(now);
    trace_.span(trace::row::waits, now_is(), now, now, 0, host_bytes_, lag);
}

} // namespace emuv::cuda
