// SPDX-License-Identifier: GPL-2.0-or-later
// CUDA arrays: row after row in VRAM, without the tiling of a card.
#pragma once

#include "context.hpp"

namespace sim {

struct array
{
    context *owner = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    std::uintptr_t base = 0;
    std::size_t row_bytes = 0;

    ~array();
    std::size_t rows() const { return shape.Height ? shape.Height : 1; }
    std::size_t planes() const { return shape.Depth ? shape.Depth : 1; }
    std::size_t bytes() const { return row_bytes * rows() * planes(); }
};

} // namespace sim
