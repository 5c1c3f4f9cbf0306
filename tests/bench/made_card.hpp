// SPDX-License-Identifier: GPL-2.0-or-later
// A made-up card: copies, kernels and mappings last as long as on a real one,
// and nothing is computed.
#pragma once

#include "base/driver.hpp"
#include "base/thread.hpp"
#include "costs.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace bench {

inline constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

inline void sleep_until(std::uint64_t ns)
{
    const std::uint64_t now = emuv::cuda::now_ns();
    if (ns > now)
        emuv::cuda::sleep_ns(ns - now);
}

/// The card's costs. Set before the first is made.
extern card_costs costs;

/// The card. One at a time.
struct card
{
    struct piece
    {
        bool ram = false;
        std::uint64_t version = 0; // of its content
    };
    struct busy
    {
        std::uint64_t start, end;
    };
    std::mutex lock;
    std::mutex mapping; // the driver maps nothing in parallel
    std::uint64_t next = 1;
    CUdeviceptr next_address = CUdeviceptr{0x1000} << 32; // below hints
    std::map<CUmemGenericAllocationHandle, piece> pieces;
    std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
    std::map<CUstream, std::uint64_t> streams; // until when they have work
    std::deque<busy> kernels;                  // of the program
    std::map<CUevent, std::uint64_t> events;   // when they come
    // A request to a stream that waits for a word of the host's. The wait is
    // the first.
    struct request
    {
        enum
        {
            kernel,
            event,
            write,
            wait,
        } what;
        std::uint64_t ns = 0;
        CUevent recorded = nullptr;
        std::uint32_t *at = nullptr;
        std::uint32_t value = 0;
    };
    std::map<CUstream, std::deque<request>> waiting;
    struct writing
    {
        std::uint64_t ns;
        std::uint32_t *at;
        std::uint32_t value;
    };
    std::vector<writing> writes;    // that the device has not come to
    emuv::cuda::condition to_serve; // there is something of these two
    std::uint64_t coming_until = 0;
    std::uint64_t leaving_until = 0;
    std::uint64_t room_bytes = 0; // of system RAM, the program's and ours

    // The program's own beginning is not timed.
    bool has_begun()
    {
        const std::lock_guard guard(lock);
        return !events.empty();
    }
    piece &at(CUdeviceptr address)
    {
        return pieces[std::prev(mapped.upper_bound(address))->second];
    }
    void enqueue(CUstream stream, const request &asked)
    {
        if (const auto found = waiting.find(stream); found != waiting.end())
            found->second.push_back(asked);
        else
            begin(stream, asked);
        if (asked.what == request::event && waiting.count(stream) > 0)
            events[asked.recorded] = UINT64_MAX;
    }
    void begin(CUstream stream, const request &asked)
    {
        std::uint64_t &free = streams[stream];
        const std::uint64_t now = emuv::cuda::now_ns();
        const std::uint64_t start = std::max(free, now);
        switch (asked.what) {
        case request::kernel:
            free = start + asked.ns;
            kernels.push_back({start, free});
            break;
        case request::event:
            events[asked.recorded] = free;
            break;
        case request::write:
            if (free <= now)
                std::atomic_ref(*asked.at).store(asked.value);
            else
                writes.push_back({free, asked.at, asked.value});
            to_serve.notify_all();
            break;
        case request::wait:
            if (std::atomic_ref(*asked.at).load() != asked.value)
                waiting[stream].push_back(asked);
            to_serve.notify_all();
            break;
        }
    }
    // Does what is due in memory that the host sees.
    void go_on()
    {
        const std::uint64_t now = emuv::cuda::now_ns();
        std::erase_if(writes, [now](const writing &each) {
            if (each.ns > now)
                return false;
            std::atomic_ref(*each.at).store(each.value);
            return true;
        });
        for (auto at = waiting.begin(); at != waiting.end();) {
            const request first = at->second.front();
            if (streams[at->first] > now ||
                std::atomic_ref(*first.at).load() != first.value) {
                ++at;
                continue;
            }
            const CUstream stream = at->first;
            std::deque<request> rest = std::move(at->second);
            rest.pop_front();
            at = waiting.erase(at);
            for (const request &each : rest)
                enqueue(stream, each);
            if (waiting.count(stream) > 0)
                at = waiting.upper_bound(stream);
        }
    }
    // Until when a stream has work, or UINT64_MAX.
    std::uint64_t busy_until(CUstream stream)
    {
        const std::lock_guard guard(lock);
        return waiting.count(stream) > 0 ? UINT64_MAX : streams[stream];
    }
    // With the lock held.
    void forget_ended(std::uint64_t now)
    {
        while (!kernels.empty() && kernels.front().end <= now)
            kernels.pop_front();
    }
    // Waits as the driver does before a launch, while so many have not ended.
    void wait_for_queue()
    {
        for (;;) {
            const std::uint64_t now = emuv::cuda::now_ns();
            std::uint64_t until = now + 20000;
            {
                const std::lock_guard guard(lock);
                forget_ended(now);
                std::size_t count = kernels.size();
                for (const auto &[stream, requests] : waiting)
                    for (const request &each : requests)
                        count += each.what == request::kernel ? 1 : 0;
                if (count < most_queued)
                    return;
                if (!kernels.empty())
                    until = kernels.front().end;
            }
            sleep_until(until);
        }
    }
    // The time from which the card has room for a digest: a kernel of the
    // program's leaves none beside it.
    std::uint64_t gap(std::uint64_t from)
    {
        const std::uint64_t now = emuv::cuda::now_ns();
        forget_ended(now);
        from = std::max(from, now);
        for (const busy &each : kernels)
            if (each.start <= from && from < each.end)
                return each.end;
        return from;
    }
    // The time goes by the handle for VRAM, and by the page for system RAM.
    void take(const bench::mapping_cost &of, bool by_page, std::uint64_t bytes)
    {
        const std::lock_guard turn(mapping);
        std::uint64_t ns = 0;
        const std::uint64_t now = emuv::cuda::now_ns();
        {
            const std::lock_guard guard(lock);
            const bool in = coming_until > now;
            const bool out = leaving_until > now;
            ns = in && out ? of.both
                 : in      ? of.coming
                 : out     ? of.leaving
                           : of.rest;
        }
        if (by_page)
            ns = std::max<std::uint64_t>(40000, ns * bytes / (64 * MiB));
        sleep_until(now + ns);
    }
};

/// The card that the driver below is for.
extern card *the;

/// A driver in front of the card.
emuv::cuda::driver slow_driver();

/// A thread that does what is due in memory that the host sees.
class served
{
public:
    explicit served(card &which);
    served(const served &) = delete;
    served &operator=(const served &) = delete;
    ~served();

private:
    void serve();

    card &of_;
    bool ended_ = false;
    emuv::cuda::thread thread_;
};

} // namespace bench
