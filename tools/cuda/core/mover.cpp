// SPDX-License-Identifier: LGPL-2.1-or-later
// Moving units between VRAM and system RAM, ahead of their use.
#include "mover.hpp"

#include "digest.hpp"
#include "placement.hpp"
#include "size.hpp"

#include <algorithm>
#include <cstring>

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
constexpr std::uint64_t max_coming_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_arrived_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_free_bytes = std::uint64_t{96} << 20;
constexpr std::uint64_t max_leaving_bytes = std::uint64_t{256} << 20;
// What lies in VRAM ahead of its use takes the place of what could have stayed
// there, and is moved in its stead: N bytes in a circle over B then cost more
// than N-B. So no more of it than bridges the link's pauses.
constexpr std::uint64_t max_ahead_bytes = std::uint64_t{256} << 20;
// All of that together: what of VRAM is in motion, and holds nothing that
// stays.
constexpr std::uint64_t moving_bytes = std::uint64_t{448} << 20;
// Looking for something to do takes time in which launches have to wait.
constexpr std::uint64_t look_again_ns = 100000;
// Where there was no room in system RAM there may be some by now.
constexpr std::uint64_t room_again_ns = 1000000000;
constexpr std::size_t digest_slots = max_motions;
// How long a round may stand still until it is clear that it should not: so
// many times what moving everything would take over a slow link.
constexpr std::uint64_t patient_rounds = 8;
constexpr std::uint64_t slow_link_bytes_per_ns = 25;
constexpr std::uint64_t rest_after_ns = 10000000;
// Nothing to do for so long is the program's own affair, and no part of a
// round.
constexpr std::uint64_t pause_ns = 10000000;
constexpr std::size_t asked_at_once = 64;
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
constexpr unsigned digest_blocks = 256;
// A launch waits for memory that is on its way. If nothing at all arrives or
// ends for so long, then what it waits for may be waiting for it.
constexpr std::uint64_t patience_ns = 200000000;

// For a loop that waits for another processor for a moment.
void pause_cpu()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

} // namespace

mover::mover(const driver &calls, ledger &limits, int device, bool always,
             trace *record, void (*tell)(const char *why))
    : calls_(calls), limits_(limits), device_(device), trace_(record),
      tell_(tell), pace_(always), lanes_(calls)
{}

mover::~mover()
{
    stop(nullptr);
}

// ---- Blocks

void mover::add(CUdeviceptr base, std::uint64_t bytes, CUcontext context,
                const std::vector<unit> &units, std::size_t first_host)
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
            next.host = units[i].handle;
            host += next.bytes;
        }
        made->slots.push_back(next);
    }
    const std::lock_guard guard(lock_);
    for (slot &each : made->slots)
        each.uses.use(uses_); // it has been made for something
    blocks_[base] = made;
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
    const auto found = blocks_.find(base);
    if (found == blocks_.end())
        return false;
    const block_ref gone = found->second;
    blocks_.erase(found);
    std::erase(large_, gone);
    schedule_.forget(base);
    hold_still(*gone);
    changed_.wait(lock, [&] { return gone->moving == 0; });
    for (slot &each : gone->slots) {
        unit next{each.at, each.bytes, 0};
        const bool in_vram = each.where == place::vram;
        next.handle = in_vram ? each.vram : each.host;
        if (each.vram_alias != 0)
            drop_alias(each.vram_alias, each.bytes);
        if (each.host_alias != 0)
            drop_alias(each.host_alias, each.bytes);
        if (in_vram) {
            left.physical_bytes += each.bytes;
            if (each.host != 0) {
                calls_.cuMemRelease(each.host);
                spare_bytes_ -= each.bytes;
            }
        } else {
            host_bytes_ -= each.bytes;
        }
        if (each.charged)
            left.charges.push_back({each.bytes, each.token});
        left.units.push_back(next);
        left.host.push_back(!in_vram);
    }
    changed_.notify_all();
    return true;
}

mover::block_ref mover::block_of(CUdeviceptr address)
{
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin())
        return {};
    --after;
    return address - after->first < after->second->bytes ? after->second
                                                         : block_ref();
}

void mover::fix(CUdeviceptr address)
{
    std::unique_lock lock(lock_);
    const block_ref found = block_of(address);
    if (!found)
        return;
    hold_still(*found);
    // What still moves is called off, and all of it is mapped meanwhile: its
    // end may wait for the caller.
    changed_.wait(lock, [&] { return found->mapped(); });
}

// From here on the block stays as it is.
void mover::hold_still(block &of)
{
    of.fixed = true;
    for (slot &each : of.slots)
        each.cancel = true;
    changed_.notify_all();
}

void mover::fix_all(const char *why)
{
    std::unique_lock lock(lock_);
    give_up(why);
    changed_.wait(lock, [&] { return unmapped_ == 0; });
}

void mover::shed()
{
    const std::lock_guard guard(lock_);
    drop_frames();
    // What is in VRAM needs no place in system RAM until it leaves.
    for (const auto &[base, each] : blocks_) {
        if (each->moving > 0)
            continue;
        for (slot &one : each->slots) {
            if (one.where != place::vram || one.host == 0 || !one.charged)
                continue;
            if (one.host_alias != 0)
                drop_alias(one.host_alias, one.bytes);
            calls_.cuMemRelease(one.host);
            limits_.uncharge_virtual(one.bytes, one.token);
            spare_bytes_ -= one.bytes;
            one.host = 0;
            one.host_alias = 0;
            one.charged = one.digested = false;
        }
    }
}

// ---- The program's work

// What the work touches, by its addresses: once for each block.
std::vector<mover::named> mover::follow(work &announced)
{
    std::vector<named> touched;
    std::uint64_t what = announced.what;
    for (std::uint32_t i = 0; i < announced.count; i++) {
        const CUdeviceptr address = announced.names[i];
        block_ref of = block_of(address);
        if (!of)
            continue;
        touch part{of->base, UINT32_MAX, 0};
        // Nothing that is worth moving begins at an odd place.
        if (!of->small && address % 16 == 0) {
            what = (what ^ address) * 0x9e3779b97f4a7c15u;
            // Where the next thing that was ever named begins, this one ends.
            const std::uint64_t offset = address - of->base;
            auto &starts = of->starts;
            auto next = std::upper_bound(starts.begin(), starts.end(), offset);
            if (next == starts.begin() || *std::prev(next) != offset)
                next = std::next(starts.insert(next, offset));
            const std::uint64_t end = next == starts.end() ? of->bytes : *next;
            const auto unit_at = [&](std::uint64_t at) {
                const auto after = std::upper_bound(
                    of->slots.begin(), of->slots.end(), of->base + at,
                    [](CUdeviceptr a, const slot &b) { return a < b.at; });
                return static_cast<std::uint32_t>(after - of->slots.begin() -
                                                  1);
            };
            part.first = unit_at(offset);
            part.last = unit_at(end - 1);
        }
        // First to last of what is touched there.
        const auto same =
            std::find_if(touched.begin(), touched.end(),
                         [&](const named &other) { return other.of == of; });
        if (same == touched.end()) {
            touched.push_back({std::move(of), part});
            continue;
        }
        same->part.first = std::min(same->part.first, part.first);
        same->part.last = std::max(same->part.last, part.last);
    }
    announced.what = what;
    for (named &each : touched)
        if (each.part.first <= each.part.last &&
            reach_.to_the_end(what ^ each.of->base))
            each.part.last =
                static_cast<std::uint32_t>(each.of->slots.size() - 1);
    return touched;
}

// What names no unit says nothing of what comes next.
bool mover::note(std::uint64_t what, const std::vector<named> &touched)
{
    std::vector<touch> units;
    for (const named &each : touched)
        if (each.part.first <= each.part.last)
            units.push_back(each.part);
    return !units.empty() && schedule_.note(what, units.data(), units.size());
}

bool mover::missing(const std::vector<named> &touched, std::uint64_t &bytes)
{
    bytes = 0;
    for (const named &each : touched) {
        const block &of = *each.of;
        if (of.fixed)
            continue;
        const std::size_t first = of.small ? 0 : each.part.first;
        const std::size_t last =
            of.small
                ? of.slots.size() - 1
                : std::min<std::size_t>(each.part.last, of.slots.size() - 1);
        bytes += ram_bytes(of, first, last + 1);
    }
    return bytes > 0;
}

// What of a block's units from first on, up to end, is in system RAM.
std::uint64_t mover::ram_bytes(const block &of, std::size_t first,
                               std::size_t end)
{
    std::uint64_t bytes = 0;
    for (std::size_t i = first; i < end; i++)
        bytes += of.slots[i].in_ram() ? of.slots[i].bytes : 0;
    return bytes;
}

// What lies in system RAM behind what the work was given of a block.
std::uint64_t mover::beyond(const named &touched)
{
    return ram_bytes(*touched.of, touched.part.last + std::size_t{1},
                     touched.of->slots.size());
}

// Whether nothing of a block that work is known or taken to reach is in system
// RAM.
bool mover::complete(const named &touched)
{
    const bool all = touched.of->small || touched.of->fixed ||
                     touched.part.first > touched.part.last;
    return ram_bytes(*touched.of, all ? 0 : touched.part.first,
                     all ? touched.of->slots.size()
                         : touched.part.last + std::size_t{1}) == 0;
}

// What work is about to use, by where it is.
void mover::count_use(const std::vector<named> &touched, bool foreseen)
{
    uses_ += touched.empty() ? 0 : 1;
    for (const named &each : touched) {
        auto &slots = each.of->slots;
        const bool all = each.of->small || each.part.first > each.part.last;
        const std::size_t end = all ? slots.size() : each.part.last + 1;
        for (std::size_t i = all ? 0 : each.part.first; i < end; i++) {
            (slots[i].in_ram() ? unreported_.miss_bytes
                               : unreported_.hit_bytes) += slots[i].bytes;
            slots[i].uses.use(uses_);
        }
    }
    std::uint64_t lacking = 0;
    unreported_.faults += foreseen && missing(touched, lacking) ? 1 : 0;
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
    lock.lock();
}

// Waits for what the work needs, as long as anything moves at all: for what is
// small, which then stays, and, where the past shows the way, for all of it.
void mover::await(std::unique_lock<std::mutex> &lock,
                  std::vector<named> touched)
{
    if (!moves_ahead())
        std::erase_if(touched,
                      [](const named &each) { return !each.of->small; });
    std::uint64_t bytes = 0;
    if (!missing(touched, bytes) || bytes > limits_.read().physical_bytes / 2 ||
        schedule_.steps() < patient_again_)
        return;
    const std::uint64_t start = now_ns();
    struct part
    {
        block_ref of;
        std::size_t first;
        std::size_t end;
    };
    std::vector<part> wanted;
    for (const auto &[of, units] : touched) {
        const std::size_t all = of->slots.size();
        if (of->small) {
            wanted.push_back({of, 0, all});
            awaited_.push_back(of);
        } else if (units.first <= units.last) {
            wanted.push_back(
                {of, units.first, std::min<std::size_t>(units.last + 1u, all)});
        }
    }
    const auto wait = [&](int change) {
        for (const part &each : wanted)
            for (std::size_t i = each.first; i < each.end; i++)
                each.of->slots[i].waiting += static_cast<unsigned>(change);
    };
    wait(1);
    waiters_++;
    version_++;
    std::uint64_t seen = progress_;
    std::uint64_t since = start;
    std::uint64_t least = bytes;
    std::uint64_t nearer = start;
    while (!gave_up_ && !stopping_ && missing(touched, bytes)) {
        changed_.notify_all();
        changed_.wait_for(lock, 20000000);
        if (hopeless_ == progress_) {
            if (trace_ != nullptr)
                trace_->span(trace::row::waits, "hopeless", start, now_ns(),
                             touched.front().part.base, bytes, 0);
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
            patience_lost_++;
            patient_again_ =
                schedule_.steps() +
                (std::uint64_t{64} << std::min(patience_lost_, 20u));
            break;
        }
    }
    waiters_--;
    version_++;
    wait(-1);
    unreported_.stalled_ns += now_ns() - start;
    for (const part &each : wanted)
        if (each.of->small)
            awaited_.erase(
                std::find(awaited_.begin(), awaited_.end(), each.of));
    if (trace_ != nullptr)
        trace_->span(trace::row::waits, "launch", start, now_ns(),
                     touched.front().part.base, bytes, 0);
}

// The program's threads go first: their launches wait for the lock.
std::unique_lock<std::mutex> mover::enter()
{
    std::unique_lock lock(lock_, std::try_to_lock);
    if (lock.owns_lock())
        return lock;
    entering_.fetch_add(1);
    for (unsigned i = 0; i < 2000 && !lock.try_lock(); i++)
        pause_cpu();
    if (!lock.owns_lock())
        lock.lock();
    entering_.fetch_sub(1);
    return lock;
}

void mover::let_in(std::unique_lock<std::mutex> &lock)
{
    if (entering_.load() == 0)
        return;
    lock.unlock();
    for (unsigned i = 0; i < 2000 && entering_.load() > 0; i++)
        pause_cpu();
    lock.lock();
}

// Nobody follows the work that begins now.
bool mover::let_pass()
{
    passing_.fetch_add(1);
    return false;
}

bool mover::begin(work &announced, CUstream stream, flight &begun)
{
    // What is captured does not run now; whoever launches the graph is asked.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (calls_.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return let_pass();
    CUcontext current = nullptr;
    calls_.cuCtxGetCurrent(&current);

    std::unique_lock lock = enter();
    // Another context's work cannot be followed from here.
    if (!gave_up_ && !stopping_ && current != context_)
        give_up("the program uses several contexts on one device");
    if (gave_up_ || stopping_) {
        // The last remap may be under way yet.
        changed_.wait(lock, [&] { return unmapped_ == 0; });
        return let_pass();
    }
    begun.vouched = announced.vouched;
    if (!announced.vouched) {
        cancel_all();
        if (unvouched_ == 0)
            for (const block_ref &each : large_)
                may_change(*each);
        unvouched_++;
        changed_.wait(lock, [&] { return unmapped_ == 0; });
    }
    const auto touched = follow(announced);
    const std::uint64_t steps = schedule_.steps();
    const bool expected = note(announced.what, touched);
    begun.is_step = schedule_.steps() != steps;
    begun.lag = schedule_.lag();
    // Once, however many begin before the first of them is in flight.
    if (const std::uint64_t since = std::exchange(idle_since_ns_, 0);
        since != 0 && now_ns() - since > pause_ns)
        pace_.paused(now_ns() - since);
    version_++;
    if (announced.vouched && unvouched_ == 0) {
        await(lock, touched);
        await_exchange(lock, touched);
    }
    std::uint64_t bytes = 0;
    if (trace_ != nullptr && missing(touched, bytes)) {
        const std::uint64_t now = now_ns();
        trace_->span(trace::row::waits, expected ? "missed" : "not expected",
                     now, now, touched.front().part.base, bytes,
                     schedule_.steps());
    }
    for (const named &each : touched) {
        // It may write to them: what was copied does not count.
        for (slot &one : each.of->slots)
            one.cancel = true;
        may_change(*each.of);
        each.of->in_flight++;
        // What is a large part of all VRAM would never be there as a whole.
        const bool learns = announced.vouched && announced.open_ended &&
                            each.part.first <= each.part.last &&
                            !each.of->fixed &&
                            each.of->bytes <= share_bytes_ / 4;
        begun.blocks.push_back(
            {each.of, learns ? announced.what ^ each.of->base : 0, 0});
    }
    changed_.wait(lock, [&] {
        return std::all_of(touched.begin(), touched.end(),
                           [](const named &each) { return each.of->mapped(); });
    });
    count_use(touched, announced.vouched && moves_ahead());
    for (std::size_t i = 0; i < touched.size(); i++) {
        held &one = begun.blocks[i];
        one.complete = complete(touched[i]);
        one.beyond = one.work != 0 ? beyond(touched[i]) : 0;
    }
    begun.begun_ns = now_ns();
    begun.event = take_event();
    return true;
}

void mover::end(flight &&begun, CUstream stream, bool running)
{
    const bool followed =
        begun.event != nullptr &&
        calls_.cuEventRecord(begun.event, stream) == CUDA_SUCCESS;
    const std::unique_lock guard = enter();
    // What failed may have begun all the same. Whoever starts movement anew
    // waits for all that is not followed.
    if (followed && active()) {
        begun.handed_over_ns = now_ns();
        begun.failed = !running;
        flights_[stream].push_back(std::move(begun));
        if (flights_.size() > 1)
            crowded_ns_ = now_ns();
        if (!resting_)
            return; // it looks again in a moment
    } else {
        if (running && !followed)
            give_up("work on a stream could not be followed");
        ended(begun);
    }
    changed_.notify_all();
}

void mover::ended(flight &which)
{
    for (const held &each : which.blocks)
        each.of->in_flight--;
    unvouched_ -= which.vouched ? 0 : 1;
    if (which.event != nullptr)
        events_.push_back(which.event);
}

// What lies in system RAM may be written there, over the link: what is known of
// it holds no more.
void mover::may_change(block &of)
{
    for (slot &each : of.slots)
        if (each.in_ram())
            each.digested = false;
}

void mover::cancel_all()
{
    for (motion &each : motions_)
        each.of->slots[each.index].cancel = true;
}

void mover::give_up(const char *why)
{
    if (!gave_up_)
        tell_(why);
    gave_up_ = true;
    cancel_all();
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
    // Nobody followed what ran since the last time.
    for (const block_ref &each : large_)
        may_change(*each);
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
    for (auto &[stream, queue] : flights_)
        for (flight &each : queue)
            ended(each);
    flights_.clear();
    exchange_ = {};
    if (unreported_ != counters{})
        limits_.report(std::exchange(unreported_, {}));
    // With the program the driver goes, too, and what this thread had of it.
    if (context != nullptr)
        for (const CUevent each : events_)
            calls_.cuEventDestroy_v2(each);
    events_.clear();
    active_.store(false);
}

void mover::resume(CUcontext context)
{
    const std::lock_guard guard(lock_);
    if (context == context_ && host_bytes_ > 0 && !active() && !gave_up_)
        start(context);
}

bool mover::prepare()
{
    int least = 0;
    int greatest = 0;
    calls_.cuCtxGetStreamPriorityRange(&least, &greatest);
    if (!lanes_.open(greatest) ||
        calls_.cuStreamCreateWithPriority(&look_, CU_STREAM_NON_BLOCKING,
                                          greatest) != CUDA_SUCCESS)
        return false;
    if (calls_.cuModuleLoadData(&module_, digest_ptx) != CUDA_SUCCESS ||
        calls_.cuModuleGetFunction(&digest_, module_, "emuv_digest") !=
            CUDA_SUCCESS ||
        calls_.cuMemAlloc_v2(&digest_device_, digest_slots * 16) !=
            CUDA_SUCCESS ||
        calls_.cuMemHostAlloc(reinterpret_cast<void **>(&digest_host_),
                              digest_slots * 16, 0) != CUDA_SUCCESS)
        return false;
    for (std::size_t i = 0; i < digest_slots; i++)
        digest_slots_.push_back(i);
    // What ran before anybody followed it, and what slips past just now. The
    // driver does not wait while a stream is captured.
    while (passing_.load() > 0) {
        {
            const std::lock_guard guard(lock_);
            if (stopping_)
                return false;
        }
        usleep(50);
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

void mover::put_away()
{
    if (digest_device_ != 0)
        calls_.cuMemFree_v2(digest_device_);
    if (digest_host_ != nullptr)
        calls_.cuMemFreeHost(digest_host_);
    if (module_ != nullptr)
        calls_.cuModuleUnload(module_);
    if (look_ != nullptr)
        calls_.cuStreamDestroy_v2(look_);
    look_ = nullptr;
    lanes_.close();
    digest_device_ = 0;
    digest_host_ = nullptr;
    module_ = nullptr;
    digest_slots_.clear();
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
    if (!ready && !stopping_)
        give_up("its copies could not be set up");
    std::uint64_t last_work_ns = 0;
    while (!stopping_ || !motions_.empty()) {
        report(lock);
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
        if (waiting || !flights_.empty())
            last_work_ns = now;
        // Whoever launches pays for waking a thread that sleeps, and for each
        // of its questions to the driver.
        if (waiting) {
            changed_.wait_for(lock, waiters_ > 0 ? 20000 : 50000);
        } else if (now - last_work_ns < rest_after_ns) {
            changed_.wait_for(lock, 200000);
        } else {
            resting_ = true;
            changed_.wait_for(lock, 100000000);
            resting_ = false;
        }
    }
    served_ = true;
    jobs_.notify_all();
    std::vector<frame> frames;
    frames.swap(free_);
    lock.unlock();
    mapper.join();
    maker.join();
    for (const frame &each : frames)
        drop_frame(each);
    put_away();
    calls_.cuCtxPopCurrent_v2(&popped);
}

CUevent mover::take_event()
{
    CUevent event = nullptr;
    if (!events_.empty()) {
        event = events_.back();
        events_.pop_back();
    } else if (calls_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) !=
               CUDA_SUCCESS) {
        event = nullptr;
    }
    return event;
}

// Takes note of work that has ended. The driver is asked with the lock let go.
bool mover::retire(std::unique_lock<std::mutex> &lock)
{
    // What stands first in a queue need not end first: threads that share a
    // stream may change places here, and each has its own default stream.
    struct row
    {
        CUstream stream;
        std::vector<CUevent> events;
        std::size_t ended = 0;
        CUresult state = CUDA_SUCCESS;
    };
    std::vector<row> rows;
    for (const auto &[stream, queue] : flights_) {
        row &made = rows.emplace_back();
        made.stream = stream;
        for (std::size_t i = 0; i < std::min(queue.size(), asked_at_once); i++)
            made.events.push_back(queue[i].event);
    }
    if (rows.empty())
        return false;
    lock.unlock();
    const std::uint64_t asked_ns = now_ns();
    for (row &each : rows)
        for (const CUevent event : each.events) {
            const CUresult state = calls_.cuEventQuery(event);
            if (state == CUDA_ERROR_NOT_READY)
                break;
            each.ended++;
            each.state = state != CUDA_SUCCESS ? state : each.state;
        }
    const std::uint64_t now = now_ns();
    lock.lock();
    const std::uint64_t slack = now - looked_ns_;
    // Of what was not asked for, nobody knows when it ended.
    if (std::none_of(rows.begin(), rows.end(), [](const row &each) {
            return each.ended == asked_at_once;
        }))
        looked_ns_ = asked_ns;
    if (rows.size() > 1)
        crowded_ns_ = now;
    bool any = false;
    for (const row &each : rows) {
        if (each.ended == 0)
            continue;
        const auto entry = flights_.find(each.stream);
        auto &queue = entry->second;
        for (std::size_t i = 0; i < each.ended; i++) {
            for (const held &touched : queue.front().blocks)
                for (slot &one : touched.of->slots)
                    one.fresh = false;
            look_how_far(queue.front(), now, slack, i == 0);
            if (queue.front().is_step)
                keep_pace(queue.front().lag);
            ended(queue.front());
            queue.pop_front();
            progressed();
        }
        if (queue.empty())
            flights_.erase(entry);
        any = true;
        if (each.state != CUDA_SUCCESS) // the context is lost
            give_up("the device reports an error");
    }
    if (flights_.empty())
        idle_since_ns_ = now_ns();
    if (any) {
        last_end_ns_ = now;
        last_end_slack_ns_ = slack;
        changed_.notify_all();
    }
    return any;
}

// What work that has just been seen to end says of how far it reaches. It had
// the device for itself from its begin, or from the end of what was before it;
// neither is known to the moment. Nobody had looked for so long as slack says:
// all that was seen to end at once, but the first of it, began since then.
void mover::look_how_far(const flight &which, std::uint64_t now,
                         std::uint64_t slack, bool is_first)
{
    const std::uint64_t first = std::max(which.begun_ns, last_end_ns_);
    const std::uint64_t last = std::max(which.handed_over_ns, last_end_ns_);
    if (which.failed || crowded_ns_ >= first || last > now)
        return;
    bool complete = true;
    for (const held &each : which.blocks) {
        complete = complete && each.complete;
        if (!each.complete && each.work != 0 && is_first && moves_ahead())
            reach_.lacked(each.work);
    }
    if (!complete)
        return;
    const std::uint64_t least = now - last;
    reach::span took{least - std::min(least, slack),
                     now - first +
                         (first == last_end_ns_ ? last_end_slack_ns_ : 0)};
    if (!is_first)
        took = {0, std::min(slack, took.most_ns)};
    for (const held &each : which.blocks)
        if (each.work != 0 && reach_.ended(each.work, each.beyond, took) &&
            trace_ != nullptr)
            trace_->span(trace::row::waits, "reaches further", which.begun_ns,
                         which.begun_ns, each.of->base, each.beyond, 0);
}

// A step has ended, as many after the one that looked like it.
void mover::keep_pace(std::uint64_t lag)
{
    const bool before = pace_.moves();
    const std::uint64_t now = now_ns();
    pace_.ended(lag, now,
                patient_rounds * (host_bytes_ + moving_bytes) /
                    slow_link_bytes_per_ns);
    if (trace_ != nullptr && pace_.moves() != before)
        trace_->span(trace::row::waits,
                     before ? "stands still from here" : "moves from here", now,
                     now, 0, host_bytes_, lag);
}

// Whether the past shows the way, and following it is worth it.
bool mover::moves_ahead() const
{
    return schedule_.predicts() && pace_.moves();
}

void mover::progressed()
{
    progress_++;
    version_++;
}

mover::motion_ref mover::new_motion(const candidate &which, stage at)
{
    slot &one = which.of->slots[which.index];
    const bool evicts = at != stage::fetch;
    one.where = evicts ? place::evicting : place::fetching;
    one.cancel = false;
    which.of->moving++;
    motion made;
    made.of = which.of;
    made.index = which.index;
    made.at = at;
    made.evicts = evicts;
    made.started_ns = now_ns();
    made.next_use = which.next_use;
    made.event = take_event();
    return motions_.insert(motions_.end(), std::move(made));
}

// Whether nothing in flight can touch the unit, nor has since it began.
bool mover::may_move(const motion &which) const
{
    return !which.of->slots[which.index].cancel && unvouched_ == 0 &&
           which.of->in_flight == 0;
}

// Whether there is room for it in system RAM, or may be.
bool mover::may_leave(const slot &which, std::uint64_t now)
{
    return which.where == place::vram &&
           (which.host != 0 || which.no_room_ns == 0 ||
            now - which.no_room_ns > room_again_ns);
}

void mover::end_motion(motion_ref which, place where)
{
    slot &of = which->of->slots[which->index];
    of.where = where;
    of.cancel = false;
    which->of->moving--;
    progressed();
    if (which->event != nullptr)
        events_.push_back(which->event);
    if (which->evicts)
        digest_slots_.push_back(which->digest_slot);
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
        lock.lock();
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
            if (!each->done && !each->called_off)
                each->of->slots[each->index].no_room_ns = now_ns();
            if (!each->done || !take_digest(lock, *each))
                end_motion(each, place::vram);
            break;
        case stage::remapped:
            any = true;
            finish(each);
            break;
        case stage::ready:
            if (!may_move(*each) || stopping_ || gave_up_ ||
                (!pace_.moves() && waiters_ == 0 && wanted_bytes_ == 0 &&
                 exchange_.at != exchange::leaving)) {
                any = true;
                call_off(each);
            } else if (wants_frame()) {
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

// Whether there are too few free frames, those counted that will be in a
// moment.
bool mover::wants_frame() const
{
    std::uint64_t bytes = free_bytes();
    for (const motion &each : motions_)
        if (each.at == stage::remap && each.evicts)
            bytes += each.of->slots[each.index].bytes;
    return wanted_bytes_ > 0 || bytes < max_free_bytes;
}

// Reads the unit that shall leave, to see whether it has changed.
bool mover::take_digest(std::unique_lock<std::mutex> &lock, motion &which)
{
    if (!may_move(which))
        return false;
    which.at = stage::digest;
    const slot &of = which.of->slots[which.index];
    CUdeviceptr at = of.at;
    std::uint64_t count = of.bytes / 16;
    CUdeviceptr out = digest_device_ + 16 * which.digest_slot;
    void *parameters[] = {&at, &count, &out};
    lock.unlock();
    const bool begun =
        calls_.cuMemsetD8Async(out, 0, 16, look_) == CUDA_SUCCESS &&
        calls_.cuLaunchKernel(digest_, digest_blocks, 1, 1, digest_threads, 1,
                              1, 0, look_, parameters,
                              nullptr) == CUDA_SUCCESS &&
        calls_.cuMemcpyDtoHAsync_v2(digest_host_ + 2 * which.digest_slot, out,
                                    16, look_) == CUDA_SUCCESS &&
        calls_.cuEventRecord(which.event, look_) == CUDA_SUCCESS;
    lock.lock();
    return begun;
}

// What is the same as its copy in system RAM need not be written there.
void mover::compare(std::unique_lock<std::mutex> &lock, motion_ref which)
{
    slot &of = which->of->slots[which->index];
    std::array<std::uint64_t, 2> now{};
    std::memcpy(now.data(), digest_host_ + 2 * which->digest_slot, 16);
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
        lanes_.write_back(of.host_alias, of.at, of.bytes, which->event);
    lock.lock();
    if (!begun)
        end_motion(which, place::vram);
}

void mover::written(motion &which)
{
    which.of->slots[which.index].digested = true;
    which.wrote = true;
    which.at = stage::ready;
}

// Somebody needs the unit where it is.
void mover::call_off(motion_ref which)
{
    if (!which->evicts)
        free_.push_back(which->into);
    else if (which->at == stage::write_back)
        which->of->slots[which->index].digested = false;
    end_motion(which, which->evicts ? place::vram : place::host);
}

// The unit is mapped elsewhere, or could not be.
void mover::finish(motion_ref which)
{
    slot &of = which->of->slots[which->index];
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
        free_.push_back({of.vram, of.vram_alias, of.bytes});
        of.vram = 0;
        of.vram_alias = 0;
        host_bytes_ += of.bytes;
        spare_bytes_ -= of.bytes;
    } else {
        of.vram = which->into.handle;
        of.vram_alias = which->into.alias;
        of.fresh = true;
        host_bytes_ -= of.bytes;
        spare_bytes_ += of.bytes;
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

void mover::hand_over(motion &which, stage to)
{
    which.at = to;
    jobs_.notify_all();
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
        // Without a frame nothing can be fetched; with one, what has been
        // fetched is what somebody waits for.
        const bool evict_first = free_.empty();
        for (motion &each : motions_)
            if (each.at == mine &&
                (next == nullptr ||
                 (each.evicts == evict_first && next->evicts != evict_first)))
                next = &each;
        if (next == nullptr) {
            jobs_.wait_for(lock, 100000000);
            continue;
        }
        slot &of = next->of->slots[next->index];
        const std::uint64_t start = now_ns();
        next->called_off = !may_move(*next);
        if (next->called_off) {
            next->done = false;
        } else if (mine == stage::room) {
            lock.unlock();
            const bool done = make_host(of);
            entering_.fetch_add(1);
            lock.lock();
            entering_.fetch_sub(1);
            next->done = done;
        } else {
            of.unmapped = true;
            unmapped_++;
            lock.unlock();
            const bool done = next->evicts
                                  ? remap(of, of.host, of.vram)
                                  : remap(of, next->into.handle, of.host);
            entering_.fetch_add(1);
            lock.lock();
            entering_.fetch_sub(1);
            of.unmapped = false;
            unmapped_--;
            next->done = done;
        }
        next->at = mine == stage::room ? stage::roomed : stage::remapped;
        if (trace_ != nullptr)
            trace_->span(trace::row::calls,
                         mine == stage::room ? "make room" : "map", start,
                         now_ns(), of.at, of.bytes, next->next_use);
        changed_.notify_all();
    }
    lock.unlock();
    calls_.cuCtxPopCurrent_v2(&popped);
}

std::uint64_t mover::free_bytes() const
{
    std::uint64_t bytes = 0;
    for (const frame &each : free_)
        bytes += each.bytes;
    return bytes;
}

std::uint64_t mover::next_use_of(block &of, std::size_t index) const
{
    if (of.slots[index].waiting > 0)
        return 0;
    return schedule_.next_use(of.base, static_cast<std::uint32_t>(index),
                              of.slots[index].next);
}

// What has been fetched for uses up to this one that have not ended.
std::uint64_t mover::ahead_bytes(std::uint64_t next_use) const
{
    std::uint64_t bytes = 0;
    for (const block_ref &each : large_)
        for (std::size_t i = 0; i < each->slots.size(); i++)
            if (each->slots[i].fresh && each->slots[i].where == place::vram &&
                (each->in_flight > 0 || next_use_of(*each, i) <= next_use))
                bytes += each->slots[i].bytes;
    return bytes;
}

// Starts the one thing that is most worth it.
bool mover::decide(std::unique_lock<std::mutex> &lock)
{
    if (!settled_ || unvouched_ > 0 || host_bytes_ == 0)
        return false;
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
    std::size_t fetching = 0;
    std::size_t evicting = 0;
    std::uint64_t coming_bytes = 0;
    std::uint64_t arrived_bytes = 0;
    std::uint64_t leaving_bytes = 0;
    for (const motion &each : motions_) {
        const std::uint64_t bytes = each.of->slots[each.index].bytes;
        if (each.evicts) {
            evicting++;
            leaving_bytes += bytes;
        } else {
            fetching++;
            (each.at == stage::fetch ? coming_bytes : arrived_bytes) += bytes;
        }
    }
    const std::uint64_t part = limits_.read().physical_bytes / 8;
    const bool may_fetch =
        fetching < max_motions &&
        (fetching == 0 || (coming_bytes < std::min(max_coming_bytes, part) &&
                           arrived_bytes < std::min(max_arrived_bytes, part)));
    const bool may_evict = evicting < max_motions && !digest_slots_.empty() &&
                           (leaving_bytes == 0 ||
                            leaving_bytes < std::min(max_leaving_bytes, part));
    if (!may_fetch && !may_evict) {
        decided_ = state;
        look_again_ns_ = now_ns() + look_again_ns;
        return false;
    }
    // The unit in system RAM that is needed first ...
    candidate wanted{{}, 0, schedule::never};
    // ... and the one in VRAM that is needed last: of those that are meant to
    // leave, of those that have room in system RAM, and of those that have not.
    candidate passer;
    candidate victim;
    candidate newcomer;
    const std::uint64_t now = now_ns();
    std::uint64_t used_bytes = 0;
    std::uint64_t vram_bytes = free_bytes() + coming_bytes + arrived_bytes;
    for (const block_ref &each : awaited_)
        for (std::size_t i = 0; i < each->slots.size(); i++)
            if (!each->fixed && each->in_flight == 0 &&
                each->slots[i].where == place::host)
                wanted = {each, i, 0};
    for (const block_ref &each : large_) {
        if (each->fixed)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            const std::uint64_t use = next_use_of(*each, i);
            used_bytes += use != schedule::never ? one.bytes : 0;
            vram_bytes += one.vram != 0 ? one.bytes : 0;
            if (each->in_flight > 0)
                continue;
            // Once half its gap is over it is on its way back, and no sooner:
            // it would leave again.
            const bool passing =
                passes(one) && use > 0 && use >= one.next.gap / 2;
            if (one.where == place::host && use < wanted.next_use &&
                (!passing || !pace_.moves()))
                wanted = {each, i, use};
            if (!may_leave(one, now))
                continue;
            candidate &leaves = passing         ? passer
                                : one.host != 0 ? victim
                                                : newcomer;
            if (use > leaves.next_use)
                leaves = {each, i, use};
        }
    }
    const std::uint64_t room =
        vram_bytes - std::min(vram_bytes, std::min(moving_bytes, 2 * part));
    const std::uint64_t excess = used_bytes - std::min(used_bytes, room);
    if (moves_ahead() && make_plan(lock, excess))
        return true;
    if (wanted.of) {
        const bool early =
            wanted.next_use > 0 &&
            ahead_bytes(wanted.next_use) + coming_bytes + arrived_bytes >=
                std::min(max_ahead_bytes, part);
        // Standing still, what has come free may be of use all the same.
        const bool left_there =
            waiters_ == 0 && !pace_.moves() &&
            limits_.read().physical_free_bytes() + free_bytes() <
                wanted.unit().bytes;
        if (may_fetch && !early && !left_there) {
            if (start_fetch(lock, wanted))
                return true;
            // Its copy failed, and what was chosen may be gone meanwhile.
            if (version_ != state)
                return false;
        }
        // Room for one more unit is slow to make and takes memory. As much
        // again as lies there is enough to take turns with, and what stays away
        // for clearly longer is worth it: sooner or later everything that
        // leaves has just been used.
        const bool grows = spare_bytes_ < host_bytes_ + min_spare_bytes &&
                           newcomer.of &&
                           newcomer.next_use / 8 * 7 >= victim.next_use;
        const candidate &last = grows || !victim.of ? newcomer : victim;
        // What stays in VRAM leaves only where nothing else can.
        const bool as_planned = static_cast<bool>(passer.of);
        const candidate &leaves = as_planned ? passer : last;
        const bool short_of_frames =
            limits_.read().physical_free_bytes() + free_bytes() <
                wanted.unit().bytes &&
            leaving_bytes < (waiters_ > 0 ? max_coming_bytes : 1);
        if (may_evict && (waiters_ > 0 || pace_.moves()) && leaves.of &&
            leaves.next_use > wanted.next_use + 1 &&
            (as_planned || leaves.next_use == schedule::never ||
             short_of_frames) &&
            start_evict(leaves))
            return true;
    }
    decided_ = state;
    look_again_ns_ = now_ns() + look_again_ns;
    // Who waits, waits in vain if nothing is on its way or can end.
    if (waiters_ > 0 && motions_.empty() && flights_.empty()) {
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
        drop_frames();
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
    if (now < exchange_after_ns_ || !motions_.empty() || digest_slots_.empty())
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
            const std::uint64_t uses = one.uses.at(uses_);
            if (!each->fixed && each->in_flight == 0 &&
                one.where == place::host && uses >= hot_uses * heat::one_use)
                hot.push_back({{each, i, 0}, uses});
        }
    std::sort(
        hot.begin(), hot.end(),
        [](const unit_heat &a, const unit_heat &b) { return a.uses > b.uses; });
    hot.resize(std::min(hot.size(), hottest_units));
    const std::uint64_t room =
        limits_.read().physical_free_bytes() + free_bytes();
    const bool grows = spare_bytes_ < host_bytes_ + min_spare_bytes;
    for (const unit_heat &each : hot) {
        exchange_ = {exchange::coming, {}, each.which, now};
        const std::uint64_t wanted = each.which.unit().bytes;
        const std::uint64_t state = version_;
        if (room >= wanted && start_fetch(lock, each.which))
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
                const std::uint64_t uses = one.uses.at(uses_);
                if (!of->fixed && of->in_flight == 0 && may_leave(one, now) &&
                    (one.host != 0 || grows) && one.bytes + room >= wanted &&
                    uses < coldest) {
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
                           const std::vector<named> &touched)
{
    const auto comes = [&] {
        return exchange_.at == exchange::coming && !gave_up_ && !stopping_ &&
               exchange_.in.unit().where == place::fetching &&
               !exchange_.in.unit().cancel &&
               std::any_of(touched.begin(), touched.end(),
                           [&](const named &each) {
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

// Whether it is planned to be away between its last use and its next. A step
// too few in between makes no difference.
bool mover::passes(const slot &which)
{
    return which.leaves_for != never_leaves &&
           which.next.gap + which.next.gap / 16 >= which.leaves_for;
}

// Chooses which units leave VRAM after which uses, so that the rest can stay:
// soon, where what was chosen before no longer fits, and else now and then,
// since what the choice rests on is learned by and by.
bool mover::make_plan(std::unique_lock<std::mutex> &lock, std::uint64_t excess)
{
    const std::uint64_t round = schedule_.lag();
    const std::uint64_t now = schedule_.steps();
    const std::uint64_t off = excess > planned_excess_
                                  ? excess - planned_excess_
                                  : planned_excess_ - excess;
    const bool another =
        !same_round(round, planned_round_) || off > excess / 8 + max_unit_bytes;
    if (round == 0 || now < planned_at_ + (another ? round / 4 : plan_age_))
        return false;
    plan_age_ = another ? round : std::min(2 * plan_age_, 16 * round);
    planned_round_ = round;
    planned_excess_ = excess;
    planned_at_ = now;

    struct place_of
    {
        block_ref of;
        std::size_t index;
    };
    std::vector<place_of> places;
    std::vector<planned_unit> units;
    std::vector<idle_gap> gaps;
    constexpr std::uint64_t none = UINT64_MAX;
    std::vector<std::uint64_t> first;
    std::vector<std::uint64_t> last;
    const auto add = [&](std::size_t unit, std::uint64_t from,
                         std::uint64_t to) {
        // What is shorter is of no use, and most are.
        if (to - from > round / round_parts)
            gaps.push_back({static_cast<std::uint32_t>(unit),
                            static_cast<std::uint32_t>(from % round),
                            static_cast<std::uint32_t>(to - from)});
    };
    for (const block_ref &each : large_) {
        const std::size_t count = each->slots.size();
        const std::size_t begin = places.size();
        first.assign(count, none);
        last.assign(count, 0);
        if (!each->fixed)
            schedule_.uses(each->base, [&](std::uint64_t step, std::uint32_t a,
                                           std::uint32_t b) {
                for (std::size_t i = a; i <= b && i < count; i++) {
                    if (first[i] == none)
                        first[i] = step;
                    else
                        add(begin + i, last[i], step);
                    last[i] = step;
                }
            });
        for (std::size_t i = 0; i < count; i++) {
            places.push_back({each, i});
            // Room in system RAM that there is need not be made. What was
            // placed there first is no choice: it lies together, and may stay.
            const slot &one = each->slots[i];
            units.push_back({one.bytes, one.leaves_for != never_leaves &&
                                            (one.where == place::evicting ||
                                             one.host != 0)});
            if (first[i] != none)
                add(begin + i, last[i], first[i] + round);
        }
    }
    lock.unlock();
    const auto shortest =
        plan_absences(gaps, units, static_cast<std::uint32_t>(round), excess);
    lock.lock();
    for (std::size_t i = 0; i < places.size(); i++)
        places[i].of->slots[places[i].index].leaves_for = shortest[i];
    version_++;
    return true;
}

bool mover::take_frame(std::uint64_t bytes, frame &out)
{
    for (std::size_t i = 0; i < free_.size(); i++) {
        if (free_[i].bytes != bytes)
            continue;
        out = free_[i];
        free_.erase(free_.begin() + static_cast<long>(i));
        if (out.alias == 0)
            out.alias = alias(out.handle, out.bytes);
        if (out.alias != 0)
            return true;
        drop_frame(out);
        out = {};
        return false;
    }
    // Frames of other sizes make room, the largest first.
    while (!limits_.charge_physical(bytes)) {
        if (free_.empty())
            return false;
        const auto largest = std::max_element(
            free_.begin(), free_.end(),
            [](const frame &a, const frame &b) { return a.bytes < b.bytes; });
        if (limits_.read().physical_free_bytes() + free_bytes() < bytes)
            return false;
        drop_frame(*largest);
        free_.erase(largest);
    }
    out = {0, 0, bytes};
    const auto properties = properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device_);
    if (calls_.cuMemCreate(&out.handle, bytes, &properties, 0) !=
        CUDA_SUCCESS) {
        limits_.uncharge_physical(bytes);
        return false;
    }
    out.alias = alias(out.handle, bytes);
    if (out.alias != 0)
        return true;
    drop_frame(out);
    out = {};
    return false;
}

void mover::drop_frame(const frame &which)
{
    if (which.alias != 0)
        drop_alias(which.alias, which.bytes);
    calls_.cuMemRelease(which.handle);
    limits_.uncharge_physical(which.bytes);
}

void mover::drop_frames()
{
    for (const frame &each : free_)
        drop_frame(each);
    free_.clear();
}

CUdeviceptr mover::alias(CUmemGenericAllocationHandle handle,
                         std::uint64_t bytes)
{
    CUdeviceptr at = 0;
    if (calls_.cuMemAddressReserve(&at, bytes, chunk_bytes, 0, 0) !=
        CUDA_SUCCESS)
        return 0;
    const auto access = access_of(device_);
    if (calls_.cuMemMap(at, bytes, 0, handle, 0) == CUDA_SUCCESS) {
        if (calls_.cuMemSetAccess(at, bytes, &access, 1) == CUDA_SUCCESS)
            return at;
        calls_.cuMemUnmap(at, bytes);
    }
    calls_.cuMemAddressFree(at, bytes);
    return 0;
}

void mover::drop_alias(CUdeviceptr at, std::uint64_t bytes)
{
    calls_.cuMemUnmap(at, bytes);
    calls_.cuMemAddressFree(at, bytes);
}

// Gives a unit its place in system RAM. Slow the first time, and never again.
bool mover::make_host(slot &of)
{
    if (of.host == 0) {
        if (!limits_.charge_virtual(of.bytes, of.token))
            return false;
        const auto properties = properties_of(CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                              numa_node_of(calls_, device_));
        if (calls_.cuMemCreate(&of.host, of.bytes, &properties, 0) !=
            CUDA_SUCCESS) {
            limits_.uncharge_virtual(of.bytes, of.token);
            of.host = 0;
            return false;
        }
        of.charged = true;
        of.digested = false;
        spare_bytes_.fetch_add(of.bytes);
    }
    if (of.host_alias == 0)
        of.host_alias = alias(of.host, of.bytes);
    return of.host_alias != 0;
}

// The one moment at which an address of the program's is not mapped.
bool mover::remap(slot &of, CUmemGenericAllocationHandle to,
                  CUmemGenericAllocationHandle from)
{
    const auto access = access_of(device_);
    if (calls_.cuMemUnmap(of.at, of.bytes) != CUDA_SUCCESS)
        return false;
    if (calls_.cuMemMap(of.at, of.bytes, 0, to, 0) == CUDA_SUCCESS) {
        if (calls_.cuMemSetAccess(of.at, of.bytes, &access, 1) == CUDA_SUCCESS)
            return true;
        calls_.cuMemUnmap(of.at, of.bytes);
    }
    if (calls_.cuMemMap(of.at, of.bytes, 0, from, 0) != CUDA_SUCCESS ||
        calls_.cuMemSetAccess(of.at, of.bytes, &access, 1) != CUDA_SUCCESS)
        tell_("an address is lost: the driver maps it no more");
    return false;
}

bool mover::start_fetch(std::unique_lock<std::mutex> &lock,
                        const candidate &which)
{
    const slot &one = which.unit();
    frame into{};
    if (!take_frame(one.bytes, into))
        return false;
    const motion_ref next = new_motion(which, stage::fetch);
    next->into = into;
    lock.unlock();
    const bool begun = next->event != nullptr &&
                       lanes_.fetch(into.alias, one.at, one.bytes, next->event);
    lock.lock();
    if (begun)
        return true;
    free_.push_back(into);
    end_motion(next, place::host);
    return false;
}

bool mover::start_evict(const candidate &which)
{
    const motion_ref next = new_motion(which, stage::roomed);
    const slot &one = which.unit();
    next->digest_slot = digest_slots_.back();
    digest_slots_.pop_back();
    if (next->event == nullptr) {
        end_motion(next, place::vram);
        return false;
    }
    next->done = one.host_alias != 0;
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
        const bool at_rest = settled_ && flights_.empty() && motions_.empty();
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
    const bool dropped = !free_.empty();
    drop_frames();
    if (dropped) {
        given_up_++;
        changed_.notify_all();
    }
    std::uint64_t coming = limits_.read().physical_free_bytes();
    for (const motion &each : motions_)
        coming += each.evicts ? each.of->slots[each.index].bytes : 0;
    if (coming >= wanted_bytes_ || !settled_ || unvouched_ > 0 ||
        digest_slots_.empty())
        return dropped;
    const std::uint64_t now = now_ns();
    candidate leaves;
    for (const block_ref &each : large_) {
        if (each->fixed || each->in_flight > 0)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            const std::uint64_t use = next_use_of(*each, i);
            if (may_leave(one, now) && (!leaves.of || use > leaves.next_use))
                leaves = {each, i, use};
        }
    }
    return (leaves.of && start_evict(leaves)) || dropped;
}

} // namespace emuv::cuda
