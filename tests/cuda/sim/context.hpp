// SPDX-License-Identifier: GPL-2.0-or-later
// Devices, and contexts on them.
#pragma once

#include "frames.hpp"
#include "heap.hpp"
#include "pool.hpp"
#include "stream.hpp"

#include <atomic>
#include <map>
#include <set>

namespace sim {

struct device
{
    device(int ordinal, std::size_t vram_bytes);

    int ordinal;
    frame_store vram;
    std::shared_ptr<pool> default_pool;
    std::shared_ptr<pool> current_pool;
    std::shared_ptr<context> primary;
    unsigned primary_count = 0;
    unsigned primary_flags = 0;
    std::size_t graph_bytes = 0; // of allocation nodes
};

// Contexts are never freed, so that a stale handle is told from a good one.
struct context
{
    context(device &on, unsigned flags_, bool primary_);

    device &dev;
    unsigned flags;
    bool primary;
    std::uint64_t id;
    unsigned uses = 1; // if it is not a primary one
    bool alive = true;
    std::atomic<bool> closing = false; // ends waits for values
    CUresult lost = CUDA_SUCCESS;      // the error that stays
    heap memory;
    std::shared_ptr<stream> legacy;
    std::map<std::uint64_t, std::shared_ptr<stream>> of_thread;
    std::set<std::shared_ptr<stream>> streams;
    std::map<int, std::size_t> limits;

    std::uint32_t bit() const { return 1U << dev.ordinal; }
};

// The calling thread's stack of current contexts.
std::vector<context *> &context_stack();

} // namespace sim
