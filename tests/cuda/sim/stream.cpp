// SPDX-License-Identifier: GPL-2.0-or-later
// Streams at work: a thread each, work in order, markers between them.
#include "stream.hpp"

#include "fault.hpp"
#include "graph.hpp"
#include "state.hpp"

#include <algorithm>
#include <csignal>
#include <random>

namespace sim {

namespace {

void serve(const std::shared_ptr<stream> &self)
{
    state &s = the();
    std::unique_lock lock(s.mutex);
    std::minstd_rand random(static_cast<unsigned>(self->id));
    for (;;) {
        self->has_come.wait(
            lock, [&] { return !self->queue.empty() || self->closing; });
        if (self->queue.empty())
            return;
        work next = std::move(self->queue.front());
        self->queue.pop_front();
        for (const mark &each : next.after)
            wait(lock, each);
        if (s.lag.count() != 0) {
            lock.unlock();
            std::this_thread::sleep_for(s.lag * (random() % 1024) / 1024);
            lock.lock();
        }
        context &where = *self->owner;
        if (next.run && (next.always || where.lost == CUDA_SUCCESS)) {
            lock.unlock();
            const bool good = run_guarded(next.run);
            lock.lock();
            if (!good && where.lost == CUDA_SUCCESS)
                where.lost = CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        next.run = nullptr;
        next.end->when = std::chrono::steady_clock::now();
        next.end->done = true;
        next.end->has_ended.notify_all();
    }
}

void start(const std::shared_ptr<stream> &which)
{
    // The program's signals are for the program's threads.
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    which->thread = std::thread(serve, which);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void push(stream &where, work what)
{
    if (where.last && !where.last->done)
        what.after.push_back(where.last);
    what.end = std::make_shared<marker>();
    where.last = what.end;
    where.queue.push_back(std::move(what));
    if (!where.thread.joinable())
        for (const auto &one : where.owner->streams)
            if (one.get() == &where)
                start(one);
    where.has_come.notify_one();
}

// The legacy stream and the blocking streams wait for one another.
std::vector<mark> implied(stream &where)
{
    std::vector<mark> out;
    context &owner = *where.owner;
    if (where.legacy) {
        for (const auto &other : owner.streams)
            if (other.get() != &where && other->blocking() && !other->idle())
                out.push_back(other->last);
    } else if (where.blocking() && !owner.legacy->idle()) {
        out.push_back(owner.legacy->last);
    }
    return out;
}

// The capture, if any, that the legacy stream would come to depend on.
capture *capture_in_the_way(context &owner)
{
    for (const auto &other : owner.streams)
        if (other->capture && other->blocking())
            return other->capture.get();
    return nullptr;
}

} // namespace

std::uint64_t this_thread()
{
    static std::atomic<std::uint64_t> count = 0;
    thread_local const std::uint64_t mine = ++count;
    return mine;
}

CUstreamCaptureMode &thread_capture_mode()
{
    thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

std::shared_ptr<stream> resolve(context &where, CUstream handle,
                                bool per_thread)
{
    if (handle == CU_STREAM_LEGACY || (!handle && !per_thread))
        return where.legacy;
    if (handle == CU_STREAM_PER_THREAD || !handle) {
        auto &mine = where.of_thread[this_thread()];
        if (!mine) {
            mine = std::make_shared<stream>();
            mine->owner = &where;
            mine->id = the().next_id();
            where.streams.insert(mine);
        }
        return mine;
    }
    return the().streams.find(handle);
}

mark enqueue(stream &where, std::function<void()> run, bool always)
{
    work what;
    what.run = std::move(run);
    what.always = always;
    what.after = implied(where);
    push(where, std::move(what));
    return where.last;
}

void enqueue_after(stream &where, const mark &before)
{
    work what;
    what.after = implied(where);
    what.after.push_back(before);
    push(where, std::move(what));
}

CUresult submit(stream &where, operation what)
{
    if (where.capture) {
        if (where.capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        node *made =
            add_node(*where.capture->into, std::move(what), where.leaves);
        where.leaves = {made};
        return CUDA_SUCCESS;
    }
    if (where.legacy) {
        if (capture *other = capture_in_the_way(*where.owner)) {
            other->broken = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    enqueue(where, std::move(what.run));
    return CUDA_SUCCESS;
}

void wait(std::unique_lock<std::mutex> &lock, const mark &end)
{
    if (end)
        end->has_ended.wait(lock, [&] { return end->done; });
}

void wait_all(std::unique_lock<std::mutex> &lock, context &which)
{
    std::vector<mark> ends;
    for (const auto &one : which.streams)
        if (!one->idle())
            ends.push_back(one->last);
    for (const mark &end : ends)
        wait(lock, end);
    pools_trim();
}

void wait_device(std::unique_lock<std::mutex> &lock, int device)
{
    std::vector<context *> all;
    for (auto &[key, one] : the().contexts)
        if (one->alive && one->dev.ordinal == device)
            all.push_back(one.get());
    for (context *one : all)
        wait_all(lock, *one);
}

CUresult refuse_during_capture()
{
    const CUstreamCaptureMode mine = thread_capture_mode();
    if (mine == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (const auto &weak : the().captures) {
        auto one = weak.lock();
        if (!one || one->ended || one->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
            continue;
        const bool ours = one->thread == this_thread();
        if (!ours && (mine == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
                      one->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
            continue;
        one->broken = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

void close_streams(std::unique_lock<std::mutex> &lock, context &which)
{
    std::vector<std::thread> threads;
    for (const auto &one : which.streams) {
        one->closing = true;
        if (one->thread.joinable())
            threads.push_back(std::move(one->thread));
        the().streams.remove(one.get());
        one->has_come.notify_one();
    }
    lock.unlock();
    for (std::thread &one : threads)
        one.join();
    lock.lock();
    which.streams.clear();
    which.of_thread.clear();
}

namespace {

// Streams that were destroyed and have done their work.
void reap(context &where)
{
    for (auto at = where.streams.begin(); at != where.streams.end();) {
        const auto &one = *at;
        if (one->closing && one->idle() && one->queue.empty()) {
            // It needs the lock once more to leave, so it is not joined.
            if (one->thread.joinable())
                one->thread.detach();
            at = where.streams.erase(at);
        } else {
            ++at;
        }
    }
}

} // namespace

} // namespace sim

using namespace sim;

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned flags,
                                    int priority)
{
    SIM_ENTER(context);
    if (!phStream || (flags & ~1U))
        return CUDA_ERROR_INVALID_VALUE;
    reap(*entered.current);
    auto made = std::make_shared<stream>();
    made->owner = entered.current;
    made->flags = flags;
    made->priority = std::clamp(priority, -5, 0);
    made->id = the().next_id();
    entered.current->streams.insert(made);
    *phStream = the().streams.add<CUstream>(made);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned Flags)
{
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy(CUstream hStream)
{
    SIM_ENTER(init);
    auto found = the().streams.find(hStream);
    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    if (found->capture)
        found->capture->broken = true;
    found->closing = true;
    the().streams.remove(hStream);
    found->has_come.notify_one();
    reap(*found->owner);
    return CUDA_SUCCESS;
}
