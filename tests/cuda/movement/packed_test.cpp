// SPDX-License-Identifier: GPL-2.0-or-later
// Units of weights come from coded copies, and every bit is right whatever
// happens meanwhile. The driver is the simulated one, so each byte can be
// compared; its kernels and modules can fail.
#include "movement/block_maker.hpp"
#include "movement/mover.hpp"
#include "movement/simulated_card.hpp"
#include "packing_reference.hpp"
#include "sim/sim.h"
#include "wait_until.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
constexpr std::uint64_t block_bytes = 4 * MiB; // one unit each
constexpr std::size_t in_vram = 14;            // blocks, and three buffers
constexpr std::size_t all = 18;

// The kernels for coded copies, as the driver sees them.
struct kernels
{
    static inline std::atomic<unsigned> packs{0};
    static inline std::atomic<unsigned> decodes{0};
    static inline std::atomic<unsigned> modules{0};
    static inline std::atomic<bool> no_module{false};
    static inline std::atomic<bool> no_pack{false};
    static inline std::atomic<bool> no_decode{false};
    static inline std::atomic<bool> packs_other{false}; // memory than it should
    static inline std::atomic<bool> decodes_less{false};

    static inline unsigned char zeros[block_bytes];

    static inline std::atomic<CUfunction> pack{nullptr};
    static inline std::atomic<CUfunction> unpack{nullptr};
    static inline decltype(driver::cuModuleLoadData) real_load = nullptr;
    static inline decltype(driver::cuModuleGetFunction) real_find = nullptr;
    static inline decltype(driver::cuLaunchKernel) real_launch = nullptr;

    static void install(driver &calls)
    {
        packs = decodes = modules = 0;
        no_module = no_pack = no_decode = packs_other = decodes_less = false;
        real_load = calls.cuModuleLoadData;
        real_find = calls.cuModuleGetFunction;
        real_launch = calls.cuLaunchKernel;
        calls.cuModuleLoadData = [](CUmodule *out, const void *image) {
            if (std::strstr(static_cast<const char *>(image), "emuv_pack") !=
                nullptr) {
                modules++;
                if (no_module)
                    return CUDA_ERROR_INVALID_PTX;
            }
            return real_load(out, image);
        };
        calls.cuModuleGetFunction = [](CUfunction *out, CUmodule of,
                                       const char *name) {
            const CUresult result = real_find(out, of, name);
            if (std::strcmp(name, "emuv_pack") == 0)
                pack = *out;
            if (std::strcmp(name, "emuv_unpack") == 0)
                unpack = *out;
            return result;
        };
        calls.cuLaunchKernel = [](CUfunction f, unsigned x, unsigned y,
                                  unsigned z, unsigned bx, unsigned by,
                                  unsigned bz, unsigned shared, CUstream stream,
                                  void **params, void **extra) {
            const bool own = f == pack || f == unpack;
            std::uint64_t values[5] = {};
            void *mine[5] = {};
            for (int i = 0; own && i < 5; i++) {
                std::memcpy(&values[i], params[i], sizeof values[i]);
                mine[i] = params[i];
            }
            if (f == pack) {
                packs++;
                if (no_pack)
                    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
                if (packs_other) {
                    values[0] = reinterpret_cast<std::uint64_t>(&zeros);
                    mine[0] = &values[0];
                }
            } else if (f == unpack && values[4] == 0) {
                decodes++;
                if (no_decode)
                    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
                if (decodes_less) {
                    values[1]--;
                    mine[1] = &values[1];
                }
            }
            return real_launch(f, x, y, z, bx, by, bz, shared, stream,
                               own ? mine : params, extra);
        };
    }
};

// The same numbers again and again: a test takes long enough as it is.
std::vector<std::uint16_t> weights()
{
    constexpr std::size_t different = 65521; // a prime
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<std::uint16_t> out(block_bytes / 2);
    for (std::size_t i = 0; i < different; i++)
        out[i] = packing_reference::bf16(normal(random));
    for (std::size_t i = different; i < out.size(); i += different)
        std::memcpy(&out[i], out.data(),
                    std::min(different, out.size() - i) * sizeof out[0]);
    return out;
}

class Packed : public testing::Test
{
protected:
    void SetUp() override
    {
        ended_ = told_ = 0;
        ASSERT_NO_FATAL_FAILURE(take_calls(calls_));
        kernels::install(calls_);
        ASSERT_NO_FATAL_FAILURE(start_card(calls_, stream_));
        ASSERT_EQ(rows_.open(nullptr), 0);
    }

    // Makes the blocks of a program, all of them weights.
    void make(std::uint64_t packed_bytes, std::size_t count = all)
    {
        moves_ = std::make_unique<mover>(
            mover::options{.calls = calls_,
                           .shares = shares_,
                           .record = record_,
                           .tell = [](const char *) { ended_++; },
                           .always = true,
                           .unmaps = unmaps_,
                           .tell_of_tier = [](const char *) { told_++; },
                           .packed_bytes = packed_bytes});
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = calls_,
                                 .host = host_,
                                 .shares = shares_,
                                 .moves = *moves_});
        for (std::size_t i = 0; i < count; i++)
            make_block();
    }
    void make_block()
    {
        CUdeviceptr made = 0;
        ASSERT_EQ(maker_->allocate(&made, block_bytes), CUDA_SUCCESS);
        blocks_.push_back(made);
        contents_.emplace_back();
        write(blocks_.size() - 1);
    }
    void free_last()
    {
        EXPECT_EQ(maker_->free(blocks_.back()), CUDA_SUCCESS);
        blocks_.pop_back();
        contents_.pop_back();
    }

    void TearDown() override
    {
        if (maker_ == nullptr)
            return;
        round();
        for (const CUdeviceptr each : blocks_)
            EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
        moves_->stop(nullptr);
        EXPECT_EQ(ended_, 0U);
        EXPECT_EQ(told_, told_of_failure_ ? 1U : 0U);
        EXPECT_EQ(own_.read().virtual_used_bytes, 0U);
        EXPECT_EQ(own_.read().physical_used_bytes, 0U);
        calls_.cuStreamDestroy_v2(stream_);
    }

    template <typename Call>
    void launch(std::size_t which, std::uint64_t what, bool trusted, Call real)
    {
        ASSERT_EQ(moves_->run(
                      stream_,
                      [&](work &out) {
                          out.what = what;
                          out.trusted = trusted;
                          out.add(blocks_[which]);
                      },
                      real),
                  CUDA_SUCCESS);
    }

    // Numbers that no block has had so far.
    std::vector<std::uint16_t> next_contents()
    {
        const std::size_t first = ++last_ * 977 % base_.size();
        std::vector<std::uint16_t> out(base_.size());
        std::memcpy(out.data(), &base_[first],
                    (out.size() - first) * sizeof out[0]);
        std::memcpy(&out[out.size() - first], base_.data(),
                    first * sizeof out[0]);
        return out;
    }
    CUresult copy_to(std::size_t which)
    {
        return find<decltype(cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync_v2")(
            blocks_[which], contents_[which].data(), block_bytes, stream_);
    }
    void write(std::size_t which)
    {
        contents_[which] = next_contents();
        launch(which, 1 + which, true, [&] { return copy_to(which); });
        ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
    }
    void compare(std::size_t which) { compare(which, 100 + which); }
    void compare(std::size_t which, std::uint64_t what)
    {
        launch(which, what, true, [&] {
            return find<decltype(cuMemcpyDtoHAsync_v2)>("cuMemcpyDtoHAsync_v2")(
                read_.data(), blocks_[which], block_bytes, stream_);
        });
        ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        ASSERT_TRUE(read_ == contents_[which]) << "block " << which;
    }
    // A step of the program: it reads all, in order. A processor is slow to
    // code, and work that did not wait for that would call most units off.
    void round()
    {
        for (std::size_t i = 0; i < blocks_.size() && !HasFatalFailure(); i++) {
            const unsigned before = kernels::packs;
            compare(i);
            if (kernels::packs != before)
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    }
    // Goes on until something holds. A busy machine takes many rounds: units
    // are called off while they are coded.
    template <typename Holds>
    bool rounds_until(Holds holds)
    {
        return wait_until([&] { return holds() || HasFatalFailure(); },
                          [&] { round(); }) &&
               !HasFatalFailure();
    }
    bool decodes_more(unsigned by = 12)
    {
        const unsigned before = kernels::decodes;
        return rounds_until([=] { return kernels::decodes >= before + by; });
    }
    // Once so many were tried. Again only what was called off, until each was
    // tried to its end.
    bool codes_no_more(unsigned least)
    {
        unsigned before = 0;
        unsigned alike = 0; // rounds
        return rounds_until([&] {
            const unsigned now = kernels::packs;
            alike = now == before ? alike + 1 : 0;
            before = now;
            return now >= least && alike >= 20;
        });
    }
    void rounds(unsigned count)
    {
        for (unsigned i = 0; i < count; i++)
            round();
    }

    bool unmaps_ = true;
    driver calls_{};
    CUstream stream_ = nullptr;
    ledger_file rows_;
    file_ledger own_{rows_, 0, (in_vram + 3) * block_bytes, 512 * MiB};
    budget shares_{{.calls = calls_, .ledgers = {&own_}}};
    numa_store host_{calls_};
    trace record_;
    std::unique_ptr<mover> moves_;
    std::unique_ptr<block_maker> maker_;
    std::vector<CUdeviceptr> blocks_;
    std::vector<std::vector<std::uint16_t>> contents_;
    std::vector<std::uint16_t> base_ = weights();
    std::vector<std::uint16_t> read_ = base_;
    std::size_t last_ = 0;
    static inline std::atomic<unsigned> ended_{0};
    static inline std::atomic<unsigned> told_{0}; // that the tier failed
    bool told_of_failure_ = false;                // it is to be
};

constexpr std::uint64_t enough = 128 * MiB; // for coded copies of all

TEST_F(Packed, WeightsComeBackBitByBit)
{
    make(enough, all);
    EXPECT_TRUE(decodes_more(20));
    EXPECT_GT(kernels::packs, 0U);
}

TEST_F(Packed, WithoutTheTierNothingIsDifferent)
{
    make(0);
    rounds(10);
    EXPECT_EQ(kernels::modules, 0U);
    EXPECT_EQ(kernels::packs, 0U);
}

TEST_F(Packed, NothingIsCodedWhereUnitsAreMappedInTheirRooms)
{
    unmaps_ = false;
    make(enough);
    rounds(10);
    EXPECT_EQ(kernels::modules, 0U);
}

TEST_F(Packed, WhatIsNotWorthItIsTriedOnce)
{
    std::mt19937 random(6);
    for (std::uint16_t &each : base_)
        each = static_cast<std::uint16_t>(random());
    make(enough);
    EXPECT_TRUE(codes_no_more(4));
    EXPECT_EQ(kernels::decodes, 0U);
}

TEST_F(Packed, WhatUntrustedWorkWritesCounts)
{
    make(enough);
    ASSERT_TRUE(decodes_more());
    // A kernel that was given the first block writes to all others.
    for (unsigned i = 0; i < 3; i++) {
        const std::function<void()> write_all = [&] {
            for (std::size_t k = 1; k < blocks_.size(); k++) {
                contents_[k] = next_contents();
                std::memcpy(reinterpret_cast<void *>(blocks_[k]),
                            contents_[k].data(), block_bytes);
            }
        };
        // Once all memory is mapped, and not before.
        launch(0, 999, false, [&] {
            return find<decltype(cuLaunchHostFunc)>("cuLaunchHostFunc")(
                stream_,
                [](void *what) {
                    (*static_cast<const std::function<void()> *>(what))();
                },
                const_cast<std::function<void()> *>(&write_all));
        });
        ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        rounds(2);
    }
    EXPECT_TRUE(decodes_more());
}

TEST_F(Packed, WhatIsCopiedToARoomCounts)
{
    make(enough);
    ASSERT_TRUE(decodes_more());
    for (unsigned i = 0; i < 4; i++) {
        for (std::size_t k = 0; k < blocks_.size(); k++)
            if ((k + i) % 3 == 0)
                write(k);
        rounds(3);
    }
    EXPECT_TRUE(decodes_more());
}

TEST_F(Packed, WhatIsWrittenWithoutForesightCounts)
{
    make(enough);
    ASSERT_TRUE(decodes_more());
    // Launches wait for memory now, and what leaves is not read before.
    std::mt19937 random(9);
    std::uint64_t what = 1000;
    for (unsigned i = 0; i < 200 && !HasFatalFailure(); i++) {
        const std::size_t which = random() % blocks_.size();
        if (random() % 3 == 0) {
            contents_[which] = next_contents();
            launch(which, what++, true, [&] { return copy_to(which); });
            ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        } else {
            compare(which, what++);
        }
    }
    EXPECT_TRUE(decodes_more());
}

TEST_F(Packed, MemoryThatIsAllocatedAgainHasItsOwnContents)
{
    make(enough);
    ASSERT_TRUE(decodes_more());
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned k = 0; k < 8; k++)
            free_last();
        for (unsigned k = 0; k < 8; k++)
            make_block();
        rounds(3);
    }
    EXPECT_TRUE(decodes_more());
}

TEST_F(Packed, NoMoreAreCodedThanHaveRoom)
{
    make(8 * MiB); // two
    ASSERT_TRUE(decodes_more());
    EXPECT_TRUE(codes_no_more(2)) << "what has no room is not coded";
    EXPECT_LE(own_.read().virtual_used_bytes, all * block_bytes + 8 * MiB);
}

TEST_F(Packed, CopiesMakeWayForOtherSystemRam)
{
    make(enough);
    ASSERT_TRUE(decodes_more());
    for (unsigned i = 0; i < 4; i++) {
        moves_->shed();
        rounds(1);
    }
    EXPECT_TRUE(decodes_more());
}

TEST_F(Packed, BuffersMakeWayForVramThatOthersWant)
{
    make(enough);
    ASSERT_TRUE(decodes_more());
    const std::uint64_t share = own_.read().physical_bytes;
    ASSERT_TRUE(moves_->make_way(share - block_bytes));
    shares_.uncharge_vram(0, share - block_bytes);
    EXPECT_TRUE(decodes_more());
}

TEST_F(Packed, UnitsAreCopiedAsTheyAreWithoutTheKernels)
{
    kernels::no_module = true;
    make(enough);
    rounds(10);
    EXPECT_EQ(kernels::modules, 1U);
    EXPECT_EQ(kernels::packs, 0U);
}

TEST_F(Packed, NothingIsLostWhereCodingFails)
{
    told_of_failure_ = true;
    make(enough);
    kernels::no_pack = true;
    ASSERT_TRUE(rounds_until([] { return kernels::packs > 0; }));
    rounds(10);
    EXPECT_EQ(kernels::packs, 1U) << "it is not tried again";
    EXPECT_EQ(kernels::decodes, 0U);
}

TEST_F(Packed, NothingIsLostWhereDecodingFails)
{
    told_of_failure_ = true;
    make(enough);
    kernels::no_decode = true;
    ASSERT_TRUE(rounds_until([] { return kernels::decodes > 0; }));
    rounds(10);
    EXPECT_EQ(kernels::decodes, 1U) << "it is not tried again";
}

TEST_F(Packed, AWrongCodeIsFoundBeforeItCounts)
{
    told_of_failure_ = true;
    make(enough);
    kernels::packs_other = true;
    ASSERT_TRUE(rounds_until([] { return kernels::packs > 0; }));
    rounds(10);
    const unsigned then = kernels::packs;
    rounds(10);
    EXPECT_EQ(kernels::packs, then);
    EXPECT_EQ(kernels::decodes, 0U);
}

TEST_F(Packed, AWrongDecodingIsFoundBeforeItCounts)
{
    told_of_failure_ = true;
    make(enough);
    ASSERT_TRUE(decodes_more());
    kernels::decodes_less = true;
    rounds(20);
    const unsigned then = kernels::decodes;
    rounds(10);
    EXPECT_EQ(kernels::decodes, then);
}

TEST_F(Packed, NothingIsLostWhereDecodingFailsLaterOn)
{
    told_of_failure_ = true;
    make(enough);
    ASSERT_TRUE(decodes_more());
    kernels::no_decode = true;
    rounds(20);
    const unsigned then = kernels::decodes;
    rounds(10);
    EXPECT_EQ(kernels::decodes, then);
}

} // namespace
