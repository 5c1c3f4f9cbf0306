// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that the program has registered, to say things of it by a key.
#pragma once

#include "base/counted.hpp"
#include "memory/memory.hpp"
#include "policy/advice.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#define EMUV_ADVICE_NO_CALLS
#include <emuv/advice.h>

namespace emuv::cuda {

/// All memory that the program has registered. Each call may come from any
/// thread, and answers with EMUV_ADVICE_OK or an error of <emuv/advice.h>.
///
/// A key names a part of one allocation. It does not hold it: once the program
/// has freed that, the key answers EMUV_ADVICE_FREED, even if the same address
/// has been allocated again. No two keys are the same, ever, whoever in the
/// process asks for one. Of its locks, one is held for look-ups only, and no
/// other is taken under it. The other one orders what lasts of the advice with
/// the end of its key, and comes before all locks.
class advised
{
public:
    /// @param table  outlives this object
    explicit advised(memory &table) : table_(table) {}
    advised(const advised &) = delete;
    advised &operator=(const advised &) = delete;

    /// Registers memory.
    /// @param key  out: its key; EMUV_ADVICE_NONE after an error
    int add(CUdeviceptr at, std::uint64_t bytes, int priority,
            std::uint64_t &key);
    /// Forgets a key, and takes back what was said by it and lasts.
    int forget(std::uint64_t key);
    int tell(std::uint64_t key, hint what);
    int where(std::uint64_t key, emuv_advice_place &out);
    /// @param key  EMUV_ADVICE_ALL: of all keys ever, and of all memory's moves
    int stats(std::uint64_t key, emuv_advice_stats &out);

    /// Most keys at a time.
    static constexpr std::size_t most_keys = std::size_t{1} << 20;

private:
    using whereabouts = mover::whereabouts;

    // Counts of accesses. Any thread adds to them.
    struct counts
    {
        std::atomic<std::uint64_t> accesses{0};
        std::atomic<std::uint64_t> vram_bytes{0};
        std::atomic<std::uint64_t> ram_bytes{0};
        std::atomic<std::uint64_t> card_bytes{0};

        void add(const whereabouts &found);
        void show(emuv_advice_stats &out) const;
    };
    struct record : counted
    {
        std::uint64_t key = 0;
        memory::told_of of;
        mover::subrange in;
        moves before;        // it was registered
        mover::lasting said; // guarded by lasting_, like the next
        bool gone = false;
        counts used;
    };
    using record_ref = counted_ref<record>;

    record_ref find(std::uint64_t key);
    bool identify(memory::told_of &of, CUdeviceptr at);
    bool is_there(const memory::told_of &of);
    [[nodiscard]] mover *mover_of(const record &which) const;
    mover::answer advise(const record &which, hint what);
    void take_back(const record &which);
    std::optional<whereabouts> whereabouts_of(const record &which);
    std::optional<whereabouts> access(const record &which);
    int tell_lasting(record &which, hint what);

    memory &table_;
    counts all_;
    std::mutex lasting_; // see above
    std::mutex lock_;    // guards the rest
    // By the lower bits of their keys. The upper bits count all keys.
    std::vector<record_ref> keys_;
    std::vector<std::uint32_t> unused_; // indices there
    std::uint64_t last_ = 0;            // how many keys there have been
};

} // namespace emuv::cuda
