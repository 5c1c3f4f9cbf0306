// SPDX-License-Identifier: GPL-2.0-or-later
// Streams: work in order, each stream on a thread of its own.
#pragma once

#include "cuda.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace sim {

struct context;
struct capture;
struct node;

// The end of one work, to wait for and to ask about.
struct marker
{
    bool done = false;
    std::condition_variable has_ended; // it is done
    std::chrono::steady_clock::time_point when;
};
using mark = std::shared_ptr<marker>;

struct work
{
    std::function<void()> run;
    std::vector<mark> after;
    mark end;
    bool always = false; // also when the context is lost
};

// Guarded by the driver's one mutex, but for the work that its thread runs.
struct stream
{
    context *owner = nullptr;
    unsigned flags = 0;
    int priority = 0;
    std::uint64_t id = 0;
    bool legacy = false;
    bool closing = false;
    std::deque<work> queue;
    std::condition_variable has_come; // work, or the end of all work
    mark last; // of the newest work; null: there was none
    std::thread thread;
    std::shared_ptr<sim::capture> capture;
    std::vector<node *> leaves; // nodes that the next captured work follows

    bool blocking() const { return !(flags & CU_STREAM_NON_BLOCKING); }
    bool idle() const { return !last || last->done; }
};

struct event
{
    unsigned flags = 0;
    mark recorded;
    std::shared_ptr<sim::capture> capture;
    std::vector<node *> nodes;
};

// A request to a stream: done in its order, or kept as a graph's node.
struct operation
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::function<void()> run;
    // For graphs: the request's parameters, to be read back or changed.
    std::shared_ptr<void> params;
    CUdeviceptr address = 0; // memory nodes
    std::size_t bytes = 0;
    // Of copies and fills: the kind of memory on each side; one_row if all of
    // it is one row. A change of an executable graph must keep both.
    int dst_kind = 0, src_kind = 0;
    bool one_row = false;
};

// The stream that a handle names in the current context, or null. The
// per-thread entry points take 0 for the calling thread's own stream.
std::shared_ptr<stream> resolve(context &where, CUstream handle,
                                bool per_thread);

// Puts work at the end of the stream. The lock is held.
mark enqueue(stream &where, std::function<void()> run, bool always = false);
void enqueue_after(stream &where, const mark &before);
// As enqueue(), or as a node when the stream is being captured.
CUresult submit(stream &where, operation what);

void wait(std::unique_lock<std::mutex> &lock, const mark &end);
// Waits for everything in the context, or in all contexts of a device, and
// lets pools return memory beyond their threshold.
void wait_all(std::unique_lock<std::mutex> &lock, context &which);
void wait_device(std::unique_lock<std::mutex> &lock, int device);

// An entry point that may stall or break a capture is refused while one is
// open, and the capture is lost.
CUresult refuse_during_capture();

// Ends the threads of all streams after their work.
void close_streams(std::unique_lock<std::mutex> &lock, context &which);

} // namespace sim
