// SPDX-License-Identifier: LGPL-2.1-or-later
// Addresses in a block that work was given.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace emuv::cuda {

/// Offsets in a block that work was ever given. They tell a table of addresses
/// from other numbers. None is ever forgotten: with an unknown address in a
/// table, the block would move under the kernel that reads it. If there are too
/// many to keep one by one, the block is divided into cells. One offset then
/// stands for all of its cell.
class known_offsets
{
public:
    static constexpr std::size_t max_single = 4096;
    static constexpr std::size_t cells = 4096;

    /// @param bytes  of the block
    void add(std::uint64_t offset, std::uint64_t bytes)
    {
        if (in_cells_ != nullptr) {
            in_cells_->set(cell_of(offset));
            return;
        }
        const auto at =
            std::lower_bound(single_.begin(), single_.end(), offset);
        if (at != single_.end() && *at == offset)
            return;
        if (single_.size() < max_single) {
            single_.insert(at, offset);
            return;
        }
        cell_bytes_ = (bytes + cells - 1) / cells;
        in_cells_ = std::make_unique<std::bitset<cells>>();
        for (const std::uint64_t each : single_)
            in_cells_->set(cell_of(each));
        in_cells_->set(cell_of(offset));
        std::vector<std::uint64_t>().swap(single_);
    }

    bool has(std::uint64_t offset) const
    {
        return in_cells_ != nullptr
                   ? in_cells_->test(cell_of(offset))
                   : std::binary_search(single_.begin(), single_.end(), offset);
    }

private:
    std::size_t cell_of(std::uint64_t offset) const
    {
        return static_cast<std::size_t>(
            std::min<std::uint64_t>(offset / cell_bytes_, cells - 1));
    }

    std::vector<std::uint64_t> single_; // in order
    std::uint64_t cell_bytes_ = 1;
    std::unique_ptr<std::bitset<cells>> in_cells_;
};

} // namespace emuv::cuda
