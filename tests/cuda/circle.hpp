// SPDX-License-Identifier: GPL-2.0-or-later
// A program that uses the units of one block in a circle.
#pragma once

#include "movement/block.hpp"
#include "policy/schedule.hpp"
#include "store/placement.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// For tests of code that places units by a schedule.
struct Circle : testing::Test
{
    static constexpr std::uint64_t units = 64;
    static constexpr std::uint64_t unit_bytes = emuv::cuda::max_unit_bytes;

    Circle() { add_block(0, units); }

    /// Another block, all of it in VRAM.
    void add_block(CUdeviceptr base, std::uint64_t count)
    {
        emuv::cuda::block_ref of(new emuv::cuda::block);
        of->base = base;
        of->bytes = count * unit_bytes;
        for (std::uint64_t i = 0; i < count; i++) {
            emuv::cuda::slot &next = of->slots.emplace_back();
            next.at = base + i * unit_bytes;
            next.bytes = unit_bytes;
            next.where = emuv::cuda::place::vram;
        }
        blocks.push_back(std::move(of));
    }

    /// So many steps, a unit each.
    void step(std::uint64_t count)
    {
        for (std::uint64_t i = 0; i < count; i++) {
            const auto unit = static_cast<std::uint32_t>(at++ % units);
            const emuv::cuda::touch given{0, unit, unit};
            uses.note(1000 + unit, &given, 1);
        }
    }

    std::mutex mutex;
    emuv::cuda::schedule uses;
    std::vector<emuv::cuda::block_ref> blocks;
    std::uint64_t at = 0;
};
