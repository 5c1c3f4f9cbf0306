// SPDX-License-Identifier: GPL-2.0-or-later
// Pieces of VRAM of any size, cut from segments of whole frames.
#pragma once

#include "frames.hpp"

#include <map>

namespace sim {

struct device;

class heap
{
public:
    static constexpr std::size_t piece_bytes = 512;

    explicit heap(device &on) : device_(on) {}
    ~heap() { clear(); }
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;

    // Zero when VRAM is full.
    std::uintptr_t allocate(std::size_t bytes);
    void release(std::uintptr_t base, std::size_t bytes);
    // Gives segments with nothing in them back until `keep` bytes are left.
    void trim(std::size_t keep);
    void clear(); // all of it, used or not

    // The memory behind an address, and the offset of the address in it.
    struct location
    {
        std::shared_ptr<physical> memory;
        std::size_t offset = 0;
    };
    location location_at(std::uintptr_t at) const;

    std::size_t reserved() const { return reserved_; }
    std::size_t used() const { return used_; }

private:
    struct segment
    {
        std::size_t bytes = 0;
        std::shared_ptr<physical> memory;
        std::map<std::uintptr_t, std::size_t> free;
    };
    using segments = std::map<std::uintptr_t, segment>;
    segments::iterator drop(segments::iterator which);

    device &device_;
    segments segments_;
    std::size_t reserved_ = 0;
    std::size_t used_ = 0;
};

} // namespace sim
