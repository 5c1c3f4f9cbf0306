// SPDX-License-Identifier: GPL-2.0-or-later
// Units leave a card that lends its VRAM, once others wait for it there. The
// driver is the simulated one, with two cards, so each byte can be compared.
#include "account/tiers.hpp"
#include "movement/block_maker.hpp"
#include "movement/contents.hpp"
#include "movement/mover.hpp"
#include "movement/simulated_card.hpp"
#include "sim/sim.h"
#include "wait_until.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
constexpr std::uint64_t block_bytes = 4 * MiB; // one unit each
constexpr std::size_t blocks_in_all = 20;
constexpr std::size_t first_lent = 4; // these are in VRAM, ...
constexpr std::size_t first_ram = 16; // ... and those behind in system RAM

// The ledger of the card that lends, on which others may wait.
class lending_ledger final : public ledger
{
public:
    explicit lending_ledger(ledger &of) : of_(of) {}

    usage read() const override
    {
        usage now = of_.read();
        now.spoken_for = wanted_bytes > 0;
        return now;
    }

    // That others wait for. Returned bytes are theirs first.
    std::atomic<std::uint64_t> wanted_bytes{0};

private:
    bool take_physical(std::uint64_t bytes) override
    {
        return wanted_bytes == 0 && of_.charge_physical(bytes);
    }
    void give_physical(std::uint64_t bytes) override
    {
        of_.uncharge_physical(bytes);
        std::uint64_t wanted = wanted_bytes;
        while (!wanted_bytes.compare_exchange_weak(
            wanted, wanted - std::min(wanted, bytes))) {
        }
    }
    bool take_virtual(std::uint64_t, std::uint64_t &) override { return false; }
    void give_virtual(std::uint64_t, std::uint64_t) override {}

    ledger &of_;
};

// Copies of movement's that are over, but not for those who began them.
struct stalled_copies
{
    static inline std::atomic<int> left{0};
    static inline std::atomic<bool> is_stalled{false};
    static inline decltype(driver::cuMemcpyAsync) real = nullptr;

    static void install(driver &calls)
    {
        real = calls.cuMemcpyAsync;
        left = 0;
        is_stalled = false;
        calls.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from,
                                 std::size_t bytes, CUstream stream) {
            const CUresult result = real(to, from, bytes, stream);
            if (left <= 0)
                return result;
            find<decltype(cuStreamSynchronize)>("cuStreamSynchronize")(stream);
            is_stalled = true;
            while (is_stalled)
                usleep(100);
            left--;
            return result;
        };
    }
    // From now on so many are stalled, until is_stalled is taken back.
    static void arm(int count) { left = count; }
};

// Four blocks are in VRAM, twelve on the second card, four in system RAM.
class Rehousing : public testing::TestWithParam<bool>
{
protected:
    void start(std::uint64_t ram)
    {
        ASSERT_NO_FATAL_FAILURE(take_calls(calls_));
        ASSERT_NO_FATAL_FAILURE(start_card(calls_, stream_));
        stalled_copies::install(calls_);
        ASSERT_EQ(rows_.open(nullptr), 0);
        own_ = std::make_unique<file_ledger>(rows_, 0, first_lent * block_bytes,
                                             ram);
        tiers_ = std::make_unique<tiered_ledger>(
            *own_, std::vector<peer_tier>{
                       {1, (first_ram - first_lent) * block_bytes, &lends_}});
        shares_ = std::make_unique<budget>(budget::options{
            .calls = calls_, .ledgers = {tiers_.get(), &lends_}});
        moves_ = std::make_unique<mover>(mover::options{
            .calls = calls_,
            .shares = *shares_,
            .record = record_,
            .tell = [](const char *why) { ADD_FAILURE() << why; },
            .always = true,
            .unmaps = GetParam()});
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = calls_,
                                 .host = host_,
                                 .shares = *shares_,
                                 .moves = *moves_});
        for (CUdeviceptr &each : blocks_)
            ASSERT_EQ(maker_->allocate(&each, block_bytes), CUDA_SUCCESS);
        ASSERT_EQ(lent(), (first_ram - first_lent) * block_bytes);
        for (std::size_t i = 0; i < blocks_in_all; i++)
            write(i);
    }

    void TearDown() override
    {
        if (maker_ == nullptr)
            return;
        for (std::size_t i = 0; i < blocks_in_all; i++)
            compare(i);
        for (const CUdeviceptr each : blocks_)
            EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
        moves_->stop(nullptr);
        EXPECT_EQ(lent(), 0U);
        EXPECT_EQ(card_used(1), 0U);
        EXPECT_EQ(own_->read().virtual_used_bytes, 0U);
        EXPECT_EQ(own_->read().physical_used_bytes, 0U);
        calls_.cuStreamDestroy_v2(stream_);
    }

    std::uint64_t lent() { return lends_.read().physical_used_bytes; }
    static std::uint64_t card_used(int device)
    {
        return find<decltype(emuv_sim_get)>("emuv_sim_get")()->vram_used(
            device);
    }

    // Work that is given one block.
    template <typename Call>
    void launch(std::size_t which, std::uint64_t what, Call real)
    {
        EXPECT_EQ(moves_->run(
                      stream_,
                      [&](work &out) {
                          out.what = what;
                          out.trusted = true;
                          out.add(blocks_[which]);
                      },
                      real),
                  CUDA_SUCCESS);
    }

    // Gives a block bytes that no other block has, nor has this one had.
    void write(std::size_t which)
    {
        static constexpr auto copy = "cuMemcpyHtoDAsync_v2";
        std::vector<std::uint32_t> &is = contents_[which];
        is.resize(block_bytes / 4);
        ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        write_contents(is.data(), is.size(), ++last_);
        launch(which, 1 + which, [&] {
            return find<decltype(cuMemcpyHtoDAsync_v2)>(copy)(
                blocks_[which], is.data(), block_bytes, stream_);
        });
    }

    // Changes some bytes of a block, and does not wait for that.
    void touch(std::size_t which)
    {
        constexpr std::uint64_t bytes = 4096;
        const auto value = static_cast<unsigned char>(++last_);
        const std::uint64_t at = last_ * 77 % (block_bytes / bytes) * bytes;
        launch(which, 1 + which, [&] {
            return calls_.cuMemsetD8Async(blocks_[which] + at, value, bytes,
                                          stream_);
        });
        std::fill_n(contents_[which].begin() +
                        static_cast<std::ptrdiff_t>(at / 4),
                    bytes / 4, value * 0x01010101u);
    }

    void compare(std::size_t which)
    {
        static constexpr auto copy = "cuMemcpyDtoHAsync_v2";
        std::vector<std::uint32_t> is(block_bytes / 4);
        launch(which, 100 + which, [&] {
            return find<decltype(cuMemcpyDtoHAsync_v2)>(copy)(
                is.data(), blocks_[which], block_bytes, stream_);
        });
        ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        EXPECT_TRUE(is == contents_[which]) << "block " << which;
    }

    driver calls_{};
    CUstream stream_ = nullptr;
    ledger_file rows_;
    file_ledger second_{rows_, 1, 128 * MiB, 0};
    lending_ledger lends_{second_};
    std::unique_ptr<file_ledger> own_;
    std::unique_ptr<tiered_ledger> tiers_;
    std::unique_ptr<budget> shares_;
    numa_store host_{calls_};
    trace record_;
    std::unique_ptr<mover> moves_;
    std::unique_ptr<block_maker> maker_;
    std::vector<CUdeviceptr> blocks_ = std::vector<CUdeviceptr>(blocks_in_all);
    std::vector<std::vector<std::uint32_t>> contents_ =
        std::vector<std::vector<std::uint32_t>>(blocks_in_all);
    std::uint32_t last_ = 0;
};

TEST_P(Rehousing, AllLeaveACardForWhichOthersWaitAndKeepTheirBytes)
{
    ASSERT_NO_FATAL_FAILURE(start(256 * MiB));
    lends_.wanted_bytes = 1024 * MiB;
    EXPECT_TRUE(wait_until([&] { return lent() == 0; },
                           [&] {
                               moves_->give_back_rooms(1);
                               usleep(1000);
                           }));
    EXPECT_EQ(card_used(1), 0U) << "the memory itself is free, too";
}

TEST_P(Rehousing, TheyLeaveWhileTheProgramWritesAndReadsThem)
{
    ASSERT_NO_FATAL_FAILURE(start(256 * MiB));
    for (int i = 0; i < 3; i++)
        for (std::size_t each = 0; each < blocks_in_all; each++)
            write(each);
    lends_.wanted_bytes = 1024 * MiB;
    std::size_t next = 0;
    EXPECT_TRUE(wait_until([&] { return lent() == 0; },
                           [&] {
                               moves_->give_back_rooms(1);
                               next = (next + 1) % blocks_in_all;
                               compare(next);
                               write(next);
                           }));
    for (std::size_t each = 0; each < blocks_in_all; each++) {
        compare(each);
        write(each);
    }
}

TEST_P(Rehousing, AWriteBehindACopyIsNotLost)
{
    ASSERT_NO_FATAL_FAILURE(start(256 * MiB));
    ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
    stalled_copies::arm(6);
    lends_.wanted_bytes = 1024 * MiB;
    EXPECT_TRUE(wait_until([&] { return lent() == 0; },
                           [&] {
                               moves_->give_back_rooms(1);
                               if (stalled_copies::is_stalled) {
                                   for (std::size_t each = 0;
                                        each < blocks_in_all; each++)
                                       touch(each);
                                   stalled_copies::is_stalled = false;
                               }
                               usleep(1000);
                           }));
    EXPECT_EQ(stalled_copies::left, 0) << "all were made";
}

TEST_P(Rehousing, OnceNobodyWaitsOnlyThoseOnTheirWayLeave)
{
    ASSERT_NO_FATAL_FAILURE(start(256 * MiB));
    ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
    const std::uint64_t before = lent();
    lends_.wanted_bytes = block_bytes;
    EXPECT_TRUE(wait_until([&] { return lends_.wanted_bytes == 0; },
                           [&] {
                               moves_->give_back_rooms(1);
                               usleep(1000);
                           }));
    moves_->stop(nullptr); // those on their way have come, or have not left
    EXPECT_LT(lent(), before);
    EXPECT_GE(lent() + 5 * block_bytes, before);
}

TEST_P(Rehousing, ABlockThatStaysForGoodStaysThere)
{
    ASSERT_NO_FATAL_FAILURE(start(256 * MiB));
    // Some may have come to VRAM meanwhile, and are fixed there.
    for (std::size_t each = first_lent; each < first_lent + 4; each++)
        moves_->fix(blocks_[each]);
    std::uint64_t fixed = 0;
    for (std::size_t each = first_lent; each < first_lent + 4; each++)
        fixed += moves_->stretch_at(blocks_[each])->in_ram ? block_bytes : 0;
    lends_.wanted_bytes = 1024 * MiB;
    EXPECT_TRUE(wait_until([&] { return lent() <= fixed; },
                           [&] {
                               moves_->give_back_rooms(1);
                               usleep(1000);
                           }));
    EXPECT_EQ(lent(), fixed);
}

TEST_P(Rehousing, WithoutRoomInSystemRamTheyStayAndWorkGoesOn)
{
    ASSERT_NO_FATAL_FAILURE(start((blocks_in_all - first_ram) * block_bytes));
    lends_.wanted_bytes = 1024 * MiB;
    for (int i = 0; i < 3; i++)
        for (std::size_t each = 0; each < blocks_in_all; each++) {
            moves_->give_back_rooms(1);
            compare(each);
            write(each);
        }
    EXPECT_GT(lent(), 0U);
}

TEST_P(Rehousing, MovementEndsWhileTheyLeaveAndEachByteIsThere)
{
    ASSERT_NO_FATAL_FAILURE(start(256 * MiB));
    lends_.wanted_bytes = 1024 * MiB;
    moves_->give_back_rooms(1);
    EXPECT_TRUE(wait_until(
        [&] { return lent() < (first_ram - first_lent) * block_bytes; },
        [&] {
            moves_->give_back_rooms(1);
            usleep(100);
        }));
    moves_->stop(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Away, Rehousing, testing::Bool(),
                         [](const testing::TestParamInfo<bool> &which) {
                             return which.param ? "Unmapped" : "Mapped";
                         });

} // namespace
