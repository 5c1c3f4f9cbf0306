// SPDX-License-Identifier: LGPL-2.1-or-later
// Measures and charges the VRAM that CUDA itself takes for a program: its
// contexts, the code of its modules, the driver's heaps.
#pragma once

#include "account/ledger.hpp"
#include "base/thread.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace emuv::cuda {

/// Charges to a ledger what nobody allocates. The driver makes contexts and
/// loads code as it likes, so this is measured, not foreseen. The measure is
/// what the process holds, less what the ledger has for it. Every call may
/// come from any thread.
class footprint
{
public:
    /// @return bytes of VRAM that this process holds on a device, by its
    ///   ordinal, contexts and all; 0 if unknown
    using measure_call = std::uint64_t (*)(int device);

    /// VRAM kept for code from the first measurement on, at most; of a small
    /// share a sixteenth. Most of a program's code is loaded at its first
    /// launch, when the share may be full. PyTorch and its libraries took 158
    /// to 178 MiB (H200, driver 580.159, CUDA 13.0).
    static constexpr std::uint64_t code_bytes = std::uint64_t{256} << 20;

    struct options
    {
        ledger &limits; ///< outlives this object
        /// Asks how much a process holds.
        measure_call ask;
        /// The devices whose VRAM the ledger is for.
        int first_device = 0;
        int devices = 1;
        /// Called once, when a share has no room for what is taken; with the
        /// bytes taken and those that found no room. Null: nobody is told.
        void (*told)(std::uint64_t taken, std::uint64_t missing) = nullptr;
    };

    explicit footprint(const options &asked);
    footprint(const footprint &) = delete;
    footprint &operator=(const footprint &) = delete;

    /// Measures, ten times a second at most unless a context is expected, and
    /// charges what has come. If the ledger has no room, room is made. If none
    /// can be made, as much is charged as there is, and the rest later.
    /// @param now_ns  of a clock that does not go back
    /// @param make_way  charges so many bytes, evicting if need be; false
    ///   where it cannot
    template <typename Call>
    void follow(std::uint64_t now_ns, Call make_way)
    {
        const bool is_expected = expected_.load() != known_.load();
        if (!is_expected && now_ns < next_ns_.load(std::memory_order_relaxed))
            return;
        std::unique_lock lock(lock_, std::defer_lock);
        if (is_expected)
            lock.lock();
        else if (!lock.try_lock()) // somebody else does it
            return;
        const unsigned expected = expected_.load();
        const std::uint64_t start = emuv::cuda::now_ns();
        measure(false);
        const std::uint64_t missing = charge();
        if (missing > 0 && make_way(missing))
            charged_bytes_ += missing;
        known_.store(expected);
        tell();
        // Looking in vain for room takes long.
        const std::uint64_t took = emuv::cuda::now_ns() - start;
        const std::uint64_t pause =
            std::clamp(20 * took, interval_ns, 50 * interval_ns);
        next_ns_.store(now_ns + took + pause, std::memory_order_relaxed);
    }

    /// A context has come that was not there when this was last measured. The
    /// next call of follow() measures, however soon it comes, since the first
    /// allocation of a program may take all of its share.
    void expect() { expected_.fetch_add(1); }

    /// A context is gone: measures now, and uncharges the memory that went with
    /// it.
    void shrink();

    /// The ledger has so many more bytes that are not measured, since others
    /// made them.
    void not_measured(std::int64_t bytes) { beside_bytes_.fetch_add(bytes); }

    /// The bytes that are charged.
    std::uint64_t charged_bytes();

private:
    // Asking the driver takes 0.1 ms (H200, driver 580.159).
    static constexpr std::uint64_t interval_ns = 100000000;

    void measure(bool anew);
    std::uint64_t charge();
    void tell();

    ledger &limits_;
    const measure_call ask_;
    const int first_device_;
    const int devices_;
    void (*const told_)(std::uint64_t taken, std::uint64_t missing);
    std::atomic<std::uint64_t> next_ns_{0};
    std::atomic<std::int64_t> beside_bytes_{0};
    std::atomic<unsigned> expected_{0}; // contexts that have come, ever
    std::atomic<unsigned> known_{0};    // of those, when it was last measured

    std::mutex lock_; // guards everything below
    std::uint64_t charged_bytes_ = 0;
    // The most that was found. Less is found while memory is charged that has
    // yet to be allocated, or is managed and somewhere else.
    std::uint64_t taken_bytes_ = 0;
    std::uint64_t first_bytes_ = 0; // when devices came to be in use
    unsigned in_use_ = 0;           // devices of which something is taken
    bool said_ = false;
};

} // namespace emuv::cuda
