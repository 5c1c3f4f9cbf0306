// SPDX-License-Identifier: LGPL-2.1-or-later
// What CUDA itself takes of VRAM for a program: its contexts, the code of its
// modules, the driver's heaps.
#pragma once

#include "ledger.hpp"

#include <cstdint>
#include <mutex>
#include <vector>

namespace emuv::cuda {

class mover;

/// Charges to a ledger what nobody allocates. The driver makes contexts and
/// loads code as it likes, so this is measured, not foreseen: what the process
/// holds, less what the ledger has for it. Every call may come from any thread.
class footprint
{
public:
    /// @return bytes of VRAM that this process holds on a device, by its
    ///   ordinal, contexts and all; 0 where that is not to be had
    using measure_call = std::uint64_t (*)(int device);

    /// Most of a program's code is loaded when it is first launched, which is
    /// when a share may be full: so much is kept for it from the first
    /// measurement on, at most, and of a small share a sixteenth. PyTorch and
    /// its libraries came to 158 to 178 MiB (H200, driver 580.159, CUDA 13.0).
    static constexpr std::uint64_t code_bytes = std::uint64_t{256} << 20;

    /// @param limits  outlives this, as does what moves
    /// @param measure  what a process holds
    /// @param first_device, devices  whose VRAM the ledger is for
    /// @param told  called once, when a share has no room for what is taken;
    ///   with the bytes taken and those that found no room. Null: nobody is
    footprint(ledger &limits, measure_call measure, int first_device,
              int devices,
              void (*told)(std::uint64_t taken, std::uint64_t missing));
    footprint(const footprint &) = delete;
    footprint &operator=(const footprint &) = delete;

    /// Measures, ten times a second at most, and charges what has come. Where
    /// the ledger has no room for all of it, memory makes way, and as much is
    /// charged as there is room for; the rest when there is.
    /// @param moves  who moves a device's memory, or null
    /// @param now_ns  of a clock that does not go back
    void follow(mover *moves, std::uint64_t now_ns);

    /// A context is gone: measures now, and gives back what went with it.
    void shrink();

    /// What is charged, in bytes.
    std::uint64_t charged_bytes();

private:
    void settle(mover *moves);
    std::uint64_t measured(unsigned &in_use) const;

    ledger &limits_;
    const measure_call measure_;
    const int first_device_;
    const int devices_;
    void (*const told_)(std::uint64_t taken, std::uint64_t missing);
    std::atomic<std::uint64_t> next_ns_{0};

    std::mutex lock_; // guards everything below
    std::uint64_t charged_bytes_ = 0;
    // The most that was found. Less is found while memory is charged that has
    // yet to be allocated, or is managed and somewhere else.
    std::uint64_t taken_bytes_ = 0;
    std::uint64_t first_bytes_ = 0; // when devices came to be in use
    unsigned in_use_ = 0;           // devices of which something is held
    bool said_ = false;
};

} // namespace emuv::cuda
