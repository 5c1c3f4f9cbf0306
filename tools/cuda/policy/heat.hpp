// SPDX-License-Identifier: LGPL-2.1-or-later
// How often something is used.
#pragma once

#include <cstdint>

namespace emuv::cuda {

/// The uses of something, each of which counts half as much after so many uses
/// of anything.
class heat
{
public:
    /// The weight of a use that happens now.
    static constexpr std::uint64_t one_use = 256;
    static constexpr std::uint64_t half_life = 4096;

    /// @param now  how many uses of anything there have been; never falls
    void use(std::uint64_t now)
    {
        sum_ = at(now) + one_use;
        last_ = now;
    }

    /// As if it had been used so many times just now, and never before.
    void set(std::uint64_t now, std::uint64_t uses)
    {
        sum_ = uses * one_use;
        last_ = now;
    }

    /// The sum of all uses, each by its age.
    std::uint64_t at(std::uint64_t now) const
    {
        const std::uint64_t age = now - last_;
        const std::uint64_t halves = age / half_life;
        if (halves >= 64)
            return 0;
        const std::uint64_t sum = sum_ >> halves;
        return sum - sum * (age % half_life) / (2 * half_life);
    }

    /// The uses of anything since its last one.
    std::uint64_t idle(std::uint64_t now) const { return now - last_; }

private:
    std::uint64_t sum_ = 0;
    std::uint64_t last_ = 0;
};

} // namespace emuv::cuda
