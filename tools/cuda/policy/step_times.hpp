// SPDX-License-Identifier: LGPL-2.1-or-later
// The times that the device took for a program's last steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// The times of a program's last steps. The caller locks.
class step_times
{
public:
    /// The number of steps that are kept.
    static constexpr std::size_t max_steps = std::size_t{1} << 16;

    /// A step has taken so long, as far as anybody saw.
    /// @param step  its number, from 1
    /// @param least_ns  the part of it in which the device surely was busy
    /// @param same  an earlier step that was the same work, or 0. Its end may
    ///   have been seen sooner: seven eighths of what was sure of it are so.
    void add(std::uint64_t step, std::uint64_t took_ns, std::uint64_t least_ns,
             std::uint64_t same = 0);

    /// The time that the device was busy with a step; the mean of late steps if
    /// that is unknown.
    std::uint64_t of(std::uint64_t step) const;

    /// The time that it surely was busy with it; 0 if that is unknown.
    std::uint64_t least_of(std::uint64_t step) const;

private:
    struct time
    {
        std::uint64_t step = 0;
        std::uint64_t took_ns = 0;
        std::uint64_t least_ns = 0;
    };
    std::vector<time> kept_; // by step
    static constexpr std::uint64_t late_steps = 64;
    std::uint64_t late_ns_ = 0; // for that many
};

} // namespace emuv::cuda
