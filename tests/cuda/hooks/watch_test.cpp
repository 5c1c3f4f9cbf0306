// SPDX-License-Identifier: GPL-2.0-or-later
// Arguments of copies, fills and waits. They name the addresses that the work
// is given, and the words that come to the device.
#include "hooks/fixture.hpp"
#include "hooks/watch.hpp"

#include <algorithm>
#include <vector>

using namespace emuv::cuda;

namespace {

// Memory moves, on no device that work runs on.
class Watch : public Hooks
{
protected:
    Watch()
    {
        ours_.movers = {nullptr};
        EMUV_ANSWER(cuMemcpyHtoDAsync_v2,
                    [](CUdeviceptr, const void *, std::size_t, CUstream) {
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuMemcpyAsync, [](CUdeviceptr, CUdeviceptr, std::size_t,
                                      CUstream) { return CUDA_SUCCESS; });
        EMUV_ANSWER(cuMemcpyDtoHAsync_v2,
                    [](void *, CUdeviceptr, std::size_t, CUstream) {
                        return CUDA_SUCCESS;
                    });
        EMUV_ANSWER(cuMemcpy2DAsync_v2, [](const CUDA_MEMCPY2D *, CUstream) {
            return CUDA_SUCCESS;
        });
        EMUV_ANSWER(cuMemcpy3DAsync_v2, [](const CUDA_MEMCPY3D *, CUstream) {
            return CUDA_SUCCESS;
        });
    }

    template <typename Argument>
    static std::vector<CUdeviceptr> named_by(Argument argument)
    {
        work out;
        out.trusted = true;
        watching::add(out, argument);
        EXPECT_TRUE(out.trusted);
        return {out.addresses.begin(), out.addresses.begin() + out.count};
    }
    template <typename Argument>
    static bool leaves_trusted(Argument argument)
    {
        work out;
        out.trusted = true;
        watching::add(out, argument);
        return out.trusted;
    }

    // The rows that were searched, from this one on.
    std::vector<std::pair<std::size_t, std::size_t>> noted() const
    {
        std::vector<std::pair<std::size_t, std::size_t>> all;
        for (const stand_in::table &each : stand_in::noted)
            all.emplace_back(static_cast<const char *>(each.words) - words_,
                             each.bytes);
        return all;
    }
    using rows = std::vector<std::pair<std::size_t, std::size_t>>;

    char words_[4096] = {};
};

} // namespace

TEST_F(Watch, AddressesOfBothKindsAreNamed)
{
    EXPECT_EQ(named_by(CUdeviceptr{0x1234}), std::vector<CUdeviceptr>{0x1234});
    EXPECT_EQ(named_by(static_cast<void *>(words_)),
              std::vector{reinterpret_cast<CUdeviceptr>(words_)});
    EXPECT_EQ(named_by(static_cast<const void *>(words_)),
              std::vector{reinterpret_cast<CUdeviceptr>(words_)});
    EXPECT_TRUE(named_by(unsigned{5}).empty());
    EXPECT_TRUE(named_by(std::size_t{4096}).empty());
}

TEST_F(Watch, DescribedCopiesNameTheSideThatCounts)
{
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words_;
    copy.srcDevice = 1; // means nothing
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = 0x1234;
    copy.dstHost = words_ + 1; // nor does this
    EXPECT_EQ(named_by(static_cast<const CUDA_MEMCPY3D *>(&copy)),
              (std::vector{reinterpret_cast<CUdeviceptr>(words_),
                           CUdeviceptr{0x1234}}));
    EXPECT_TRUE(named_by(static_cast<const CUDA_MEMCPY2D *>(nullptr)).empty());
}

TEST_F(Watch, WorkThatNamesMoreThanIsLookedAtIsNotTrusted)
{
    EXPECT_FALSE(leaves_trusted(static_cast<CUdeviceptr *>(nullptr)));
    EXPECT_FALSE(
        leaves_trusted(static_cast<CUDA_MEMCPY3D_BATCH_OP *>(nullptr)));
    EXPECT_FALSE(
        leaves_trusted(static_cast<CUstreamBatchMemOpParams *>(nullptr)));
    EXPECT_FALSE(leaves_trusted(number<CUfunction>(1)));
    EXPECT_TRUE(leaves_trusted(number<CUstream>(1)));
}

TEST_F(Watch, AGraphIsNotTrustedAndTheReasonIsThatItIsOneWhole)
{
    const auto exec = number<CUgraphExec>(1);
    ours_.unrolled.instantiated(exec, nullptr,
                                CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    work out;
    out.trusted = true;
    watching::add(out, exec);
    EXPECT_FALSE(out.trusted);
    EXPECT_STREQ(out.why, "a graph that the device launches");
}

TEST_F(Watch, WordsThatComeFromTheHostAreSearched)
{
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(0x1234, words_ + 8, 100, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(noted(), (rows{{8, 100}}));
    // The driver finds out which side is whose, and so has this to.
    EXPECT_EQ(cuMemcpyAsync(0x1234, reinterpret_cast<CUdeviceptr>(words_), 50,
                            nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(noted(), (rows{{8, 100}, {0, 50}}));
}

TEST_F(Watch, WordsThatLieOnTheDeviceAreNot)
{
    ours_.movers.clear(); // allocated as any other
    CUdeviceptr at = 0;
    ASSERT_EQ(table_.allocate(&at, 8 * MiB), CUDA_SUCCESS);
    ours_.movers = {nullptr};
    EXPECT_EQ(cuMemcpyAsync(0x1234, at, 50, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoHAsync_v2(words_, at, 50, nullptr), CUDA_SUCCESS);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = at;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = 0x1234;
    copy.WidthInBytes = 24;
    copy.Height = 1;
    EXPECT_EQ(cuMemcpy2DAsync_v2(&copy, nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(stand_in::noted.empty());
    EXPECT_EQ(table_.free(at), CUDA_SUCCESS);
}

TEST_F(Watch, NothingIsSearchedWhereNothingMoves)
{
    ours_.movers.clear();
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(0x1234, words_, 100, nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(stand_in::noted.empty());
}

TEST_F(Watch, OfRowsThatComeFromTheHostEachIsSearchedWhereItLies)
{
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words_;
    copy.srcPitch = 100;
    copy.srcY = 2;
    copy.srcXInBytes = 8;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = 0x1234;
    copy.WidthInBytes = 24;
    copy.Height = 3;
    EXPECT_EQ(cuMemcpy2DAsync_v2(&copy, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(noted(), (rows{{208, 24}, {308, 24}, {408, 24}}));
}

TEST_F(Watch, OfPlanesThatComeFromTheHostEachIsSearchedWhereItLies)
{
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words_;
    copy.srcPitch = 100;
    copy.srcHeight = 10;
    copy.srcZ = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = 0x1234;
    copy.WidthInBytes = 24;
    copy.Height = 1;
    copy.Depth = 2;
    EXPECT_EQ(cuMemcpy3DAsync_v2(&copy, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(noted(), (rows{{1000, 24}, {2000, 24}}));
    // By default a row is as long as it is used, and a plane as high.
    stand_in::noted.clear();
    copy.srcPitch = copy.srcHeight = 0;
    EXPECT_EQ(cuMemcpy3DAsync_v2(&copy, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(noted(), (rows{{24, 24}, {48, 24}}));
}
