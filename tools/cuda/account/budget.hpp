// SPDX-License-Identifier: LGPL-2.1-or-later
// Charges what a process holds to its share, and asks for memory if it is
// short.
#pragma once

#include "account/footprint.hpp"
#include "account/ledger.hpp"
#include "account/pools.hpp"
#include "account/reclaim.hpp"
#include "base/driver.hpp"
#include "base/settings.hpp"
#include "base/size.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace emuv::cuda {

/// The part of @p bytes that goes to VRAM when @p free_bytes of the share are
/// left: all that fits, in whole chunks.
constexpr std::uint64_t device_share(std::uint64_t bytes,
                                     std::uint64_t free_bytes)
{
    return std::min(bytes, free_bytes & ~(chunk_bytes - 1));
}

/// An owner of memory that can free some when a budget is short of it. Asked by
/// any thread, which holds no lock but a footprint's.
class relief
{
public:
    relief() = default;
    relief(const relief &) = delete;
    relief &operator=(const relief &) = delete;
    virtual ~relief() = default;

    /// Gives up memory that is kept for later: an allocation would fail
    /// otherwise.
    /// @return true if it is worth trying again
    virtual bool give_up(int device) = 0;

    /// Charges VRAM for memory that cannot be anywhere else, with room that
    /// this makes.
    /// @return false if it makes none; nothing is charged then
    virtual bool make_way(int device, std::uint64_t bytes) = 0;
};

/// The limit that memory counts toward.
enum class charge_kind
{
    physical, ///< VRAM
    pooled,   ///< part of what a pool of the driver's is charged
    host,     ///< virtual
};
struct charge
{
    charge_kind kind = charge_kind::physical;
    std::uint64_t token = 0; ///< a pool's number, or the ledger's word for it
};

/// The charge of one unit, or of a run of them, in system RAM.
struct ram_charge
{
    std::uint64_t bytes = 0;
    std::uint64_t token = 0; ///< the ledger's word for it
};

/// The shares of one process, by device. It knows the parts that free memory
/// only as reliefs. Every call may come from any thread. No lock is held while
/// the driver or a relief is asked.
class budget
{
public:
    struct options
    {
        const driver &calls;
        /// By device ordinal; the last one serves the devices behind it. Like
        /// the footprints, they outlive this object.
        std::vector<ledger *> ledgers = {};
        /// As many as ledgers; none if CUDA's own memory does not count.
        std::vector<footprint *> footprints = {};
        report_kind report = report_kind::total;
        /// True if the allocating code, when refused, gives back what it
        /// caches and asks again (see reclaim). Null: nobody does.
        bool (*asks_again)() = nullptr;
    };

    explicit budget(const options &asked);
    budget(const budget &) = delete;
    budget &operator=(const budget &) = delete;

    /// Asked from now on, behind those who were added before. Before any
    /// call that asks for memory.
    /// @param one  outlives this object
    void add(relief &one) { reliefs_.push_back(&one); }

    /// A device's limits and figures. To charge them is this object's alone.
    const ledger &ledger_of(int device) const { return charged_to(device); }

    /// The driver's own stores of memory.
    pools &stream_pools() { return pools_; }

    /// Charges VRAM for memory that can be elsewhere. The driver gives up
    /// what it keeps for later before a charge fails.
    bool charge_vram(int device, std::uint64_t bytes);
    /// Charges VRAM for memory that can only be there: memory that can be
    /// elsewhere makes way.
    bool charge_vram_alone(int device, std::uint64_t bytes);
    void uncharge_vram(int device, std::uint64_t bytes)
    {
        charged_to(device).uncharge_physical(bytes);
    }

    // These charge what is free. They ask nobody for memory, and take no lock
    // but the ledger's: for those who make room, or hold a lock.

    /// @return false if there is not so much; nothing is charged then
    bool charge_free_vram(int device, std::uint64_t bytes)
    {
        return charged_to(device).charge_physical(bytes);
    }
    /// The same, but sleeps until there is so much, if the ledger can wait: see
    /// ledger. The caller holds no lock that is needed to make room.
    /// @param ns  the longest sleep
    bool charge_vram_within(int device, std::uint64_t bytes, std::uint64_t ns)
    {
        return charged_to(device).charge_physical_within(bytes, ns);
    }
    /// Ends the sleep of all threads in charge_vram_within(), which then return
    /// false. Later calls sleep again.
    void call_off_waits(int device) { charged_to(device).call_off_waits(); }
    /// Charges system RAM. The caller keeps the answer for uncharge_ram().
    /// @param bytes  whole chunks
    /// @return nothing if there is not so much
    std::optional<ram_charge> charge_ram(int device, std::uint64_t bytes);
    /// The same, of this machine's alone: on no card that lends VRAM.
    std::optional<ram_charge> charge_ram_alone(int device, std::uint64_t bytes)
    {
        ram_charge made{bytes};
        if (!charged_to(device).charge_ram(bytes, made.token))
            return {};
        return made;
    }
    void uncharge_ram(int device, const ram_charge &gone)
    {
        charged_to(device).uncharge_virtual(gone.bytes, gone.token);
    }
    /// The same, of a charge for which no memory was there.
    /// @return true if there may be elsewhere: the next charge is for that
    bool uncharge_lacking(int device, const ram_charge &gone)
    {
        uncharge_ram(device, gone);
        return charged_to(device).avoid(gone.token);
    }

    /// Charges the file for memory that has no room in system RAM.
    /// @param bytes  whole chunks
    /// @param is_new  the memory is being made; else it moves there
    /// @return false where there is no file, or not so much in it
    bool charge_file(int device, std::uint64_t bytes, bool is_new)
    {
        return charged_to(device).charge_file(bytes, is_new);
    }
    void uncharge_file(int device, std::uint64_t bytes)
    {
        charged_to(device).uncharge_file(bytes);
    }

    /// For a moment no memory beyond the share is charged where what this
    /// token stands for would lie.
    void avoid(int device, std::uint64_t token)
    {
        charged_to(device).avoid(token);
    }

    /// So many bytes more of what is charged are another process's: CUDA takes
    /// none of them for this one.
    void not_measured(int device, std::int64_t bytes)
    {
        if (!footprints_.empty())
            of_device(footprints_, device).not_measured(bytes);
    }
    /// As charge_vram(), but if there is not so much, charges as many whole
    /// chunks as there are.
    /// @return bytes charged
    std::uint64_t charge_share_of_vram(int device, std::uint64_t bytes);

    /// Charges memory that the driver is about to make as a whole.
    /// @param may_be_virtual  memory that does not fit in VRAM may count as
    ///   virtual
    /// @return nothing if there is no room
    std::optional<charge> take(int device, std::uint64_t bytes,
                               bool may_be_virtual);
    void give_back(int device, std::uint64_t bytes, const charge &taken);

    /// Tries something that may run out of memory, and again behind each relief
    /// that has given something up.
    template <typename Try>
    CUresult until_it_fits(int device, Try attempt)
    {
        CUresult result = attempt();
        for (relief *each : reliefs_)
            if (result == CUDA_ERROR_OUT_OF_MEMORY && each->give_up(device))
                result = attempt();
        return result;
    }

    /// Charges the VRAM that CUDA itself has come to take on a device.
    void follow_footprint(int device);

    /// A context is gone, and the memory in it: CUDA may take less.
    void forget_context(CUcontext context);
    void shrink_footprints();

    /// True if a request that would spill is refused, so that its program
    /// gives memory back.
    bool is_refused(int device, std::uint64_t bytes);
    /// Memory of a device has been given back.
    void returned(int device, std::uint64_t bytes)
    {
        if (asks_again_ != nullptr)
            reclaim_.returned(device, bytes);
    }
    /// Refuses nothing from now on.
    void refuse_no_more() { reclaim_.stop(); }

    /// The answer to a question for the size alone, which needs no context.
    /// @param real_total  in: the driver's answer. out: ours
    void show_total(int device, std::size_t &real_total) const;

    /// The answer to memory queries.
    /// @param kept  bytes that are charged and make way
    /// @param real_free, real_total  in: the driver's answer. out: ours
    void show_info(int device, std::uint64_t kept, std::size_t &real_free,
                   std::size_t &real_total) const;

private:
    ledger &charged_to(int device) const { return of_device(ledgers_, device); }
    bool is_new_context();
    std::uint64_t total_of(const usage &now, std::uint64_t real) const;
    bool make_way(int device, std::uint64_t bytes);

    const driver &calls_;
    const std::vector<ledger *> ledgers_;
    const std::vector<footprint *> footprints_;
    const report_kind report_;
    bool (*const asks_again_)();
    std::vector<relief *> reliefs_;
    reclaim reclaim_;
    pools pools_;

    std::mutex lock_;              // guards all below
    std::set<CUcontext> contexts_; // in which something was asked for
};

} // namespace emuv::cuda
