// SPDX-License-Identifier: LGPL-2.1-or-later
// Turns what a program asks of the driver into records of a tape.
#include "record/recorder.hpp"

#include "base/around.hpp"
#include "base/captures.hpp"
#include "base/thread.hpp"
#include "base/work.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <unistd.h>

namespace emuv::cuda {

namespace {

using tape::code;

constexpr std::uint64_t timed_at_first = 16; // launches of a shape
constexpr std::uint64_t timed_later = 16;    // one in so many
constexpr std::uint64_t graphs_timed_later = 4;
constexpr std::uint64_t polled_after = 16; // launches
constexpr unsigned most_calibrations = 16;
constexpr unsigned most_depth = 8; // of graphs in graphs
constexpr std::size_t most_nodes = std::size_t{1} << 20;
constexpr std::uint64_t flush_ns = 50000000;

} // namespace

recorder::~recorder()
{
    for (const auto &each : kernels_)
        std::free(const_cast<char *>(each.first));
}

bool recorder::by_text::operator()(const char *one, const char *other) const
{
    return std::strcmp(one, other) < 0;
}

// A node as the driver tells of it.
struct recorder::asked_node
{
    CUgraphNode handle = nullptr;
    tape::node_kind kind = tape::node_kind::other;
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    const function *of = nullptr;  // of a kernel
    std::optional<pointers> given; // to a kernel
    CUdeviceptr to = 0;
    CUdeviceptr from = 0;
    std::uint64_t bytes = 0;

    void is(const CUDA_MEMCPY3D &copy);
    void is(const CUDA_MEMSET_NODE_PARAMS &fill);
};

struct recorder::asked_graph
{
    std::vector<asked_node> nodes; // those of graphs in it in their place
    std::map<CUgraphNode, numbers> children;
};

// ---- Records

tape_writer &recorder::timed(code what, const moment &when)
{
    const std::uint64_t entered = when.entered != 0 ? when.entered : when.begin;
    const std::uint64_t left = left_at_.load();
    const std::uint64_t gap = left != 0 && entered > left ? entered - left : 0;
    return out_.begin(what).number(gap).number(when.end - when.begin);
}

void recorder::commit()
{
    out_.commit();
    out_.flush_after(flush_ns);
    left_at_ = now_ns();
}

void recorder::about(const char *key, const char *value)
{
    const std::lock_guard guard(lock_);
    out_.begin(code::about).text(key).text(value).commit();
}

std::uint64_t recorder::stream_of(CUstream stream)
{
    if (stream == CU_STREAM_LEGACY || stream == nullptr)
        return tape::legacy_stream;
    if (stream == CU_STREAM_PER_THREAD)
        return tape::per_thread_stream;
    const auto [found, made] = streams_.try_emplace(stream, next_stream_);
    if (made) {
        next_stream_++;
        out_.begin(code::stream).commit();
    }
    return found->second;
}

const recorder::known_memory *recorder::find(CUdeviceptr at) const
{
    if (const auto part = around(parts_, at, &known_memory::bytes);
        part != parts_.end())
        return &part->second;
    const auto found = around(known_, at, &known_memory::bytes);
    return found != known_.end() ? &found->second : nullptr;
}

void recorder::put_address(CUdeviceptr at)
{
    if (const known_memory *const known = find(at); known != nullptr)
        out_.number(known->ordinal + 1).number(at - known->address);
    else
        out_.number(0);
}

void recorder::put_addresses(const std::vector<known_memory> &addresses)
{
    for (const known_memory &each : addresses)
        out_.number(each.ordinal).number(each.bytes);
}

// ---- Memory

void recorder::allocated(const moment &when, tape::memory_kind kind,
                         CUdeviceptr address, std::uint64_t bytes,
                         CUstream stream)
{
    // A node of a graph: the graph tells of it.
    if (bytes == 0 || (stream != nullptr && is_captured(stream)))
        return;
    const std::lock_guard guard(lock_);
    const std::uint64_t order =
        kind == tape::memory_kind::ordered ? stream_of(stream) : 0;
    end_parts(address, bytes); // of what was there
    known_[address] = {address, bytes, next_known_++};
    timed(code::allocate, when)
        .number(static_cast<std::uint64_t>(kind))
        .number(bytes)
        .number(order);
    commit();
}

recorder::known_memory recorder::leaves(CUdeviceptr address, CUstream stream)
{
    if (stream != nullptr && is_captured(stream))
        return {};
    const std::lock_guard guard(lock_);
    const auto found = known_.find(address);
    if (found == known_.end())
        return {};
    const known_memory was = found->second;
    known_.erase(found);
    end_parts(was.address, was.bytes);
    return was;
}

std::vector<recorder::known_memory> recorder::leave(CUdeviceptr address,
                                                    std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    std::vector<known_memory> out;
    auto at = known_.lower_bound(address);
    while (at != known_.end() && at->first - address < bytes) {
        out.push_back(at->second);
        end_parts(at->first, at->second.bytes);
        at = known_.erase(at);
    }
    return out;
}

void recorder::stays(const known_memory &what)
{
    const std::lock_guard guard(lock_);
    if (what.bytes > 0)
        known_.try_emplace(what.address, what);
}

void recorder::freed(const moment &when, const known_memory &what,
                     CUstream stream)
{
    const std::lock_guard guard(lock_);
    if (what.bytes == 0)
        return;
    const std::uint64_t order = stream != nullptr ? stream_of(stream) + 1 : 0;
    timed(code::free, when).number(what.ordinal).number(order);
    commit();
}

// ---- Parts

void recorder::handed_out(CUdeviceptr address, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    const auto of = around(known_, address, &known_memory::bytes);
    if (of == known_.end() || of->second.bytes < least_divided || bytes == 0 ||
        bytes > of->second.bytes - (address - of->first))
        return;
    // A part ends where another begins: its end was not reported.
    end_parts(address, bytes);
    parts_[address] = {address, bytes, next_known_++};
    const std::uint64_t now = now_ns();
    timed(code::allocate, {now, now})
        .number(static_cast<std::uint64_t>(tape::memory_kind::part))
        .number(bytes)
        .number(tape::legacy_stream)
        .number(of->second.ordinal)
        .number(address - of->first);
    commit();
}

void recorder::taken_back(CUdeviceptr address)
{
    const std::lock_guard guard(lock_);
    const auto found = parts_.find(address);
    if (found == parts_.end())
        return;
    end_part(found->second.ordinal);
    parts_.erase(found);
}

// Locked.
void recorder::end_part(std::uint64_t ordinal)
{
    const std::uint64_t now = now_ns();
    timed(code::free, {now, now})
        .number(ordinal)
        .number(tape::legacy_stream + 1);
    commit();
}

// Locked. Parts end with what they are of.
void recorder::end_parts(CUdeviceptr address, std::uint64_t bytes)
{
    auto at = parts_.upper_bound(address);
    if (at != parts_.begin() &&
        address - std::prev(at)->first < std::prev(at)->second.bytes)
        --at;
    while (at != parts_.end() && at->first < address + bytes) {
        end_part(at->second.ordinal);
        at = parts_.erase(at);
    }
}

// ---- Kernels and their parameters

// Asks the driver about a function. Not locked: it may load the kernel.
const char *recorder::ask_about(CUfunction which,
                                std::vector<kernel_parameter> &out) const
{
    ask_parameters(calls_, which, out);
    const char *name = nullptr;
    if ((calls_.cuFuncGetName(&name, which) != CUDA_SUCCESS &&
         calls_.cuKernelGetName(&name, reinterpret_cast<CUkernel>(which)) !=
             CUDA_SUCCESS) ||
        name == nullptr)
        name = "?";
    return name;
}

const recorder::function *recorder::function_of(CUfunction which)
{
    {
        const auto guard = lock_soon(lock_);
        const auto known = functions_.find(which);
        if (known != functions_.end())
            return known->second;
    }
    function asked;
    const char *const name = ask_about(which, asked.parameters);
    const std::lock_guard guard(lock_);
    function *const made = &all_functions_.emplace_back(std::move(asked));
    const auto found = kernels_.find(name);
    if (found != kernels_.end()) {
        made->kernel = found->second;
    } else {
        made->kernel = kernels_.size();
        kernels_.emplace(strdup(name), made->kernel);
        out_.begin(code::kernel).text(name).commit();
    }
    return functions_.try_emplace(which, made).first->second;
}

// Finds the addresses among bytes of parameters: as movement does.
void recorder::scan(const unsigned char *from, std::size_t bytes,
                    std::size_t offset)
{
    for (std::size_t i = 0; i + sizeof(CUdeviceptr) <= bytes; i += 4) {
        CUdeviceptr address = 0;
        std::memcpy(&address, from + i, sizeof address);
        if (!may_be_address(address) || found_.size() >= work::max_addresses)
            continue;
        if (const known_memory *const known = find(address); known != nullptr)
            found_.push_back(
                {static_cast<std::uint32_t>(offset + i),
                 {address, address - known->address, known->ordinal}});
    }
}

void recorder::scan_launch(const function &of, void **parameters, void **extra)
{
    found_.clear();
    if (parameters != nullptr) {
        for (std::size_t i = 0; i < of.parameters.size(); i++)
            scan(static_cast<const unsigned char *>(parameters[i]),
                 of.parameters[i].bytes, of.parameters[i].offset);
        return;
    }
    const void *buffer = nullptr;
    std::size_t bytes = 0;
    for (void **at = extra; at != nullptr && *at != CU_LAUNCH_PARAM_END;
         at += 2) {
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = at[1];
        else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *static_cast<const std::size_t *>(at[1]);
    }
    if (buffer != nullptr)
        scan(static_cast<const unsigned char *>(buffer), bytes, 0);
}

// Reads a launch, if anybody can. Not locked: it may wait.
std::optional<recorder::pointers>
recorder::read(CUfunction which, void **parameters, void **extra) const
{
    if (reads_ == nullptr)
        return std::nullopt;
    work given;
    reads_(which, parameters, extra, given);
    if (!given.trusted || !given.goes_by_pointers())
        return std::nullopt;
    pointers out;
    for (std::uint32_t i = 0; i < given.count; i++)
        if (given.pointers[i])
            out.all.push_back(given.addresses[i]);
    for (std::uint32_t i = 0; i < given.base_count; i++)
        out.bases.push_back(given.bases[i].address);
    return out;
}

// Leaves of found_ what the launch goes by. Numbers may look like addresses. A
// proof that relies on an address in no allocation does not hold.
void recorder::keep_pointers(const std::optional<pointers> &of)
{
    if (!of || !std::all_of(of->bases.begin(), of->bases.end(),
                            [this](CUdeviceptr each) { return find(each); }))
        return;
    std::erase_if(found_, [&](const given_address &each) {
        return std::find(of->all.begin(), of->all.end(), each.where.address) ==
               of->all.end();
    });
}

// The shape of what found_ was read from.
recorder::shape &recorder::shape_of(std::uint64_t kernel, const grid &size)
{
    key_.clear();
    key_.insert(key_.end(),
                {kernel, size.grid_x, size.grid_y, size.grid_z, size.block_x,
                 size.block_y, size.block_z, size.shared_bytes});
    for (const given_address &each : found_)
        key_.push_back(each.position);
    const auto known = shapes_.find(key_);
    if (known != shapes_.end())
        return known->second;
    out_.begin(code::shape);
    for (std::size_t i = 0; i < 8; i++)
        out_.number(key_[i]);
    out_.number(found_.size());
    std::uint64_t before = 0;
    for (const given_address &each : found_) {
        out_.number(each.position - before);
        before = each.position;
    }
    out_.commit();
    const shape made{shapes_.size(), 0};
    return shapes_.emplace(key_, made).first->second;
}

// ---- Time on the device

bool recorder::is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    // About the legacy stream nobody asks beside a capture: that ends it.
    return open_captures.load() > 0 && stream != CU_STREAM_LEGACY &&
           calls_.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// None of these is locked while it calls: the driver may wait for the device.

bool recorder::take_timer(launching &out)
{
    CUcontext context = nullptr;
    if (open_captures.load() > 0 ||
        calls_.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr)
        return false;
    out.context = context;
    {
        const auto guard = lock_soon(lock_);
        out.contexts_gone = contexts_gone_;
        std::vector<timer> &free = free_timers_[context];
        if (!free.empty()) {
            out.start = free.back().start;
            out.end = free.back().end;
            free.pop_back();
            return true;
        }
        if (timers_ >= most_timers)
            return false;
        timers_++;
    }
    const beside_captures apart(calls_);
    if (calls_.cuEventCreate(&out.start, 0) == CUDA_SUCCESS) {
        if (calls_.cuEventCreate(&out.end, 0) == CUDA_SUCCESS)
            return true;
        calls_.cuEventDestroy_v2(out.start);
    }
    const std::lock_guard guard(lock_);
    timers_ -= timers_ > 0 ? 1 : 0;
    return false;
}

// Begins to time a launch. A program's capture does not notice.
void recorder::start_timer(launching &launch, CUstream stream)
{
    if (!launch.timed)
        return;
    {
        const beside_captures apart(calls_);
        launch.timed =
            open_captures.load() == 0 &&
            calls_.cuEventRecord(launch.start, stream) == CUDA_SUCCESS;
    }
    if (launch.timed)
        return;
    const std::lock_guard guard(lock_);
    give_back(launch);
}

// Ends it, unless another thread has begun a capture meanwhile.
bool recorder::stop_timer(launching &launch, CUstream stream, CUresult result)
{
    if (!launch.timed || result != CUDA_SUCCESS)
        return false;
    const beside_captures apart(calls_);
    return open_captures.load() == 0 &&
           calls_.cuEventRecord(launch.end, stream) == CUDA_SUCCESS;
}

// With the lock held, as below.
void recorder::give_back(const launching &launch)
{
    if (launch.contexts_gone == contexts_gone_)
        free_timers_[launch.context].push_back(
            {launch.start, launch.end, launch.context, 0});
}

void recorder::keep_timer(const launching &launch, std::uint64_t work)
{
    if (launch.contexts_gone == contexts_gone_)
        pending_.push_back({launch.start, launch.end, launch.context, work});
}

// The oldest timed work of a context, which nobody else asks about then.
std::vector<recorder::timer> recorder::take_pending(CUcontext context,
                                                    std::size_t most)
{
    std::vector<timer> out;
    std::deque<timer> rest;
    while (!pending_.empty() && out.size() < most) {
        if (pending_.front().context == context)
            out.push_back(pending_.front());
        else
            rest.push_back(pending_.front());
        pending_.pop_front();
    }
    pending_.insert(pending_.begin(), rest.begin(), rest.end());
    return out;
}

// Asks when timed work ran, the oldest first.
// @return how many answers there are
std::size_t recorder::ask_times(std::vector<timer> &of) const
{
    const beside_captures apart(calls_);
    for (std::size_t i = 0; i < of.size(); i++) {
        if (open_captures.load() > 0)
            return i;
        const CUresult answer = calls_.cuEventQuery(of[i].end);
        if (answer == CUDA_ERROR_NOT_READY)
            return i;
        float ms = -1;
        if (answer == CUDA_SUCCESS &&
            calls_.cuEventElapsedTime(&ms, of[i].start, of[i].end) ==
                CUDA_SUCCESS &&
            ms >= 0)
            of[i].ns =
                static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6 + 0.5);
    }
    return of.size();
}

// Writes the times that are known, of the oldest work first.
void recorder::resolve(std::size_t most)
{
    CUcontext context = nullptr;
    if (open_captures.load() > 0 ||
        calls_.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return;
    std::vector<timer> asked;
    std::uint64_t contexts_gone = 0;
    {
        const auto guard = lock_soon(lock_);
        contexts_gone = contexts_gone_;
        asked = take_pending(context, most);
    }
    if (asked.empty())
        return;
    const std::size_t known = ask_times(asked);
    const auto guard = lock_soon(lock_);
    for (std::size_t i = 0; i < known; i++) {
        if (asked[i].ns == timer::unknown)
            continue;
        if (asked[i].work == calibration)
            out_.begin(code::overhead).number(asked[i].ns).commit();
        else
            out_.begin(code::duration)
                .number(works_ - asked[i].work)
                .number(asked[i].ns)
                .commit();
    }
    if (contexts_gone != contexts_gone_)
        return;
    const auto behind = asked.begin() + static_cast<std::ptrdiff_t>(known);
    std::vector<timer> &free = free_timers_[context];
    for (auto each = asked.begin(); each != behind; ++each)
        free.push_back({each->start, each->end, context, 0});
    pending_.insert(pending_.begin(), behind, asked.end());
}

void recorder::resolve_all()
{
    resolve(most_timers);
    left_at_ = now_ns();
}

// Times nothing: two events show what they cost.
void recorder::calibrate(CUstream stream)
{
    launching none;
    {
        const auto guard = lock_soon(lock_);
        if (calibrations_ >= most_calibrations)
            return;
        calibrations_++;
    }
    none.timed = take_timer(none);
    start_timer(none, stream);
    if (!none.timed)
        return;
    const bool whole = stop_timer(none, stream, CUDA_SUCCESS);
    const auto guard = lock_soon(lock_);
    if (whole)
        keep_timer(none, calibration);
    else
        give_back(none);
}

// ---- Work

void recorder::begin_launch(launching &out, CUfunction function_handle,
                            const grid &size, CUstream stream,
                            void **parameters, void **extra)
{
    out.captured = is_captured(stream);
    if (out.captured)
        return;
    const function *const of = function_of(function_handle);
    const auto given = read(function_handle, parameters, extra);
    bool polls = false;
    {
        const auto guard = lock_soon(lock_);
        polls = works_ % polled_after == 0;
        scan_launch(*of, parameters, extra);
        keep_pointers(given);
        shape &kind = shape_of(of->kernel, size);
        out.shape = kind.ordinal;
        out.addresses.reserve(found_.size());
        for (const given_address &each : found_)
            out.addresses.push_back(each.where);
        const std::uint64_t before = kind.launches++;
        out.timed = before < timed_at_first || before % timed_later == 0;
    }
    if (polls)
        resolve(2 * polled_after);
    if (out.timed) {
        calibrate(stream);
        out.timed = take_timer(out);
    }
    start_timer(out, stream);
}

void recorder::end_launch(const moment &when, launching &launch,
                          CUstream stream, CUresult result)
{
    if (launch.captured)
        return;
    const bool whole = stop_timer(launch, stream, result);
    const auto guard = lock_soon(lock_);
    if (launch.timed && !whole)
        give_back(launch);
    if (result != CUDA_SUCCESS)
        return;
    const std::uint64_t order = stream_of(stream);
    timed(code::launch, when).number(launch.shape).number(order);
    put_addresses(launch.addresses);
    commit();
    if (whole)
        keep_timer(launch, works_);
    works_++;
}

void recorder::copied(const moment &when, tape::copy_kind kind, bool waits,
                      CUstream stream, CUdeviceptr to, CUdeviceptr from,
                      std::uint64_t bytes)
{
    if (bytes == 0 || is_captured(stream))
        return;
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t order = stream_of(stream);
        timed(code::copy, when)
            .number(static_cast<std::uint64_t>(kind))
            .number(waits ? tape::flag_waits : 0)
            .number(order)
            .number(bytes);
        put_address(to);
        put_address(from);
        commit();
    }
    if (waits)
        resolve_all();
}

void recorder::filled(const moment &when, bool waits, CUstream stream,
                      CUdeviceptr to, std::uint64_t bytes)
{
    if (bytes == 0 || is_captured(stream))
        return;
    const std::lock_guard guard(lock_);
    const std::uint64_t order = stream_of(stream);
    timed(code::fill, when)
        .number(waits ? tape::flag_waits : 0)
        .number(order)
        .number(bytes);
    put_address(to);
    commit();
}

void recorder::host_work(const moment &when, CUstream stream)
{
    if (is_captured(stream))
        return;
    const std::lock_guard guard(lock_);
    const std::uint64_t order = stream_of(stream);
    timed(code::host_work, when).number(order);
    commit();
}

// ---- Graphs

namespace {

CUdeviceptr start_of(CUmemorytype kind, const void *host, CUdeviceptr device,
                     std::size_t x, std::size_t y, std::size_t z,
                     std::size_t pitch, std::size_t height)
{
    if (kind == CU_MEMORYTYPE_ARRAY)
        return 0;
    const auto base = kind == CU_MEMORYTYPE_HOST
                          ? reinterpret_cast<CUdeviceptr>(host)
                          : device;
    return base + (z * height + y) * pitch + x;
}

} // namespace

void recorder::asked_node::is(const CUDA_MEMCPY3D &copy)
{
    kind = tape::node_kind::copy;
    to = start_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice,
                  copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch,
                  copy.dstHeight);
    from = start_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice,
                    copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch,
                    copy.srcHeight);
    bytes = copy.WidthInBytes * std::max<std::size_t>(copy.Height, 1) *
            std::max<std::size_t>(copy.Depth, 1);
}

void recorder::asked_node::is(const CUDA_MEMSET_NODE_PARAMS &fill)
{
    kind = tape::node_kind::fill;
    to = fill.dst;
    bytes =
        fill.width * fill.elementSize * std::max<std::size_t>(fill.height, 1);
}

// Asks the driver for a graph's nodes. Not locked.
void recorder::ask_nodes(CUgraph from, asked_graph &out, unsigned depth)
{
    std::size_t count = 0;
    if (depth == 0 ||
        calls_.cuGraphGetNodes(from, nullptr, &count) != CUDA_SUCCESS ||
        count == 0 || count > most_nodes)
        return;
    std::vector<CUgraphNode> handles(count);
    if (calls_.cuGraphGetNodes(from, handles.data(), &count) != CUDA_SUCCESS)
        return;
    for (std::size_t i = 0; i < count && out.nodes.size() < most_nodes; i++) {
        CUgraphNodeType type{};
        if (calls_.cuGraphNodeGetType(handles[i], &type) != CUDA_SUCCESS)
            continue;
        CUgraph child = nullptr;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
            calls_.cuGraphChildGraphNodeGetGraph(handles[i], &child) ==
                CUDA_SUCCESS) {
            const std::size_t first = out.nodes.size();
            ask_nodes(child, out, depth - 1);
            out.children[handles[i]] = {first, out.nodes.size() - first};
        } else {
            out.nodes.push_back(ask_node(handles[i], type));
        }
    }
}

recorder::asked_node recorder::ask_node(CUgraphNode which, CUgraphNodeType type)
{
    asked_node out;
    out.handle = which;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        if (graph_calls_.cuGraphKernelNodeGetParams_v2(which, &out.kernel) !=
            CUDA_SUCCESS)
            break;
        out.kind = tape::node_kind::kernel;
        const CUfunction is =
            out.kernel.func != nullptr
                ? out.kernel.func
                : reinterpret_cast<CUfunction>(out.kernel.kern);
        out.of = function_of(is);
        out.given = read(is, out.kernel.kernelParams, out.kernel.extra);
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D copy{};
        if (graph_calls_.cuGraphMemcpyNodeGetParams(which, &copy) !=
            CUDA_SUCCESS)
            break;
        out.is(copy);
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS fill{};
        if (graph_calls_.cuGraphMemsetNodeGetParams(which, &fill) !=
            CUDA_SUCCESS)
            break;
        out.is(fill);
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
        CUDA_MEM_ALLOC_NODE_PARAMS_v1 memory{};
        if (calls_.cuGraphMemAllocNodeGetParams(which, &memory) !=
                CUDA_SUCCESS ||
            memory.bytesize == 0)
            break;
        out.kind = tape::node_kind::allocate;
        out.to = memory.dptr;
        out.bytes = memory.bytesize;
        break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (graph_calls_.cuGraphMemFreeNodeGetParams(which, &out.to) ==
            CUDA_SUCCESS)
            out.kind = tape::node_kind::free;
        break;
    default:
        break;
    }
    return out;
}

// Gives nodes the ordinals of a tape. With the lock held.
std::vector<recorder::node>
recorder::list_nodes(const std::vector<asked_node> &from)
{
    std::vector<node> out;
    out.reserve(from.size());
    for (const asked_node &each : from) {
        node &next = out.emplace_back();
        next.kind = each.kind;
        next.to = each.to;
        next.from = each.from;
        next.bytes = each.bytes;
        if (each.kind == tape::node_kind::kernel) {
            const CUDA_KERNEL_NODE_PARAMS_v2 &kernel = each.kernel;
            scan_launch(*each.of, kernel.kernelParams, kernel.extra);
            keep_pointers(each.given);
            next.shape =
                shape_of(each.of->kernel,
                         {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ,
                          kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ,
                          kernel.sharedMemBytes})
                    .ordinal;
            for (const given_address &one : found_)
                next.addresses.push_back(one.where);
        } else if (each.kind == tape::node_kind::allocate) {
            // Later nodes name it; so does work behind the graph.
            end_parts(each.to, each.bytes);
            known_[each.to] = {each.to, each.bytes, next_known_++};
        }
    }
    return out;
}

// Kernels and shapes are records of their own, so the nodes are known before.
void recorder::put_graph(code what, const moment &when, std::uint64_t ordinal,
                         const std::vector<node> &nodes)
{
    timed(what, when);
    if (what != code::graph)
        out_.number(ordinal);
    out_.number(nodes.size());
    for (const node &each : nodes) {
        out_.number(static_cast<std::uint64_t>(each.kind));
        switch (each.kind) {
        case tape::node_kind::kernel:
            out_.number(each.shape);
            put_addresses(each.addresses);
            break;
        case tape::node_kind::copy:
            out_.number(each.bytes);
            put_address(each.to);
            put_address(each.from);
            break;
        case tape::node_kind::fill:
            out_.number(each.bytes);
            put_address(each.to);
            break;
        case tape::node_kind::allocate:
            out_.number(each.bytes);
            break;
        case tape::node_kind::free:
            put_address(each.to);
            break;
        case tape::node_kind::other:
        case tape::node_kind::count:
            break;
        }
    }
    commit();
}

bool recorder::any_allocates(const std::vector<node> &nodes)
{
    return std::any_of(nodes.begin(), nodes.end(), [](const node &each) {
        return each.kind == tape::node_kind::allocate;
    });
}

void recorder::instantiated(const moment &when, CUgraphExec made, CUgraph from)
{
    asked_graph asked;
    ask_nodes(from, asked, most_depth);
    const std::lock_guard guard(lock_);
    executable now;
    now.ordinal = next_graph_++;
    now.children = std::move(asked.children);
    for (const asked_node &each : asked.nodes)
        now.nodes.emplace(each.handle, now.nodes.size());
    now.now = list_nodes(asked.nodes);
    now.allocates = any_allocates(now.now);
    put_graph(code::graph, when, now.ordinal, now.now);
    graphs_[made] = std::move(now);
}

void recorder::updated(const moment &when, CUgraphExec which, CUgraph from)
{
    asked_graph asked;
    ask_nodes(from, asked, most_depth);
    const std::lock_guard guard(lock_);
    const auto known = graphs_.find(which);
    if (known == graphs_.end())
        return;
    // The nodes' handles stay those that it was made with.
    executable &now = known->second;
    now.now = list_nodes(asked.nodes);
    now.allocates = any_allocates(now.now);
    now.changed = false;
    put_graph(code::graph_changed, when, now.ordinal, now.now);
}

// Nodes of an executable graph have become others. There may be many such calls
// before a launch, so the tape has all of them at once. With the lock held.
void recorder::change(executable &of, std::size_t first,
                      const std::vector<asked_node> &to)
{
    // On a tape each such node would allocate once more.
    if (of.allocates || first + to.size() > of.now.size())
        return;
    std::vector<node> nodes = list_nodes(to);
    std::move(nodes.begin(), nodes.end(),
              of.now.begin() + static_cast<std::ptrdiff_t>(first));
    of.changed = true;
}

// A call left no record. The next gap is without what recording it took.
void recorder::leave(const moment &when)
{
    if (left_at_ != 0)
        left_at_ += now_ns() - when.end;
}

void recorder::child_changed(const moment &when, CUgraphExec which,
                             CUgraphNode which_node, CUgraph from)
{
    asked_graph asked;
    ask_nodes(from, asked, most_depth - 1);
    const std::lock_guard guard(lock_);
    const auto known = graphs_.find(which);
    if (known == graphs_.end())
        return;
    const auto child = known->second.children.find(which_node);
    if (child != known->second.children.end() &&
        child->second.count == asked.nodes.size())
        change(known->second, child->second.first, asked.nodes);
    leave(when);
}

void recorder::node_changed(const moment &when, CUgraphExec which,
                            CUgraphNode which_node, const asked_node &to)
{
    const std::lock_guard guard(lock_);
    const auto known = graphs_.find(which);
    if (known == graphs_.end())
        return;
    const auto number = known->second.nodes.find(which_node);
    if (number != known->second.nodes.end())
        change(known->second, number->second, {to});
    leave(when);
}

void recorder::node_changed(const moment &when, CUgraphExec which,
                            CUgraphNode which_node, const CUDA_MEMCPY3D &to)
{
    asked_node asked;
    asked.is(to);
    node_changed(when, which, which_node, asked);
}

void recorder::node_changed(const moment &when, CUgraphExec which,
                            CUgraphNode which_node,
                            const CUDA_MEMSET_NODE_PARAMS &to)
{
    asked_node asked;
    asked.is(to);
    node_changed(when, which, which_node, asked);
}

void recorder::node_changed(const moment &when, CUgraphExec which,
                            CUgraphNode which_node, CUfunction function_handle,
                            const grid &size, void **parameters, void **extra)
{
    const function *const of = function_of(function_handle);
    const auto given = read(function_handle, parameters, extra);
    const std::lock_guard guard(lock_);
    const auto known = graphs_.find(which);
    if (known == graphs_.end())
        return;
    const auto ordinal = known->second.nodes.find(which_node);
    if (ordinal == known->second.nodes.end())
        return;
    scan_launch(*of, parameters, extra);
    keep_pointers(given);
    const std::uint64_t kind = shape_of(of->kernel, size).ordinal;
    timed(code::node_changed, when)
        .number(known->second.ordinal)
        .number(ordinal->second)
        .number(kind);
    for (const given_address &each : found_)
        out_.number(each.where.ordinal).number(each.where.bytes);
    commit();
    if (ordinal->second >= known->second.now.size())
        return;
    node &now = known->second.now[ordinal->second];
    now.shape = kind;
    now.addresses.clear();
    for (const given_address &each : found_)
        now.addresses.push_back(each.where);
}

void recorder::begin_graph(launching &out, CUstream stream)
{
    out.captured = is_captured(stream);
    if (out.captured)
        return;
    resolve(2);
    {
        const auto guard = lock_soon(lock_);
        const std::uint64_t before = graph_launches_++;
        out.timed = before < timed_at_first || before % graphs_timed_later == 0;
    }
    if (out.timed) {
        calibrate(stream);
        out.timed = take_timer(out);
    }
    start_timer(out, stream);
}

void recorder::end_graph(const moment &when, launching &launch,
                         CUgraphExec which, CUstream stream, CUresult result)
{
    if (launch.captured)
        return;
    const bool whole = stop_timer(launch, stream, result);
    const auto guard = lock_soon(lock_);
    const auto known = graphs_.find(which);
    const bool is = result == CUDA_SUCCESS && known != graphs_.end();
    if (launch.timed && !(whole && is))
        give_back(launch);
    if (!is)
        return;
    const std::uint64_t order = stream_of(stream);
    if (executable &now = known->second; std::exchange(now.changed, false))
        put_graph(code::graph_changed, {when.begin, when.begin, when.entered},
                  now.ordinal, now.now);
    timed(code::graph_launch, when).number(known->second.ordinal).number(order);
    commit();
    if (whole)
        keep_timer(launch, works_);
    works_++;
}

void recorder::graph_gone(const moment &when, CUgraphExec which)
{
    const std::lock_guard guard(lock_);
    const auto known = graphs_.find(which);
    if (known == graphs_.end())
        return;
    timed(code::graph_gone, when).number(known->second.ordinal);
    commit();
    graphs_.erase(known);
}

// ---- Order

void recorder::event_recorded(const moment &when, CUevent event,
                              CUstream stream)
{
    if (is_captured(stream))
        return;
    const std::lock_guard guard(lock_);
    const std::uint64_t order = stream_of(stream);
    const auto [known, made] = events_.try_emplace(event, next_event_);
    next_event_ += made ? 1 : 0;
    timed(code::event_record, when).number(known->second).number(order);
    commit();
}

void recorder::event_awaited(const moment &when, CUstream stream, CUevent event)
{
    if (is_captured(stream))
        return;
    const std::lock_guard guard(lock_);
    // Nobody waits for an event that was never recorded, or in a capture.
    const auto known = events_.find(event);
    if (known == events_.end())
        return;
    const std::uint64_t order = stream_of(stream);
    timed(code::event_wait, when).number(order).number(known->second);
    commit();
}

void recorder::event_gone(CUevent event)
{
    const std::lock_guard guard(lock_);
    events_.erase(event);
}

void recorder::waits()
{
    const std::lock_guard guard(lock_);
    out_.flush_after(flush_ns);
}

void recorder::synchronized(const moment &when, tape::wait_kind what,
                            CUstream stream, CUevent event)
{
    {
        const std::lock_guard guard(lock_);
        std::uint64_t which = 0;
        if (what == tape::wait_kind::stream) {
            which = stream_of(stream);
        } else if (what == tape::wait_kind::event) {
            const auto known = events_.find(event);
            if (known == events_.end())
                return;
            which = known->second;
        }
        timed(code::synchronize, when)
            .number(static_cast<std::uint64_t>(what))
            .number(which);
        commit();
    }
    resolve_all();
}

void recorder::stream_gone(const moment &when, CUstream stream)
{
    const std::lock_guard guard(lock_);
    const auto known = streams_.find(stream);
    if (known == streams_.end())
        return;
    timed(code::stream_gone, when).number(known->second);
    commit();
    streams_.erase(known);
}

void recorder::marked(const moment &when, std::uint64_t value)
{
    const std::lock_guard guard(lock_);
    timed(code::mark, when).number(value);
    commit();
}

// ---- Ends

void recorder::module_goes()
{
    const std::lock_guard guard(lock_);
    functions_.clear();
}

void recorder::context_goes()
{
    resolve(most_timers);
    const std::lock_guard guard(lock_);
    contexts_gone_++;
    pending_.clear();
    free_timers_.clear();
    timers_ = 0;
    functions_.clear();
}

bool recorder::finish()
{
    // A signal may have ended the program while it held the lock.
    std::unique_lock guard(lock_, std::defer_lock);
    for (int tries = 0; tries < 1000 && !guard.try_lock(); tries++)
        usleep(1000);
    if (!guard)
        return false;
    guard.unlock();
    resolve(most_timers);
    guard.lock();
    out_.begin(code::end).commit();
    out_.close();
    return true;
}

} // namespace emuv::cuda
