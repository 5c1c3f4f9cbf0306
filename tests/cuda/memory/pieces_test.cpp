// SPDX-License-Identifier: GPL-2.0-or-later
// Small allocations that share chunks of system RAM.
#include "memory/pieces.hpp"
#include "memory/ranges_fixture.hpp"

#include <utility>

using namespace emuv::cuda;

namespace {

struct Pieces : RangesFixture
{
    pieces::piece make(std::uint64_t bytes, int device = 0)
    {
        pieces::piece made;
        EXPECT_EQ(small.make(bytes, device, made), CUDA_SUCCESS);
        return made;
    }

    pieces small{*all};
};

} // namespace

TEST_F(Pieces, TheyShareAChunkThatGoesWithTheLast)
{
    const auto first = make(100);
    const auto second = make(MiB);
    EXPECT_EQ(first.chunk, second.chunk);
    EXPECT_EQ(second.at % slab::alignment, 0u);
    expect_used(0, 2 * MiB);
    EXPECT_EQ(small.drop(first), CUDA_SUCCESS);
    expect_used(0, 2 * MiB);
    EXPECT_EQ(small.drop(second), CUDA_SUCCESS);
    expect_nothing_left();
}

TEST_F(Pieces, WhereAGapIsLargeEnoughItIsTaken)
{
    const auto first = make(MiB);
    const auto second = make(MiB);
    const auto third = make(MiB);
    EXPECT_EQ(first.chunk, second.chunk);
    EXPECT_NE(second.chunk, third.chunk);
    expect_used(0, 4 * MiB);
    EXPECT_EQ(small.drop(first), CUDA_SUCCESS);
    EXPECT_EQ(make(MiB).at, first.at);
    expect_used(0, 4 * MiB);
}

TEST_F(Pieces, DevicesShareNoChunk)
{
    EXPECT_NE(make(100, 0).chunk, make(100, 1).chunk);
}

TEST_F(Pieces, AChunkIsTouchedFromItsFirstByteToItsLast)
{
    const auto only = make(100);
    EXPECT_FALSE(small.touches(only.chunk - 1, 1));
    EXPECT_TRUE(small.touches(only.chunk - 1, 2));
    EXPECT_TRUE(small.touches(only.chunk + 2 * MiB - 1, 1));
    EXPECT_FALSE(small.touches(only.chunk + 2 * MiB, 1));
    EXPECT_EQ(small.drop(only), CUDA_SUCCESS);
    EXPECT_FALSE(small.touches(only.chunk, 1));
}

TEST_F(Pieces, WithoutRoomForAChunkThereIsNone)
{
    std::uint64_t token = 0;
    ASSERT_TRUE(limits->charge_virtual(128 * MiB, token));
    pieces::piece made{.at = 42};
    EXPECT_EQ(small.make(100, 0, made), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(made.at, 42u);
    limits->uncharge_virtual(128 * MiB, token);
    expect_nothing_left();
}

// Another thread frees a piece that was in the way, while the chunk is refused.
TEST_F(Pieces, RoomThatComesWhileAChunkIsRefusedIsTaken)
{
    static pieces *under_way;
    static pieces::piece leaves;
    static decltype(card.calls.cuMemAddressReserve) real;
    leaves = make(MiB);
    const auto stays = make(MiB);
    under_way = &small;
    real = card.calls.cuMemAddressReserve;
    card.calls.cuMemAddressReserve = [](CUdeviceptr *, std::size_t, std::size_t,
                                        CUdeviceptr, unsigned long long) {
        if (pieces *const now = std::exchange(under_way, nullptr)) {
            EXPECT_EQ(now->drop(leaves), CUDA_SUCCESS);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    const auto late = make(MiB);
    EXPECT_EQ(late.at, leaves.at);
    card.calls.cuMemAddressReserve = real;
    for (const auto &each : {late, stays})
        EXPECT_EQ(small.drop(each), CUDA_SUCCESS);
    expect_nothing_left();
}
