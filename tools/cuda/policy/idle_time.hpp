// SPDX-License-Identifier: LGPL-2.1-or-later
// The time in which a device has nothing to run, by its cause.
#pragma once

#include <algorithm>
#include <cstdint>

namespace emuv::cuda {

/// Adds up the time in which a device has nothing to run. The caller locks, and
/// hands in all times, which may be late or overlap.
class idle_time
{
public:
    /// A thread of the program waits so in a launch. Otherwise it makes none.
    enum class cause
    {
        link,     ///< for memory that is on its way
        mapping,  ///< for memory to be mapped
        standing, ///< for movement to stop
    };

    /// Nanoseconds, ever.
    struct sums
    {
        std::uint64_t link = 0;
        std::uint64_t mapping = 0;
        std::uint64_t standing = 0;
        std::uint64_t program = 0; ///< there was no launch

        /// The growth since @p before.
        sums since(const sums &before) const
        {
            return {link - before.link, mapping - before.mapping,
                    standing - before.standing, program - before.program};
        }
    };

    /// From here on nothing is in flight.
    void empties(std::uint64_t now)
    {
        told_ = std::max(now, told_);
        busy_ = false;
    }

    /// True if the device has nothing to run, as far as is known.
    bool is_idle() const { return !busy_; }

    /// A launch has waited. Only the part counts in which nothing was in
    /// flight.
    void waits(cause why, std::uint64_t start, std::uint64_t end)
    {
        if (!is_idle() || end <= told_)
            return;
        const std::uint64_t begin = std::max(start, told_);
        sums_.program += begin - told_;
        add(why, end - begin);
        told_ = end;
    }

    /// Work is handed to the device.
    void begins(std::uint64_t now)
    {
        if (is_idle() && now > told_)
            sums_.program += now - told_;
        busy_ = true;
    }

    /// The device itself waits, for work that is in flight.
    void stands(std::uint64_t ns) { sums_.standing += ns; }

    const sums &so_far() const { return sums_; }

private:
    void add(cause why, std::uint64_t ns)
    {
        switch (why) {
        case cause::link:
            sums_.link += ns;
            break;
        case cause::mapping:
            sums_.mapping += ns;
            break;
        case cause::standing:
            sums_.standing += ns;
            break;
        }
    }

    sums sums_;
    std::uint64_t told_ = 0; // idle, and accounted for, up to this moment
    bool busy_ = true;       // until something has ended
};

} // namespace emuv::cuda
