// SPDX-License-Identifier: LGPL-2.1-or-later
// Turns what a program asks of the driver into records of a tape.
#pragma once

#include "base/driver.hpp"
#include "base/kernel_parameters.hpp"
#include "base/work.hpp"
#include "record/writer.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// The calls of the driver that read graphs, which nobody else makes.
#define EMUV_GRAPH_CALLS(X)                                                    \
    X(cuGraphKernelNodeGetParams_v2)                                           \
    X(cuGraphMemFreeNodeGetParams)                                             \
    X(cuGraphMemcpyNodeGetParams)                                              \
    X(cuGraphMemsetNodeGetParams)
struct graph_calls
{
#define EMUV_GRAPH_MEMBER(name) decltype(&::name) name;
    EMUV_GRAPH_CALLS(EMUV_GRAPH_MEMBER)
#undef EMUV_GRAPH_MEMBER
};

/// The program's calls as a tape.
///
/// Each function is called on the program's thread, and takes a lock of its
/// own for a moment. With the lock held nobody calls the driver, which may wait
/// for the device. A record is written once its call has succeeded, so the
/// records of several threads come in the order in which their calls returned.
///
/// The time that a kernel takes on the device comes from an event before it and
/// one behind it. The first launches of a shape are timed, then one in sixteen:
/// events keep kernels from overlapping. Later calls
/// ask for the times, and nobody waits for one.
class recorder
{
public:
    /// When a call began and when it returned, in nanoseconds of now_ns().
    struct moment
    {
        std::uint64_t begin;
        std::uint64_t end;
        /// When the program made it, if that is before: recording took time.
        std::uint64_t entered = 0;
    };

    /// Memory that the tape knows.
    struct known_memory
    {
        CUdeviceptr address = 0;
        std::uint64_t bytes = 0; ///< 0: not known
        std::uint64_t ordinal = 0;
    };

    /// A launch between its announcement and its record.
    struct launching
    {
        std::uint64_t shape = 0;
        bool captured = false; ///< it goes into a graph, and does not run
        bool timed = false;
        CUevent start = nullptr;
        CUevent end = nullptr;
        CUcontext context = nullptr;
        std::uint64_t contexts_gone = 0; ///< of the recorder's, then
        /// The bytes: the offset into the allocation.
        std::vector<known_memory> addresses;
    };

    /// A kernel's grid, as in cuLaunchKernel().
    struct grid
    {
        unsigned grid_x, grid_y, grid_z;
        unsigned block_x, block_y, block_z;
        unsigned shared_bytes;
    };

    /// Tells what a launch is given: its addresses, and which are pointers. It
    /// may wait, and is called without a lock.
    using reader = void (*)(CUfunction which, void **parameters, void **extra,
                            work &out);

    /// @param calls, graphs, out  outlive this object; @p out is open
    /// @param reads  null: all that may be an address is one
    recorder(const driver &calls, const graph_calls &graphs, tape_writer &out,
             reader reads = nullptr)
        : calls_(calls), graph_calls_(graphs), out_(out), reads_(reads)
    {}
    ~recorder();
    recorder(const recorder &) = delete;
    recorder &operator=(const recorder &) = delete;

    /// A line about the recording: a card's name, a program's.
    void about(const char *key, const char *value);

    // ---- Memory

    /// @param stream  the stream that it is allocated in order of, or null
    void allocated(const moment &when, tape::memory_kind kind,
                   CUdeviceptr address, std::uint64_t bytes, CUstream stream);
    /// Before memory goes: its address may be given out anew at once.
    /// @param stream  the stream that it is freed in order of, or null. While
    ///   that is captured the memory stays: a node of the graph frees it.
    known_memory leaves(CUdeviceptr address, CUstream stream);
    /// It did not go after all.
    void stays(const known_memory &what);
    /// It went, if it was known.
    void freed(const moment &when, const known_memory &what, CUstream stream);
    /// Mappings of handles within these addresses go.
    std::vector<known_memory> leave(CUdeviceptr address, std::uint64_t bytes);
    /// The program's own allocator hands out a part of an allocation, or takes
    /// one back. Parts of allocations below `least_divided` are left out.
    void handed_out(CUdeviceptr address, std::uint64_t bytes);
    void taken_back(CUdeviceptr address);
    /// Movement leaves smaller ones whole, too.
    static constexpr std::uint64_t least_divided = std::uint64_t{4} << 20;

    // ---- Work

    /// Before a launch. @p stream: with the default streams named.
    void begin_launch(launching &out, CUfunction function, const grid &size,
                      CUstream stream, void **parameters, void **extra);
    /// The launch has been made, or has failed.
    void end_launch(const moment &when, launching &launch, CUstream stream,
                    CUresult result);
    void copied(const moment &when, tape::copy_kind kind, bool waits,
                CUstream stream, CUdeviceptr to, CUdeviceptr from,
                std::uint64_t bytes);
    void filled(const moment &when, bool waits, CUstream stream, CUdeviceptr to,
                std::uint64_t bytes);
    void host_work(const moment &when, CUstream stream);

    // ---- Graphs

    void instantiated(const moment &when, CUgraphExec made, CUgraph from);
    /// An executable graph took over another graph's parameters.
    void updated(const moment &when, CUgraphExec which, CUgraph from);
    void node_changed(const moment &when, CUgraphExec which,
                      CUgraphNode which_node, CUfunction function,
                      const grid &size, void **parameters, void **extra);
    /// A graph within an executable graph took over another graph's parameters.
    void child_changed(const moment &when, CUgraphExec which,
                       CUgraphNode which_node, CUgraph from);
    /// The same of a copy, and of a fill.
    void node_changed(const moment &when, CUgraphExec which,
                      CUgraphNode which_node, const CUDA_MEMCPY3D &to);
    void node_changed(const moment &when, CUgraphExec which,
                      CUgraphNode which_node,
                      const CUDA_MEMSET_NODE_PARAMS &to);
    void begin_graph(launching &out, CUstream stream);
    void end_graph(const moment &when, launching &launch, CUgraphExec which,
                   CUstream stream, CUresult result);
    void graph_gone(const moment &when, CUgraphExec which);

    // ---- Order

    void event_recorded(const moment &when, CUevent event, CUstream stream);
    void event_awaited(const moment &when, CUstream stream, CUevent event);
    void event_gone(CUevent event);
    /// Before the program waits, possibly for long.
    void waits();
    void synchronized(const moment &when, tape::wait_kind what, CUstream stream,
                      CUevent event);
    void stream_gone(const moment &when, CUstream stream);
    void marked(const moment &when, std::uint64_t value);

    // ---- Ends

    /// Kernels of a module are about to go; their handles may be others' then.
    void module_goes();
    /// A context is about to go, with its events.
    void context_goes();
    /// The program ends: the times that are known by now are written.
    /// @return false if a call of this recorder's never ends, as in a program
    ///   that ends in a signal's handler: the tape has no end then
    bool finish();

private:
    struct function
    {
        std::uint64_t kernel = 0;
        std::vector<kernel_parameter> parameters;
    };
    struct shape
    {
        std::uint64_t ordinal = 0;
        std::uint64_t launches = 0;
    };
    struct timer
    {
        CUevent start;
        CUevent end;
        CUcontext context;
        std::uint64_t work; // its ordinal; `calibration` for none
        static constexpr std::uint64_t unknown = UINT64_MAX;
        std::uint64_t ns = unknown; // between them
    };
    struct given_address
    {
        std::uint32_t position; // in the parameters
        known_memory where;     // the bytes: the offset
    };
    struct by_text
    {
        bool operator()(const char *one, const char *other) const;
    };
    // A node as the tape has it.
    struct node
    {
        tape::node_kind kind = tape::node_kind::other;
        std::uint64_t shape = 0;
        std::vector<known_memory> addresses;
        CUdeviceptr to = 0;
        CUdeviceptr from = 0;
        std::uint64_t bytes = 0;
    };
    struct numbers // of a graph's nodes
    {
        std::size_t first = 0;
        std::size_t count = 0;
    };
    struct executable
    {
        std::uint64_t ordinal = 0;
        std::map<CUgraphNode, std::uint64_t> nodes; // their numbers
        std::map<CUgraphNode, numbers> children;    // graphs in it
        std::vector<node> now;
        bool changed = false;   // unlike what the tape has
        bool allocates = false; // by a node
    };

    // The addresses that a launch goes by, if a proof tells all of them.
    struct pointers
    {
        std::vector<CUdeviceptr> all;
        std::vector<CUdeviceptr> bases; // on which the proof relies
    };

    static constexpr std::uint64_t calibration = UINT64_MAX;
    static constexpr std::size_t most_timers = 4096;

    tape_writer &timed(tape::code what, const moment &when);
    void commit();
    std::uint64_t stream_of(CUstream stream);
    const known_memory *find(CUdeviceptr at) const;
    void end_part(std::uint64_t ordinal);
    void end_parts(CUdeviceptr address, std::uint64_t bytes);
    std::optional<pointers> read(CUfunction which, void **parameters,
                                 void **extra) const;
    void keep_pointers(const std::optional<pointers> &of);
    void put_address(CUdeviceptr at);
    void scan(const unsigned char *from, std::size_t bytes, std::size_t offset);
    void scan_launch(const function &of, void **parameters, void **extra);
    const char *ask_about(CUfunction which,
                          std::vector<kernel_parameter> &out) const;
    const function *function_of(CUfunction which);
    shape &shape_of(std::uint64_t kernel, const grid &size);
    bool is_captured(CUstream stream);
    bool take_timer(launching &out);
    void start_timer(launching &launch, CUstream stream);
    bool stop_timer(launching &launch, CUstream stream, CUresult result);
    void give_back(const launching &launch);
    void keep_timer(const launching &launch, std::uint64_t work);
    std::vector<timer> take_pending(CUcontext context, std::size_t most);
    std::size_t ask_times(std::vector<timer> &of) const;
    void resolve(std::size_t most);
    void resolve_all();
    void calibrate(CUstream stream);
    void put_addresses(const std::vector<known_memory> &addresses);

    struct asked_node;
    struct asked_graph;
    void put_graph(tape::code what, const moment &when, std::uint64_t ordinal,
                   const std::vector<node> &nodes);
    void ask_nodes(CUgraph from, asked_graph &out, unsigned depth);
    asked_node ask_node(CUgraphNode which, CUgraphNodeType type);
    std::vector<node> list_nodes(const std::vector<asked_node> &from);
    static bool any_allocates(const std::vector<node> &nodes);
    void leave(const moment &when);
    void change(executable &of, std::size_t first,
                const std::vector<asked_node> &to);
    void node_changed(const moment &when, CUgraphExec which,
                      CUgraphNode which_node, const asked_node &to);

    const driver &calls_;
    const graph_calls &graph_calls_;
    tape_writer &out_;
    std::mutex lock_;
    std::atomic<std::uint64_t> left_at_{0}; // when the last call was left
    const reader reads_;
    std::map<CUdeviceptr, known_memory> known_;
    std::map<CUdeviceptr, known_memory> parts_; // of those
    std::uint64_t next_known_ = 0;
    std::deque<function> all_functions_; // others may still use them
    std::map<CUfunction, const function *> functions_;
    std::map<const char *, std::uint64_t, by_text> kernels_;
    std::map<std::vector<std::uint64_t>, shape> shapes_;
    std::vector<std::uint64_t> key_;   // of a shape
    std::vector<given_address> found_; // addresses of a launch
    std::map<CUstream, std::uint64_t> streams_;
    std::uint64_t next_stream_ = tape::first_own_stream;
    std::map<CUevent, std::uint64_t> events_;
    std::uint64_t next_event_ = 0;
    std::map<CUgraphExec, executable> graphs_;
    std::uint64_t next_graph_ = 0;
    std::uint64_t works_ = 0; // launches of kernels and graphs
    std::uint64_t graph_launches_ = 0;
    std::map<CUcontext, std::vector<timer>> free_timers_;
    std::deque<timer> pending_;
    std::size_t timers_ = 0;
    std::uint64_t contexts_gone_ = 0; // with their events
    unsigned calibrations_ = 0;
};

} // namespace emuv::cuda
