// SPDX-License-Identifier: GPL-2.0-or-later
// The few driver calls that the core makes, answered from tables: a card of so
// many bytes, with its reservations, handles and mappings.
#pragma once

#include "base/driver.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

/// The card and the host behind it. One at a time: the calls have no argument
/// that could name it.
struct FakeDriver
{
    struct Handle
    {
        std::uint64_t bytes;
        bool host;
        bool peer = false; // another card's
    };

    FakeDriver();
    ~FakeDriver();
    FakeDriver(const FakeDriver &) = delete;
    FakeDriver &operator=(const FakeDriver &) = delete;

    emuv::cuda::driver calls{};
    std::mutex lock;
    std::uint64_t card_bytes = ~std::uint64_t{0};
    std::uint64_t host_bytes = ~std::uint64_t{0};
    std::uint64_t card_used = 0;
    std::uint64_t host_used = 0;
    std::uint64_t peer_bytes = ~std::uint64_t{0}; // of all other cards
    std::uint64_t peer_used = 0;
    unsigned host_refused = 0; // how often
    bool fail_access = false;
    bool fail_map = false;
    bool capturing = false;
    // The calling thread's.
    static inline thread_local CUstreamCaptureMode capture_mode =
        CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::atomic<bool> events_done{true};
    float elapsed_milliseconds = 1.0F;
    bool shares_link = false; // with others, two of three times
    unsigned timed = 0;       // while it does
    // Bytes that the one pool, and the graphs, hold and cannot give up.
    std::uint64_t pool_reserved = 0;
    std::uint64_t pool_used = 0;
    std::uint64_t graph_reserved = 0;
    std::uint64_t graph_used = 0;
    std::vector<std::uint64_t> graph_nodes; // bytes of allocation nodes
    unsigned freed_async = 0;
    std::atomic<unsigned> synchronized{0};
    CUdeviceptr next_address = 0x7000000000;
    CUmemGenericAllocationHandle next_handle = 1;
    std::map<CUdeviceptr, std::uint64_t> reserved;
    std::map<CUdeviceptr, std::uint64_t> plain; // cuMemAlloc
    std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
    std::map<CUdeviceptr, std::uint64_t> accessible;
    std::map<CUmemGenericAllocationHandle, Handle> handles;

    /// True if nothing is left of all requests.
    bool empty() const
    {
        return card_used == 0 && host_used == 0 && peer_used == 0 &&
               reserved.empty() && plain.empty() && mapped.empty() &&
               handles.empty();
    }
};
