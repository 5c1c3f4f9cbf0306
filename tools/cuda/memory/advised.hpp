// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that the program has registered, to say things of it by a key.
#pragma once

#include "base/counted.hpp"
#include "memory/memory.hpp"
#include "policy/advice.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#define EMUV_ADVICE_NO_CALLS
#include <emuv/advice.h>

namespace emuv::cuda {

/// All memory that the program has registered. Each call may come from any
/// thread, and answers with EMUV_ADVICE_OK or an error of <emuv/advice.h>.
///
/// A key names a part of one allocation. It does not hold it: once the program
/// has freed that, the key answers EMUV_ADVICE_FREED, even if the same address
/// has been allocated again. Of its locks, one is held for look-ups only, and
/// no other is taken under it. The other one orders what is pinned, unpinned
/// and forgotten, and comes before all locks.
class advised
{
public:
    /// @param table  outlives this object
    explicit advised(memory &table) : table_(table) {}
    advised(const advised &) = delete;
    advised &operator=(const advised &) = delete;

    /// Registers memory under a key. If the key is there, it names the new
    /// memory from then on.
    int add(std::uint64_t key, CUdeviceptr at, std::uint64_t bytes,
            int priority);
    /// Forgets a key, and what it has pinned.
    int forget(std::uint64_t key);
    int tell(std::uint64_t key, hint what);
    /// @param out  filled in up to the size that it says
    int where(std::uint64_t key, emuv_advice_place &out);
    /// @param key  EMUV_ADVICE_ALL: of all keys ever, and of all memory's moves
    int stats(std::uint64_t key, emuv_advice_stats &out);

    /// Most keys at a time.
    static constexpr std::size_t most_keys = std::size_t{1} << 20;

private:
    // Counts of accesses. Any thread adds to them.
    struct counts
    {
        std::atomic<std::uint64_t> accesses{0};
        std::atomic<std::uint64_t> vram_bytes{0};
        std::atomic<std::uint64_t> ram_bytes{0};

        void add(const memory::places &found);
        void show(emuv_advice_stats &out) const;
    };
    struct record : counted
    {
        CUdeviceptr at = 0;
        std::uint64_t bytes = 0;
        std::uint64_t serial = 0; // of the allocation
        moves before;             // it was registered
        bool pinned = false;      // guarded by pinning_, like the next
        bool gone = false;
        counts used;
    };
    using record_ref = counted_ref<record>;

    record_ref find(std::uint64_t key);
    int find(std::uint64_t key, record_ref &which, memory::told_of &of);
    int pin(record &which, const memory::told_of &of, hint what);
    void let_go(record &which);

    memory &table_;
    counts all_;
    std::mutex pinning_; // see above
    std::mutex lock_;    // guards the map
    std::map<std::uint64_t, record_ref> keys_;
};

} // namespace emuv::cuda
