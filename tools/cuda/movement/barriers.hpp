// SPDX-License-Identifier: LGPL-2.1-or-later
// Places in streams at which work waits until memory is mapped.
#pragma once

#include "base/driver.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace emuv::cuda {

/// Barriers in the program's streams. The device writes a word as it comes to
/// one, and goes on once the host has written another word. Neither the look
/// nor the answer needs the driver: its own locks may be held by a call that
/// waits for this very stream.
///
/// The caller locks, unless a function says otherwise.
class barriers
{
public:
    static constexpr std::size_t most = 64;

    /// One barrier, once; numbers come again after 2^32 of them.
    using ticket = std::uint32_t;
    static constexpr ticket none = 0;

    /// @param calls  outlives this object
    explicit barriers(const driver &calls) : calls_(calls) {}
    barriers(const barriers &) = delete;
    barriers &operator=(const barriers &) = delete;
    ~barriers();

    /// From here on they are for the streams of a context.
    void begin(CUcontext context)
    {
        if (context != context_ || !kept_)
            words_ = nullptr; // they went with their context
        context_ = context;
        kept_ = true;
    }

    /// Finds out if those streams can have barriers. Without a lock, before any
    /// is taken; the context is current, and the device past all former ones.
    void open();

    /// The context is about to end, and its memory with it; or stays after all.
    void context_ends() { kept_ = false; }
    void context_stays() { kept_ = true; }

    /// @return none where there are none, or no more
    ticket take();
    void put(ticket which);

    /// Has a stream wait there. Without a lock, as all that may wait for the
    /// device.
    /// @return false if it does not wait
    bool raise(ticket which, CUstream stream) const;

    /// True if the device has come to it. Without a lock.
    bool is_reached(ticket which) const;

    /// Lets the device go on, now or as soon as it comes there.
    void lower(ticket which);

private:
    // Apart, so that the device's writes and the host's do not meet.
    struct words
    {
        alignas(64) std::uint32_t reached;
        alignas(64) std::uint32_t lowered;
    };

    static std::size_t index_of(ticket which) { return which % most; }
    bool works() const;
    bool passes_when_lowered(CUstream trial) const;
    bool raise_at(words &at, ticket which, CUstream stream) const;

    const driver &calls_;
    CUcontext context_ = nullptr; // in which those are:
    words *words_ = nullptr;      // page-locked; the last is for the trial
    bool kept_ = true;            // by the context
    bool usable_ = false;
    ticket last_ = none;
    std::array<ticket, most> taken_{}; // by index
};

} // namespace emuv::cuda
