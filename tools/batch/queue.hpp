// SPDX-License-Identifier: GPL-2.0-or-later
// The one queue that all workers of a batch are fed from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace emuvctl::batch {

/// How one run of an item ended.
enum class ending
{
    done,
    failed,    ///< its program says so
    no_memory, ///< likewise, after it was refused memory
    lost       ///< the program or its worker was killed
};

/// An item, and the share of memory to run it with.
struct turn
{
    std::size_t item = 0;
    std::uint64_t share_bytes = 0;
};

/// Hands items out. An item that lacked memory is handed out again with a
/// larger share, one that was lost with any. No item is out twice at a time.
class queue
{
public:
    /// @param done  of each item: it needs no run
    /// @param shares  of each worker: the shares that it can give, rising, at
    ///   least one
    /// @param tries  how often an item is begun at most when it is lost
    queue(const std::vector<bool> &done,
          std::vector<std::vector<std::uint64_t>> shares, unsigned tries);

    /// The next item for a worker; nullopt if there is none for it now.
    std::optional<turn> next(std::size_t worker);

    /// Takes note of an end.
    /// @return true if the item will be handed out again
    bool ended(const turn &which, ending how);

    /// An item that is out comes back and is not handed out again.
    void drop() { out_--; }

    /// True if no item waits and none is out.
    [[nodiscard]] bool over() const { return out_ == 0 && waiting() == 0; }
    [[nodiscard]] std::size_t waiting() const
    {
        return fresh_.size() + again_.size();
    }
    [[nodiscard]] std::size_t out() const { return out_; }

private:
    // The smallest of a worker's shares above a bound.
    [[nodiscard]] std::optional<std::uint64_t>
    share_above(std::size_t worker, std::uint64_t bytes) const;
    [[nodiscard]] bool anyone_above(std::uint64_t bytes) const;

    struct state
    {
        std::uint64_t too_small = 0; // the largest share that did not do
        bool lacked = false;         // too_small counts
        unsigned begun = 0;
    };

    std::vector<std::vector<std::uint64_t>> shares_;
    unsigned tries_;
    std::vector<state> items_;
    std::deque<std::size_t> fresh_;
    std::deque<std::size_t> again_; // before fresh ones
    std::size_t out_ = 0;
};

} // namespace emuvctl::batch
