// SPDX-License-Identifier: GPL-2.0-or-later
// Memory that others made: charged while the program holds it open.
#include "account/footprint.hpp"
#include "fake_driver.hpp"
#include "memory/foreign.hpp"

#include <memory>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
using kind = foreign::key::kind;

// A share of 64 MiB of VRAM.
class Foreign : public ::testing::Test
{
protected:
    Foreign()
    {
        EXPECT_EQ(rows_.open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(rows_, 0, 64 * MiB, 0);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = card_.calls, .ledgers = {limits_.get()}});
        all_ = std::make_unique<foreign>(*shares_, true);
    }

    static CUcontext context(std::uintptr_t number)
    {
        return reinterpret_cast<CUcontext>(number);
    }
    std::uint64_t used() const { return limits_->read().physical_used_bytes; }

    FakeDriver card_;
    ledger_file rows_;
    std::unique_ptr<file_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<foreign> all_;
};

CUresult done()
{
    return CUDA_SUCCESS;
}
CUresult refused()
{
    return CUDA_ERROR_INVALID_VALUE;
}

} // namespace

TEST_F(Foreign, MemoryIsChargedOnceHoweverOftenItIsOpened)
{
    EXPECT_TRUE(all_->open({kind::address, 1}, {}, 20 * MiB));
    EXPECT_TRUE(all_->open({kind::address, 1}, {}, 20 * MiB));
    EXPECT_EQ(used(), 20 * MiB);
    all_->close({kind::address, 1}, done);
    EXPECT_EQ(used(), 20 * MiB);
    all_->close({kind::address, 1}, done);
    EXPECT_EQ(used(), 0U);
    all_->close({kind::address, 1}, done); // once too often
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, MemoryThatTheDriverDoesNotCloseStaysCharged)
{
    EXPECT_TRUE(all_->open({kind::address, 1}, {}, 20 * MiB));
    EXPECT_EQ(all_->close({kind::address, 1}, refused),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(used(), 20 * MiB);
    EXPECT_EQ(all_->close({kind::address, 1}, done), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

// The driver gives a number to others as soon as it has taken it back.
TEST_F(Foreign, NumberThatComesAgainWhileMemoryIsClosedNamesTheOther)
{
    const foreign::key same{kind::address, 1};
    EXPECT_TRUE(all_->open(same, {}, 20 * MiB));
    all_->close(same, [&] {
        EXPECT_TRUE(all_->open(same, {}, 4 * MiB));
        return CUDA_SUCCESS;
    });
    EXPECT_EQ(used(), 4 * MiB);
    all_->close(same, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, NumberOfAHandleThatIsMappedMayComeAgain)
{
    const foreign::key same{kind::handle, 7};
    EXPECT_TRUE(all_->open(same, {}, 0));
    EXPECT_TRUE(all_->grow(same, 20 * MiB));
    all_->mapped(0x9000000, 20 * MiB, same);
    all_->close(same, done);
    EXPECT_TRUE(all_->open(same, {}, 0)); // of other memory
    EXPECT_TRUE(all_->grow(same, 4 * MiB));
    EXPECT_EQ(used(), 24 * MiB);
    all_->close(same, done);
    EXPECT_EQ(used(), 20 * MiB);
    EXPECT_EQ(all_->unmap(0x9000000, 20 * MiB, done), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, HandleThatIsRetainedByAnAddressKeepsItsMemory)
{
    EXPECT_TRUE(all_->open({kind::handle, 7}, {}, 0));
    EXPECT_TRUE(all_->grow({kind::handle, 7}, 20 * MiB));
    all_->mapped(0x9000000, 20 * MiB, {kind::handle, 7});
    all_->close({kind::handle, 7}, done);
    all_->open_again({kind::handle, 8}, 0x9000000 + 2 * MiB);
    all_->open_again({kind::handle, 9}, 0x9000000 + 20 * MiB); // of nobody
    EXPECT_EQ(all_->unmap(0x9000000, 20 * MiB, done), CUDA_SUCCESS);
    EXPECT_EQ(used(), 20 * MiB) << "a handle is there";
    all_->close({kind::handle, 9}, done);
    EXPECT_EQ(used(), 20 * MiB);
    all_->close({kind::handle, 8}, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, ContextThatGoesTakesWhatWasOpenedInItAndNoMore)
{
    EXPECT_TRUE(all_->open({kind::address, 1}, {0, context(1), 1}, 4 * MiB));
    EXPECT_TRUE(all_->open({kind::address, 1}, {0, context(1), 2}, 4 * MiB));
    EXPECT_TRUE(all_->open({kind::address, 2}, {0, context(2), 3}, 8 * MiB));
    EXPECT_TRUE(all_->open({kind::handle, 3}, {}, 16 * MiB));
    // Of a new context with the same handle.
    EXPECT_TRUE(all_->open({kind::address, 4}, {0, context(1), 5}, 1 * MiB));
    all_->context_gone(context(1), 4);
    EXPECT_EQ(used(), (8 + 16 + 1) * MiB);
    all_->close({kind::address, 1}, done); // no longer open
    EXPECT_EQ(used(), (8 + 16 + 1) * MiB);
    all_->close({kind::address, 4}, done);
    all_->context_gone(nullptr, 9);
    EXPECT_EQ(used(), (8 + 16) * MiB) << "no context's";
}

// The driver gives a context's addresses to others as it destroys it.
TEST_F(Foreign, MemoryThatGetsTheAddressOfAGoingContextsMemoryIsAnother)
{
    const foreign::key same{kind::address, 1};
    EXPECT_TRUE(all_->open(same, {0, context(1), 1}, 20 * MiB));
    all_->context_ends(context(1));
    EXPECT_TRUE(all_->open(same, {0, context(2), 3}, 4 * MiB));
    all_->context_gone(context(1), 2);
    EXPECT_EQ(used(), 4 * MiB);
    // And of a new context with the same handle.
    all_->context_ends(context(2));
    EXPECT_TRUE(all_->open(same, {0, context(2), 5}, 2 * MiB));
    all_->context_gone(context(2), 4);
    EXPECT_EQ(used(), 2 * MiB);
    all_->close(same, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, ContextThatStaysKeepsWhatWasOpenedInIt)
{
    const foreign::key one{kind::address, 1};
    const foreign::key closed{kind::address, 2};
    EXPECT_TRUE(all_->open(one, {0, context(1), 1}, 4 * MiB));
    EXPECT_TRUE(all_->open(closed, {0, context(1), 2}, 8 * MiB));
    all_->context_ends(context(1));
    EXPECT_EQ(used(), 12 * MiB);
    all_->close(closed, done);
    EXPECT_EQ(used(), 4 * MiB);
    EXPECT_TRUE(all_->open(one, {0, context(1), 4}, 4 * MiB)) << "once more";
    all_->context_stays(context(1));
    EXPECT_EQ(used(), 4 * MiB);
    all_->close(one, done);
    EXPECT_EQ(used(), 4 * MiB);
    all_->close(one, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, ContextThatGoesWhileMemoryIsClosedTakesItAlong)
{
    const foreign::key key{kind::address, 1};
    EXPECT_TRUE(all_->open(key, {0, context(1), 1}, 20 * MiB));
    EXPECT_EQ(all_->close(key,
                          [&] {
                              all_->context_ends(context(1));
                              all_->context_gone(context(1), 2);
                              return refused();
                          }),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, MemoryIsNotChargedIfItsContextWentAsItWasOpened)
{
    all_->context_ends(context(1));
    all_->context_gone(context(1), 5);
    EXPECT_TRUE(all_->open({kind::address, 1}, {0, context(1), 4}, 20 * MiB));
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(all_->open({kind::address, 1}, {0, context(1), 5}, 20 * MiB));
    EXPECT_EQ(used(), 20 * MiB) << "in a new one of the same handle";
    all_->close({kind::address, 1}, done);
    EXPECT_EQ(used(), 0U);
}

// Memory is mapped by a handle that is let go, and imported anew. The handle
// that is retained by its address has the new one's number.
TEST_F(Foreign, HandleThatIsRetainedUnderANumberThatIsThereCountsThere)
{
    const foreign::key same{kind::handle, 7};
    EXPECT_TRUE(all_->open(same, {}, 0));
    EXPECT_TRUE(all_->grow(same, 20 * MiB));
    all_->mapped(0x9000000, 20 * MiB, same);
    all_->close(same, done);
    EXPECT_TRUE(all_->open(same, {}, 0));
    EXPECT_TRUE(all_->grow(same, 20 * MiB));
    all_->open_again(same, 0x9000000);
    EXPECT_EQ(all_->unmap(0x9000000, 20 * MiB, done), CUDA_SUCCESS);
    EXPECT_EQ(used(), 20 * MiB);
    all_->close(same, done);
    EXPECT_EQ(used(), 20 * MiB) << "it was opened twice";
    all_->close(same, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, MemoryBeyondTheShareIsNotOpened)
{
    EXPECT_TRUE(all_->open({kind::address, 1}, {}, 60 * MiB));
    EXPECT_FALSE(all_->open({kind::address, 2}, {}, 5 * MiB));
    EXPECT_EQ(used(), 60 * MiB);
    all_->close({kind::address, 2}, done); // which is not open
    all_->close({kind::address, 1}, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, HandleIsChargedAsItIsMappedAndUntilItIsUnmapped)
{
    const foreign::key handle{kind::handle, 7};
    EXPECT_TRUE(all_->open(handle, {}, 0));
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(all_->grow(handle, 20 * MiB));
    all_->mapped(0x1000, 20 * MiB, handle);
    EXPECT_TRUE(all_->grow(handle, 20 * MiB)); // at another place
    all_->mapped(0x9000000, 20 * MiB, handle);
    EXPECT_EQ(used(), 20 * MiB);
    all_->close(handle, done);
    EXPECT_EQ(used(), 20 * MiB) << "it is mapped";
    EXPECT_NE(all_->unmap(0x1000, 20 * MiB, refused), CUDA_SUCCESS);
    EXPECT_EQ(all_->unmap(0x1000, 20 * MiB, done), CUDA_SUCCESS);
    EXPECT_EQ(used(), 20 * MiB) << "at one place";
    EXPECT_EQ(all_->unmap(0x9000000, 20 * MiB, done), CUDA_SUCCESS);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, HandleThatDoesNotFitIsNotMapped)
{
    const foreign::key handle{kind::handle, 7};
    EXPECT_TRUE(all_->open(handle, {}, 0));
    EXPECT_FALSE(all_->grow(handle, 65 * MiB));
    EXPECT_EQ(used(), 0U);
    EXPECT_TRUE(all_->grow({kind::handle, 8}, 65 * MiB)) << "the program's own";
    all_->close(handle, done);
    EXPECT_EQ(used(), 0U);
}

TEST_F(Foreign, NothingIsChargedUnlessItShallCount)
{
    foreign none(*shares_, false);
    EXPECT_TRUE(none.open({kind::address, 1}, {}, 65 * MiB));
    EXPECT_EQ(used(), 0U);
    none.close({kind::address, 1}, done);
}

// NVML counts memory for the process that made it.
TEST_F(Foreign, MemoryOfAnotherProcessHidesNothingThatCudaTakes)
{
    static std::uint64_t measured;
    measured = 8 * MiB; // CUDA's own
    footprint taken({.limits = *limits_, .ask = [](int) { return measured; }});
    budget shares({.calls = card_.calls,
                   .ledgers = {limits_.get()},
                   .footprints = {&taken}});
    foreign all(shares, true);
    EXPECT_TRUE(all.open({kind::address, 1}, {}, 16 * MiB));
    taken.expect();
    shares.follow_footprint(0);
    const std::uint64_t with_code = 8 * MiB + 64 * MiB / 16;
    EXPECT_EQ(used(), 16 * MiB + with_code);
    measured = 20 * MiB;
    taken.expect();
    shares.follow_footprint(0);
    EXPECT_EQ(taken.charged_bytes(), 20 * MiB);
    all.close({kind::address, 1}, done);
    EXPECT_EQ(used(), taken.charged_bytes());
}
