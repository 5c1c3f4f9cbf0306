// SPDX-License-Identifier: GPL-2.0-or-later
// Units that have no room in system RAM lie in a file. The driver is the
// simulated one, so each byte can be compared; the file's disk can fail.
#include "account/tiers.hpp"
#include "base/captures.hpp"
#include "movement/block_maker.hpp"
#include "movement/contents.hpp"
#include "movement/mover.hpp"
#include "movement/simulated_card.hpp"
#include "sim/sim.h"
#include "store/file_store.hpp"
#include "wait_until.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
constexpr std::uint64_t block_bytes = 4 * MiB; // one unit each
constexpr std::size_t in_vram = 4;             // blocks
constexpr std::size_t in_ram = 4;
constexpr std::size_t in_file = 8; // that can be made
constexpr std::size_t all = in_vram + in_ram + in_file;

// A disk that may fail.
struct disk
{
    static inline std::atomic<int> write_error{0};
    static inline std::atomic<int> read_error{0};
    static inline std::atomic<bool> ends_early{false};
    static inline std::atomic<bool> flips{false}; // a bit that is read
    static inline std::atomic<unsigned> reads{0};
    static inline std::atomic<unsigned> writes{0};

    // To be called before the next read or write, once.
    static void before_read(std::function<void()> what)
    {
        const std::lock_guard guard(lock);
        before_read_ = std::move(what);
    }
    static void before_write(std::function<void()> what)
    {
        const std::lock_guard guard(lock);
        before_write_ = std::move(what);
    }
    static void comes_to_read() { comes_to(before_read_); }
    static void comes_to_write() { comes_to(before_write_); }
    static void comes_to(std::function<void()> &what)
    {
        std::unique_lock now(lock);
        const auto call = std::exchange(what, {});
        now.unlock();
        if (call)
            call();
    }
    static void reset()
    {
        before_read({});
        before_write({});
        write_error = read_error = 0;
        ends_early = flips = false;
        reads = writes = 0;
    }

    static inline std::mutex lock; // guards the next ones
    static inline std::function<void()> before_read_;
    static inline std::function<void()> before_write_;
};

const file_calls failing_calls = {
    .open = system_file_calls.open,
    .close = system_file_calls.close,
    .pread =
        [](int fd, void *to, std::size_t bytes, std::int64_t offset) {
            disk::reads++;
            disk::comes_to_read();
            if (const int error = disk::read_error; error != 0) {
                errno = error;
                return ssize_t{-1};
            }
            if (disk::ends_early)
                return ssize_t{0};
            const ssize_t got = system_file_calls.pread(fd, to, bytes, offset);
            if (disk::flips && got > 0)
                static_cast<unsigned char *>(to)[got / 2] ^= 0x10;
            return got;
        },
    .pwrite =
        [](int fd, const void *from, std::size_t bytes, std::int64_t offset) {
            disk::writes++;
            disk::comes_to_write();
            if (const int error = disk::write_error; error != 0) {
                errno = error;
                return ssize_t{-1};
            }
            return system_file_calls.pwrite(fd, from, bytes, offset);
        },
    .buffer = system_file_calls.buffer,
    .identify = system_file_calls.identify,
    .keep = system_file_calls.keep,
    .let_go = system_file_calls.let_go,
};

// Lines that the user is told.
struct told
{
    static inline std::mutex lock;
    static inline std::vector<std::string> lines;

    static void add(const char *text)
    {
        const std::lock_guard guard(lock);
        lines.emplace_back(text);
    }
    static std::size_t count(const std::string &part)
    {
        const std::lock_guard guard(lock);
        return static_cast<std::size_t>(
            std::count_if(lines.begin(), lines.end(), [&](const auto &each) {
                return each.find(part) != std::string::npos;
            }));
    }
};

// Movement's copies and mappings, as the driver sees them.
struct seen
{
    // Called as the contents of a unit in VRAM begin to be copied, if they
    // begin with this word. Once; under the lock.
    static inline std::mutex lock;
    static inline std::uint32_t word = 0;
    static inline std::function<void()> leaves;
    // The second address of that unit's room, until it is given up.
    static inline std::atomic<CUdeviceptr> room{0};

    static inline decltype(driver::cuMemcpyAsync) real_copy = nullptr;
    static inline decltype(driver::cuMemUnmap) real_unmap = nullptr;

    // @param first  0: for none
    static void look_for(std::uint32_t first)
    {
        const std::lock_guard guard(lock);
        word = first;
    }
    static bool is_in_vram(CUdeviceptr at)
    {
        unsigned type = 0;
        return find<decltype(cuPointerGetAttribute)>("cuPointerGetAttribute")(
                   &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) ==
                   CUDA_SUCCESS &&
               type == CU_MEMORYTYPE_DEVICE;
    }
    static void install(driver &calls)
    {
        word = 0;
        room = 0;
        leaves = {};
        real_copy = calls.cuMemcpyAsync;
        real_unmap = calls.cuMemUnmap;
        calls.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from,
                                 std::size_t bytes, CUstream stream) {
            const CUresult result = real_copy(to, from, bytes, stream);
            const std::lock_guard guard(lock);
            if (word != 0 && is_in_vram(from) && !is_in_vram(to) &&
                *reinterpret_cast<const std::uint32_t *>(from) == word) {
                word = 0;
                room = to;
                leaves();
            }
            return result;
        };
        calls.cuMemUnmap = [](CUdeviceptr at, std::size_t bytes) {
            if (at == room)
                room = 0;
            return real_unmap(at, bytes);
        };
    }
};

// Waits for the whole context.
struct context_wait
{
    static inline std::atomic<bool> fails{false};
    static inline std::atomic<bool> lasts{false};
    static inline decltype(driver::cuCtxSynchronize) real = nullptr;

    static void install(driver &calls)
    {
        fails = lasts = false;
        real = calls.cuCtxSynchronize;
        calls.cuCtxSynchronize = [] {
            while (lasts)
                usleep(100);
            return fails ? CUDA_ERROR_LAUNCH_FAILED : real();
        };
    }
};

class Filing : public testing::Test
{
protected:
    void SetUp() override
    {
        disk::reset();
        told::lines.clear();
        ended_ = 0;
        ASSERT_NO_FATAL_FAILURE(take_calls(calls_));
        seen::install(calls_);
        context_wait::install(calls_);
        ASSERT_NO_FATAL_FAILURE(start_card(calls_, stream_));
        ASSERT_EQ(rows_.open(nullptr), 0);
        ASSERT_EQ(file_.open("/var/tmp", file_bytes), 0);
        moves_ = std::make_unique<mover>(
            mover::options{.calls = calls_,
                           .shares = shares_,
                           .record = record_,
                           .tell = [](const char *) { ended_++; },
                           .always = true,
                           .unmaps = true,
                           .file = &file_,
                           .tell_of_tier = told::add,
                           .patience_for_file_ns = patience_ns_});
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = calls_,
                                 .host = host_,
                                 .shares = shares_,
                                 .moves = *moves_});
    }

    void TearDown() override
    {
        if (maker_ == nullptr)
            return;
        disk::reset();
        seen::look_for(0);
        for (std::size_t i = 0; i < blocks_.size() && compares_; i++)
            compare(i);
        for (const CUdeviceptr each : blocks_)
            EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
        moves_->stop(nullptr);
        EXPECT_EQ(room_.used_bytes(), 0U);
        EXPECT_EQ(tiers_.read().virtual_used_bytes, 0U);
        EXPECT_EQ(tiers_.read().physical_used_bytes, 0U);
        EXPECT_NE(file_.take(file_bytes), 0U) << "all of the file is free";
        calls_.cuStreamDestroy_v2(stream_);
    }

    // Makes so many blocks, and gives each its bytes.
    void make(std::size_t count)
    {
        for (std::size_t i = 0; i < count; i++) {
            CUdeviceptr made = 0;
            ASSERT_EQ(maker_->allocate(&made, block_bytes), CUDA_SUCCESS)
                << "block " << blocks_.size();
            blocks_.push_back(made);
            contents_.emplace_back();
            write(blocks_.size() - 1);
        }
    }

    template <typename Call>
    CUresult launch(std::size_t which, std::uint64_t what, bool trusted,
                    Call real)
    {
        return moves_->run(
            stream_,
            [&](work &out) {
                out.what = what;
                out.trusted = trusted;
                out.add(blocks_[which]);
            },
            real);
    }

    // Gives a block bytes that no other block has, nor has this one had.
    void write(std::size_t which)
    {
        write(which, contents(++last_, block_bytes));
    }

    void write(std::size_t which, std::vector<std::uint32_t> is)
    {
        ASSERT_EQ(launch(which, 1 + which, true,
                         [&] {
                             return find<decltype(cuMemcpyHtoDAsync_v2)>(
                                 "cuMemcpyHtoDAsync_v2")(blocks_[which],
                                                         is.data(), block_bytes,
                                                         stream_);
                         }),
                  CUDA_SUCCESS)
            << "block " << which;
        ASSERT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        contents_[which] = std::move(is);
    }

    // @return whether the work was refused
    bool read(std::size_t which, std::vector<std::uint32_t> &is)
    {
        is.assign(block_bytes / 4, 0);
        const CUresult result = launch(which, 100 + which, true, [&] {
            return find<decltype(cuMemcpyDtoHAsync_v2)>("cuMemcpyDtoHAsync_v2")(
                is.data(), blocks_[which], block_bytes, stream_);
        });
        EXPECT_TRUE(result == CUDA_SUCCESS ||
                    result == CUDA_ERROR_OUT_OF_MEMORY)
            << result;
        EXPECT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
        return result == CUDA_ERROR_OUT_OF_MEMORY;
    }

    void compare(std::size_t which)
    {
        std::vector<std::uint32_t> is;
        EXPECT_FALSE(read(which, is)) << "block " << which;
        EXPECT_TRUE(is == contents_[which]) << "block " << which;
    }

    // Reads all. All that is not refused is right.
    // @return how many were refused
    std::size_t read_all()
    {
        std::size_t refused = 0;
        for (std::size_t i = 0; i < blocks_.size(); i++) {
            std::vector<std::uint32_t> is;
            if (read(i, is))
                refused++;
            else
                EXPECT_TRUE(is == contents_[i]) << "block " << i;
        }
        return refused;
    }

    void free_last()
    {
        EXPECT_EQ(maker_->free(blocks_.back()), CUDA_SUCCESS);
        blocks_.pop_back();
        contents_.pop_back();
    }

    CUresult launch_untrusted()
    {
        return launch(0, 999, false, [] { return CUDA_SUCCESS; });
    }

    static constexpr std::uint64_t file_bytes = (in_file + 3) * block_bytes;

    // Work that is refused for now may be granted later.
    bool comes_to_be_read(std::size_t which)
    {
        std::vector<std::uint32_t> is;
        return wait_until([&] { return !read(which, is); },
                          [] { usleep(1000); });
    }

    bool mapped(std::size_t which) const
    {
        unsigned type = 0;
        return calls_.cuPointerGetAttribute(&type,
                                            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            blocks_[which]) == CUDA_SUCCESS;
    }
    // Nothing is mapped at an address in the file.
    std::size_t find_unmapped() const
    {
        std::size_t first = 0;
        while (first < blocks_.size() && mapped(first))
            first++;
        return first;
    }

    // Allocates a block that has no contents yet.
    void make_blank()
    {
        CUdeviceptr made = 0;
        ASSERT_EQ(maker_->allocate(&made, block_bytes), CUDA_SUCCESS);
        blocks_.push_back(made);
        contents_.emplace_back();
    }

    std::uint64_t patience_ns_ = 10000000000;
    driver calls_{};
    CUstream stream_ = nullptr;
    ledger_file rows_;
    file_ledger own_{rows_, 0, in_vram *block_bytes, in_ram *block_bytes};
    file_room room_{file_bytes};
    file_store file_{failing_calls};
    tiered_ledger tiers_{own_, {}, &room_};
    budget shares_{{.calls = calls_, .ledgers = {&tiers_}}};
    numa_store host_{calls_};
    trace record_;
    std::unique_ptr<mover> moves_;
    std::unique_ptr<block_maker> maker_;
    std::vector<CUdeviceptr> blocks_;
    std::vector<std::vector<std::uint32_t>> contents_;
    std::uint32_t last_ = 0;
    bool compares_ = true;
    static inline std::atomic<unsigned> ended_{0};
};

// Waits for the file that are in vain end soon.
class FilingInVain : public Filing
{
protected:
    FilingInVain() { patience_ns_ = 200000000; }

    // Blocks of which the last one is in the file, while something keeps
    // movement from beginning.
    void make_before_movement()
    {
        for (std::size_t i = 0; i <= in_vram + in_ram; i++)
            make_blank();
        ASSERT_EQ(room_.used_bytes(), block_bytes);
    }
    void expect_refusal(std::size_t which)
    {
        std::vector<std::uint32_t> is;
        EXPECT_TRUE(read(which, is));
        EXPECT_EQ(told::count("nothing is lost"), 1U);
    }
};

TEST_F(FilingInVain, WorkIsRefusedWhileAnOpenCaptureKeepsMovementFromBeginning)
{
    open_captures = 1;
    make_before_movement();
    moves_->fix(blocks_.back()); // as a captured launch does
    expect_refusal(blocks_.size() - 1);
    open_captures = 0;
    EXPECT_TRUE(comes_to_be_read(blocks_.size() - 1));
    compares_ = false;
}

TEST_F(FilingInVain,
       WorkIsRefusedWhileAKernelWithoutEndKeepsMovementFromBeginning)
{
    context_wait::lasts = true;
    make_before_movement();
    expect_refusal(blocks_.size() - 1);
    context_wait::lasts = false;
    EXPECT_TRUE(comes_to_be_read(blocks_.size() - 1));
    compares_ = false;
}

TEST_F(Filing, BlocksAreFreedAfterMovementCouldNotBegin)
{
    compares_ = false;
    open_captures = 1;
    for (std::size_t i = 0; i <= in_vram + in_ram; i++)
        make_blank();
    static std::atomic<unsigned> launches;
    launches = 0;
    calls_.cuStreamIsCapturing = [](CUstream stream,
                                    CUstreamCaptureStatus *status) {
        launches++;
        return find<decltype(cuStreamIsCapturing)>("cuStreamIsCapturing")(
            stream, status);
    };
    std::atomic<bool> refused{false};
    std::thread other([&] {
        use_context();
        std::vector<std::uint32_t> is;
        refused = read(blocks_.size() - 1, is);
    });
    EXPECT_TRUE(wait_until([] { return launches > 0; }, [] { usleep(1000); }));
    usleep(100000); // so that it most likely waits
    context_wait::fails = true;
    open_captures = 0;
    other.join();
    EXPECT_TRUE(refused);
    EXPECT_EQ(ended_, 1U);
    context_wait::fails = false;
    while (!blocks_.empty())
        free_last();
}

TEST_F(Filing, WorkThatNamesMoreThanAllMemoryIsRefusedAtOnce)
{
    make(all);
    const unsigned reads = disk::reads;
    EXPECT_EQ(moves_->run(
                  stream_,
                  [&](work &out) {
                      out.what = 5000;
                      out.trusted = true;
                      for (std::size_t i = 0; i <= in_vram + in_ram; i++)
                          out.add(blocks_[i]);
                  },
                  [] { return CUDA_SUCCESS; }),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(disk::reads, reads);
    EXPECT_EQ(told::count("nothing is lost"), 1U);
}

// Each of them names less than system RAM has room for.
TEST_F(Filing, ThreadsDoNotRefuseEachOther)
{
    make(all);
    std::atomic<unsigned> refused{0};
    const auto work_on = [&](std::size_t from, CUstream stream) {
        use_context();
        for (std::size_t turn = 0; turn < 20; turn++) {
            const CUresult result = moves_->run(
                stream,
                [&](work &out) {
                    out.what = 6000 + from;
                    out.trusted = true;
                    for (std::size_t i = 0; i < in_ram - 1; i++)
                        out.add(blocks_[from + (turn * 3 + i) % (all / 2)]);
                },
                [] { return CUDA_SUCCESS; });
            refused += result == CUDA_SUCCESS ? 0 : 1;
        }
    };
    CUstream second = nullptr;
    ASSERT_EQ(calls_.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    std::thread other([&] { work_on(all / 2, second); });
    work_on(0, stream_);
    other.join();
    EXPECT_EQ(refused, 0U);
    EXPECT_EQ(calls_.cuStreamDestroy_v2(second), CUDA_SUCCESS);
}

TEST_F(Filing, MoreThanVramAndSystemRamKeepsItsBytes)
{
    make(all);
    EXPECT_GE(room_.used_bytes(), in_file * block_bytes / 2);
    for (int i = 0; i < 3; i++)
        for (std::size_t each = 0; each < all; each++) {
            compare(each);
            if (each % 3 == 0)
                write(each);
        }
    EXPECT_GT(disk::writes, 0U);
    EXPECT_GT(disk::reads, 0U);
    EXPECT_EQ(told::lines.size(), 1U);
    EXPECT_EQ(told::count("memory lies in the file from here on"), 1U);
    EXPECT_EQ(ended_, 0U);
}

TEST_F(Filing, NoMoreIsGrantedThanTheFileHasRoomFor)
{
    make(all);
    CUdeviceptr more = 0;
    EXPECT_EQ(maker_->allocate(&more, block_bytes), CUDA_ERROR_OUT_OF_MEMORY);
    const usage now = tiers_.read();
    EXPECT_EQ(now.file_bytes, room_.new_bytes());
    EXPECT_EQ(now.virtual_free_bytes() / block_bytes, 0U);
}

TEST_F(Filing, MemoryThatNobodyWroteToIsNotReadFromTheDisk)
{
    for (std::size_t i = 0; i < all; i++)
        make_blank();
    // Each comes from there, though the disk cannot be read.
    disk::read_error = EIO;
    for (std::size_t i = in_vram + in_ram; i < all; i++)
        EXPECT_EQ(launch(i, i, true, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS)
            << "block " << i;
    EXPECT_EQ(disk::reads, 0U);
    compares_ = false;
}

TEST_F(Filing, AFullDiskLeavesMemoryWhereItIs)
{
    make(all);
    disk::write_error = ENOSPC;
    for (int i = 0; i < 3; i++) {
        const std::size_t refused = read_all();
        EXPECT_GT(refused, 0U);
        EXPECT_LE(refused, in_file + 3) << "those in memory are read";
    }
    EXPECT_EQ(told::count("No space left on device; memory stays in system "
                          "RAM"),
              1U)
        << "one line";
    EXPECT_GE(told::count("work is refused as out of memory"), 1U);
    disk::reset();
    EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, AnErrorOfAWriteLeavesMemoryWhereItIs)
{
    make(all);
    disk::write_error = EIO;
    EXPECT_GT(read_all(), 0U);
    EXPECT_EQ(told::count("Input/output error; memory stays in system RAM"),
              1U);
    disk::reset();
    EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, WithoutADiskBlocksInMemoryAreWrittenToAndKept)
{
    make(all);
    disk::write_error = ENOSPC;
    for (std::size_t i = 0; i < all; i++) {
        std::vector<std::uint32_t> is;
        if (!read(i, is))
            write(i);
    }
    EXPECT_GT(read_all(), 0U);
}

TEST_F(Filing, WhatCannotBeReadIsRefusedAndIsThereOnceItCan)
{
    make(all);
    disk::read_error = EIO;
    const std::size_t refused = read_all();
    EXPECT_GT(refused, 0U);
    EXPECT_LE(refused, in_file + in_ram);
    EXPECT_EQ(told::count("the file cannot be read: Input/output error"), 1U);
    disk::reset();
    EXPECT_EQ(read_all(), 0U);
    disk::read_error = EIO;
    EXPECT_GT(read_all(), 0U);
    EXPECT_EQ(told::count("the file cannot be read: Input/output error"), 2U)
        << "once in a row";
    disk::reset();
}

TEST_F(Filing, AFileThatEndsEarlyIsAnError)
{
    make(all);
    disk::ends_early = true;
    EXPECT_GT(read_all(), 0U);
    EXPECT_EQ(told::count("the file cannot be read: Input/output error"), 1U);
    disk::reset();
    EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, OtherBytesThanWereWrittenAreNeverGivenToWork)
{
    make(all);
    disk::flips = true;
    EXPECT_GT(read_all(), 0U) << "and none of the others is wrong";
    EXPECT_EQ(told::count("THE FILE HAS OTHER BYTES THAN WERE WRITTEN"), 1U);
    disk::reset();
    EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, UntrustedWorkIsRefusedWhereNotAllCanBeMapped)
{
    make(all);
    EXPECT_EQ(launch_untrusted(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(told::count("nothing is lost"), 1U);
    EXPECT_EQ(read_all(), 0U) << "trusted work goes on";
    // Now all has room in memory.
    while (blocks_.size() > in_vram + in_ram)
        free_last();
    EXPECT_EQ(launch_untrusted(), CUDA_SUCCESS);
    EXPECT_EQ(room_.used_bytes(), 0U) << "all of it is mapped";
    EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, UntrustedWorkBeginsOnceNothingIsInTheFile)
{
    make(all);
    while (blocks_.size() >= in_vram + in_ram)
        free_last();
    ASSERT_GT(room_.used_bytes(), 0U);
    CUdeviceptr more = 0;
    ASSERT_EQ(maker_->reserve(&more, block_bytes), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(calls_.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    // Another thread allocates while memory comes back.
    std::atomic<bool> made{false};
    disk::before_read(
        [&] { made = maker_->make_in_file(more, block_bytes, context); });
    EXPECT_EQ(launch(0, 999, false,
                     [&] {
                         EXPECT_EQ(room_.used_bytes(), 0U);
                         return CUDA_SUCCESS;
                     }),
              CUDA_SUCCESS);
    EXPECT_TRUE(made);
    blocks_.push_back(more);
    contents_.emplace_back();
    write(blocks_.size() - 1);
}

TEST_F(Filing, WhenMovementEndsOnlyWorkWithAllInMemoryGoesOn)
{
    make(all);
    moves_->fix_all("a test ends it");
    EXPECT_EQ(ended_, 1U);
    EXPECT_EQ(told::count("nothing is lost"), 1U);
    EXPECT_EQ(read_all(), all) << "nobody knows what work reaches";
    while (blocks_.size() > in_vram + in_ram)
        free_last();
    EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, ABlockThatStaysForGoodComesFromTheFile)
{
    make(all);
    const std::size_t first = find_unmapped();
    ASSERT_LT(first, all);
    EXPECT_TRUE(moves_->fix(blocks_[first]));
    EXPECT_TRUE(mapped(first));
    EXPECT_TRUE(moves_->fix(blocks_[all - 1]));
    for (std::size_t i = 0; i + 1 < all; i++)
        if (i != first)
            write(i);
    EXPECT_TRUE(mapped(first)) << "it stays";
    for (int i = 0; i < 2; i++)
        EXPECT_EQ(read_all(), 0U);
}

TEST_F(Filing, ATableMayNameABlockInTheFileWhileWorkReadsTables)
{
    make(all);
    const std::size_t first = find_unmapped();
    ASSERT_LT(first, all - 1);
    static std::atomic<bool> runs;
    runs = true;
    EXPECT_EQ(moves_->run(
                  stream_,
                  [&](work &out) {
                      out.what = 5000;
                      out.trusted = true;
                      out.kernel = "reads_tables";
                      out.add(blocks_[all - 1]);
                  },
                  [&] {
                      return find<decltype(cuLaunchHostFunc)>(
                          "cuLaunchHostFunc")(
                          stream_,
                          [](void *) {
                              while (runs)
                                  usleep(100);
                          },
                          nullptr);
                  }),
              CUDA_SUCCESS);
    moves_->note_table({blocks_[first]});
    EXPECT_TRUE(mapped(first)) << "the work may find it";
    runs = false;
}

TEST_F(Filing, ABlockThatCannotComeIsNotFixed)
{
    make(all);
    disk::read_error = EIO;
    std::size_t refused = 0;
    for (const CUdeviceptr each : blocks_)
        refused += moves_->fix(each) ? 0 : 1;
    EXPECT_GT(refused, 0U);
    disk::reset();
    compares_ = false;
}

TEST_F(Filing, AQuestionAboutAnAddressIsAskedOfMappedMemory)
{
    make(all);
    for (std::size_t i = 0; i < all; i++) {
        unsigned type = 0;
        EXPECT_EQ(moves_->while_mapped(blocks_[i],
                                       [&] {
                                           return calls_.cuPointerGetAttribute(
                                               &type,
                                               CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                               blocks_[i]);
                                       }),
                  CUDA_SUCCESS)
            << i;
    }
}

TEST_F(Filing, WithItsContextMovementEndsAndWorkWaitsUntilItGoesOn)
{
    make(all);
    CUcontext context = nullptr;
    ASSERT_EQ(calls_.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    moves_->stop(context);
    // Work waits for what becomes of the context.
    std::atomic<bool> done{false};
    std::size_t refused = all;
    std::thread other([&] {
        use_context();
        refused = read_all();
        done = true;
    });
    usleep(50000); // so that it most likely waits
    EXPECT_FALSE(done);
    moves_->resume(context);
    other.join();
    EXPECT_EQ(refused, 0U);
    EXPECT_EQ(told::count("work is refused"), 0U);
}

TEST_F(Filing, WorkIsRefusedOnceItsContextIsGone)
{
    make(all);
    CUcontext context = nullptr;
    ASSERT_EQ(calls_.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    moves_->stop(context);
    std::size_t refused = 0;
    std::thread other([&] {
        use_context();
        refused = read_all();
    });
    moves_->gone(context);
    other.join();
    EXPECT_EQ(refused, all);
    compares_ = false;
}

TEST_F(Filing, WorkIsGivenAllOfItsBlocksWhereverTheyWere)
{
    make(all);
    // As many as system RAM has room for, from all places.
    for (std::size_t first = 0; first < 3 * all; first++) {
        const CUresult result = moves_->run(
            stream_,
            [&](work &out) {
                out.what = 5000 + first % 7;
                out.trusted = true;
                for (std::size_t i = 0; i < in_ram; i++)
                    out.add(blocks_[(first * 5 + i * 3) % all]);
            },
            [&] {
                for (std::size_t i = 0; i < in_ram; i++) {
                    const std::size_t which = (first * 5 + i * 3) % all;
                    const auto value = static_cast<unsigned char>(first + i);
                    EXPECT_EQ(calls_.cuMemsetD8Async(blocks_[which], value,
                                                     4096, stream_),
                              CUDA_SUCCESS);
                    std::fill_n(contents_[which].begin(), 1024,
                                value * 0x01010101u);
                }
                return CUDA_SUCCESS;
            });
        EXPECT_EQ(result, CUDA_SUCCESS) << first;
    }
    EXPECT_EQ(calls_.cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(read_all(), 0U);
}

// First in rounds, for which a plan is made. Then steps come no more, and uses
// are foretold by the kinds of work.
TEST_F(Filing, BytesAreRightWhereUsesAreForetoldAfterAPlan)
{
    constexpr std::size_t some = in_vram + in_ram + in_file / 2;
    constexpr std::size_t kinds = 23;
    make(some);
    unsigned char value = 0;
    const auto use = [&](std::size_t kind, std::size_t which) {
        value++;
        EXPECT_EQ(launch(which, 7000 + kind, true,
                         [&] {
                             return calls_.cuMemsetD8Async(
                                 blocks_[which], value, 4096, stream_);
                         }),
                  CUDA_SUCCESS)
            << "kind " << kind << ", block " << which;
        std::fill_n(contents_[which].begin(), 1024, value * 0x01010101u);
    };
    for (std::size_t i = 0; i < 8 * some; i++)
        use(i % some, i % some);
    for (std::size_t i = 0; i < 20 * some; i++)
        use(100 + i % kinds, i * 5 % some);
    EXPECT_EQ(read_all(), 0U);
    EXPECT_EQ(ended_, 0U);
}

// Its digest is of the room that it had before. That one was given up, since
// nobody needed what was there.
TEST_F(Filing, BytesAsBeforeAreWrittenToTheRoomThatAUnitHasNow)
{
    constexpr std::size_t some = in_vram + in_ram + 2;
    constexpr std::size_t which = 1;
    constexpr std::chrono::seconds longest(300); // many rounds on a slow disk
    make(some);
    // Once rounds are foreseen, what leaves is read for its digest.
    for (std::size_t i = 0; i < 8 * some; i++)
        write(i % some);
    const auto whole = [&] {
        return mover::subrange{blocks_[which], block_bytes,
                               moves_->identify(blocks_[which])};
    };
    const auto is_in_vram = [&] { // what is freed meanwhile is not found
        const auto found = moves_->find(whole());
        return found && found->vram_bytes > 0;
    };
    const auto is_elsewhere = [&] { return !is_in_vram(); };
    // While it is on its way to system RAM, it is freed in stream order.
    bool freed = false;
    seen::leaves = [&] {
        moves_->vacate(blocks_[which]);
        freed = true;
    };
    const auto is_freed = [&] {
        const std::lock_guard guard(seen::lock);
        return freed;
    };
    const auto has_left = [&] {
        return is_freed() && is_elsewhere() && seen::room != 0;
    };
    // Work for others takes its room from it.
    const auto go_round = [&] {
        for (std::size_t i = 0; i < some && !is_freed(); i++)
            if (i != which)
                write(i);
    };
    ASSERT_TRUE(wait_until(
        has_left,
        [&] {
            moves_->occupy(blocks_[which], block_bytes);
            freed = false;
            // Work may have used it in system RAM. Then nothing has to be
            // copied, and it is written again.
            ASSERT_TRUE(wait_until(
                is_freed,
                [&] {
                    if (is_elsewhere() && !is_freed()) {
                        auto next = contents(++last_, block_bytes);
                        // Before it is written: it may leave at once.
                        seen::look_for(next.front());
                        write(which, std::move(next));
                    }
                    moves_->advise(whole(), hint::demote);
                    go_round();
                },
                longest));
            seen::look_for(0);
            // If it is called off there, it stays. Then all begins anew.
            for (int i = 0; i < 1000 && is_in_vram(); i++)
                usleep(1000);
        },
        longest));
    ASSERT_TRUE(
        wait_until([] { return seen::room == 0; }, [&] { moves_->shed(); }))
        << "it goes to the file";
    freed = false;
    moves_->occupy(blocks_[which], block_bytes);
    // Without work that ends, nothing need make room for it.
    std::size_t other = which;
    ASSERT_TRUE(wait_until(is_in_vram, [&] {
        moves_->advise(whole(), hint::prefetch);
        other = (other + 1) % some;
        if (other != which)
            write(other);
    }));
    write(which, std::vector<std::uint32_t>(contents_[which]));
    ASSERT_TRUE(wait_until(
        is_elsewhere,
        [&] {
            moves_->advise(whole(), hint::demote);
            go_round();
        },
        longest));
    compare(which);
}

TEST_F(Filing, BlocksAreFreedWhereverTheyAre)
{
    for (int i = 0; i < 4; i++) {
        make(all - blocks_.size());
        for (std::size_t each = 0; each < all; each += 3)
            compare(each);
        for (std::size_t each = 0; each < blocks_.size(); each += 2) {
            EXPECT_EQ(maker_->free(blocks_[each]), CUDA_SUCCESS);
            blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(each));
            contents_.erase(contents_.begin() +
                            static_cast<std::ptrdiff_t>(each));
        }
    }
}

// The work has not begun to read tables, and waits for memory of its own.
TEST_F(Filing, ATableMayNameABlockInTheFileWhileWorkThatReadsTablesWaits)
{
    ASSERT_NO_FATAL_FAILURE(make(all));
    std::vector<std::size_t> away;
    for (std::size_t i = 0; i < all; i++)
        if (!mapped(i))
            away.push_back(i);
    ASSERT_GE(away.size(), 2U);
    // Of one that lies in the file, and not only in system RAM: it is read.
    std::size_t named = all;
    for (const std::size_t its_own : away) {
        if (mapped(its_own) || named != all)
            continue;
        disk::before_read([&] {
            std::vector<std::size_t> others;
            for (std::size_t i = 0; i < all; i++)
                if (i != its_own && !mapped(i))
                    others.push_back(i);
            named = others[4 % others.size()];
            moves_->note_table({blocks_[named]});
        });
        bool was_mapped = true;
        EXPECT_EQ(moves_->run(
                      stream_,
                      [&](work &out) {
                          out.what = 5000;
                          out.trusted = true;
                          out.kernel = "reads_tables";
                          out.add(blocks_[its_own]);
                      },
                      [&] {
                          was_mapped = named == all || mapped(named);
                          return CUDA_SUCCESS;
                      }),
                  CUDA_SUCCESS);
        EXPECT_TRUE(was_mapped) << "block " << named;
    }
    EXPECT_NE(named, all);
}

TEST_F(Filing, AThreadThatWantsSystemRamIsAnsweredBeforeItGoesOn)
{
    ASSERT_NO_FATAL_FAILURE(make(all - 4));
    compares_ = false;
    std::atomic<bool> in_write{false};
    std::atomic<bool> is_back{false};
    std::atomic<bool> was_early{false};
    std::atomic<bool> asks{false};
    // A write that making the blocks has left is not for the thread.
    const std::function<void()> begins = [&] {
        if (!asks) {
            disk::before_write(begins);
            return;
        }
        in_write = true;
        // Long enough for a thread that does not wait to come back.
        for (int i = 0; i < 1000 && !is_back; i++)
            usleep(1000);
        was_early = is_back.load();
    };
    disk::before_write(begins);
    std::thread other([&] {
        use_context();
        for (int i = 0; i < 50 && !in_write; i++) {
            asks = true;
            moves_->shed();
            asks = false;
        }
        is_back = true;
    });
    EXPECT_TRUE(
        wait_until([&] { return in_write.load(); }, [] { usleep(1000); }));
    moves_->stop(nullptr);
    other.join();
    EXPECT_FALSE(was_early);
}

} // namespace
