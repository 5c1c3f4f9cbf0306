// SPDX-License-Identifier: LGPL-2.1-or-later
// Moves units between VRAM and system RAM, ahead of their use: the blocks, and
// the thread that moves their units.
#include "movement/mover.hpp"

#include "base/captures.hpp"
#include "store/mapping.hpp"

#include <algorithm>

#include <sys/prctl.h>

namespace emuv::cuda {

namespace {

// For motions, which take them with the lock.
constexpr std::size_t spare_events = 32;
constexpr std::uint64_t rest_after_ns = 10000000;
constexpr std::uint64_t report_after_ns = 100000000;
// How long the end of a process waits for work that may never end.
constexpr std::uint64_t leave_after_ns = 2000000000;
// So long nothing moves once memory has found its places.
constexpr std::uint64_t at_rest_ns = 1000000000;

} // namespace

mover::mover(const options &asked)
    : calls_(asked.calls), budget_(asked.shares), device_(asked.device),
      limits_(budget_.ledger_of(device_)),
      unmaps_(asked.unmaps && asked.checked == nullptr), trace_(asked.record),
      tell_(asked.tell), faulted_(asked.faulted), check_(asked.checked),
      file_(unmaps_ ? asked.file : nullptr), tell_of_tier_(asked.tell_of_tier),
      patience_for_file_ns_(asked.patience_for_file_ns),
      most_ns_(6 * patience_for_file_ns_), gate_(blocks_, asked.host),
      pace_(asked.always && asked.checked == nullptr), flights_(calls_),
      barriers_(calls_), frames_(calls_, budget_, device_),
      rooms_(calls_, budget_, device_),
      rooms_by_file_(calls_, budget_, device_, 0), events_(calls_),
      digests_(calls_),
      packed_(calls_, budget_, device_, unmaps_ ? asked.packed_bytes : 0),
      figures_(asked.page), lanes_(calls_)
{}

mover::~mover()
{
    stop(nullptr);
}

void mover::add(CUdeviceptr base, std::uint64_t bytes, CUcontext context,
                const std::vector<unit> &units, std::size_t first_host,
                const std::vector<std::uint64_t> &tokens)
{
    const block_ref made(new block);
    made->base = base;
    made->bytes = bytes;
    // Frameworks keep many small tensors in smaller blocks, at ever new
    // addresses, and every kernel reads them again. Such blocks come to VRAM at
    // their first use, and stay.
    made->small = bytes < least_moving_bytes;
    made->slots.reserve(units.size());
    std::uint64_t host = 0;
    std::uint64_t lent = 0;
    for (std::size_t i = 0; i < units.size(); i++) {
        slot next;
        next.at = units[i].at;
        next.bytes = units[i].bytes;
        if (i < first_host) {
            next.where = place::vram;
            next.vram = units[i].handle;
        } else {
            next.host.handle = units[i].handle;
            next.host.peer = units[i].peer;
            next.host.charged = !tokens.empty();
            next.host.token = tokens.empty() ? 0 : tokens[i - first_host];
            host += next.bytes;
            lent += units[i].peer >= 0 ? next.bytes : 0;
        }
        made->add(next);
    }
    const bool is_in_file = file_ != nullptr && first_host < units.size() &&
                            units.back().handle == 0;
    const std::lock_guard guard(lock_);
    making_in_file_ -= is_in_file ? 1 : 0;
    if (is_in_file && !std::exchange(told_of_use_, true))
        tell_of_tier_("VRAM and system RAM have no room: memory lies in the "
                      "file from here on, and comes back before its use");
    for (use_mark &each : made->marks)
        each.uses.use(uses_); // a new block counts as used
    made->lots.front().identity = ++last_identity_;
    note_made(base);
    blocks_.add(made);
    for (std::size_t i = first_host; i < units.size(); i++)
        if (!units[i].mapped)
            add_hidden(*made, made->slots[i]);
    if (!made->small)
        large_.push_back(made);
    host_bytes_ += host;
    lent_bytes_ += lent;
    if ((host > 0 || check_ != nullptr) && !active() && !gave_up_)
        start(context);
    tell_all();
}

// Nobody has written to the unit, nor can before it is mapped.
void mover::add_hidden(block &of, slot &one)
{
    one.blank = true;
    gate_.set_away(of, one, true);
    if (one.host.handle == 0) {
        one.host = {};
        note_on_file(of, one);
        return;
    }
    one.gets_dirty = true;
    of.is_new = true;
    if (of.small || !may_hide_new()) // or no more, since a moment ago
        bring_home(of, one);
}

bool mover::takes_hidden()
{
    const std::unique_lock lock = enter();
    return active() && may_hide_new();
}

// New memory may be mapped nowhere while that which is evicted is.
bool mover::may_hide_new() const
{
    return unmaps_ && !stopping_ && !gave_up_ && !is_untrusted_about() &&
           fetches_on_demand();
}

bool mover::remove(CUdeviceptr base, remains &left)
{
    std::unique_lock lock(lock_);
    const block_ref gone = blocks_.remove(base);
    if (!gone)
        return false;
    std::erase(large_, gone);
    forget_taken_back(*gone);
    std::erase_if(made_last_,
                  [base](const made_by &each) { return each.base == base; });
    gate_.forget(*gone);
    for (const slot &each : gone->slots)
        vacant_ -= each.lots == 0 ? 1 : 0;
    schedule_.forget(base);
    hold_still(*gone);
    forget_advice(*gone, gone->all());
    if (gone->moving > 0) // other threads may wait for all of it
        bring_home(*gone, gone->all());
    changed_.wait(lock, [&] { return gone->moving == 0; });
    for (slot &each : gone->slots) {
        unit next{.at = each.at, .bytes = each.bytes};
        const bool in_vram = each.where == place::vram;
        next.handle = in_vram ? each.vram : each.host.handle;
        unmap_alias(calls_, each.vram_alias, each.bytes);
        packed_.give(each.coded);
        if (in_vram) {
            left.physical_bytes += each.bytes;
            if (each.host.handle != 0)
                rooms_.drop(each.bytes, each.host);
        } else {
            host_bytes_ -= each.bytes;
            lent_bytes_ -= each.host.peer >= 0 ? each.bytes : 0;
            unmap_alias(calls_, each.host.alias, each.bytes);
            if (each.on_file)
                leave_file(*gone, each);
            if (each.host.charged)
                left.charges.push_back({each.bytes, each.host.token});
        }
        left.units.push_back(next);
        left.host.push_back(!in_vram);
        left.away.push_back(each.away);
        // Work may still hold the block, and must not bring home a unit that is
        // gone.
        if (each.away)
            gate_.set_away(*gone, each, false);
    }
    tell_all();
    return true;
}

void mover::vacate(CUdeviceptr at)
{
    const std::unique_lock lock = enter();
    block *const of = blocks_.around(at);
    if (of == nullptr)
        return;
    if (of->divided == division::by_program)
        unite(*of);
    if (lot &freed = of->lot_at(at); !freed.vacant)
        vacate(*of, freed, !gated_.empty());
}

// Work that waits at a barrier has not said what it reads.
void mover::vacate(block &of, lot &freed, bool read)
{
    const segment those = of.units_of(freed);
    freed.identity = ++last_identity_;
    vacant_ += of.vacate(freed, read);
    forget_advice(of, those);
    version_++;
}

void mover::occupy(CUdeviceptr at, std::uint64_t bytes)
{
    const std::unique_lock lock = enter();
    block *const of = blocks_.around(at);
    if (of == nullptr || !of->lot_at(at).vacant)
        return;
    vacant_ -=
        of->occupy(at - of->base, at - of->base + bytes, ++last_identity_);
    version_++;
}

block_ref mover::block_of(CUdeviceptr address)
{
    block *const found = blocks_.around(address);
    return found != nullptr ? block_ref(found) : block_ref();
}

bool mover::fix(CUdeviceptr address)
{
    std::unique_lock lock(lock_);
    std::vector<block_ref> found;
    blocks_.meant_by(address).each([&](block &of) { found.emplace_back(&of); });
    parts whole;
    for (const block_ref &each : found) {
        hold_still(*each);
        whole.emplace_back(each, each->all());
    }
    // Units that cannot come are refused to the work that needs them. While the
    // caller captures a stream, none may come before the end of that.
    if (!preparing_ || open_captures.load() == 0)
        bring_back(lock, whole);
    for (const block_ref &each : found)
        bring_home(*each, each->all());
    // Motions are called off, and the blocks are mapped meanwhile: a motion's
    // end may wait for the caller.
    for (const block_ref &each : found)
        changed_.wait(lock,
                      [&] { return each->mapped() || each->on_file > 0; });
    return std::all_of(found.begin(), found.end(),
                       [](const block_ref &each) { return each->mapped(); });
}

// @param lacks_room  out: its memory cannot come from the file
std::pair<block_ref, segment> mover::hold(CUdeviceptr address, bool &lacks_room)
{
    if (!active())
        return {};
    std::unique_lock lock = enter();
    block_ref found = block_of(address);
    if (!found)
        return {};
    const segment those = found->units_of(found->lot_at(address));
    if (!bring_back(lock, parts{{found, those}})) {
        lacks_room = true;
        return {};
    }
    gate_.hold_as_is(*found, those);
    holding_++;
    version_++;
    bring_home(*found, those);
    changed_.wait(lock, [&] { return found->mapped(those); });
    return {found, those};
}

void mover::let_go(block &held, const segment &those)
{
    const std::unique_lock lock = enter();
    gate_.let_go(held, those);
    holding_--;
    version_++;
    tell_all();
}

std::optional<stretch> mover::stretch_at(CUdeviceptr address)
{
    const std::unique_lock lock = enter();
    const block_ref of = block_of(address);
    if (!of)
        return {};
    // A motion that can no longer be called off ends in a moment.
    const auto in_ram = [&](const slot &one) {
        for (const motion &each : motions_)
            if (&each.unit() == &one && each.at == stage::remapped && each.done)
                return each.evicts || each.rehouses;
        return one.in_ram();
    };
    auto at =
        std::find_if(of->slots.begin(), of->slots.end(), [&](const slot &each) {
            return address - each.at < each.bytes;
        });
    if (at == of->slots.end())
        return {};
    stretch out;
    out.in_ram = in_ram(*at);
    out.left = of->bytes - (address - of->base);
    while (at != of->slots.end() && in_ram(*at) == out.in_ram)
        ++at;
    out.bytes = at != of->slots.end() ? at->at - address : UINT64_MAX;
    return out;
}

void mover::note_table(const std::vector<CUdeviceptr> &words)
{
    std::unique_lock lock = enter();
    if (blocks_.empty() || gave_up_)
        return;
    std::vector<block_ref> found;
    for (const CUdeviceptr word : words)
        gate_.each_unsettled(word, [&](block &of) {
            gate_.note_in_table(of);
            found.emplace_back(&of);
        });
    // Work in flight may read the table as soon as it is there.
    if (found.empty() || !gate_.is_read())
        return;
    tell_all();
    parts whole;
    for (const block_ref &each : found)
        whole.emplace_back(each, each->all());
    bring_back(lock, whole);
    for (const block_ref &each : found)
        bring_home(*each, each->all());
    // Once nothing may read it any more, they may leave again. The wait for
    // those that cannot come from the file has an end.
    const std::uint64_t start = now_ns();
    for (const block_ref &each : found)
        while (!each->mapped() && gate_.is_read() &&
               (each->on_file == 0 || now_ns() - start < most_ns_))
            changed_.wait_for(lock, 20000000);
}

bool mover::any_is_address(const std::vector<CUdeviceptr> &words)
{
    const std::unique_lock lock = enter();
    return std::any_of(words.begin(), words.end(), [this](CUdeviceptr word) {
        return gate_.is_address(word);
    });
}

void mover::hold_still(block &of)
{
    gate_.fix(of);
    tell_all();
}

void mover::fix_all(const char *why)
{
    std::unique_lock lock(lock_);
    give_up(why);
    bring_back(lock, all_parts());
    map_all(lock);
}

void mover::shed()
{
    std::unique_lock lock(lock_);
    each_spare_room([this](slot &one) {
        rooms_.drop(one.bytes, one.host);
        one.room_is_known = false;
    });
    packed_.drop(UINT64_MAX);
    if (files_)
        if (const usage now = limits_.read();
            now.virtual_free_bytes() > 0 &&
            now.memory_free_bytes() < max_moving_bytes)
            ask_for_ram(lock, max_moving_bytes, true);
    version_++;
    give_up_buffers();
    frames_.drop();
}

void mover::give_back_rooms(int peer)
{
    const std::lock_guard guard(lock_);
    version_++;
    // New rooms are made elsewhere meanwhile.
    budget_.avoid(device_, lent_mark | static_cast<std::uint64_t>(peer));
    each_spare_room([this, peer](slot &one) {
        if (one.host.peer != peer)
            return;
        rooms_.drop(one.bytes, one.host);
        one.room_is_known = false;
    });
    called_back_ |= bit_of(peer);
    tell_all();
}

std::uint64_t mover::spare_bytes()
{
    const std::unique_lock lock = enter();
    std::uint64_t sum = frames_.bytes() + packed_.held_bytes();
    each_spare_room([&](const slot &one) { sum += one.bytes; });
    return sum;
}

// Under the lock. A unit in VRAM needs no room in system RAM until it leaves.
template <typename Call>
void mover::each_spare_room(Call call)
{
    for (const auto &[base, each] : blocks_.all()) {
        if (each->moving > 0)
            continue;
        for (slot &one : each->slots)
            if (one.where == place::vram && one.host.charged)
                call(one);
    }
}

// Reports the counters, now and then.
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

// Publishes where the time goes, for those who look on.
void mover::publish(std::uint64_t now)
{
    if (!figures_.is_due(now) || gave_up_)
        return;
    const treatment is = check_ != nullptr  ? treatment::still
                         : pace_.arranges() ? treatment::arranged
                         : pace_.moves()    ? treatment::moving
                                            : treatment::still;
    figures_.publish({is, host_bytes_, lent_bytes_, on_file_bytes_, large_},
                     now);
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

// Something has changed that others may wait for.
void mover::tell_all()
{
    changed_.notify_all();
    to_look_.notify_all();
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

bool mover::is_at_rest(const std::vector<CUdeviceptr> &addresses)
{
    const std::unique_lock lock = enter();
    if (check_ != nullptr)
        return false;
    if (!active() || gave_up_ || stopping_)
        return true;
    // As a whole it would need all of that mapped.
    if (on_file_ > 0 || !motions_.empty() ||
        now_ns() - std::max(moved_ns_, wanted_ns_) < at_rest_ns)
        return false;
    bool all = true;
    CUdeviceptr seen_to = 0; // the end of an allocation that has been seen
    for (const CUdeviceptr each : addresses) {
        if (each < seen_to)
            continue;
        const auto meant = blocks_.meant_by(each);
        meant.each([&](block &of) {
            const touched mine(of, each);
            all = all && (of.fixed ||
                          of.ram_bytes(mine.whole.first, mine.whole.end) == 0);
            if (&of == meant.around)
                seen_to = mine.begin + mine.bytes;
        });
    }
    return all;
}

void mover::give_up(const char *why)
{
    if (!gave_up_) {
        tell_(why);
        figures_.stop(why);
    }
    gave_up_ = true;
    gate_.call_off_all();
    bring_all_home();
    tell_all();
}

void mover::start(CUcontext context)
{
    if (context == nullptr)
        return;
    context_ = context;
    barriers_.begin(context);
    share_bytes_ = limits_.read().physical_bytes;
    stopping_ = settled_ = leaving_ = false;
    preparing_ = true;
    // Nobody followed the work that ran since the last time.
    for (const block_ref &each : large_)
        each->may_change(each->all());
    revive_all();
    flights_.open(context_);
    active_.store(true);
    if (!thread_.start(
            [](void *self) -> void * {
                static_cast<mover *>(self)->loop();
                return nullptr;
            },
            this)) {
        active_.store(false);
        flights_.close();
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
        else if (context == context_) {
            ending_it_++;
            barriers_.context_ends();
        }
        if (!active() || (context != nullptr && context != context_))
            return;
        stopping_ = true;
        leaving_ = leaving_ || context == nullptr;
        gate_.call_off_all();
        tell_all();
    }
    thread_.join();
    flights_.close(); // waits for the driver, whom others may have to reach
    // The context may live on, with work in flight that nobody follows any
    // more. Its blocks are let go.
    {
        const std::lock_guard guard(lock_);
        active_.store(false);
        for (flight &each : in_flight().abandon())
            ended(each, false);
        exchange_ = {};
        if (unreported_ != counters{})
            limits_.report(std::exchange(unreported_, {}));
    }
    // With the program the driver goes, too, and this thread's events with it.
    if (context != nullptr)
        events_.destroy();
    else
        events_.forget();
}

void mover::leave()
{
    {
        std::unique_lock lock(lock_);
        gave_up_ = stopping_ = leaving_ = true;
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
    barriers_.context_stays();
    tell_all();
    if ((host_bytes_ > 0 || (check_ != nullptr && !blocks_.empty())) &&
        !active() && !gave_up_)
        start(context);
}

void mover::gone(CUcontext context)
{
    const std::lock_guard guard(lock_);
    if (context != context_)
        return;
    // A thread that saw the context alive a moment ago may yet call resume().
    ending_it_ = 0;
    if (!active())
        context_ = nullptr;
    tell_all();
}

bool mover::prepare()
{
    int least = 0;
    int greatest = 0;
    calls_.cuCtxGetStreamPriorityRange(&least, &greatest);
    if (!lanes_.open(greatest) || !digests_.open(greatest))
        return false;
    packed_.open(greatest); // without it, units are copied as they are
    events_.keep_spare(spare_events);
    // Waits for earlier work that nobody followed, and for work that slips past
    // just now. Waiting would break captures, so they end first. The driver may
    // refuse to wait.
    while (passing_.load() > 0 || open_captures.load() > 0) {
        {
            const std::lock_guard guard(lock_);
            if (stopping_)
                return false;
        }
        sleep_ns(open_captures.load() > 0 ? 1000000 : 50000);
    }
    for (;;) {
        const CUresult result = calls_.cuCtxSynchronize();
        if (result == CUDA_SUCCESS)
            barriers_.open(); // none of former ones is in use now
        if (result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            return result == CUDA_SUCCESS;
        {
            const std::lock_guard guard(lock_);
            if (stopping_)
                return false;
        }
        sleep_ns(1000000);
    }
}

// Starts the threads that work beside this one.
// @return false if one could not be started; the others are joined all the same
bool mover::start(helpers &beside)
{
    // Mapping a unit takes half a millisecond, making room ten.
    return beside.mapper.start(
               [](void *self) -> void * {
                   prctl(PR_SET_NAME, "emuv-mapper");
                   static_cast<mover *>(self)->serve(stage::remap);
                   return nullptr;
               },
               this) &&
           beside.maker.start(
               [](void *self) -> void * {
                   prctl(PR_SET_NAME, "emuv-maker");
                   static_cast<mover *>(self)->serve(stage::room);
                   return nullptr;
               },
               this) &&
           beside.keeper.start(
               [](void *self) -> void * {
                   prctl(PR_SET_NAME, "emuv-gate");
                   prctl(PR_SET_TIMERSLACK, 1000);
                   static_cast<mover *>(self)->keep_gate();
                   return nullptr;
               },
               this) &&
           (file_ == nullptr || beside.filer.start(
                                    [](void *self) -> void * {
                                        prctl(PR_SET_NAME, "emuv-filer");
                                        static_cast<mover *>(self)->keep_file();
                                        return nullptr;
                                    },
                                    this));
}

// One look at all that may have happened, and at all that may be done.
// @return true if there may be more to do at once
bool mover::look(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t now = now_ns();
    trace_.count({.device = device_,
                  .vram_bytes = limits_.own_physical_bytes(),
                  .ram_bytes = host_bytes_ - lent_bytes_ - on_file_bytes_,
                  .cards_bytes = lent_bytes_},
                 now);
    publish(now);
    report(lock);
    if (events_.spare() < spare_events / 2) {
        lock.unlock();
        events_.keep_spare(spare_events);
        lock_soon(lock);
    }
    // This thread does it, since a thread that ends may have lost the driver
    // already.
    if ((stopping_ || gave_up_) && gate_.away() > on_file_) {
        bring_all_home();
        tell_all();
    }
    if (packed_.is_asked_for() && (gave_up_ || !packed_.is_on()) &&
        motions_.empty()) {
        packed_.drop(UINT64_MAX);
        give_up_buffers();
    }
    bool busy = retire(lock);
    let_in(lock);
    busy = advance(lock) || busy;
    let_in(lock);
    if (!stopping_ && !gave_up_)
        busy =
            (wanted_bytes_ > 0 ? give_way(lock) : rehouse() || decide(lock)) ||
            busy;
    call_off_waits();
    let_in(lock);
    headroom_.looked(
        {.brings = any_at(stage::fetch), .maps = any_at(stage::remap)},
        now_ns());
    return busy;
}

// True if somebody waits for what this thread sees or does next.
bool mover::is_waited_for() const
{
    return waiters_ > 0 || settling_ > 0 || !draining_.empty();
}

// Sleeps until the next look is worth it. The thread that launches pays for
// waking a thread that sleeps, and for each of that thread's questions to the
// driver.
// @param last_work_ns  when there was last anything in flight or on its way
void mover::rest(std::unique_lock<std::mutex> &lock,
                 std::uint64_t &last_work_ns)
{
    const std::uint64_t now = now_ns();
    const bool waiting =
        is_waited_for() ||
        std::any_of(motions_.begin(), motions_.end(),
                    [](const motion &each) { return each.at != stage::ready; });
    // Work that is over before anybody looks counts, too.
    if (waiting || !in_flight().empty() || idle_since_ns_ > last_work_ns)
        last_work_ns = now;
    if (waiting) {
        to_look_.wait_for(lock, is_waited_for() ? 20000 : 50000);
    } else if (now - last_work_ns < rest_after_ns) {
        to_look_.wait_for(lock, 200000);
    } else if (wanted_bytes_ > 0) {
        // make_way() sleeps in the ledger. Nothing tells when work ends that
        // keeps units from leaving.
        to_look_.wait_for(lock, 1000000);
    } else {
        resting_.store(true);
        // From here on a thread that hands work over wakes this one, under the
        // lock.
        if (!flights_.any_departed())
            to_look_.wait_for(lock, 100000000);
        resting_.store(false);
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
    helpers beside;
    served_ = false;
    ready = ready && start(beside);

    std::unique_lock lock(lock_);
    settled_ = ready;
    files_ = ready && file_ != nullptr;
    preparing_ = false;
    forget_recalls(); // of a start in vain
    tell_all();
    if (!ready && !stopping_)
        give_up("its copies could not be set up");
    std::uint64_t last_work_ns = 0;
    while (!stopping_ || !motions_.empty())
        if (!look(lock))
            rest(lock, last_work_ns);
    retire(lock); // a kernel may have ended the program
    // Nobody brings back later what other contexts may go on to use.
    if (!leaving_)
        bring_back(lock, all_parts(), false);
    bring_all_home();
    // A wait that has only just begun may not be in the ledger yet. A thread
    // whose signal handler ends the program never leaves it.
    const std::uint64_t end = now_ns();
    while (!asleep_.empty() && now_ns() - end < leave_after_ns) {
        budget_.call_off_waits(device_);
        changed_.wait_for(lock, 1000000);
    }
    tell_all();
    served_ = true;
    files_ = false;
    to_file_.notify_all();
    to_map_.notify_all();
    to_make_.notify_all();
    to_open_.notify_all();
    give_up_buffers();
    const auto left = frames_.take_all();
    lock.unlock();
    beside.mapper.join();
    beside.maker.join();
    beside.keeper.join();
    beside.filer.join();
    enter(lock);
    forget_recalls();
    packed_.drop(UINT64_MAX);
    lock.unlock();
    frames_.drop(left);
    packed_.close();
    digests_.close();
    lanes_.close();
    calls_.cuCtxPopCurrent_v2(&popped);
}

} // namespace emuv::cuda
