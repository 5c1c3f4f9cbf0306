// SPDX-License-Identifier: LGPL-2.1-or-later
// When memory is used again, foretold by the work that used it last.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// Foretells the next use of memory by the kind of work that used it last.
///
/// Some programs repeat their work on other addresses each time: each round
/// allocates its results anew, and frees those of the round before. No step
/// comes again then, as schedule sees it. But the same kernel, after the same
/// kernels, leaves its memory idle for as long each time. So distances are
/// kept by contexts: the kernels of the last works, without their addresses.
/// The longest context that has kept its distance counts. (Predictors of
/// branches do likewise: A. Seznec and P. Michaud, A case for (partially)
/// TAgged GEometric history length branch prediction, JILP 8, 2006.)
class reuse
{
public:
    static constexpr std::uint64_t never = UINT64_MAX;
    /// The numbers of works in a context.
    static constexpr std::array<std::uint32_t, 3> lengths{4, 32, 256};

    /// The last use of a piece of memory, and the next one.
    struct memory
    {
        std::uint64_t used = 0;    ///< by this work; 0: by none yet
        std::uint64_t due = never; ///< the work that is to use it next
        /// Of that work, by their lengths.
        std::array<std::uint32_t, lengths.size()> contexts{};

        friend bool operator==(const memory &, const memory &) = default;
    };

    /// Work begins that names memory.
    /// @param kind  identifies its kernel, whatever that is given
    void begin(std::uint64_t kind);
    /// It uses this memory.
    /// @param which  which of its addresses names that, from 1 on
    void use(memory &of, std::uint32_t which);

    /// Works from now until the memory is used, 1 for the next; never where
    /// nothing is foretold.
    std::uint64_t next_use(const memory &of) const;

    /// True if most of what was foretold of late has come true.
    bool tells() const;

private:
    // A distance, and how often it was right of late.
    struct entry
    {
        std::uint32_t tag = 0;
        std::uint32_t distance = 0;
        std::uint32_t trust = 0;
    };
    static constexpr std::size_t entries = 1u << 14; // of each length
    static constexpr std::uint32_t most_trust = 3;
    static constexpr std::uint32_t enough_trust = 2;
    static constexpr std::uint32_t max_doubt = 1u << 20;

    // True if two distances are alike: to within a sixteenth, and one work.
    static bool alike(std::uint64_t one, std::uint64_t other)
    {
        return (one > other ? one - other : other - one) <= other / 16 + 1;
    }
    entry &at(std::size_t length, std::uint32_t context)
    {
        return tables_[length * entries + context % entries];
    }
    void learn(const memory &of);
    void foretell(std::uint32_t which);

    std::uint64_t works_ = 0; // that named memory
    std::uint32_t doubt_ = max_doubt;
    std::array<std::uint64_t, lengths.back()> kinds_{}; // of the last works
    std::array<std::uint64_t, lengths.size()> hashes_{};
    std::array<std::uint64_t, lengths.size()> leaving_{}; // a kind's weight
    std::vector<entry> tables_;
    // Units of one allocation are mostly used together. So this is kept: what
    // was foretold of the last one, and what this work has learned of it
    // already.
    std::uint32_t which_ = 0;
    memory told_;
    memory learned_;
    std::uint64_t learned_by_ = 0;
};

} // namespace emuv::cuda
