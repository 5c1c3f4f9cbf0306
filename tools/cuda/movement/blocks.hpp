// SPDX-License-Identifier: LGPL-2.1-or-later
// All blocks, by address.
#pragma once

#include "movement/block.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace emuv::cuda {

/// All blocks. The caller locks.
///
/// Every address that work is given is looked up here, and each node of a tree
/// lies in another cache line. So a sorted table lies beside the tree, with the
/// same blocks. It is made anew after a change, once there have been as many
/// look-ups as there are blocks. So neither a change nor a look-up costs much
/// more than in the tree alone.
class blocks
{
public:
    bool empty() const { return tree_.empty(); }
    const std::map<CUdeviceptr, block_ref> &all() const { return tree_; }
    /// A new number after each change.
    std::uint64_t version() const { return version_; }
    /// A new number after each block that has gone.
    std::uint64_t removals() const { return removals_; }

    void add(const block_ref &made)
    {
        tree_[made->base] = made;
        changed();
    }

    /// @return the block that begins there, no longer one of them; or none
    block_ref remove(CUdeviceptr base)
    {
        const auto found = tree_.find(base);
        if (found == tree_.end())
            return {};
        const block_ref gone = found->second;
        tree_.erase(found);
        removals_++;
        changed();
        return gone;
    }

    /// The blocks that an address may be meant for, or null. Valid until the
    /// next change.
    struct meant
    {
        block *around = nullptr;
        /// The block that ends there: some work is given only the address one
        /// past the end.
        block *before = nullptr;

        bool any() const { return around != nullptr || before != nullptr; }

        template <typename Use>
        void each(Use use) const
        {
            for (block *const of : {around, before})
                if (of != nullptr)
                    use(*of);
        }
    };
    meant meant_by(CUdeviceptr address)
    {
        // Most numbers are no addresses, or point to memory outside all blocks.
        if (tree_.empty() || address - lowest_ > covered_bytes_)
            return {};
        if (asked_ < tree_.size()) {
            if (++asked_ == tree_.size())
                make_table();
            const auto last = std::prev(tree_.upper_bound(address));
            block *const before =
                address == last->first && last != tree_.begin()
                    ? &*std::prev(last)->second
                    : nullptr;
            return beside(before, &*last->second, address);
        }
        const auto after =
            std::upper_bound(bases_.begin(), bases_.end(), address);
        const auto last = static_cast<std::size_t>(after - bases_.begin()) - 1;
        block *const before =
            address == bases_[last] && last > 0 ? table_[last - 1] : nullptr;
        return beside(before, table_[last], address);
    }

    /// The block around an address, or null.
    block *around(CUdeviceptr address) { return meant_by(address).around; }

private:
    void changed()
    {
        version_++;
        asked_ = 0;
        lowest_ = tree_.empty() ? 0 : tree_.begin()->first;
        covered_bytes_ = tree_.empty()
                             ? 0
                             : tree_.rbegin()->first +
                                   tree_.rbegin()->second->bytes - lowest_;
    }

    // @p last is the last block that begins no later than @p address, and @p
    // before the one before it, if that matters.
    static meant beside(block *before, block *last, CUdeviceptr address)
    {
        const std::uint64_t offset = address - last->base;
        if (offset == last->bytes)
            return {nullptr, last};
        const auto ends = [address](const block *of) {
            return of != nullptr && address - of->base == of->bytes;
        };
        return {offset < last->bytes ? last : nullptr,
                ends(before) ? before : nullptr};
    }

    void make_table()
    {
        bases_.clear();
        table_.clear();
        for (const auto &[base, each] : tree_) {
            bases_.push_back(base);
            table_.push_back(&*each);
        }
    }

    std::map<CUdeviceptr, block_ref> tree_;
    std::uint64_t version_ = 0;
    std::uint64_t removals_ = 0;
    std::size_t asked_ = 0; // look-ups since the last change
    // From the begin of the first block to the end of the last.
    CUdeviceptr lowest_ = 0;
    std::uint64_t covered_bytes_ = 0;
    std::vector<CUdeviceptr> bases_;
    std::vector<block *> table_;
};

} // namespace emuv::cuda
