// SPDX-License-Identifier: GPL-2.0-or-later
// All the state of the simulated driver, and the way into every entry point.
#pragma once

#include "address.hpp"
#include "context.hpp"
#include "sim.h"

#include <string>
#include <unordered_map>

namespace sim {

struct graph;
struct graph_exec;
struct module;
struct function;
struct array;

// Objects by their handles. A handle that is not (or no longer) here is bad.
template <typename T>
class registry
{
public:
    template <typename Handle>
    Handle add(std::shared_ptr<T> object)
    {
        void *key = object.get();
        objects_[key] = std::move(object);
        return static_cast<Handle>(key);
    }
    std::shared_ptr<T> find(const void *handle) const
    {
        auto found = objects_.find(handle);
        return found == objects_.end() ? nullptr : found->second;
    }
    bool remove(const void *handle) { return objects_.erase(handle) != 0; }
    auto begin() { return objects_.begin(); }
    auto end() { return objects_.end(); }

    // Forgets every object that the predicate names.
    template <typename Predicate>
    void remove_if(Predicate which)
    {
        for (auto at = objects_.begin(); at != objects_.end();)
            at = which(*at->second) ? objects_.erase(at) : std::next(at);
    }

private:
    std::unordered_map<const void *, std::shared_ptr<T>> objects_;
};

struct state
{
    state();

    // Guards everything. Work on streams runs without it; a stream's thread
    // takes it to fetch work and to say that it is done.
    std::mutex mutex;

    bool initialised = false;
    bool host_numa = true;
    int apart = 16; // device that neither reaches another nor is reached
    std::size_t context_frames = 0; // that each takes for itself
    std::chrono::microseconds lag{0};
    std::uint64_t last_id = 0;
    std::vector<std::unique_ptr<device>> devices;
    frame_store host; // HOST_NUMA memory
    address_space space;
    std::vector<std::weak_ptr<physical>> exported;

    // cuMemCreate handles: an allocation and how often it was retained.
    struct handle
    {
        std::shared_ptr<physical> memory;
        unsigned count = 0;
    };
    std::map<CUmemGenericAllocationHandle, handle> handles;

    registry<context> contexts;
    registry<stream> streams;
    registry<event> events;
    registry<pool> pools;
    registry<module> modules; // libraries among them
    registry<function> functions;
    registry<array> arrays;
    registry<graph> graphs;
    registry<graph_exec> execs;
    std::vector<std::weak_ptr<capture>> captures;

    std::map<std::string, std::uint64_t, std::less<>> calls;
    emuv_sim_copied copied{};
    std::string fail_name;
    unsigned fail_in = 0;
    CUresult fail_with = CUDA_SUCCESS;

    std::uint64_t next_id() { return ++last_id; }
    device *device_at(int ordinal)
    {
        return ordinal >= 0 && ordinal < static_cast<int>(devices.size())
                   ? devices[static_cast<std::size_t>(ordinal)].get()
                   : nullptr;
    }
    CUresult initialise();
};

state &the();

enum class need
{
    nothing, // may be called before cuInit
    init,    // after cuInit
    context, // and with a current context that is not lost
};

// Entering the driver: takes the lock, counts the call, lets it fail if a
// test ordered so.
class call
{
public:
    call(const char *name, need what);

    CUresult error = CUDA_SUCCESS;
    std::unique_lock<std::mutex> lock;
    context *current = nullptr;
};

#define SIM_ENTER(what)                                                        \
    sim::call entered(__func__, sim::need::what);                              \
    if (entered.error != CUDA_SUCCESS)                                         \
    return entered.error

} // namespace sim
