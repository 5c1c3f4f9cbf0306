// SPDX-License-Identifier: LGPL-2.1-or-later
// Address ranges that we make: reserved, backed, charged, and open to the
// devices that may use them.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"
#include "memory/first_spill.hpp"
#include "memory/movers.hpp"
#include "store/store.hpp"
#include "store/stretch.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace emuv::cuda {

/// The memory that a range is to have.
enum class placing
{
    vram_first,   ///< as much as there is room for; the rest in system RAM
    ram,          ///< until it moves
    ram_for_good, ///< for the pieces that share it
};

/// A finished range: open to its device and that device's peers, and mapped,
/// but for what its mover maps once work needs it.
struct range
{
    CUdeviceptr base = 0;
    std::uint64_t bytes = 0; ///< whole chunks
    CUcontext context = nullptr;
    bool spilled = false; ///< some of it was made in system RAM
    bool moves = false;   ///< a mover has it
};

/// The program's ways to let a device read another's memory.
enum class reads_by
{
    context, ///< cuCtxEnablePeerAccess()
    pool,    ///< cuMemPoolSetAccess()
};

/// All ranges of one process. A range is entered here when it is finished, and
/// leaves before it is taken apart. Every call may come from any thread; no
/// lock is held while the driver is asked.
class ranges
{
public:
    /// All outlive the object.
    struct options
    {
        const driver &calls;
        budget &shares;
        store &host;
        const movers &moving;
        first_spill &spills;
    };

    explicit ranges(const options &of);
    ranges(const ranges &) = delete;
    ranges &operator=(const ranges &) = delete;

    /// Makes a range in the current context. Hands it to the device's mover,
    /// unless it is to stay for good.
    /// @param bytes  above 0
    /// @param made  out: as it was on failure, when nothing is left
    CUresult make(std::uint64_t bytes, int device, placing where, range &made);

    /// The same, if there is room for it: nothing makes way.
    CUresult try_make(std::uint64_t bytes, int device, placing where,
                      range &made);

    /// Unmaps a range, frees its addresses and uncharges it.
    /// @param base  of a range that make() made, once
    CUresult drop(CUdeviceptr base);
    /// Drops a range once all of it has been let go of. Nobody may use the part
    /// any more.
    CUresult let_go(CUdeviceptr at, std::uint64_t bytes);
    /// True if part of the range at an address has been let go of.
    bool is_going(CUdeviceptr at);

    /// @p device now reads, or no longer reads, the memory of @p peer.
    void peer_enabled(int device, int peer, reads_by why, bool enabled);

    /// True if anything was ever put into system RAM. There is a seam where
    /// such memory meets VRAM.
    bool has_seams() const { return seams_.load(std::memory_order_acquire); }

    /// The memory at an address. The answer holds for memory that stays as it
    /// is.
    /// @return nothing where there is no range
    std::optional<stretch> stretch_at(CUdeviceptr at);

    /// How many bytes of an interval lie on cards that lend VRAM, as long as
    /// nothing moves there. None of memory that is in no range.
    [[nodiscard]] std::uint64_t lent_bytes(CUdeviceptr at, std::uint64_t bytes);

private:
    struct reservation
    {
        CUdeviceptr base = 0;
        std::uint64_t bytes = 0;
        int device = 0;
    };
    // The memory mapped there, and its charges. If a mover has the range,
    // this is its first state, until the mover gives back its units.
    struct backing
    {
        std::vector<unit> units; // from first_host on in system RAM, where
                                 // all of them are mapped, or none
        std::size_t first_host = 0;
        std::uint64_t vram_bytes = 0;
        // Of units behind those in VRAM, without handles, in the mover's file.
        std::uint64_t file_bytes = 0;
        // None where the mover has a charge for each unit.
        std::vector<ram_charge> ram_charges;
        std::uint64_t open_to = 0; // devices, by bit
    };
    struct record
    {
        reservation where;
        backing behind;
        std::uint64_t let_go_bytes = 0;
    };

    template <typename Backed>
    CUresult make(std::uint64_t bytes, int device, placing where, range &made,
                  Backed backed);
    CUresult reserve(std::uint64_t bytes, CUdeviceptr &base);
    CUresult back(const reservation &at, placing where, backing &made);
    std::uint64_t unit_bytes_at(const reservation &at) const;
    std::uint64_t charge_vram(const reservation &at) const;
    CUresult make_beyond(const reservation &at, std::uint64_t unit_bytes,
                         bool hides, backing &made);
    bool takes_hidden(int device) const;
    CUresult map_hidden(backing &made) const;
    CUresult put_in_file(const reservation &at, std::uint64_t unit_bytes,
                         backing &made);
    bool may_be_hidden(const reservation &at, placing where,
                       const backing &of) const;
    CUresult map_vram(const reservation &at, std::uint64_t bytes,
                      std::vector<unit> &units) const;
    std::vector<ram_charge> charge_ram(int device, std::uint64_t bytes,
                                       std::uint64_t unit_bytes);
    bool hand_over(const reservation &at, CUcontext context,
                   backing &made) const;
    void enter(const reservation &at, backing made);
    CUresult unmap(const backing &gone, const mover::remains &left) const;
    void uncharge(int device, const backing &gone) const;
    std::uint64_t open_bytes(const reservation &at, const backing &of) const;
    std::uint64_t who_reads(int device);
    CUresult open(CUdeviceptr base, std::uint64_t bytes,
                  std::uint64_t to) const;

    const driver &calls_;
    budget &budget_;
    store &host_;
    const movers &movers_;
    first_spill &spills_;
    std::atomic<CUdeviceptr> next_base_{0}; // see reserve()
    std::atomic<bool> seams_{false};

    std::mutex lock_; // guards all below
    std::map<CUdeviceptr, record> all_;
    std::uint64_t peers_of(int device) const
    {
        const unsigned at = static_cast<unsigned>(device) % max_devices;
        return readers_[0][at] | readers_[1][at];
    }
    std::uint64_t readers_[2][max_devices] = {}; // by reason, device and bit
};

} // namespace emuv::cuda
