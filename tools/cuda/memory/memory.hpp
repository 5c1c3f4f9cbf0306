// SPDX-License-Identifier: LGPL-2.1-or-later
// All memory that the program holds: its place, and its charge.
//
// Locks. Each part has one of its own, for look-ups only:
//
// - memory::lock_        the allocation at each address
// - stream_order::lock_  freed memory that is kept, or on its way out
// - pieces::lock_        the parts of shared chunks that are taken
// - ranges::lock_        all ranges, and the peers that read them
// - handles::lock_       the program's own handles, and their mappings
// - foreign::lock_       memory of others that is open
// - budget::lock_        the contexts in which memory was asked for
// - advised::lock_       the memory that the program has registered
//
//  1. None of them is taken while another one is held.
//  2. None is held while the driver, a mover or a relief is called. A call may
//     wait, and other threads free memory meanwhile.
//  3. Under any of them a budget may be charged, by those of its calls that ask
//     nobody for memory. Ledgers' own locks come last.
//  4. An allocation is in one table, or else in the hands of the one thread
//     that took it out. It is out before the driver is given it back: another
//     thread may be given the address before the driver's answer is here.
//  5. A range is entered behind its device's mover, and leaves before it. As it
//     is entered, it is opened to peers that were enabled meanwhile.
//  6. A relief makes way under the lock of a footprint, and asks for none.
//  7. pools::lock_ is held while the driver is asked about a pool, so that
//     answers do not overtake one another. Trimming happens without it. A pool
//     that is being trimmed is marked, and its destruction waits.
//  8. footprint::lock_ is the outermost: under it NVML is asked, pools are
//     trimmed, and a mover is waited for.
//  9. store_choice::lock_ is held during the one trial, advised::lasting_ while
//     a mover is told. Under the others nothing is called.
#pragma once

#include "account/budget.hpp"
#include "base/current.hpp"
#include "base/driver.hpp"
#include "memory/allocation.hpp"
#include "memory/allocation_view.hpp"
#include "memory/first_refusal.hpp"
#include "memory/first_spill.hpp"
#include "memory/foreign.hpp"
#include "memory/handles.hpp"
#include "memory/movers.hpp"
#include "memory/pieces.hpp"
#include "memory/ranges.hpp"
#include "memory/stream_order.hpp"
#include "movement/mover.hpp"
#include "store/store.hpp"
#include "store/stretch.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// All memory that one process holds: the table of allocations, over the parts
/// that have them. A part that a request concerns alone is asked by itself.
/// Every call may come from any thread.
class memory final : relief
{
public:
    struct options
    {
        const driver &calls; ///< the real one
        store &host;
        /// Asks this object for memory from now on, so it is no other's. All
        /// that is named here outlives the object.
        budget &shares;
        /// Memory that others made counts while the program holds it open.
        bool counts_foreign = false;
        /// By device ordinal; none where memory does not move.
        std::vector<mover *> movers = {};
        /// Called once, when memory first goes to system RAM; null: nobody is
        /// told.
        void (*notice)(const spill_notice &) = nullptr;
        /// Called once, when memory is first refused; null: nobody is told.
        void (*refused)(const refusal_notice &) = nullptr;
        /// Memory that lies wholly in VRAM is the driver's own, and has an IPC
        /// handle. It can then not be moved.
        bool exportable = false;
    };

    explicit memory(const options &asked);
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;

    /// cuMemAlloc. @p pointer is not null and @p bytes not 0; a context is
    /// current.
    CUresult allocate(CUdeviceptr *pointer, std::uint64_t bytes);

    /// cuMemAllocPitch, under the same conditions.
    CUresult allocate_pitch(CUdeviceptr *pointer, std::size_t *pitch,
                            std::size_t width, std::size_t height,
                            unsigned element_bytes);

    /// cuMemFree. Addresses that are not this object's go to the driver.
    CUresult free(CUdeviceptr pointer);

    /// A stream-ordered allocation. If memory moves, it is memory that was
    /// freed before, or else a range of ours if it is large. Otherwise it is
    /// the driver's while the share lasts. In a capture it is the graph's.
    /// @param pool  null for the device's current one
    /// @param from_driver  makes it; called at most once
    /// @param bytes  see stream_order::size_for()
    /// @param stream  with the default streams named: CU_STREAM_LEGACY or
    ///   CU_STREAM_PER_THREAD
    template <typename Call>
    CUresult allocate_async(CUdeviceptr *pointer, std::uint64_t bytes,
                            CUmemoryPool pool, CUstream stream,
                            Call from_driver)
    {
        if (is_capturing(calls_, stream))
            return from_driver();
        give_kept_if_asked();
        const bool is_kept = order_.keeps(pool, stream);
        if (is_kept && take_kept(pointer, bytes, stream))
            return CUDA_SUCCESS;
        order_.give_up_idle(is_kept && bytes >= chunk_bytes ? bytes : 0);
        pools::source from;
        if (!order_.find_pool(pool, from))
            return from_driver();
        if (is_kept && bytes >= chunk_bytes)
            return allocate_in_order(pointer, bytes, from.device, stream);
        budget_.follow_footprint(from.device);
        if (order_.begin(from, bytes, is_kept)) {
            const CUresult result = from_driver();
            if (end_pooled({from, bytes, stream, is_kept}, *pointer, result))
                return result;
        }
        collect(false);
        return refusals_.answered(allocate_host(pointer, bytes, from.device),
                                  from.device, bytes,
                                  first_refusal::kinds::both);
    }

    /// cuMemFreeAsync. @p from_driver frees the driver's own memory. A capture
    /// can only free memory that it, or another graph, allocated. The driver
    /// has its own answer to anything else.
    template <typename Call>
    CUresult free_async(CUdeviceptr pointer, CUstream stream, Call from_driver)
    {
        if (is_capturing(calls_, stream))
            return from_driver();
        if (keep(pointer, stream)) {
            give_kept_if_asked();
            return CUDA_SUCCESS;
        }
        if (order_.has(pointer))
            return CUDA_ERROR_INVALID_VALUE;
        allocations::node_type ours = take_ours(pointer);
        return ours.empty() ? free_counted(pointer, allocations_, from_driver)
                            : leave(std::move(ours), stream);
    }

    /// Gives back memory that is kept for later, until at most @p keep bytes of
    /// the pool are left, the driver's among them.
    void trim_ours(CUmemoryPool pool, std::uint64_t keep)
    {
        if (order_.trim(pool, keep))
            collect(false);
    }

    /// Somebody else waits for VRAM of a device, or of one that shares its
    /// limits. Memory there that is kept for later goes at the program's next
    /// call that allocates or frees in stream order. That thread has a context,
    /// and its streams. Any thread may call this.
    void ask_for_kept(int device)
    {
        const int kept = order_.device();
        if (kept >= 0 && &budget_.ledger_of(kept) == &budget_.ledger_of(device))
            kept_is_wanted_.store(true);
    }

    /// Memory that the driver makes as a whole: charged, never moved.
    /// @param may_be_virtual  memory that does not fit in VRAM may count as
    ///   virtual
    template <typename Call>
    CUresult allocate_counted(CUdeviceptr *pointer, std::uint64_t bytes,
                              bool may_be_virtual, Call from_driver)
    {
        const int device = current_device(calls_);
        const auto taken = budget_.take(device, bytes, may_be_virtual);
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
        if (taken) {
            result = from_driver();
            if (result == CUDA_SUCCESS)
                remember(*pointer, bytes, device, *taken);
            else
                budget_.give_back(device, bytes, *taken);
        }
        return refusals_.answered(result, device, bytes,
                                  may_be_virtual ? first_refusal::kinds::both
                                                 : first_refusal::kinds::vram);
    }

    /// A CUDA array, by its handle, @p bytes large.
    template <typename Handle, typename Call>
    CUresult create_array(Handle *handle, std::uint64_t bytes, Call from_driver)
    {
        const int device = current_device(calls_);
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
        if (budget_.charge_vram_alone(device, bytes)) {
            result = from_driver();
            if (result == CUDA_SUCCESS)
                enter(arrays_, reinterpret_cast<CUdeviceptr>(*handle),
                      {.bytes = bytes,
                       .device = device,
                       .context = current_context(calls_)});
            else
                budget_.uncharge_vram(device, bytes);
        }
        return refusals_.answered(result, device, bytes,
                                  first_refusal::kinds::vram);
    }
    template <typename Handle, typename Call>
    CUresult destroy_array(Handle handle, Call from_driver)
    {
        return free_counted(reinterpret_cast<CUdeviceptr>(handle), arrays_,
                            from_driver);
    }

    /// The program's own cuMemCreate for device memory. Beyond the share, it
    /// creates system RAM.
    CUresult create_handle(CUmemGenericAllocationHandle *handle,
                           std::size_t bytes,
                           const CUmemAllocationProp &properties,
                           unsigned long long flags);

    /// True if any of these bytes lies in a range that we made for an
    /// allocation. To the program that is no mapping of its own, to be taken
    /// apart.
    bool is_allocation(CUdeviceptr at, std::uint64_t bytes);

    /// The allocation of ours around @p address, if there is one.
    bool find(CUdeviceptr address, allocation_view &view);

    /// True if anything was ever put into system RAM. There is a seam where
    /// such memory meets VRAM. No copy crosses a seam to registered pages.
    /// Single copies cross a seam to handles, but copies in graphs and batches
    /// do not. Most programs have no seams.
    bool has_seams() const { return ranges_.has_seams(); }

    /// The memory of an allocation that lies in a range of ours, from an
    /// address in it on. The answer holds for memory that stays as it is.
    /// @return nothing for any other memory
    std::optional<stretch> stretch_at(CUdeviceptr at);

    /// See ranges::lent_bytes().
    [[nodiscard]] std::uint64_t lent_bytes(CUdeviceptr at, std::uint64_t bytes)
    {
        return ranges_.lent_bytes(at, bytes);
    }

    /// An allocation that the program says something of.
    struct told_of
    {
        CUdeviceptr base = 0;
        std::uint64_t bytes = 0;       ///< as the program asked for it
        std::uint64_t whole_bytes = 0; ///< with the rest of its last chunk
        int device = 0;
        std::uint64_t serial = 0;
        std::uint64_t identity = 0; ///< see mover; 0: it has none so far
        bool is_range = false;      ///< its parts have places of their own
        bool in_ram = false;        ///< of any other
    };

    /// Finds the allocation around an address: any that the program was given
    /// by a function that this table knows. Without its identity.
    bool find(CUdeviceptr address, told_of &out);

    /// The answer to memory queries.
    /// @param real_free, real_total  in: the driver's answer. out: ours
    void show_info(int device, std::size_t &real_free, std::size_t &real_total);

    /// A serial number, above those of all memory so far. Taken before a
    /// context ends, it tells that context's memory from that of a new context
    /// with the same handle.
    std::uint64_t next_serial() { return next_serial_++; }

    /// A context is about to go: nothing moves in it any more.
    void context_ends(CUcontext context);
    /// The context did not go.
    void context_stays(CUcontext context);
    /// Memory in @p context with a serial below @p before is gone with the
    /// context. The driver has freed its part.
    void context_gone(CUcontext context, std::uint64_t before);

    void peer_enabled(int device, int peer, reads_by why, bool enabled)
    {
        ranges_.peer_enabled(device, peer, why, enabled);
    }

    // Hooks ask these parts by themselves, where the table has no say.

    /// The program's own handles; create_handle() makes them.
    handles &own_handles() { return handles_; }
    /// Memory that others made, which the program opens.
    foreign &others() { return foreign_; }
    /// The pools as the program sees them, and streams that go. Memory comes
    /// from there, and goes there, by this table alone.
    stream_order &in_order() { return order_; }
    /// Empty if memory does not move.
    const movers &moving() const { return movers_; }

private:
    struct ordered // an allocation from a pool of the driver's
    {
        const pools::source &from;
        std::uint64_t bytes = 0;
        CUstream stream = nullptr;
        bool is_kept = false; // when it is freed
    };

    CUresult allocate_plain(CUdeviceptr *pointer, std::uint64_t bytes,
                            int device);
    CUresult allocate_range(CUdeviceptr *pointer, std::uint64_t bytes,
                            int device, placing where);
    static allocation all_of(const range &made, std::uint64_t bytes,
                             int device);
    CUresult allocate_host(CUdeviceptr *pointer, std::uint64_t bytes,
                           int device);
    CUresult drop(allocations::node_type gone);
    CUresult drop(CUdeviceptr at, const allocation &gone);
    CUresult synchronize(CUcontext context) const;
    CUresult allocate_in_order(CUdeviceptr *pointer, std::uint64_t bytes,
                               int device, CUstream stream);
    CUresult make_in_order(CUdeviceptr *pointer, std::uint64_t bytes,
                           int device, CUstream stream);
    void enter_in_order(CUdeviceptr *pointer, CUdeviceptr at,
                        const allocation &made);
    bool take_kept(CUdeviceptr *pointer, std::uint64_t bytes, CUstream stream);
    bool end_pooled(const ordered &asked, CUdeviceptr at, CUresult result);
    bool keep(CUdeviceptr pointer, CUstream stream);
    CUresult leave(allocations::node_type ours, CUstream stream);
    bool collect(bool wait);
    void give_kept_if_asked()
    {
        if (!kept_is_wanted_.load(std::memory_order_relaxed) ||
            !kept_is_wanted_.exchange(false))
            return;
        order_.give_up_all();
        collect(false);
    }

    allocations::node_type take_ours(CUdeviceptr pointer);
    void put_back(allocations::node_type taken);
    void enter(allocations &table, CUdeviceptr key, allocation made);
    void remember(CUdeviceptr at, std::uint64_t bytes, int device,
                  const charge &taken, bool in_order = false);
    void give_back(CUdeviceptr key, const allocation &gone);

    bool give_up(int device) override;
    bool make_way(int, std::uint64_t) override { return false; }

    // Frees memory that the driver allocated and we only count.
    template <typename Call>
    CUresult free_counted(CUdeviceptr key, allocations &table, Call from_driver)
    {
        allocations::node_type found;
        {
            const std::lock_guard guard(lock_);
            found = table.extract(key);
        }
        const CUresult result = from_driver();
        if (found.empty())
            return result;
        if (result == CUDA_SUCCESS) {
            const allocation &freed = found.mapped();
            budget_.returned(freed.device, freed.bytes);
            budget_.give_back(freed.device, freed.bytes, freed.taken);
        } else {
            const std::lock_guard guard(lock_);
            table.insert(std::move(found));
        }
        return result;
    }

    const driver &calls_;
    budget &budget_;
    movers movers_;
    first_spill first_spill_;
    first_refusal refusals_;
    const bool exportable_;
    // An allocation gets its number under the lock: context_gone() then finds
    // all that has a lower one.
    std::atomic<std::uint64_t> next_serial_{1};
    handles handles_;
    foreign foreign_;
    ranges ranges_;
    pieces pieces_;
    stream_order order_;
    std::atomic<bool> kept_is_wanted_{false};

    std::mutex lock_; // guards all below
    allocations allocations_;
    allocations arrays_;
    std::size_t pitch_alignment_[3] = {}; // by element size: 4, 8, 16
};

} // namespace emuv::cuda
