// SPDX-License-Identifier: GPL-2.0-or-later
// Times rounds of made-up programs whose memory moves, before a simulated card.
// Copies, kernels and mappings last as long as they did on an H200
// (docs/notebook/2026-11-measurements.md), and nothing is computed. The result
// measures no card. It compares one way of moving with another on machines
// without one.
//
//     movement_bench [--json FILE] [TEXT [TRACE]]
//
// With TEXT only the rows that have it in their names ("prefill 12288 mapped"),
// with TRACE a trace of them. A row takes 15 to 60 seconds.
#include "apart.hpp"
#include "idle_driver.hpp"
#include "memory/memory.hpp"
#include "movement/mover.hpp"
#include "results.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

std::uint64_t clock_ns()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

void sleep_until(std::uint64_t ns)
{
    const timespec at{static_cast<time_t>(ns / 1000000000),
                      static_cast<long>(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) != 0)
        ;
}

// Nanoseconds for 64 MiB: at rest, while bytes come, while they leave in turns,
// while both do: docs/notebook/2026-11-measurements.md, "What stands in the way
// is mapping".
struct cost
{
    std::uint64_t rest, coming, leaving, both;
};
constexpr cost map_vram{37000, 51000, 133000, 174000};
constexpr cost unmap_vram{22000, 40000, 25000, 42000};
constexpr cost map_ram{561000, 874000, 675000, 1015000};
constexpr cost unmap_ram{152000, 416000, 177000, 438000};
constexpr std::uint64_t make_room_ns = 11500000; // 0.18 s a GiB
constexpr std::uint64_t make_frame_ns = 52000;   // beside a kernel
constexpr std::uint64_t drop_frame_ns = 16000;
// Bytes a microsecond.
constexpr std::uint64_t link_alone = 54900;
constexpr std::uint64_t coming_beside = 50900;
constexpr std::uint64_t leaving_in_turns = 50900;
constexpr std::uint64_t leaving_beside = 44200;
constexpr std::uint64_t over_link = 50000; // a kernel that reads system RAM
constexpr std::uint64_t digests_read = 4300000;
constexpr std::uint64_t launch_ns = 8000; // of the program's thread

constexpr unsigned ever_other = 1u << 20; // rounds, more than there are

// The card. One at a time.
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
    std::vector<writing> writes; // that the device has not come to
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
        const std::uint64_t now = clock_ns();
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
            break;
        case request::wait:
            if (std::atomic_ref(*asked.at).load() != asked.value)
                waiting[stream].push_back(asked);
            break;
        }
    }
    // Does what is due in memory that the host sees.
    void go_on()
    {
        const std::uint64_t now = clock_ns();
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
    // The time from which the card has room for a digest: a kernel of the
    // program's leaves none beside it.
    std::uint64_t gap(std::uint64_t from)
    {
        const std::uint64_t now = clock_ns();
        while (!kernels.empty() && kernels.front().end <= now)
            kernels.pop_front();
        from = std::max(from, now);
        for (const busy &each : kernels)
            if (each.start <= from && from < each.end)
                return each.end;
        return from;
    }
    void take(const cost &of, std::uint64_t bytes)
    {
        const std::lock_guard turn(mapping);
        std::uint64_t ns = 0;
        const std::uint64_t now = clock_ns();
        {
            const std::lock_guard guard(lock);
            const bool in = coming_until > now;
            const bool out = leaving_until > now;
            ns = in && out ? of.both
                 : in      ? of.coming
                 : out     ? of.leaving
                           : of.rest;
        }
        sleep_until(now +
                    std::max<std::uint64_t>(20000, ns * bytes / (64 * MiB)));
    }
};

card *the;

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
              CUstream stream)
{
    const std::lock_guard guard(the->lock);
    card::piece &source = the->at(from);
    card::piece &target = the->at(to);
    target.version = source.version;
    const std::uint64_t now = clock_ns();
    std::uint64_t &engine = target.ram ? the->leaving_until : the->coming_until;
    const std::uint64_t other =
        target.ram ? the->coming_until : the->leaving_until;
    const std::uint64_t start = std::max({now, engine, the->streams[stream]});
    const std::uint64_t rate =
        target.ram ? (other > start ? leaving_beside : leaving_in_turns)
                   : (other > start ? coming_beside : link_alone);
    engine = the->streams[stream] = start + bytes * 1000 / rate;
    return CUDA_SUCCESS;
}

CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, unsigned, CUstream stream, void **parameters, void **)
{
    const std::lock_guard guard(the->lock);
    const CUdeviceptr at = *static_cast<CUdeviceptr *>(parameters[0]);
    const std::uint64_t count = *static_cast<std::uint64_t *>(parameters[1]);
    auto *const sum = reinterpret_cast<std::uint64_t *>(
        *static_cast<CUdeviceptr *>(parameters[3]));
    sum[0] = the->at(at).version;
    sum[1] = 0;
    std::uint64_t &free = the->streams[stream];
    free = the->gap(free) + count * 16 * 1000 / digests_read;
    return CUDA_SUCCESS;
}

CUresult pool(CUmemoryPool *usual, CUdevice)
{
    *usual = reinterpret_cast<CUmemoryPool>(0x30);
    return CUDA_SUCCESS;
}

// Words of the device's own, by which copies take turns, cost nothing.
bool is_the_hosts(CUdeviceptr at)
{
    return at >> 40 != 0;
}

driver slow_driver()
{
    driver calls = idle_driver();
    // As on a card, where hints of so many bytes are heeded.
    calls.cuMemAddressReserve = [](CUdeviceptr *at, std::size_t bytes,
                                   std::size_t, CUdeviceptr hint,
                                   unsigned long long) {
        const std::lock_guard guard(the->lock);
        if (hint != 0 && hint % (32 * MiB) == 0) {
            *at = hint;
        } else {
            *at = the->next_address;
            the->next_address += bytes;
        }
        return CUDA_SUCCESS;
    };
    calls.cuMemCreate = [](CUmemGenericAllocationHandle *handle,
                           std::size_t bytes, const CUmemAllocationProp *of,
                           unsigned long long) {
        const bool ram = of->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
        if (the->has_begun())
            sleep_until(clock_ns() + (ram ? make_room_ns * bytes / (64 * MiB)
                                          : make_frame_ns));
        const std::lock_guard guard(the->lock);
        *handle = the->next++;
        the->pieces[*handle] = {ram, *handle << 32};
        the->room_bytes += ram ? bytes : 0;
        return CUDA_SUCCESS;
    };
    calls.cuMemRelease = [](CUmemGenericAllocationHandle) {
        if (the->has_begun())
            sleep_until(clock_ns() + drop_frame_ns);
        return CUDA_SUCCESS;
    };
    calls.cuMemMap = [](CUdeviceptr at, std::size_t, std::size_t,
                        CUmemGenericAllocationHandle handle,
                        unsigned long long) {
        const std::lock_guard guard(the->lock);
        the->mapped[at] = handle;
        return CUDA_SUCCESS;
    };
    calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                              const CUmemAccessDesc *, std::size_t) {
        bool ram = false;
        {
            const std::lock_guard guard(the->lock);
            ram = the->at(at).ram;
        }
        if (the->has_begun())
            the->take(ram ? map_ram : map_vram, bytes);
        return CUDA_SUCCESS;
    };
    calls.cuMemUnmap = [](CUdeviceptr at, std::size_t bytes) {
        bool ram = false;
        {
            const std::lock_guard guard(the->lock);
            ram = the->at(at).ram;
        }
        the->take(ram ? unmap_ram : unmap_vram, bytes);
        return CUDA_SUCCESS;
    };
    calls.cuMemAlloc_v2 = [](CUdeviceptr *at, std::size_t) {
        const std::lock_guard guard(the->lock);
        *at = the->next++ << 12;
        return CUDA_SUCCESS;
    };
    calls.cuEventCreate = [](CUevent *event, unsigned) {
        const std::lock_guard guard(the->lock);
        *event = reinterpret_cast<CUevent>(the->next++);
        the->events[*event] = 0;
        return CUDA_SUCCESS;
    };
    calls.cuEventRecord = [](CUevent event, CUstream stream) {
        const std::lock_guard guard(the->lock);
        the->enqueue(stream, {.what = card::request::event, .recorded = event});
        return CUDA_SUCCESS;
    };
    calls.cuStreamWriteValue32_v2 = [](CUstream stream, CUdeviceptr at,
                                       cuuint32_t value, unsigned) {
        const std::lock_guard guard(the->lock);
        if (is_the_hosts(at))
            the->enqueue(stream, {.what = card::request::write,
                                  .at = reinterpret_cast<std::uint32_t *>(at),
                                  .value = value});
        return CUDA_SUCCESS;
    };
    calls.cuStreamWaitValue32_v2 = [](CUstream stream, CUdeviceptr at,
                                      cuuint32_t value, unsigned) {
        const std::lock_guard guard(the->lock);
        if (is_the_hosts(at))
            the->enqueue(stream, {.what = card::request::wait,
                                  .at = reinterpret_cast<std::uint32_t *>(at),
                                  .value = value});
        return CUDA_SUCCESS;
    };
    calls.cuEventQuery = [](CUevent event) {
        const std::lock_guard guard(the->lock);
        return the->events[event] <= clock_ns() ? CUDA_SUCCESS
                                                : CUDA_ERROR_NOT_READY;
    };
    calls.cuStreamCreateWithPriority = [](CUstream *stream, unsigned, int) {
        const std::lock_guard guard(the->lock);
        *stream = reinterpret_cast<CUstream>(the->next++);
        return CUDA_SUCCESS;
    };
    calls.cuDeviceGetDefaultMemPool = pool;
    calls.cuDeviceGetMemPool = pool;
    calls.cuMemcpyAsync = copy;
    calls.cuLaunchKernel = launch;
    return calls;
}

// A program's kernel: its time, and the blocks it uses.
struct kernel
{
    struct use
    {
        std::size_t block;
        bool writes;
    };
    std::vector<use> uses;
    std::uint64_t ns;       // with all of it in VRAM
    double passes = 1;      // over memory in system RAM
    bool settles = false;   // the program waits for it
    std::uint64_t what = 0; // identifies it; 0: none is like it
    unsigned turns = 1;     // another one in so many rounds, by turns
    bool at_random = false; // in any order, rather
    // Blocks, in stream order: just before it and just behind.
    std::vector<std::size_t> allocates{};
    std::vector<std::size_t> frees{};
};

struct program
{
    std::string name;
    std::vector<std::uint64_t> blocks; // bytes
    std::vector<kernel> round;
    bool varies = false; // see varied()

    // For each block, true if it is ever written to.
    std::vector<bool> written() const
    {
        std::vector<bool> out(blocks.size());
        for (const kernel &each : round)
            for (const kernel::use &one : each.uses)
                out[one.block] = out[one.block] || one.writes;
        return out;
    }
    // For each block, true if it is there all the time.
    std::vector<bool> kept() const
    {
        std::vector<bool> out(blocks.size(), true);
        for (const kernel &each : round)
            for (const std::size_t block : each.allocates)
                out[block] = false;
        return out;
    }
    // At most, at any time.
    std::uint64_t bytes() const
    {
        std::uint64_t now = 0;
        const std::vector<bool> is_kept = kept();
        for (std::size_t i = 0; i < blocks.size(); i++)
            now += is_kept[i] ? blocks[i] : 0;
        std::uint64_t most = now;
        for (const kernel &each : round) {
            for (const std::size_t block : each.allocates)
                now += blocks[block];
            most = std::max(most, now);
            for (const std::size_t block : each.frees)
                now -= blocks[block];
        }
        return most;
    }
    std::uint64_t ns() const
    {
        std::uint64_t sum = 0;
        for (const kernel &each : round)
            sum += each.ns;
        return sum;
    }
    // Kernels take a part each of so long.
    void take(std::uint64_t whole_ns)
    {
        const double times =
            static_cast<double>(whole_ns) / static_cast<double>(ns());
        for (kernel &each : round)
            each.ns = static_cast<std::uint64_t>(static_cast<double>(each.ns) *
                                                 times);
    }
};

// A model of 32 layers with so many MiB of weights each.
constexpr int layers = 32;
constexpr std::uint64_t layer_mib[] = {32, 8, 8, 32, 112, 112, 112};

// That model, whose 13.2 GiB of weights are used once each. Its layers do the
// same with the same activations.
program prefill()
{
    constexpr std::uint64_t activations[] = {16, 16, 48, 48, 111, 111};
    constexpr std::size_t count = std::size(activations);
    program out{"prefill", {}, {}};
    for (const std::uint64_t mib : activations)
        out.blocks.push_back(mib * MiB);
    const auto multiply = [&](std::uint64_t mib, std::size_t by) {
        out.round.push_back(
            {{{out.blocks.size(), false}, {by, true}}, mib, 8.5});
        out.blocks.push_back(mib * MiB);
    };
    for (int layer = 0; layer < layers; layer++) {
        std::uint64_t place = 0;
        for (const std::uint64_t mib : layer_mib) {
            multiply(mib, place % count);
            for (int i = 0; i < 2; i++) {
                const std::size_t from = place % count;
                const std::size_t to = ++place % count;
                // A product does 18 times as much with a byte.
                out.round.push_back(
                    {{{from, false}, {to, true}},
                     1 + (activations[from] + activations[to]) / 18});
                out.round.back().what = place;
            }
        }
    }
    multiply(250, 0);
    out.round.back().turns = 2; // PyTorch has two places for its result
    out.take(62000000);
    out.round.back().settles = true;
    return out;
}

// Tuning that model with adapters: its weights are read forth and back, and a
// layer's activations are used by its backward pass.
// @param frees  that is allocated and freed in stream order
program tuning(bool frees)
{
    program out{frees ? "tuning-freed" : "tuning", {}, {}};
    struct product
    {
        std::size_t weights, saved;
    };
    std::vector<product> products;
    for (int layer = 0; layer < layers; layer++)
        for (const std::uint64_t mib : layer_mib) {
            products.push_back({out.blocks.size(), out.blocks.size() + 1});
            out.blocks.push_back(mib * MiB);
            out.blocks.push_back(mib * 13 / 16 * MiB);
        }
    for (const product &each : products) {
        out.round.push_back({{{each.weights, false}, {each.saved, true}},
                             out.blocks[each.weights] / MiB,
                             8.5});
        if (frees)
            out.round.back().allocates = {each.saved};
    }
    for (std::size_t i = products.size(); i-- > 0;) {
        out.round.push_back(
            {{{products[i].weights, false}, {products[i].saved, false}},
             2 * out.blocks[products[i].weights] / MiB,
             8.5});
        if (frees)
            out.round.back().frees = {products[i].saved};
    }
    out.take(179000000);
    out.round.back().settles = true;
    return out;
}

// The same as PyTorch does it, with all that comes and goes in between.
class lora
{
public:
    program made()
    {
        std::size_t hidden = make(16, {});
        for (int layer = 0; layer < layers; layer++)
            hidden = forth(hidden);
        // The loss.
        const std::size_t logits = make(125, {hidden}, 125);
        const std::size_t wide = make(250, {logits});
        const std::size_t likely = make(250, {wide});
        drop({logits, wide});
        const std::size_t grown = make(250, {likely});
        const std::size_t narrow = make(125, {grown});
        drop({likely, grown});
        std::size_t gradient = make(16, {narrow}, 125);
        drop({narrow, hidden});
        for (std::size_t layer = saved_.size(); layer-- > 0;)
            gradient = back(saved_[layer], gradient);
        drop({gradient});
        out_.take(181000000);
        out_.round.back().settles = true;
        return std::move(out_);
    }

private:
    using tensors = std::vector<std::size_t>;

    // The tensors that a layer leaves behind.
    struct remains
    {
        tensors weights;
        std::size_t first_wide, normal, query, key, value, attention;
        std::size_t second_wide, gate, bent, up;
    };

    std::size_t block(std::uint64_t mib)
    {
        out_.blocks.push_back(mib * MiB);
        return out_.blocks.size() - 1;
    }

    // A kernel that reads these and allocates its result. Without weights its
    // time is that of its bytes to read and write.
    std::size_t make(std::uint64_t mib, const tensors &from,
                     std::uint64_t weights_mib = 0)
    {
        const std::size_t result = block(mib);
        kernel next{{{result, true}}, 0};
        next.allocates = {result};
        std::uint64_t bytes = mib;
        for (const std::size_t each : from) {
            next.uses.push_back({each, false});
            bytes += out_.blocks[each] / MiB;
        }
        next.ns = 10 * (weights_mib > 0 ? weights_mib : bytes / 8 + 1);
        next.passes = weights_mib > 0 ? 8.5 : 1;
        out_.round.push_back(std::move(next));
        return result;
    }
    std::size_t multiply(std::uint64_t mib, std::size_t weights, std::size_t by)
    {
        return make(mib, {weights, by}, out_.blocks[weights] / MiB);
    }

    // Nobody needs these behind the last kernel.
    void drop(const tensors &these)
    {
        auto &frees = out_.round.back().frees;
        frees.insert(frees.end(), these.begin(), these.end());
    }

    // @param wide  out: the tensor that the backward pass needs
    std::size_t normalize(std::size_t hidden, std::size_t &wide)
    {
        wide = make(32, {hidden});
        const std::size_t squares = make(32, {wide});
        drop({squares});
        const std::size_t even = make(32, {wide});
        const std::size_t narrow = make(16, {even});
        drop({even});
        const std::size_t normal = make(16, {narrow});
        drop({narrow});
        return normal;
    }

    std::size_t adapt(std::size_t weights, std::uint64_t mib, std::size_t by)
    {
        const std::size_t base = multiply(mib, weights, by);
        const std::size_t more = make(mib, {by});
        const std::size_t scaled = make(mib, {more});
        drop({more});
        const std::size_t sum = make(mib, {base, scaled});
        drop({base, scaled});
        return sum;
    }

    std::size_t rotate(std::size_t which, std::uint64_t mib)
    {
        const std::size_t one = make(mib, {which});
        const std::size_t half = make(mib, {which});
        const std::size_t other = make(mib, {half});
        drop({half});
        const std::size_t sum = make(mib, {one, other});
        drop({which, one, other});
        return sum;
    }

    std::size_t forth(std::size_t hidden)
    {
        remains of;
        for (const std::uint64_t mib : layer_mib)
            of.weights.push_back(block(mib));
        of.normal = normalize(hidden, of.first_wide);
        of.query = rotate(adapt(of.weights[0], 16, of.normal), 16);
        const std::size_t key =
            rotate(multiply(4, of.weights[1], of.normal), 4);
        const std::size_t value = adapt(of.weights[2], 4, of.normal);
        of.key = make(16, {key});
        of.value = make(16, {value});
        drop({key, value});
        of.attention = make(16, {of.query, of.key, of.value}, 32);
        const std::size_t mixed = multiply(16, of.weights[3], of.attention);
        const std::size_t middle = make(16, {hidden, mixed});
        drop({hidden, mixed});
        const std::size_t normal = normalize(middle, of.second_wide);
        of.gate = multiply(56, of.weights[4], normal);
        of.bent = make(56, {of.gate});
        of.up = multiply(56, of.weights[5], normal);
        drop({normal});
        const std::size_t product = make(56, {of.bent, of.up});
        const std::size_t down = multiply(16, of.weights[6], product);
        drop({product});
        const std::size_t next = make(16, {middle, down});
        drop({middle, down});
        saved_.push_back(of);
        return next;
    }

    // The gradient of the normalized tensor, added to another.
    std::size_t normalize_back(std::size_t wide, std::size_t gradient,
                               std::size_t also)
    {
        const std::size_t narrow = make(16, {gradient});
        drop({gradient});
        const std::size_t even = make(32, {narrow});
        drop({narrow});
        const std::size_t part = make(32, {even, wide});
        const std::size_t rest = make(32, {even, wide});
        drop({even, wide});
        const std::size_t sum = make(32, {part, rest});
        drop({part, rest});
        const std::size_t small = make(16, {sum});
        drop({sum});
        const std::size_t out = make(16, {small, also});
        drop({small, also});
        return out;
    }

    std::size_t add(std::size_t one, std::size_t other)
    {
        const std::size_t sum = make(16, {one, other});
        drop({one, other});
        return sum;
    }

    std::size_t back(const remains &of, std::size_t gradient)
    {
        const std::size_t product = multiply(56, of.weights[6], gradient);
        const std::size_t up = make(56, {product, of.bent});
        const std::size_t bent = make(56, {product, of.up});
        drop({product, of.bent, of.up});
        const std::size_t by_up = multiply(16, of.weights[5], up);
        drop({up});
        const std::size_t gate = make(56, {bent, of.gate});
        drop({bent, of.gate});
        const std::size_t by_gate = multiply(16, of.weights[4], gate);
        drop({gate});
        const std::size_t middle =
            normalize_back(of.second_wide, add(by_up, by_gate), gradient);
        const std::size_t attention = multiply(16, of.weights[3], middle);
        const std::size_t query =
            make(16, {attention, of.query, of.key, of.value, of.attention}, 32);
        const std::size_t key = make(16, {query}, 16);
        const std::size_t value = make(16, {query}, 16);
        drop({attention, of.query, of.key, of.value, of.attention});
        const std::size_t few_keys = make(4, {key});
        const std::size_t few_values = make(4, {value});
        drop({key, value});
        const std::size_t by_value = multiply(16, of.weights[2], few_values);
        const std::size_t turned_keys = rotate(few_keys, 4);
        const std::size_t by_key = multiply(16, of.weights[1], turned_keys);
        const std::size_t turned = rotate(query, 16);
        const std::size_t by_query = multiply(16, of.weights[0], turned);
        drop({few_values, turned_keys, turned});
        const std::size_t all = add(add(by_value, by_key), by_query);
        drop({of.normal});
        return normalize_back(of.first_wide, all, middle);
    }

    program out_{"lora", {}, {}};
    std::vector<remains> saved_;
};

// The same, keeping only a layer's input: its backward pass begins with doing
// the rest again.
program checkpointed()
{
    program out{"checkpointed", {}, {}};
    std::vector<std::size_t> places; // for the result of each product
    for (const std::uint64_t mib : layer_mib) {
        places.push_back(out.blocks.size());
        out.blocks.push_back(mib * 13 / 16 * MiB);
    }
    std::vector<std::size_t> given;
    std::vector<std::size_t> weights;
    for (int layer = 0; layer < layers; layer++) {
        given.push_back(out.blocks.size());
        out.blocks.push_back(20 * MiB);
        for (const std::uint64_t mib : layer_mib) {
            weights.push_back(out.blocks.size());
            out.blocks.push_back(mib * MiB);
        }
    }
    const std::size_t each = std::size(layer_mib);
    // As many as a card was seen to be given between two products.
    const auto small_ones = [&](std::size_t from, std::size_t to) {
        for (int i = 0; i < 10; i++)
            out.round.push_back({{{from, false}, {to, true}}, 1});
    };
    const auto forth = [&](std::size_t layer, bool keeps) {
        for (std::size_t i = 0; i < each; i++) {
            out.round.push_back({{{weights[layer * each + i], false},
                                  {i > 0 ? places[i - 1] : given[layer], false},
                                  {places[i], true}},
                                 layer_mib[i],
                                 8.5});
            small_ones(places[i], places[(i + 1) % each]);
        }
        if (keeps && layer + 1 < layers)
            out.round.push_back(
                {{{places.back(), false}, {given[layer + 1], true}}, 2});
    };
    for (std::size_t layer = 0; layer < layers; layer++)
        forth(layer, true);
    // The loss is written to one of two places.
    out.round.push_back({{{places[0], true}}, 2});
    out.round.back().turns = 2;
    out.round.back().at_random = true;
    for (std::size_t layer = layers; layer-- > 0;) {
        forth(layer, false);
        for (std::size_t i = each; i-- > 0;) {
            out.round.push_back(
                {{{weights[layer * each + i], false}, {places[i], true}},
                 2 * layer_mib[i],
                 8.5});
            small_ones(places[i], places[(i + 1) % each]);
        }
    }
    out.take(222000000);
    out.round.back().settles = true;
    return out;
}

// ResNet-50 with a batch of 256: a layer's activations are used again by its
// backward pass, in reverse.
program training()
{
    program out{"training", {}, {}};
    std::vector<std::size_t> saved;
    const auto forth = [&](std::uint64_t mib) {
        kernel next{{{out.blocks.size(), true}}, 2 * mib, 1.5};
        if (!saved.empty())
            next.uses.push_back({saved.back(), false});
        out.round.push_back(next);
        saved.push_back(out.blocks.size());
        out.blocks.push_back(mib * MiB);
    };
    for (const std::uint64_t mib : {784, 784, 196})
        forth(mib);
    struct stage
    {
        int blocks;
        std::uint64_t narrow, wide;
    };
    for (const stage &each : {stage{3, 196, 784}, stage{4, 98, 392},
                              stage{6, 50, 196}, stage{3, 26, 98}})
        for (int i = 0; i < each.blocks; i++) {
            for (int j = 0; j < 4; j++)
                forth(each.narrow);
            for (int j = 0; j < (i == 0 ? 3 : 2); j++)
                forth(each.wide);
        }
    // Gradients are made in a place of their own.
    const std::size_t gradients = out.blocks.size();
    out.blocks.push_back(1000 * MiB);
    for (std::size_t i = saved.size(); i-- > 0;) {
        const std::uint64_t mib = out.blocks[saved[i]] / MiB;
        kernel next{{{saved[i], false}, {gradients, true}}, 4 * mib, 1.5};
        if (i > 0)
            next.uses.push_back({saved[i - 1], false});
        out.round.push_back(next);
    }
    out.take(115000000);
    const std::size_t weights = out.blocks.size();
    out.blocks.push_back(100 * MiB);
    for (int i = 0; i < 160; i++)
        out.round.push_back({{{weights, true}, {gradients, false}}, 12000});
    out.round.back().settles = true;
    return out;
}

// Products with 9 GiB of weights, one after the other (run-chain). A kernel
// with many rows reads its operands again and again.
program chain(const char *name, std::uint64_t whole_ns, double passes)
{
    program out{name, {128 * MiB, 384 * MiB}, {}};
    for (int layer = 0; layer < 24; layer++) {
        out.round.push_back(
            {{{out.blocks.size(), false}, {0, false}, {1, true}}, 1, passes});
        out.blocks.push_back(384 * MiB);
    }
    out.take(whole_ns);
    out.round.back().settles = true;
    return out;
}

// The same with a text of another length in each round: other kernels run, and
// write to other places, which are divided another way. The weights alone come
// again.
program varied(const char *name, program of)
{
    of.name = name;
    of.varies = true;
    for (kernel &each : of.round) {
        each.turns = ever_other;
        each.at_random = false;
    }
    return of;
}

struct outcome
{
    std::vector<double> ms; // of each round
    std::uint64_t room_bytes = 0;

    // The middle one of the last.
    double moving_ms() const
    {
        std::vector<double> last(ms.end() - 15, ms.end());
        std::sort(last.begin(), last.end());
        return last[last.size() / 2];
    }
    // The number of rounds until the time was nearly that.
    std::size_t settling() const
    {
        const double near = 1.15 * moving_ms();
        std::size_t first = ms.size();
        while (first > 0 && ms[first - 1] < near)
            first--;
        return first;
    }
};

// The place of a block's bytes in the present round.
struct stretch
{
    std::size_t block;
    std::uint64_t offset;
    std::uint64_t bytes;
};

// Moves each written block to another place than in the last round, in a part
// of some block.
void divide_anew(std::vector<stretch> &places,
                 const std::vector<std::uint64_t> &blocks,
                 const std::vector<bool> &written, std::minstd_rand &any)
{
    std::vector<std::size_t> those;
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (written[i])
            those.push_back(i);
    std::vector<std::size_t> shuffled = those;
    std::shuffle(shuffled.begin(), shuffled.end(), any);
    for (std::size_t i = 0; i < those.size(); i++) {
        const std::uint64_t bytes = blocks[shuffled[i]];
        const std::uint64_t offset = any() % (bytes / 2 / 512) * 512;
        places[those[i]] = {shuffled[i], offset,
                            std::min(blocks[those[i]], bytes - offset)};
    }
}

// A program at work.
struct player
{
    const program &of;
    card &made;
    mover &moves;
    memory &held;
    unsigned untrusted;
    std::vector<CUdeviceptr> at;
    std::vector<stretch> places; // the places of the blocks that kernels use
    CUstream stream = reinterpret_cast<CUstream>(0x20);

    // Allocates all that outlives a round.
    void begin()
    {
        const std::vector<bool> kept = of.kept();
        at.resize(of.blocks.size());
        for (std::size_t i = 0; i < at.size(); i++) {
            if (kept[i] && held.allocate(&at[i], of.blocks[i]) != CUDA_SUCCESS)
                std::abort();
            places.push_back({i, 0, of.blocks[i]});
        }
    }

    // The time that a kernel needs the link for memory from @p begin to @p end.
    double over_the_link(CUdeviceptr begin, CUdeviceptr end, bool writes) const
    {
        double over = 0;
        for (auto unit = std::prev(made.mapped.upper_bound(begin));
             unit != made.mapped.end() && unit->first < end; ++unit) {
            card::piece &touched = made.pieces[unit->second];
            const auto next = std::next(unit);
            const CUdeviceptr until =
                next != made.mapped.end() ? std::min(next->first, end) : end;
            touched.version += writes ? 1 : 0;
            if (touched.ram)
                over +=
                    static_cast<double>(until - std::max(unit->first, begin)) *
                    1000 / over_link;
        }
        return over;
    }

    CUresult enqueue(const kernel &each) const
    {
        const std::lock_guard guard(made.lock);
        double over = 0;
        for (const kernel::use &one : each.uses) {
            const stretch &place = places[one.block];
            const CUdeviceptr begin = at[place.block] + place.offset;
            over += over_the_link(begin, begin + place.bytes, one.writes);
        }
        made.enqueue(stream, {.what = card::request::kernel,
                              .ns = each.ns + static_cast<std::uint64_t>(
                                                  over * each.passes)});
        return CUDA_SUCCESS;
    }

    // Waits until the stream has nothing to do.
    void settle() const
    {
        std::uint64_t until = UINT64_MAX;
        while ((until = made.busy_until(stream)) == UINT64_MAX)
            sleep_until(clock_ns() + 20000);
        sleep_until(until);
    }

    // @param number  of the kernel in its round
    // @param turn  which of its variants is launched
    void launch(const kernel &each, std::uint64_t number, unsigned turn)
    {
        const auto not_ours = [] { return CUDA_ERROR_NOT_SUPPORTED; };
        sleep_until(clock_ns() + launch_ns);
        for (const std::size_t block : each.allocates)
            if (held.allocate_async(&at[block], of.blocks[block], nullptr,
                                    stream, not_ours) != CUDA_SUCCESS)
                std::abort();
        const auto describe = [&](work &next) {
            next.what = each.what != 0 ? each.what : number;
            next.what += std::uint64_t{turn % each.turns} << 40;
            next.trusted =
                untrusted == 0 || number % untrusted != untrusted / 2;
            for (const kernel::use &one : each.uses)
                next.name(at[places[one.block].block] +
                          places[one.block].offset);
        };
        moves.run(stream, describe, [&] { return enqueue(each); });
        for (const std::size_t block : each.frees)
            if (held.free_async(at[block], stream, not_ours) != CUDA_SUCCESS)
                std::abort();
        if (each.settles)
            settle();
    }
};

// The device's own time, in a thread.
void pass_time(card &made, const std::atomic<bool> &has_ended)
{
    prctl(PR_SET_TIMERSLACK, 1000);
    while (!has_ended) {
        bool idle = false;
        {
            const std::lock_guard guard(made.lock);
            made.go_on();
            idle = made.waiting.empty() && made.writes.empty();
        }
        sleep_until(clock_ns() + (idle ? 50000 : 5000));
    }
}

// Rounds of a program in so many bytes of VRAM.
// @param untrusted  one launch in so many of each round is; 0: none
outcome run(const program &of, std::uint64_t physical, int rounds, bool unmaps,
            unsigned untrusted, const char *trace_file)
{
    card made;
    the = &made;
    driver calls = slow_driver();
    numa_store host(calls);
    ledger_file rows;
    rows.open(nullptr);
    file_ledger limits(rows, 0, physical, std::uint64_t{1} << 50);
    trace record;
    if (trace_file != nullptr)
        record.open(trace_file);
    mover moves(
        {.calls = calls,
         .limits = limits,
         .record = record,
         .tell = [](const char *why) { std::fprintf(stderr, "%s\n", why); },
         .unmaps = unmaps});
    memory held({.calls = calls,
                 .host = host,
                 .ledgers = {&limits},
                 .movers = {&moves}});
    std::atomic<bool> has_ended{false};
    std::thread hand([&] { pass_time(made, has_ended); });
    player plays{of, made, moves, held, untrusted, {}, {}};
    plays.begin();
    outcome out;
    std::minstd_rand any;
    const std::vector<bool> written = of.written();
    for (int round = 0; round < rounds; round++) {
        const auto drawn = static_cast<unsigned>(any() >> 8);
        if (of.varies)
            divide_anew(plays.places, of.blocks, written, any);
        const std::uint64_t start = clock_ns();
        std::uint64_t number = std::uint64_t{1} << 32;
        for (const kernel &each : of.round)
            plays.launch(each, ++number,
                         each.at_random ? drawn : static_cast<unsigned>(round));
        out.ms.push_back(static_cast<double>(clock_ns() - start) / 1e6);
    }
    moves.stop(nullptr);
    has_ended = true;
    hand.join();
    out.room_bytes = made.room_bytes;
    return out;
}

} // namespace

int main(int count, char **arguments)
{
    prctl(PR_SET_TIMERSLACK, 1000);
    using bench::number;
    using bench::text;
    bench::results into("movement_bench", "The engine before a made-up card",
                        count, arguments);
    into.table(nullptr, "ms a round",
               {{"program", "program"},
                {"share", "share", "MiB"},
                {"needs", "needs", "MiB"},
                {"alone", "alone"},
                {"link", "link"},
                {"away", "away"},
                {"untrusted", "untrusted", "launches"},
                {"moving", "moving"},
                {"of_limit", "of the limit", ""},
                {"settling", "settling", "rounds"},
                {"ram", "room made in system RAM", "MiB"}});
    const char *const only = count > 1 ? arguments[1] : "";
    const char *const trace_file = count > 2 ? arguments[2] : nullptr;
    struct row
    {
        program of;
        std::uint64_t mib;
        unsigned untrusted = 0; // one launch in so many; 0: none
        bool unmaps = false;
    };
    const program prefilled = prefill();
    const program trained = training();
    std::vector<row> rows;
    for (const row &each :
         {row{prefilled, 12288}, row{prefilled, 12288, 100},
          row{prefilled, 12288, 20}, row{prefilled, 12288, 1},
          row{prefilled, 6963}, row{prefilled, 6963, 20},
          row{trained, trained.bytes() / MiB + 900 - 1740},
          row{trained, trained.bytes() / MiB * 3 / 4},
          row{tuning(false), 12288}, row{tuning(true), 12288},
          row{lora().made(), 12288}, row{checkpointed(), 11264},
          row{varied("prompts", prefilled), 12288},
          row{varied("texts", checkpointed()), 11264},
          row{chain("chain-1", 2330000, 1), 9216 / 2 + 576},
          row{chain("chain-2048", 28200000, 10), 9216 * 2 / 3 + 576},
          row{chain("chain-8192", 114000000, 40), 9216 / 2 + 576}})
        for (const bool unmaps : {false, true})
            rows.push_back({each.of, each.mib, each.untrusted, unmaps});
    std::puts("program     share, MiB   needs   alone, ms   link   away      "
              "untrusted   moving   of the limit  settling  RAM, MiB");
    for (const row &each : rows) {
        const char *const away = each.unmaps ? "unmapped" : "mapped";
        const std::string untrusted =
            each.untrusted == 0   ? "none"
            : each.untrusted == 1 ? "all"
                                  : "1 in " + std::to_string(each.untrusted);
        const std::string name = each.of.name + " " + std::to_string(each.mib) +
                                 " " + away + " " + untrusted;
        if (name.find(only) == std::string::npos)
            continue;
        const auto is = bench::apart(name.c_str(), [&] {
            const outcome of = run(each.of, each.mib * MiB, 60, each.unmaps,
                                   each.untrusted, trace_file);
            return std::vector{of.moving_ms(),
                               static_cast<double>(of.settling()),
                               static_cast<double>(of.room_bytes / MiB)};
        });
        if (is.empty())
            continue;
        const double moving = is[0];
        const double alone = static_cast<double>(each.of.ns()) / 1e6;
        const std::uint64_t needs = each.of.bytes();
        const std::uint64_t beyond = needs - std::min(needs, each.mib * MiB);
        const double link = static_cast<double>(beyond) / link_alone / 1e3;
        const double share = std::max(alone, link) / moving;
        std::printf("%-10s  %10llu  %6llu  %10.1f  %5.1f  %-8s  %9s  "
                    "%7.1f  %13.2f  %8.0f  %8.0f\n",
                    each.of.name.c_str(),
                    static_cast<unsigned long long>(each.mib),
                    static_cast<unsigned long long>(needs / MiB), alone, link,
                    away, untrusted.c_str(), moving, share, is[1], is[2]);
        into.row({text(each.of.name.c_str()),
                  number(static_cast<double>(each.mib)),
                  number(static_cast<double>(needs / MiB)), number(alone, 1),
                  number(link, 1), text(away), text(untrusted.c_str()),
                  number(moving, 1), number(share, 2), number(is[1]),
                  number(is[2])});
    }
    return into.write();
}
