// SPDX-License-Identifier: LGPL-2.1-or-later
// Moving units between VRAM and system RAM, ahead of their use.
#include "mover.hpp"

#include "digest.hpp"
#include "size.hpp"

#include <algorithm>
#include <cstring>

#include <sys/prctl.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// What is under way at once. To VRAM: enough that the link has no pause while
// the last unit to arrive is being mapped. Free, so that there is always a
// frame to go on with; more would only be VRAM that holds nothing. On its way
// out: what the digest is taken of, since that waits for a gap between the
// program's own kernels, and what need not leave yet.
constexpr std::size_t max_motions = 12;
constexpr std::uint64_t max_coming_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_free_bytes = std::uint64_t{128} << 20;
constexpr std::uint64_t max_leaving_bytes = std::uint64_t{640} << 20;
constexpr std::size_t digest_slots = max_motions;
constexpr std::uint64_t min_spare_bytes = std::uint64_t{512} << 20;
// Where frameworks keep their many small tensors, at ever new places.
constexpr std::uint64_t min_block_bytes = std::uint64_t{4} << 20;
constexpr unsigned digest_blocks = 256;
// A launch waits for memory that is on its way. If nothing at all arrives or
// ends for so long, then what it waits for may be waiting for it.
constexpr std::uint64_t patience_ns = 200000000;

CUmemAccessDesc access_of(int device)
{
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
}

} // namespace

mover::mover(const driver &calls, ledger &limits, int device, trace *record,
             void (*tell)(const char *why))
    : calls_(calls), limits_(limits), device_(device), trace_(record),
      tell_(tell)
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
    blocks_[base] = made;
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
    gone->fixed = true;
    for (slot &each : gone->slots)
        each.cancel = true;
    changed_.notify_all();
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
    found->fixed = true;
    for (slot &each : found->slots)
        each.cancel = true;
    changed_.wait(lock, [&] { return found->moving == 0; });
}

void mover::fix_all()
{
    std::unique_lock lock(lock_);
    gave_up_ = true;
    cancel_all();
    changed_.notify_all();
    changed_.wait(lock, [&] { return motions_.empty(); });
}

void mover::shed()
{
    const std::lock_guard guard(lock_);
    for (const frame &each : free_)
        drop_frame(each);
    free_.clear();
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

movement mover::counters()
{
    const std::lock_guard guard(lock_);
    movement now = counters_;
    now.steps = schedule_.steps();
    now.surprises = schedule_.surprises();
    return now;
}

// ---- The program's work

// What the work touches, by its addresses, and the start of each.
void mover::follow(work &announced, std::vector<touch> &touches)
{
    std::uint64_t what = announced.what;
    for (std::uint32_t i = 0; i < announced.count; i++) {
        const CUdeviceptr address = announced.names[i];
        const block_ref of = block_of(address);
        if (!of)
            continue;
        const std::uint64_t offset = address - of->base;
        // Nothing that is worth moving begins at an odd place.
        if (of->small || address % 16 != 0) {
            touches.push_back({of->base, UINT32_MAX, 0});
            continue;
        }
        what = (what ^ address) * 0x9e3779b97f4a7c15u;
        // Where the next thing that was ever named begins, this one ends.
        auto &starts = of->starts;
        auto next = std::upper_bound(starts.begin(), starts.end(), offset);
        if (next == starts.begin() || *std::prev(next) != offset)
            next = std::next(starts.insert(next, offset));
        const std::uint64_t end = next == starts.end() ? of->bytes : *next;
        const auto unit_at = [&](std::uint64_t at) {
            const auto after = std::upper_bound(
                of->slots.begin(), of->slots.end(), of->base + at,
                [](CUdeviceptr a, const slot &b) { return a < b.at; });
            return static_cast<std::uint32_t>(after - of->slots.begin() - 1);
        };
        touches.push_back({of->base, unit_at(offset), unit_at(end - 1)});
    }
    announced.what = what;
    // One for each block: first to last of what is touched there.
    std::size_t kept = 0;
    for (const touch &each : touches) {
        const auto end = touches.begin() + static_cast<long>(kept);
        const auto same =
            std::find_if(touches.begin(), end, [&](const touch &other) {
                return other.base == each.base;
            });
        if (same == end) {
            touches[kept++] = each;
            continue;
        }
        same->first = std::min(same->first, each.first);
        same->last = std::max(same->last, each.last);
    }
    touches.resize(kept);
}

bool mover::missing(const std::vector<touch> &touches, std::uint64_t &bytes)
{
    bytes = 0;
    for (const touch &each : touches) {
        const auto found = blocks_.find(each.base);
        if (found == blocks_.end() || found->second->fixed)
            continue;
        for (std::uint32_t i = each.first; i <= each.last; i++)
            if (found->second->slots[i].where == place::host ||
                found->second->slots[i].where == place::fetching)
                bytes += found->second->slots[i].bytes;
    }
    return bytes > 0;
}

// Waits for what the work needs, as long as anything moves at all.
void mover::await(std::unique_lock<std::mutex> &lock,
                  const std::vector<touch> &touches)
{
    std::uint64_t bytes = 0;
    if (!missing(touches, bytes) || bytes > limits_.read().physical_bytes / 2 ||
        schedule_.steps() < patient_again_)
        return;
    const std::uint64_t start = now_ns();
    std::vector<block_ref> wanted;
    for (const touch &each : touches) {
        const auto found = blocks_.find(each.base);
        if (found == blocks_.end())
            continue;
        found->second->waiting++;
        wanted.push_back(found->second);
    }
    waiters_++;
    version_++;
    std::uint64_t seen = progress_;
    std::uint64_t since = start;
    while (!gave_up_ && !stopping_ && missing(touches, bytes)) {
        changed_.notify_all();
        changed_.wait_for(lock, 20000000);
        if (hopeless_ == progress_) {
            if (trace_ != nullptr)
                trace_->span(trace::row::waits, "hopeless", start, now_ns(),
                             touches.front().base, bytes, 0);
            break;
        }
        const std::uint64_t now = now_ns();
        if (progress_ != seen) {
            seen = progress_;
            since = now;
        } else if (now - since > patience_ns) {
            patience_lost_++;
            patient_again_ =
                schedule_.steps() +
                (std::uint64_t{64} << std::min(patience_lost_, 20u));
            break;
        }
    }
    waiters_--;
    version_++;
    for (const block_ref &each : wanted)
        each->waiting--;
    const std::uint64_t end = now_ns();
    counters_.waits++;
    counters_.waited_ns += end - start;
    if (trace_ != nullptr)
        trace_->span(trace::row::waits, "launch", start, end,
                     touches.front().base, bytes, 0);
}

bool mover::begin(work &announced, CUstream stream, flight &begun)
{
    // What is captured does not run now; whoever launches the graph is asked.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (calls_.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return false;
    CUcontext current = nullptr;
    calls_.cuCtxGetCurrent(&current);

    std::unique_lock lock(lock_);
    if (gave_up_ || stopping_)
        return false;
    if (current != context_) {
        // Another context's work cannot be followed from here.
        give_up("the program uses several contexts on one device");
        changed_.wait(lock, [&] { return motions_.empty(); });
        return false;
    }
    begun.vouched = announced.vouched;
    if (!announced.vouched) {
        cancel_all();
        unvouched_++;
        changed_.wait(lock, [&] { return gaps_ == 0; });
    }
    std::vector<touch> touches;
    follow(announced, touches);
    if (std::any_of(touches.begin(), touches.end(), [](const touch &each) {
            return each.first <= each.last;
        })) {
        const bool expected =
            schedule_.note(announced.what, touches.data(), touches.size());
        std::uint64_t bytes = 0;
        version_++;
        for (const touch &each : touches)
            for (std::uint32_t i = each.first; i <= each.last; i++)
                counters_.named_bytes += blocks_[each.base]->slots[i].bytes;
        // Where the past shows the way, what is missing is on its way.
        if (announced.vouched && schedule_.predicts() && unvouched_ == 0)
            await(lock, touches);
        if (missing(touches, bytes)) {
            counters_.missed_bytes += bytes;
            if (trace_ != nullptr) {
                const std::uint64_t now = now_ns();
                trace_->span(trace::row::waits,
                             expected ? "missed" : "not expected", now, now,
                             touches.front().base, bytes, schedule_.steps());
            }
        }
    }
    for (const touch &each : touches) {
        const auto found = blocks_.find(each.base);
        if (found == blocks_.end())
            continue;
        const block_ref &of = found->second;
        if (std::find(begun.blocks.begin(), begun.blocks.end(), of) !=
            begun.blocks.end())
            continue;
        // It may write to them: what was copied does not count.
        for (slot &each_slot : of->slots)
            each_slot.cancel = true;
        of->in_flight++;
        begun.blocks.push_back(of);
    }
    changed_.wait(lock, [&] {
        for (const block_ref &of : begun.blocks)
            for (const slot &each : of->slots)
                if (each.gap)
                    return false;
        return true;
    });
    begun.event = take_event();
    return true;
}

void mover::end(flight &&begun, CUstream stream, bool running)
{
    const bool followed =
        begun.event != nullptr &&
        calls_.cuEventRecord(begun.event, stream) == CUDA_SUCCESS;
    const std::lock_guard guard(lock_);
    if (followed && running) {
        flights_[stream].push_back(std::move(begun));
    } else {
        if (running && !followed)
            give_up("work on a stream could not be followed");
        for (const block_ref &each : begun.blocks)
            each->in_flight--;
        unvouched_ -= begun.vouched ? 0 : 1;
        if (begun.event != nullptr)
            events_.push_back(begun.event);
    }
    changed_.notify_all();
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
    if (thread_.running() || context == nullptr)
        return;
    context_ = context;
    stopping_ = settled_ = false;
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
    {
        const std::lock_guard guard(lock_);
        if (context != nullptr && context != context_)
            return;
        stopping_ = true;
        cancel_all();
        changed_.notify_all();
    }
    thread_.join();
    active_.store(false);
    const std::lock_guard guard(lock_);
    flights_.clear();
    events_.clear();
    unvouched_ = 0;
}

bool mover::prepare()
{
    int least = 0;
    int greatest = 0;
    calls_.cuCtxGetStreamPriorityRange(&least, &greatest);
    for (CUstream *each : {&in_, &out_, &look_})
        if (calls_.cuStreamCreateWithPriority(each, CU_STREAM_NON_BLOCKING,
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
    // What ran before anybody followed it, and what slips past just now.
    while (passing_.load() > 0)
        usleep(50);
    return calls_.cuCtxSynchronize() == CUDA_SUCCESS;
}

void mover::put_away()
{
    for (const frame &each : free_)
        drop_frame(each);
    free_.clear();
    if (digest_device_ != 0)
        calls_.cuMemFree_v2(digest_device_);
    if (digest_host_ != nullptr)
        calls_.cuMemFreeHost(digest_host_);
    if (module_ != nullptr)
        calls_.cuModuleUnload(module_);
    for (CUstream *each : {&in_, &out_, &look_}) {
        if (*each != nullptr)
            calls_.cuStreamDestroy_v2(*each);
        *each = nullptr;
    }
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

    std::unique_lock lock(lock_);
    settled_ = ready;
    if (!ready && !stopping_)
        give_up("its copies could not be set up");
    while (!stopping_ || !motions_.empty()) {
        bool busy = retire();
        busy = advance(lock) || busy;
        if (!stopping_ && !gave_up_)
            busy = decide(lock) || busy;
        if (busy)
            continue;
        const bool waiting =
            waiters_ > 0 || std::any_of(motions_.begin(), motions_.end(),
                                        [](const motion &each) {
                                            return each.at != stage::ready;
                                        });
        const bool watching = !flights_.empty();
        if (waiting)
            changed_.wait_for(lock, 20000);
        else if (watching)
            changed_.wait_for(lock, 200000);
        else
            changed_.wait_for(lock, 100000000);
    }
    lock.unlock();
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

// Takes note of work that has ended.
bool mover::retire()
{
    bool any = false;
    for (auto entry = flights_.begin(); entry != flights_.end();) {
        auto &queue = entry->second;
        while (!queue.empty()) {
            const CUresult state = calls_.cuEventQuery(queue.front().event);
            if (state == CUDA_ERROR_NOT_READY)
                break;
            flight &ended = queue.front();
            for (const block_ref &each : ended.blocks)
                each->in_flight--;
            unvouched_ -= ended.vouched ? 0 : 1;
            events_.push_back(ended.event);
            queue.pop_front();
            progress_++;
            version_++;
            any = true;
            if (state != CUDA_SUCCESS) // the context is lost
                give_up("the device reports an error");
        }
        entry = queue.empty() ? flights_.erase(entry) : std::next(entry);
    }
    if (any)
        changed_.notify_all();
    return any;
}

void mover::end_motion(const motion &which, place where)
{
    slot &of = which.of->slots[which.index];
    of.where = where;
    of.cancel = false;
    which.of->moving--;
    progress_++;
    version_++;
    if (which.event != nullptr)
        events_.push_back(which.event);
    if (which.at != stage::fetch)
        digest_slots_.push_back(which.digest_slot);
    changed_.notify_all();
}

// Takes motions a stage further, or to their end.
bool mover::advance(std::unique_lock<std::mutex> &lock)
{
    bool any = false;
    // What arrives is waited for; what leaves is not.
    std::partition(motions_.begin(), motions_.end(),
                   [](const motion &each) { return each.at == stage::fetch; });
    for (std::size_t i = 0; i < motions_.size();) {
        motion &each = motions_[i];
        slot &of = each.of->slots[each.index];
        if (each.at == stage::ready && !of.cancel && unvouched_ == 0 &&
            each.of->in_flight == 0 && !stopping_ && !gave_up_ &&
            free_bytes() + of.bytes > max_free_bytes &&
            free_bytes() >= of.bytes) {
            i++;
            continue;
        }
        const CUresult state = calls_.cuEventQuery(each.event);
        if (state == CUDA_ERROR_NOT_READY) {
            i++;
            continue;
        }
        any = true;
        const bool still = state == CUDA_SUCCESS && !of.cancel &&
                           unvouched_ == 0 && each.of->in_flight == 0;
        if (each.at == stage::digest && still) {
            std::array<std::uint64_t, 2> now{};
            std::memcpy(now.data(), digest_host_ + 2 * each.digest_slot, 16);
            const bool unchanged = of.digested && of.digest == now;
            of.digest = now;
            if (!unchanged) {
                // The host's copy is of another time until this one is done.
                of.digested = false;
                if (calls_.cuMemcpyAsync(of.host_alias, of.at, of.bytes,
                                         out_) == CUDA_SUCCESS &&
                    calls_.cuEventRecord(each.event, out_) == CUDA_SUCCESS) {
                    each.at = stage::write_back;
                    i++;
                    continue;
                }
                end_motion(each, place::vram);
                motions_.erase(motions_.begin() + static_cast<long>(i));
                continue;
            }
            each.at = stage::ready;
            continue;
        }
        if (each.at == stage::write_back && still) {
            of.digested = true;
            each.wrote = true;
            each.at = stage::ready;
            continue;
        }
        if (!still) {
            if (each.at == stage::fetch)
                free_.push_back(each.into);
            else if (each.at == stage::write_back)
                of.digested = false;
            end_motion(each,
                       each.at == stage::fetch ? place::host : place::vram);
            motions_.erase(motions_.begin() + static_cast<long>(i));
            continue;
        }
        of.gap = true;
        gaps_++;
        const bool fetched = each.at == stage::fetch;
        const bool wrote = each.wrote;
        lock.unlock();
        const bool done = fetched ? remap(of, each.into.handle, of.host)
                                  : remap(of, of.host, of.vram);
        lock.lock();
        of.gap = false;
        gaps_--;
        if (done)
            limits_.report_migrated(fetched ? of.bytes : 0,
                                    wrote ? of.bytes : 0);
        const std::uint64_t now = now_ns();
        place where = fetched ? place::host : place::vram;
        if (done && fetched) {
            of.vram = each.into.handle;
            of.vram_alias = each.into.alias;
            host_bytes_ -= of.bytes;
            spare_bytes_ += of.bytes;
            counters_.fetched_bytes += of.bytes;
            where = place::vram;
        } else if (done) {
            free_.push_back({of.vram, of.vram_alias, of.bytes});
            of.vram = 0;
            of.vram_alias = 0;
            host_bytes_ += of.bytes;
            spare_bytes_ -= of.bytes;
            counters_.evicted_bytes += of.bytes;
            counters_.written_back_bytes += wrote ? of.bytes : 0;
            where = place::host;
        } else {
            if (fetched)
                free_.push_back(each.into);
            give_up("a unit could not be mapped");
        }
        if (trace_ != nullptr)
            trace_->span(fetched ? trace::row::to_vram : trace::row::to_ram,
                         fetched ? "fetch"
                         : wrote ? "write back"
                                 : "drop",
                         each.started_ns, now, of.at, of.bytes, each.next_use);
        end_motion(each, where);
        motions_.erase(motions_.begin() + static_cast<long>(i));
        if (!fetched)
            break; // that took long: look again what has arrived
    }
    return any;
}

std::uint64_t mover::free_bytes() const
{
    std::uint64_t bytes = 0;
    for (const frame &each : free_)
        bytes += each.bytes;
    return bytes;
}

std::uint64_t mover::next_use_of(const block &of, std::size_t index) const
{
    if (of.waiting > 0)
        return 0;
    return schedule_.next_use(of.base, static_cast<std::uint32_t>(index));
}

// Starts the one thing that is most worth it.
bool mover::decide(std::unique_lock<std::mutex> &lock)
{
    if (!settled_ || unvouched_ > 0 ||
        !(schedule_.predicts() || waiters_ > 0) || host_bytes_ == 0)
        return false;
    // Nothing has changed since there was nothing to do.
    const std::uint64_t state = version_;
    if (state == decided_)
        return false;
    std::size_t fetching = 0;
    std::size_t evicting = 0;
    std::uint64_t coming_bytes = 0;
    std::uint64_t leaving_bytes = 0;
    for (const motion &each : motions_) {
        const std::uint64_t bytes = each.of->slots[each.index].bytes;
        if (each.at == stage::fetch) {
            fetching++;
            coming_bytes += bytes;
        } else {
            evicting++;
            leaving_bytes += bytes;
        }
    }
    const std::uint64_t part = limits_.read().physical_bytes / 8;
    const bool may_fetch =
        fetching < max_motions &&
        (fetching == 0 || coming_bytes < std::min(max_coming_bytes, part));
    const bool may_evict = evicting < max_motions && !digest_slots_.empty() &&
                           (leaving_bytes == 0 ||
                            leaving_bytes < std::min(max_leaving_bytes, part));
    if (!may_fetch && !may_evict) {
        decided_ = state;
        return false;
    }
    // The unit in system RAM that is needed first ...
    block_ref wanted;
    std::size_t wanted_index = 0;
    std::uint64_t wanted_use = schedule::never;
    // ... and the one in VRAM that is needed last.
    block_ref victim;
    std::size_t victim_index = 0;
    std::uint64_t victim_use = 0;
    // Room in system RAM for one more unit is slow to make and takes memory. As
    // much again as lies there is enough to take turns with.
    const bool may_grow = spare_bytes_ < host_bytes_ + min_spare_bytes;
    block_ref newcomer;
    std::size_t newcomer_index = 0;
    std::uint64_t newcomer_use = 0;
    for (const auto &[base, each] : blocks_) {
        if (each->fixed || each->small || each->in_flight > 0)
            continue;
        for (std::size_t i = 0; i < each->slots.size(); i++) {
            const slot &one = each->slots[i];
            if (one.where != place::host && one.where != place::vram)
                continue;
            const std::uint64_t use = next_use_of(*each, i);
            if (one.where == place::host && use < wanted_use) {
                wanted = each;
                wanted_index = i;
                wanted_use = use;
            } else if (one.where == place::vram && one.host != 0 &&
                       use > victim_use) {
                victim = each;
                victim_index = i;
                victim_use = use;
            } else if (one.where == place::vram && one.host == 0 &&
                       use > newcomer_use) {
                newcomer = each;
                newcomer_index = i;
                newcomer_use = use;
            }
        }
    }
    if (wanted) {
        if (may_fetch && start_fetch(wanted, wanted_index, wanted_use))
            return true;
        // What stays away for clearly longer is worth the room: sooner or
        // later everything that leaves has just been used.
        const bool grows =
            may_grow && bool(newcomer) && newcomer_use / 8 * 7 >= victim_use;
        if (may_evict && !grows && victim && victim_use > wanted_use + 1 &&
            start_evict(lock, victim, victim_index, victim_use))
            return true;
        if (may_evict && grows && newcomer_use > wanted_use + 1) {
            if (start_evict(lock, newcomer, newcomer_index, newcomer_use))
                return true;
        }
    }
    decided_ = state;
    // Who waits, waits in vain if nothing is on its way or can end.
    if (waiters_ > 0 && motions_.empty() && flights_.empty()) {
        hopeless_ = progress_;
        changed_.notify_all();
    }
    return false;
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
        return false;
    }
    // Frames of other sizes make room, the largest first.
    while (!limits_.charge_physical(bytes)) {
        if (free_.empty())
            return false;
        const auto largest = std::max_element(
            free_.begin(), free_.end(),
            [](const frame &a, const frame &b) { return a.bytes < b.bytes; });
        std::uint64_t sum = limits_.read().physical_free_bytes();
        for (const frame &each : free_)
            sum += each.bytes;
        if (sum < bytes)
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
    return false;
}

void mover::drop_frame(const frame &which)
{
    if (which.alias != 0)
        drop_alias(which.alias, which.bytes);
    calls_.cuMemRelease(which.handle);
    limits_.uncharge_physical(which.bytes);
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

bool mover::start_fetch(const block_ref &of, std::size_t index,
                        std::uint64_t next_use)
{
    slot &one = of->slots[index];
    one.where = place::fetching;
    one.cancel = false;
    of->moving++;
    motion next;
    next.of = of;
    next.index = index;
    next.at = stage::fetch;
    next.started_ns = now_ns();
    next.next_use = next_use;
    next.event = take_event();
    const bool begun =
        next.event != nullptr && take_frame(one.bytes, next.into) &&
        calls_.cuMemcpyAsync(next.into.alias, one.at, one.bytes, in_) ==
            CUDA_SUCCESS &&
        calls_.cuEventRecord(next.event, in_) == CUDA_SUCCESS;
    if (begun) {
        motions_.push_back(std::move(next));
        return true;
    }
    if (next.into.handle != 0)
        free_.push_back(next.into);
    end_motion(next, place::host);
    return false;
}

bool mover::start_evict(std::unique_lock<std::mutex> &lock, const block_ref &of,
                        std::size_t index, std::uint64_t next_use)
{
    slot &one = of->slots[index];
    one.where = place::evicting;
    one.cancel = false;
    of->moving++;
    motion next;
    next.of = of;
    next.index = index;
    next.at = stage::digest;
    next.started_ns = now_ns();
    next.next_use = next_use;
    next.event = take_event();
    next.digest_slot = digest_slots_.back();
    digest_slots_.pop_back();
    // Making room in system RAM takes milliseconds the first time.
    lock.unlock();
    const bool room = make_host(one);
    lock.lock();
    CUdeviceptr at = one.at;
    std::uint64_t count = one.bytes / 16;
    CUdeviceptr out = digest_device_ + 16 * next.digest_slot;
    void *parameters[] = {&at, &count, &out};
    const bool begun =
        room && next.event != nullptr && !one.cancel && of->in_flight == 0 &&
        unvouched_ == 0 &&
        calls_.cuMemsetD8Async(out, 0, 16, look_) == CUDA_SUCCESS &&
        calls_.cuLaunchKernel(digest_, digest_blocks, 1, 1, digest_threads, 1,
                              1, 0, look_, parameters,
                              nullptr) == CUDA_SUCCESS &&
        calls_.cuMemcpyDtoHAsync_v2(digest_host_ + 2 * next.digest_slot, out,
                                    16, look_) == CUDA_SUCCESS &&
        calls_.cuEventRecord(next.event, look_) == CUDA_SUCCESS;
    if (begun) {
        motions_.push_back(std::move(next));
        return true;
    }
    // Without room it never leaves; otherwise somebody just needs it.
    if (!room)
        of->fixed = true;
    end_motion(next, place::vram);
    return room;
}

} // namespace emuv::cuda
