// SPDX-License-Identifier: GPL-2.0-or-later
// Movement, and what it takes, against a driver of tables whose copies and
// kernels are over at once. The harness checks that the bytes are right.
#include "fake_driver.hpp"
#include "idle_driver.hpp"
#include "movement/block_maker.hpp"
#include "movement/mover.hpp"
#include "reading_denied.hpp"
#include "store/placement.hpp"
#include "wait_until.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
constexpr std::uint64_t unit_bytes = max_moving_bytes;

// Limits that take their time to be read, if asked to.
class slow_ledger final : public ledger
{
public:
    explicit slow_ledger(ledger &of) : of_(of) {}

    usage read() const override
    {
        if (const unsigned us = takes_us.load(); us > 0)
            usleep(us);
        return of_.read();
    }

    bool can_wait() const override { return waits; }
    void call_off_waits() override
    {
        const std::lock_guard guard(lock_);
        called_off++;
        returned_.notify_all();
    }
    // Wakes those that slept on all the same.
    void let_go()
    {
        const std::lock_guard guard(lock_);
        sleeps_on = false;
        returned_.notify_all();
    }

    std::atomic<unsigned> takes_us{0}; // microseconds to read them
    std::atomic<bool> waits{false};    // can_wait()
    std::atomic<unsigned> slept{0};    // charges that waited
    std::atomic<unsigned> called_off{0};
    std::atomic<bool> sleeps_on{false};       // whatever happens
    std::atomic<std::uint64_t> longest_ns{0}; // of the waits that were asked

private:
    bool take_virtual(std::uint64_t bytes, std::uint64_t &token) override
    {
        return of_.charge_virtual(bytes, token);
    }
    void give_virtual(std::uint64_t bytes, std::uint64_t token) override
    {
        of_.uncharge_virtual(bytes, token);
    }
    bool take_physical(std::uint64_t bytes) override
    {
        return of_.charge_physical(bytes);
    }
    // In no order, unlike the driver.
    bool take_physical_within(std::uint64_t bytes, std::uint64_t ns) override
    {
        slept++;
        longest_ns = std::max<std::uint64_t>(longest_ns, ns);
        std::unique_lock lock(lock_);
        const unsigned before = called_off;
        bool charged = false;
        returned_.wait_for(lock, std::chrono::nanoseconds(ns), [&] {
            charged = of_.charge_physical(bytes);
            return charged || called_off != before;
        });
        returned_.wait(lock, [&] { return !sleeps_on; });
        return charged;
    }
    void give_physical(std::uint64_t bytes) override
    {
        const std::lock_guard guard(lock_);
        of_.uncharge_physical(bytes);
        returned_.notify_all();
    }

    ledger &of_;
    std::mutex lock_;
    std::condition_variable returned_;
};

// A driver whose streams write words, and wait for words, in page-locked
// memory.
struct words_in_streams
{
    static inline std::mutex lock;
    static inline std::map<CUdeviceptr, std::size_t> pinned;
    static inline bool comes_there = true; // the device, to what it shall write
    // That another stream waits for, and writes afterwards.
    static inline std::pair<CUdeviceptr, std::uint32_t> trial, later;
    // That the program's stream waits for, in order.
    static inline std::vector<std::pair<CUdeviceptr, std::uint32_t>> waits;

    static void install(driver &calls)
    {
        pinned.clear();
        waits.clear();
        trial = later = {};
        comes_there = true;
        calls.cuMemHostAlloc = [](void **at, std::size_t bytes, unsigned) {
            const std::lock_guard guard(lock);
            *at = std::calloc(1, bytes);
            pinned[reinterpret_cast<CUdeviceptr>(*at)] = bytes;
            return CUDA_SUCCESS;
        };
        calls.cuMemFreeHost = [](void *at) {
            const std::lock_guard guard(lock);
            pinned.erase(reinterpret_cast<CUdeviceptr>(at));
            std::free(at);
            return CUDA_SUCCESS;
        };
        calls.cuStreamWriteValue32_v2 = [](CUstream on, CUdeviceptr at,
                                           std::uint32_t value, unsigned) {
            const std::lock_guard guard(lock);
            if (on == program() ? !comes_there : trial_waits())
                later = {at, value};
            else if (is_pinned(at))
                std::atomic_ref(word(at)).store(value);
            return CUDA_SUCCESS;
        };
        calls.cuStreamSynchronize = [](CUstream) {
            const std::lock_guard guard(lock);
            if (!trial_waits() && is_pinned(later.first))
                std::atomic_ref(word(later.first)).store(later.second);
            later = {};
            trial = {};
            return CUDA_SUCCESS;
        };
        calls.cuStreamWaitValue32_v2 = [](CUstream on, CUdeviceptr at,
                                          std::uint32_t value, unsigned) {
            const std::lock_guard guard(lock);
            if (on == program())
                waits.emplace_back(at, value);
            else if (is_pinned(at))
                trial = {at, value};
            return CUDA_SUCCESS;
        };
    }
    static CUstream program() { return reinterpret_cast<CUstream>(0x30); }
    static std::uint32_t &word(CUdeviceptr at)
    {
        return *reinterpret_cast<std::uint32_t *>(at);
    }
    static bool is_pinned(CUdeviceptr at)
    {
        const auto after = pinned.upper_bound(at);
        return after != pinned.begin() &&
               at - std::prev(after)->first < std::prev(after)->second;
    }

    static bool comes_after(CUdeviceptr at, std::uint32_t value)
    {
        return static_cast<std::int32_t>(std::atomic_ref(word(at)).load() -
                                         value) < 0;
    }
    static bool trial_waits()
    {
        return trial.first != 0 && comes_after(trial.first, trial.second);
    }

    // How many of those it would still wait for.
    static std::size_t waiting()
    {
        const std::lock_guard guard(lock);
        std::size_t count = 0;
        for (const auto &[at, value] : waits)
            count += comes_after(at, value) ? 1U : 0U;
        return count;
    }
    static std::size_t asked()
    {
        const std::lock_guard guard(lock);
        return waits.size();
    }
};

// Eight units fit on the card, and twelve are there.
class Mover : public ::testing::Test
{
protected:
    void start(std::uint64_t beyond)
    {
        succeed_otherwise(card_.calls);
        const driver idle = idle_driver();
        card_.calls.cuMemHostAlloc = idle.cuMemHostAlloc;
        card_.calls.cuMemFreeHost = idle.cuMemFreeHost;
        if (has_barriers_)
            words_in_streams::install(card_.calls);
        ASSERT_EQ(rows_.open(nullptr), 0);
        kept_ = std::make_unique<file_ledger>(rows_, 0, card_share_, beyond);
        limits_ = std::make_unique<slow_ledger>(*kept_);
        shares_ = std::make_unique<budget>(
            budget::options{.calls = card_.calls, .ledgers = {limits_.get()}});
        host_ = std::make_unique<numa_store>(card_.calls);
        moves_ = std::make_unique<mover>(mover::options{
            .calls = card_.calls,
            .shares = *shares_,
            .record = record_,
            .tell = [](const char *why) { EXPECT_EQ(why, expected_end_); },
            .faulted = faulted_,
            .always = true,
            .unmaps = unmaps_,
            .host = &pinned_,
            .checked = check_});
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = card_.calls,
                                 .host = *host_,
                                 .shares = *shares_,
                                 .moves = *moves_});
        for (std::size_t i = 0; i < units_.size(); i++)
            ASSERT_EQ(maker_->allocate(&units_[i], sizes_[i % sizes_.size()]),
                      CUDA_SUCCESS);
    }

    // Launches work that uses one unit.
    void launch(std::size_t which, std::uint64_t what)
    {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = what;
                out.trusted = true;
                out.add(units_[which]);
            },
            [] { return CUDA_SUCCESS; });
    }
    // Launches a trusted kernel that is given the first unit; null: work that
    // is no kernel's.
    void launch_kernel(const char *name)
    {
        if (name == nullptr) {
            launch(1, 2);
            return;
        }
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = 1;
                out.kernel = name;
                out.trusted = true;
                out.add(units_[0]);
            },
            [] { return CUDA_SUCCESS; });
    }
    // Launches work, and lets a little time pass.
    void use(std::size_t which, std::uint64_t what)
    {
        launch(which, what);
        usleep(500);
    }
    // Uses each unit from this one on.
    void round(std::size_t first)
    {
        for (std::size_t i = first; i < units_.size(); i++)
            use(i, i + 1);
    }
    // Uses each unit in turn, and then each back to this one.
    void forth_and_back_to(std::size_t last)
    {
        for (std::size_t i = 0; i < units_.size(); i++)
            use(i, i + 1);
        for (std::size_t i = units_.size(); i-- > last;)
            use(i, 100 + i);
    }

    // The number of handles there ever were.
    std::uint64_t made()
    {
        const std::lock_guard guard(card_.lock);
        return card_.next_handle;
    }

    bool is_in_vram(std::size_t which)
    {
        const std::lock_guard guard(card_.lock);
        const auto at = card_.mapped.find(units_[which]);
        return at != card_.mapped.end() && !card_.handles[at->second].host;
    }
    // The number of units in VRAM, from the first on.
    std::size_t in_vram(std::size_t first)
    {
        std::size_t count = 0;
        for (std::size_t i = first; i < units_.size(); i++)
            count += is_in_vram(i) ? 1 : 0;
        return count;
    }

    template <typename Condition, typename Step>
    bool wait_until(std::chrono::seconds longest, Condition holds, Step step)
    {
        return ::wait_until(holds, step, longest);
    }

    template <typename Condition>
    bool run_until(std::size_t first, Condition holds)
    {
        return wait_until(std::chrono::seconds(120), holds,
                          [&] { round(first); });
    }

    void free_all()
    {
        for (const CUdeviceptr each : units_)
            EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
        moves_->stop(nullptr);
        EXPECT_EQ(limits_->read().physical_used_bytes, 0U);
        EXPECT_EQ(limits_->read().virtual_used_bytes, 0U);
        EXPECT_TRUE(card_.empty());
    }

    FakeDriver card_;
    trace record_;
    ledger_file rows_;
    std::unique_ptr<file_ledger> kept_;
    std::unique_ptr<slow_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<numa_store> host_;
    std::unique_ptr<mover> moves_;
    std::unique_ptr<block_maker> maker_;
    std::vector<CUdeviceptr> units_ = std::vector<CUdeviceptr>(12);
    std::vector<std::uint64_t> sizes_{unit_bytes}; // in turn
    std::uint64_t card_share_ = 8 * unit_bytes;
    bool unmaps_ = false;
    bool has_barriers_ = false;
    static inline std::string expected_end_; // of movement, or none
    static inline void (*faulted_)(const std::vector<const char *> &) = nullptr;
    pinned pinned_;
    check *check_ = nullptr;
};

// A mover with which nothing moves and kernels are checked.
class Checked : public Mover
{
protected:
    void SetUp() override
    {
        check_ = &found_;
        ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    }

    void launch_what(std::vector<CUdeviceptr> names, std::uint32_t left = 0,
                     bool trusted = true)
    {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = 1;
                out.kernel = "kernel";
                out.trusted = trusted;
                for (const CUdeviceptr each : names)
                    out.add(each);
                out.left = left;
            },
            [this] {
                mapped_then_ = mapped();
                return CUDA_SUCCESS;
            });
    }

    // @param numbers  look like addresses, and are none by the proof
    void launch_proven(const std::vector<CUdeviceptr> &names,
                       const std::vector<CUdeviceptr> &numbers = {},
                       bool holds = true)
    {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = 1;
                out.kernel = "kernel";
                out.trusted = out.proven = true;
                out.by_name = !holds;
                out.pointers_are_all = !numbers.empty();
                for (const CUdeviceptr each : names)
                    out.add(each, true);
                for (const CUdeviceptr each : numbers)
                    out.add(each);
                if (!holds)
                    out.rely_on(0x123);
            },
            [this] {
                mapped_then_ = mapped();
                return CUDA_SUCCESS;
            });
    }

    // The units that are mapped.
    std::vector<std::size_t> mapped()
    {
        const std::lock_guard guard(card_.lock);
        std::vector<std::size_t> out;
        for (std::size_t i = 0; i < units_.size(); i++)
            if (card_.mapped.count(units_[i]) > 0)
                out.push_back(i);
        return out;
    }

    using those = std::vector<std::size_t>;

    void TearDown() override { expected_end_.clear(); }

    check found_{[](const char *, bool, CUresult) { ADD_FAILURE(); }};
    those mapped_then_; // while work ran
    const those all_{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
};

// Units in the small allocations where frameworks keep small tensors.
class CheckedSmall : public Checked
{
protected:
    void SetUp() override
    {
        sizes_ = {2 * MiB};
        card_share_ = 16 * MiB;
        Checked::SetUp();
    }
};

} // namespace

namespace {

// A card that takes a millisecond for each of the program's works.
struct slow_card
{
    static constexpr std::uint64_t work_ns = 1000000;
    static inline std::mutex lock;
    static inline std::uint64_t idle_from_ns = 0;
    static inline std::map<CUevent, std::uint64_t> ends_ns;

    static CUresult create(CUevent *event, unsigned)
    {
        static std::atomic<std::uintptr_t> next{1};
        *event = reinterpret_cast<CUevent>(next.fetch_add(1));
        return CUDA_SUCCESS;
    }
    static CUresult record(CUevent event, CUstream stream)
    {
        const std::lock_guard guard(lock);
        const std::uint64_t now = now_ns();
        if (stream == reinterpret_cast<CUstream>(0x20))
            idle_from_ns = std::max(idle_from_ns, now) + work_ns;
        ends_ns[event] =
            stream == reinterpret_cast<CUstream>(0x20) ? idle_from_ns : now;
        return CUDA_SUCCESS;
    }
    static CUresult query(CUevent event)
    {
        const std::lock_guard guard(lock);
        return ends_ns[event] <= now_ns() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    static std::uint64_t lead_ns()
    {
        const std::lock_guard guard(lock);
        const std::uint64_t now = now_ns();
        return idle_from_ns - std::min(idle_from_ns, now);
    }
};

} // namespace

TEST_F(Mover, AProgramIsHeldBackHoweverFastItLaunches)
{
    card_.calls.cuEventCreate = slow_card::create;
    card_.calls.cuEventRecord = slow_card::record;
    card_.calls.cuEventQuery = slow_card::query;
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    // A thread that is not let run for a while waits in vain, and is then not
    // held back for some rounds. So the best round counts.
    std::uint64_t least_ns = UINT64_MAX;
    const std::uint64_t limit_ns = now_ns() + 120000000000;
    for (int each = 0; each < 24 || (least_ns >= 12 * slow_card::work_ns &&
                                     now_ns() < limit_ns);
         each++) {
        for (std::size_t i = 0; i < units_.size(); i++)
            launch(i, i + 1);
        std::uint64_t most_ns = 0;
        for (std::uint64_t i = 0; i < 50; i++) {
            launch(0, 100 + i);
            most_ns = std::max(most_ns, slow_card::lead_ns());
        }
        if (each >= 12) // from here on their length is known
            least_ns = std::min(least_ns, most_ns);
    }
    // Five works may wait, with those launched since anybody looked.
    EXPECT_LT(least_ns, 12 * slow_card::work_ns);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

namespace {

// Work that is not trusted. It may change all memory until it ends, and nothing
// else ends before it.
struct untrusted
{
    static CUstream stream() { return reinterpret_cast<CUstream>(0x30); }

    static inline std::atomic<bool> runs{false};
    static inline FakeDriver *card = nullptr;
    static inline std::mutex lock;
    using handle = CUmemGenericAllocationHandle;
    static inline std::map<handle, bool> outdated; // it was read while that ran
    static inline std::map<CUdeviceptr, handle> there;
    static inline unsigned lost = 0;
    static inline unsigned moved = 0;
    static inline CUresult (*map_)(CUdeviceptr, std::size_t, std::size_t,
                                   handle, unsigned long long) = nullptr;

    static CUresult query(CUevent)
    {
        return runs.load() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    }
    static void read(CUdeviceptr at)
    {
        const std::lock_guard guard(lock);
        const std::lock_guard tables(card->lock);
        // Copies out come in parts: the first one is told by its address.
        if (const auto found = card->mapped.find(at);
            found != card->mapped.end())
            outdated[found->second] = runs.load();
    }
    static CUresult copy(CUdeviceptr, CUdeviceptr from, std::size_t, CUstream)
    {
        read(from);
        return CUDA_SUCCESS;
    }
    static CUresult digest(CUfunction, unsigned, unsigned, unsigned, unsigned,
                           unsigned, unsigned, unsigned, CUstream,
                           void **parameters, void **)
    {
        read(*static_cast<CUdeviceptr *>(parameters[0]));
        return CUDA_SUCCESS;
    }
    static CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t offset,
                        handle to, unsigned long long flags)
    {
        {
            const std::lock_guard guard(lock);
            const handle from = std::exchange(there[at], to);
            if (const auto found = outdated.find(from);
                from != to && found != outdated.end()) {
                moved++;
                lost += found->second ? 1 : 0;
            }
        }
        return map_(at, bytes, offset, to, flags);
    }
};

} // namespace

TEST_F(Mover, WhatWasReadBesideWorkThatNobodyVouchesForReplacesNothing)
{
    untrusted::outdated.clear();
    untrusted::lost = untrusted::moved = 0;
    untrusted::there.clear();
    untrusted::card = &card_;
    untrusted::map_ = card_.calls.cuMemMap;
    card_.calls.cuMemMap = untrusted::map;
    card_.calls.cuEventQuery = untrusted::query;
    card_.calls.cuMemcpyAsync = untrusted::copy;
    card_.calls.cuLaunchKernel = untrusted::digest;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    // The work comes in while the mover looks for something to move.
    limits_->takes_us = 300;
    unsigned rounds = 0;
    const auto have_moved = [] {
        const std::lock_guard guard(untrusted::lock);
        return untrusted::moved;
    };
    const auto a_round = [&] {
        rounds++;
        round(0);
        moves_->run(
            untrusted::stream(), [](work &out) { out.trusted = false; },
            [] {
                untrusted::runs = true;
                return CUDA_SUCCESS;
            });
        usleep(1000);
        untrusted::runs = false;
    };
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120),
        [&] { return rounds >= 200 && have_moved() > 200; }, a_round))
        << have_moved() << " in " << rounds << " rounds: nothing to lose";
    limits_->takes_us = 0;
    {
        const std::lock_guard guard(untrusted::lock);
        EXPECT_EQ(untrusted::lost, 0u);
    }
    ASSERT_NO_FATAL_FAILURE(free_all());
}

namespace {

// A unit that stays unmapped until it is let go.
struct stalled_unmap
{
    static inline std::atomic<CUdeviceptr> wanted{0};
    static inline std::atomic<bool> is_stalled{false};
    static inline std::atomic<bool> let_go{false};
    static inline CUresult (*unmap_)(CUdeviceptr, std::size_t) = nullptr;

    static CUresult unmap(CUdeviceptr at, std::size_t bytes)
    {
        const CUresult result = unmap_(at, bytes);
        if (wanted.load() == at && !is_stalled.exchange(true))
            while (!let_go.load())
                usleep(100);
        return result;
    }
};

// A thread that makes a call which may wait.
class caller
{
public:
    template <typename Call>
    explicit caller(Call call)
        : thread_([this, call] {
              id_ = gettid();
              call();
              has_returned_ = true;
          })
    {}
    ~caller() { thread_.join(); }

    // Waits until the thread sleeps in the kernel, or is done.
    void await_sleep() const
    {
        while (!has_returned_ && !sleeps())
            usleep(1000);
    }
    bool has_returned() const { return has_returned_; }

private:
    bool sleeps() const
    {
        if (id_ == 0)
            return false;
        std::ifstream from("/proc/self/task/" + std::to_string(id_) + "/stat");
        std::string text;
        std::getline(from, text); // none if the thread has just ended
        const auto name_ends = text.rfind(") ");
        return name_ends != std::string::npos && text[name_ends + 2] == 'S';
    }

    std::atomic<pid_t> id_{0};
    std::atomic<bool> has_returned_{false};
    std::thread thread_;
};

} // namespace

namespace {

// A trusted kernel that is being handed over.
class kernel_in_flight
{
public:
    kernel_in_flight(mover &of, bool proven)
        : thread_([this, &of, proven] {
              of.run(
                  reinterpret_cast<CUstream>(0x28),
                  [&](work &out) {
                      out.what = 77;
                      out.kernel = "gemmBatched";
                      out.trusted = true;
                      out.proven = proven;
                  },
                  [this] {
                      begun_.set_value();
                      over_.get_future().wait();
                      return CUDA_SUCCESS;
                  });
          })
    {
        begun_.get_future().wait();
    }
    ~kernel_in_flight()
    {
        over_.set_value();
        thread_.join();
    }

private:
    std::promise<void> begun_;
    std::promise<void> over_;
    std::thread thread_;
};

} // namespace

// While a kernel is in flight that may read tables, a unit moves. Two threads
// copy a table to the device that names it. A third launches work that is given
// one in pinned memory.
TEST_F(Mover, NothingGoesOnThatReadsATableBeforeAllThatItNamesIsMapped)
{
    stalled_unmap::is_stalled = stalled_unmap::let_go = false;
    stalled_unmap::wanted = 0;
    stalled_unmap::unmap_ = card_.calls.cuMemUnmap;
    card_.calls.cuMemUnmap = stalled_unmap::unmap;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    const CUdeviceptr named = units_[9];
    const std::vector<CUdeviceptr> table{named};
    const auto is_mapped = [&] {
        const std::lock_guard guard(card_.lock);
        return card_.mapped.contains(named);
    };
    stalled_unmap::wanted = named;
    bool mapped_for_first = false;
    bool mapped_for_second = false;
    bool mapped_for_work = false;
    pinned_.add(table.data(), sizeof named);
    {
        const kernel_in_flight reading(*moves_, false);
        // This thread may come to wait for that unit, too.
        const caller using_all([&] {
            for (std::size_t i = 0; !stalled_unmap::is_stalled; i++)
                use(i % units_.size(), i % units_.size() + 1);
        });
        while (!stalled_unmap::is_stalled)
            usleep(100);
        const caller first([&] {
            moves_->note_table(table);
            mapped_for_first = is_mapped();
        });
        first.await_sleep();
        EXPECT_FALSE(first.has_returned());
        const caller second([&] {
            moves_->note_table(table);
            mapped_for_second = is_mapped();
        });
        const caller launching([&] {
            moves_->run(
                reinterpret_cast<CUstream>(0x20),
                [&](work &out) {
                    out.what = 77;
                    out.kernel = "gemmBatched";
                    out.trusted = true;
                    out.add(reinterpret_cast<CUdeviceptr>(table.data()));
                },
                [&] {
                    mapped_for_work = is_mapped();
                    return CUDA_SUCCESS;
                });
        });
        second.await_sleep();
        launching.await_sleep();
        stalled_unmap::let_go = true;
    }
    EXPECT_TRUE(mapped_for_first);
    EXPECT_TRUE(mapped_for_second);
    EXPECT_TRUE(mapped_for_work);
    pinned_.remove(table.data());
    ASSERT_NO_FATAL_FAILURE(free_all());
}

namespace {

// Counts how often a unit is unmapped, and all others.
struct counted_unmaps
{
    static inline std::atomic<CUdeviceptr> wanted{0};
    static inline std::atomic<unsigned> of_it{0};
    static inline std::atomic<unsigned> of_others{0};
    static inline CUresult (*unmap_)(CUdeviceptr, std::size_t) = nullptr;

    static void install(driver &calls)
    {
        wanted = 0;
        of_it = of_others = 0;
        unmap_ = calls.cuMemUnmap;
        calls.cuMemUnmap = [](CUdeviceptr at, std::size_t bytes) {
            (at == wanted ? of_it : of_others)++;
            return unmap_(at, bytes);
        };
    }
};

} // namespace

// A table is copied to the device. Kernels that are trusted by a name alone may
// find addresses there, and no others.
TEST_F(Mover, WhatATableNamesMovesUnlessAKernelIsInFlightThatMayReadIt)
{
    counted_unmaps::install(card_.calls);
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    const CUdeviceptr named = units_[9];
    counted_unmaps::wanted = named;
    const auto moves_again = [&] {
        const unsigned before = counted_unmaps::of_it;
        return run_until(0, [&] { return counted_unmaps::of_it > before; });
    };
    ASSERT_TRUE(moves_again());
    const auto is_mapped = [&] {
        const std::lock_guard guard(card_.lock);
        return card_.mapped.contains(named);
    };
    moves_->note_table({named});
    EXPECT_TRUE(moves_again()) << "nothing reads tables";
    {
        const kernel_in_flight proven(*moves_, true);
        EXPECT_TRUE(moves_again()) << "it takes no address from memory";
    }
    {
        const kernel_in_flight reading(*moves_, false);
        EXPECT_TRUE(is_mapped());
        const unsigned before = counted_unmaps::of_it;
        const unsigned others = counted_unmaps::of_others;
        EXPECT_TRUE(run_until(0, [&] {
            return counted_unmaps::of_others > others + 100;
        })) << "nothing else moves";
        EXPECT_EQ(counted_unmaps::of_it, before);
    }
    EXPECT_TRUE(moves_again()) << "nothing reads tables any more";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

namespace {

// A driver that returns from recording an event once something is launched.
struct patient_record
{
    enum state
    {
        idle,
        armed,
        recording,
        launched,
        in_vain,
    };
    static inline std::atomic<state> is{idle};
    static inline const std::thread::id for_whom = std::this_thread::get_id();

    static CUresult record(CUevent, CUstream stream)
    {
        state expected = armed;
        if (std::this_thread::get_id() != for_whom ||
            stream != reinterpret_cast<CUstream>(0x20) ||
            !is.compare_exchange_strong(expected, recording))
            return CUDA_SUCCESS;
        const auto end =
            std::chrono::steady_clock::now() + std::chrono::seconds(120);
        while (is == recording && std::chrono::steady_clock::now() < end)
            usleep(100);
        expected = recording;
        is.compare_exchange_strong(expected, in_vain);
        return CUDA_SUCCESS;
    }
};

} // namespace

TEST_F(Mover, OthersLaunchWhileTheDriverTakesItsTimeToRecordAnEvent)
{
    card_.calls.cuEventCreate = slow_card::create; // each event another one
    card_.calls.cuEventRecord = patient_record::record;
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    const auto launch_brief = [&](std::size_t which, bool elsewhere = false) {
        moves_->run(
            reinterpret_cast<CUstream>(elsewhere ? 0x30 : 0x20),
            [&](work &out) {
                out.what = which + 1;
                out.trusted = out.open_ended = true;
                out.add(units_[which]);
            },
            [] { return CUDA_SUCCESS; });
    };
    // Once these launches are known to be brief, some are unmarked until a
    // stream waits, or until another stream is given work.
    for (const bool waits : {true, false}) {
        patient_record::is = patient_record::idle;
        EXPECT_TRUE(wait_until(
            std::chrono::seconds(120),
            [] { return patient_record::is != patient_record::idle; },
            [&] {
                for (std::size_t i = 0; i < 64; i++)
                    launch_brief(i % units_.size());
                patient_record::is = patient_record::armed;
                const caller other([&] {
                    while (patient_record::is == patient_record::armed)
                        usleep(10);
                    if (patient_record::is != patient_record::recording)
                        return;
                    launch(3, 100);
                    auto not_in_vain = patient_record::recording;
                    patient_record::is.compare_exchange_strong(
                        not_in_vain, patient_record::launched);
                });
                if (waits)
                    moves_->stream_waits();
                else
                    launch_brief(64 % units_.size(), true);
                auto nothing_was = patient_record::armed;
                patient_record::is.compare_exchange_strong(
                    nothing_was, patient_record::idle);
            }));
        EXPECT_EQ(patient_record::is, patient_record::launched) << waits;
    }
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, OthersGoOnWhileItsEndWaitsForTheDriverToRecordAnEvent)
{
    static std::atomic<bool> ended;
    card_.calls.cuEventCreate = slow_card::create; // each event another one
    card_.calls.cuEventRecord = patient_record::record;
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    card_.calls.cuMemFreeHost = [](void *at) {
        std::free(at);
        ended = true; // nearly
        return CUDA_SUCCESS;
    };
    CUcontext context = nullptr;
    card_.calls.cuCtxGetCurrent(&context);
    const auto launch_brief = [&](std::size_t which) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = which + 1;
                out.trusted = out.open_ended = true;
                out.add(units_[which]);
            },
            [] { return CUDA_SUCCESS; });
    };
    patient_record::is = patient_record::idle;
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120),
        [] { return patient_record::is != patient_record::idle; },
        [&] {
            for (std::size_t i = 0; i < 64; i++)
                launch_brief(i % units_.size());
            ended = false;
            patient_record::is = patient_record::armed;
            const auto is_recording = [] {
                while (patient_record::is == patient_record::armed)
                    usleep(10);
                return patient_record::is == patient_record::recording;
            };
            const caller ends([&] {
                if (is_recording())
                    moves_->stop(context);
            });
            const caller asks([&] {
                if (!is_recording())
                    return;
                while (!ended &&
                       patient_record::is == patient_record::recording)
                    usleep(10);
                for (int i = 0; i < 500; i++) {
                    moves_->stretch_at(units_[0]);
                    usleep(200);
                }
                auto not_in_vain = patient_record::recording;
                patient_record::is.compare_exchange_strong(
                    not_in_vain, patient_record::launched);
            });
            moves_->stream_waits();
            auto nothing_was = patient_record::armed;
            patient_record::is.compare_exchange_strong(nothing_was,
                                                       patient_record::idle);
        }));
    EXPECT_EQ(patient_record::is, patient_record::launched);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

namespace {

// A card that reports a fault while kernels are in flight.
struct faulting_card
{
    static inline std::atomic<CUresult> state{CUDA_SUCCESS};
    static inline std::mutex lock;
    static inline std::vector<std::string> named;

    static CUresult query(CUevent) { return state.load(); }
    static void faulted(const std::vector<const char *> &kernels)
    {
        const std::lock_guard guard(lock);
        named.assign(kernels.begin(), kernels.end());
    }

    // @param launch  launches a kernel by its name; null: work without one
    template <typename Launch>
    static void fault(Launch launch)
    {
        state = CUDA_ERROR_NOT_READY;
        for (const char *const name : {"one", "one", "other"})
            launch(name);
        launch(nullptr);
        state = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
};

} // namespace

TEST_F(Mover, TrustedKernelsThatWereInFlightAreNamedAfterAFault)
{
    faulting_card::named.clear();
    card_.calls.cuEventQuery = faulting_card::query;
    faulted_ = faulting_card::faulted;
    expected_end_ = "the device reports an error";
    unmaps_ = true;
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    EXPECT_TRUE(run_until(0, [this] {
        const std::lock_guard guard(card_.lock);
        return std::count_if(units_.begin(), units_.end(),
                             [this](CUdeviceptr each) {
                                 return !card_.mapped.contains(each);
                             }) >= 2;
    }));
    faulting_card::fault([this](const char *name) { launch_kernel(name); });
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120),
        [] {
            const std::lock_guard guard(faulting_card::lock);
            return !faulting_card::named.empty();
        },
        [] { usleep(1000); }));
    moves_->stop(nullptr);
    EXPECT_EQ(faulting_card::named, (std::vector<std::string>{"one", "other"}));
    faulting_card::state = CUDA_SUCCESS;
    ASSERT_NO_FATAL_FAILURE(free_all());
    expected_end_.clear();
    faulted_ = nullptr;
}

TEST_F(Mover, NoKernelIsNamedAfterAFaultWithAllMemoryInReach)
{
    faulting_card::named.clear();
    card_.calls.cuEventQuery = faulting_card::query;
    faulted_ = faulting_card::faulted;
    expected_end_ = "the device reports an error";
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    faulting_card::fault([this](const char *name) { launch_kernel(name); });
    moves_->stop(nullptr);
    EXPECT_TRUE(faulting_card::named.empty());
    faulting_card::state = CUDA_SUCCESS;
    ASSERT_NO_FATAL_FAILURE(free_all());
    expected_end_.clear();
    faulted_ = nullptr;
}

namespace {

// Untrusted work that is given nothing.
template <typename Call>
void launch_untrusted(mover &by, Call real)
{
    by.run(
        words_in_streams::program(),
        [](work &out) {
            out.what = 88;
            out.kernel = "unknown";
            out.trusted = false;
        },
        [&] {
            real();
            return CUDA_SUCCESS;
        });
}

// A driver that makes nothing and copies nothing while a call of the program's
// waits for the device.
struct busy_driver
{
    static inline std::atomic<bool> waits{false};

    static void pass()
    {
        while (waits.load())
            usleep(100);
    }
    static CUresult create(CUevent *event, unsigned)
    {
        pass();
        static std::atomic<std::uintptr_t> next{1};
        *event = reinterpret_cast<CUevent>(next.fetch_add(1));
        return CUDA_SUCCESS;
    }
    static CUresult copy(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)
    {
        pass();
        return CUDA_SUCCESS;
    }
    static CUresult digest(CUfunction, unsigned, unsigned, unsigned, unsigned,
                           unsigned, unsigned, unsigned, CUstream, void **,
                           void **)
    {
        pass();
        return CUDA_SUCCESS;
    }
};

} // namespace

TEST_F(Mover, UntrustedWorkIsHandedOverAtOnceAndLetGoOnceAllIsMapped)
{
    stalled_unmap::is_stalled = stalled_unmap::let_go = false;
    stalled_unmap::wanted = 0;
    stalled_unmap::unmap_ = card_.calls.cuMemUnmap;
    card_.calls.cuMemUnmap = stalled_unmap::unmap;
    has_barriers_ = true;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    // Untrusted work waits on the device once rounds are known.
    for (std::size_t i = 0; i < 64 * units_.size(); i++)
        use(i % units_.size(), i % units_.size() + 1);
    stalled_unmap::wanted = units_[9];
    std::atomic<bool> handed_over{false};
    {
        // This thread may come to wait for that unit, too.
        const caller using_all([&] {
            for (std::size_t i = 0; !stalled_unmap::is_stalled; i++)
                use(i % units_.size(), i % units_.size() + 1);
        });
        while (!stalled_unmap::is_stalled)
            usleep(100);
        const caller launching(
            [&] { launch_untrusted(*moves_, [&] { handed_over = true; }); });
        EXPECT_TRUE(wait_until(
            std::chrono::seconds(120), [&] { return handed_over.load(); },
            [] { usleep(100); }));
        usleep(20000);
        EXPECT_EQ(words_in_streams::waiting(), 1U);
        stalled_unmap::let_go = true;
    }
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120),
        [] { return words_in_streams::waiting() == 0; }, [] { usleep(100); }));
    EXPECT_EQ(words_in_streams::asked(), 1U);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, UntrustedWorkIsLetGoWhileTheDriverWaitsForIt)
{
    busy_driver::waits = false;
    card_.calls.cuEventCreate = busy_driver::create;
    card_.calls.cuMemcpyAsync = busy_driver::copy;
    card_.calls.cuLaunchKernel = busy_driver::digest;
    has_barriers_ = true;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    for (int i = 0; i < 12; i++)
        round(0);
    for (int each = 1; each <= 40; each++) {
        {
            // Threads that come to need an event which is not there.
            std::vector<std::unique_ptr<caller>> others;
            launch_untrusted(*moves_, [&] {
                busy_driver::waits = true;
                for (int i = 0; i < 4; i++)
                    others.push_back(std::make_unique<caller>(
                        [this, each] { round(each % 2); }));
            });
            EXPECT_TRUE(wait_until(
                std::chrono::seconds(120),
                [] { return words_in_streams::waiting() == 0; },
                [] { usleep(100); }));
            busy_driver::waits = false;
        }
        round(0);
    }
    EXPECT_GT(words_in_streams::asked(), 0U) << "nothing had to be let go";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, UntrustedWorkThatTheDeviceHasNotComeToStopsNothing)
{
    has_barriers_ = true;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    {
        const std::lock_guard guard(words_in_streams::lock);
        words_in_streams::comes_there = false;
    }
    EXPECT_TRUE(run_until(0, [&] {
        launch_untrusted(*moves_, [] {});
        return words_in_streams::waiting() > 0;
    }));
    // It is in flight, and units come and go.
    const auto handle = [this](std::size_t which) {
        const std::lock_guard guard(card_.lock);
        const auto at = card_.mapped.find(units_[which]);
        return at != card_.mapped.end() ? at->second : 0;
    };
    for (int times = 0; times < 3; times++) {
        const auto before = handle(9);
        EXPECT_TRUE(run_until(
            0, [&] { return handle(9) != before && handle(9) != 0; }));
    }
    EXPECT_GT(words_in_streams::waiting(), 0U);
    // Nothing keeps the device waiting for good, not even if movement begins
    // anew before it comes there.
    CUcontext context = nullptr;
    card_.calls.cuCtxGetCurrent(&context);
    moves_->stop(context);
    EXPECT_EQ(words_in_streams::waiting(), 0U);
    moves_->resume(context);
    EXPECT_TRUE(moves_->active());
    const std::size_t before = words_in_streams::asked();
    EXPECT_TRUE(run_until(0, [&] {
        launch_untrusted(*moves_, [] {});
        return words_in_streams::asked() > before;
    }));
    moves_->stop(nullptr);
    EXPECT_EQ(words_in_streams::waiting(), 0U);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// A driver that counts who reads the memory behind one handle, by copies and
// digests, until it is another unit's.
struct watched_memory
{
    static inline FakeDriver *card;
    static inline std::atomic<CUmemGenericAllocationHandle> handle;
    static inline std::atomic<unsigned> reads;

    static void install(FakeDriver &on)
    {
        card = &on;
        handle = 0;
        reads = 0;
        on.calls.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from,
                                    std::size_t, CUstream) {
            read(from);
            if (is_there(to))
                handle = 0;
            return CUDA_SUCCESS;
        };
        on.calls.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, unsigned, unsigned,
                                     CUstream, void **given, void **) {
            read(*static_cast<CUdeviceptr *>(given[0]));
            return CUDA_SUCCESS;
        };
    }
    static bool is_there(CUdeviceptr at)
    {
        const std::lock_guard guard(card->lock);
        const auto found = card->mapped.find(at);
        return found != card->mapped.end() && found->second == handle;
    }
    static void read(CUdeviceptr at) { reads += is_there(at) ? 1 : 0; }
};

// It may take the address of memory from other memory, where the program has
// freed that since.
TEST_F(Mover, WhatIsFreedWhileUntrustedWorkWaitsIsKept)
{
    has_barriers_ = true;
    unmaps_ = true;
    watched_memory::install(card_);
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    {
        const std::lock_guard guard(words_in_streams::lock);
        words_in_streams::comes_there = false;
    }
    EXPECT_TRUE(run_until(0, [&] {
        launch_untrusted(*moves_, [] {});
        return words_in_streams::waiting() > 0;
    }));
    // It has lain in VRAM for a round: its arrival is over.
    EXPECT_TRUE(run_until(0, [&] {
        launch(9, 10);
        const auto before = watched_memory::handle.load();
        const std::lock_guard guard(card_.lock);
        const auto found = card_.mapped.find(units_[9]);
        if (found == card_.mapped.end() || card_.handles[found->second].host)
            return false;
        watched_memory::handle = found->second;
        return before == found->second;
    }));
    watched_memory::reads = 0;
    moves_->vacate(units_[9]);
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return !is_in_vram(9); },
        [this] {
            for (std::size_t i = 0; i < units_.size(); i++)
                if (i != 9)
                    use(i, i + 1);
        }));
    EXPECT_GT(watched_memory::reads, 0U);
    EXPECT_GT(words_in_streams::waiting(), 0U);
    moves_->stop(nullptr);
    EXPECT_EQ(words_in_streams::waiting(), 0U);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, WithoutBarriersTheProgramWaitsUntilTheDeviceIsAtUntrustedWork)
{
    static std::atomic<bool> busy;
    static std::mutex lock;
    static std::map<CUevent, CUstream> streams;
    busy = false;
    streams.clear();
    card_.calls.cuEventCreate = slow_card::create;
    card_.calls.cuEventRecord = [](CUevent event, CUstream stream) {
        const std::lock_guard guard(lock);
        streams[event] = stream;
        return CUDA_SUCCESS;
    };
    card_.calls.cuEventQuery = [](CUevent event) {
        const std::lock_guard guard(lock);
        return busy && streams[event] == words_in_streams::program()
                   ? CUDA_ERROR_NOT_READY
                   : CUDA_SUCCESS;
    };
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    std::atomic<bool> handed_over{false};
    // Until memory moves ahead of its use, it is handed over at once.
    EXPECT_TRUE(run_until(0, [&] {
        busy = true;
        moves_->run(
            words_in_streams::program(),
            [](work &out) {
                out.what = 87;
                out.trusted = true;
            },
            [] { return CUDA_SUCCESS; });
        handed_over = false;
        const caller launching(
            [&] { launch_untrusted(*moves_, [&] { handed_over = true; }); });
        launching.await_sleep();
        const bool waits = !handed_over.load();
        busy = false;
        return waits;
    }));
    EXPECT_TRUE(handed_over);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, GoesOnInAContextOnceNobodyIsAboutToEndItAnyMore)
{
    start(8 * unit_bytes);
    CUcontext context = nullptr;
    card_.calls.cuCtxGetCurrent(&context);
    ASSERT_TRUE(moves_->active());
    moves_->stop(context);
    moves_->stop(context); // by another thread
    EXPECT_FALSE(moves_->active());
    moves_->resume(context);
    EXPECT_FALSE(moves_->active()) << "the other may yet end it";
    moves_->resume(context);
    EXPECT_TRUE(moves_->active());
    moves_->stop(context);
    moves_->gone(context);
    moves_->resume(context); // by a thread that saw it before
    EXPECT_FALSE(moves_->active());
    free_all();
}

TEST_F(Mover, WhatStaysIsKnownToLieWhereItCameTo)
{
    sizes_ = {3 * unit_bytes};
    units_.resize(4);
    card_share_ = 8 * unit_bytes;
    start(16 * unit_bytes);
    const auto made = units_;
    // The place of each unit, by the handle that is mapped there.
    const auto is_there = [&](CUdeviceptr at) {
        const std::lock_guard guard(card_.lock);
        return card_.handles[card_.mapped.at(at)].host;
    };
    const CUdeviceptr last = made.back();
    ASSERT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return !is_there(last + unit_bytes); },
        [&] { round(0); }))
        << "the last one lay in system RAM, and comes to VRAM";
    for (const CUdeviceptr block : made)
        moves_->fix(block);
    bool seam = false;
    for (const CUdeviceptr block : made)
        for (std::uint64_t i = 0; i < 3; i++) {
            const CUdeviceptr at = block + i * unit_bytes;
            const auto there = moves_->stretch_at(at);
            ASSERT_TRUE(there);
            EXPECT_EQ(there->in_ram, is_there(at));
            EXPECT_EQ(there->left, (3 - i) * unit_bytes);
            const bool ends =
                i < 2 && is_there(at) != is_there(at + unit_bytes);
            EXPECT_EQ(i < 2 && there->bytes == unit_bytes, ends);
            seam = seam || ends;
        }
    EXPECT_TRUE(seam) << "nothing to tell";
    free_all();
}

// Four units have room in system RAM, and one more room may be made. A unit
// that comes to VRAM leaves its room to one that nobody uses.
TEST_F(Mover, RoomInSystemRamChangesHands)
{
    ASSERT_NO_FATAL_FAILURE(start(5 * unit_bytes));
    EXPECT_TRUE(run_until(6, [&] { return in_vram(6) == 6; })) << in_vram(6);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// A unit that is freed takes with it the room it has by then, no matter whose
// that was.
TEST_F(Mover, RoomThatChangedHandsIsChargedUntilItsNewUnitIsFreed)
{
    ASSERT_NO_FATAL_FAILURE(start(5 * unit_bytes));
    ASSERT_TRUE(run_until(6, [&] { return in_vram(6) == 6; })) << in_vram(6);
    for (std::size_t i = 6; i < units_.size(); i++)
        EXPECT_EQ(maker_->free(units_[i]), CUDA_SUCCESS);
    moves_->stop(nullptr); // no more is made now
    const std::uint64_t left = limits_->read().virtual_used_bytes;
    EXPECT_GE(left, 4 * unit_bytes);
    {
        const std::lock_guard guard(card_.lock);
        EXPECT_EQ(left, card_.host_used);
    }
    units_.resize(6);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// VRAM and system RAM that movement holds for the next unit go to whoever
// allocates, so nobody is told that they are in use.
TEST_F(Mover, WhatItKeepsForTheNextUnitCountsAsFree)
{
    card_.calls.cuCtxGetDevice = [](CUdevice *device) {
        *device = 0;
        return CUDA_SUCCESS;
    };
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    // Until some are in VRAM that have room in system RAM all the same.
    EXPECT_TRUE(run_until(0, [&] {
        const usage now = limits_->read();
        return now.physical_used_bytes + now.virtual_used_bytes >
               (units_.size() + 1) * unit_bytes;
    }));
    moves_->stop(nullptr); // so that nothing comes or goes meanwhile
    const auto free_bytes = [this] {
        std::size_t free = SIZE_MAX;
        std::size_t total = 0;
        shares_->show_info(0, moves_->spare_bytes(), free, total);
        return free;
    };
    EXPECT_EQ(free_bytes(), (8 + 12 - units_.size()) * unit_bytes);
    for (const CUdeviceptr each : units_)
        EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(), (8 + 12) * unit_bytes);
}

// Likewise while it goes on: each frame is a unit's, or free.
TEST_F(Mover, AllIsFreeOnceAllIsFreedAlthoughItGoesOn)
{
    for (int i = 0; i < 20; i++) {
        SCOPED_TRACE(i);
        if (i == 0)
            ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
        else
            for (CUdeviceptr &each : units_)
                ASSERT_EQ(maker_->allocate(&each, unit_bytes), CUDA_SUCCESS);
        for (int each = 0; each < 10; each++)
            round(0);
        for (const CUdeviceptr each : units_)
            EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
        std::size_t free = SIZE_MAX;
        std::size_t total = 0;
        shares_->show_info(0, moves_->spare_bytes(), free, total);
        EXPECT_EQ(free, (8 + 12) * unit_bytes);
    }
}

TEST_F(Mover, RoomThatWasRefusedIsAskedForAgain)
{
    card_.host_bytes = 4 * unit_bytes;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    const auto set_host = [&](std::uint64_t bytes) {
        const std::lock_guard guard(card_.lock);
        card_.host_bytes = bytes;
    };
    const auto refused = [&] {
        const std::lock_guard guard(card_.lock);
        return card_.host_refused;
    };
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(run_until(6, [&] { return refused() > 0; }));
    for (int i = 0; i < 100; i++)
        round(6);
    EXPECT_EQ(in_vram(6), 2U) << "nothing can leave";
    const unsigned so_often = refused(); // it may be once more from here on
    EXPECT_LE(so_often, (std::chrono::steady_clock::now() - start) /
                                std::chrono::seconds(1) +
                            1)
        << "once a second";
    set_host(5 * unit_bytes);
    EXPECT_TRUE(run_until(6, [&] { return in_vram(6) == 6; })) << in_vram(6);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// No order comes again, so that nothing is predicted. Four of twelve units do
// not fit: standing still, every third launch would miss its own.
class Unforeseen : public Mover
{
protected:
    // @param is_pointer  whether launches tell so
    // @return true once a hundred launches in a row found theirs in VRAM
    bool find_theirs(std::uint64_t offset, bool is_pointer)
    {
        std::mt19937 any(1);
        std::uint64_t what = 1000;
        unsigned found = 0; // in a row
        return wait_until(
            std::chrono::seconds(120), [&] { return found >= 100; },
            [&] {
                const std::size_t which = any() % units_.size();
                moves_->run(
                    reinterpret_cast<CUstream>(0x20),
                    [&](work &out) {
                        out.what = what++;
                        out.trusted = true;
                        out.add(units_[which] + offset, is_pointer);
                    },
                    [&] {
                        found = is_in_vram(which) ? found + 1 : 0;
                        return CUDA_SUCCESS;
                    });
                usleep(500);
            });
    }
};

TEST_F(Unforeseen, LaunchesFindWhatTheyNameInVram)
{
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    EXPECT_TRUE(find_theirs(0, false));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// Views of tensors begin anywhere.
TEST_F(Unforeseen, LaunchesFindWhatTheirPointersNameWhereverThoseBegin)
{
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    EXPECT_TRUE(find_theirs(4, true));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// A thirteenth unit, which is new: nobody has written to it.
class NewUnit : public Unforeseen
{
protected:
    void SetUp() override
    {
        fetched_ = 0;
        mapped_to_ = &card_;
        card_.calls.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr from,
                                       std::size_t, CUstream) {
            const std::lock_guard guard(mapped_to_->lock);
            const auto at = mapped_to_->mapped.find(from);
            if (at != mapped_to_->mapped.end() &&
                mapped_to_->handles[at->second].host)
                fetched_++;
            return CUDA_SUCCESS;
        };
        unmaps_ = true;
    }

    // Makes it once launches fetch what they name.
    void make()
    {
        ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
        EXPECT_TRUE(find_theirs(0, false));
        units_.push_back(0);
        ASSERT_TRUE(wait_until(
            std::chrono::seconds(120), [&] { return moves_->takes_hidden(); },
            [] { usleep(100); }));
        ASSERT_EQ(maker_->allocate(&units_.back(), unit_bytes), CUDA_SUCCESS);
    }
    bool is_mapped()
    {
        const std::lock_guard guard(card_.lock);
        return card_.mapped.count(units_.back()) > 0;
    }
    // Launches work that uses it, until it finds it in VRAM.
    // @return units that were copied there meanwhile
    unsigned fetched_for_launches()
    {
        const unsigned before = fetched_;
        EXPECT_TRUE(wait_until(
            std::chrono::seconds(120),
            [&] { return is_in_vram(units_.size() - 1); },
            [&] { use(units_.size() - 1, 1); }));
        return fetched_ - before;
    }

    static inline std::atomic<unsigned> fetched_{0};
    static inline FakeDriver *mapped_to_ = nullptr;
};

TEST_F(NewUnit, IsMappedNowhereAndComesToVramWithoutACopy)
{
    ASSERT_NO_FATAL_FAILURE(make());
    EXPECT_FALSE(is_mapped());
    EXPECT_EQ(fetched_for_launches(), 0U);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(NewUnit, IsMappedForUntrustedWorkAndThenCopied)
{
    has_barriers_ = true;
    ASSERT_NO_FATAL_FAILURE(make());
    launch_untrusted(*moves_, [] {});
    // It may wait for that on the device.
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120),
        [] { return words_in_streams::waiting() == 0; }, [] { usleep(100); }));
    EXPECT_TRUE(is_mapped());
    EXPECT_EQ(fetched_for_launches(), 1U) << "that work may have written to it";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(NewUnit, LeavesNothingWhenItIsFreedUnused)
{
    ASSERT_NO_FATAL_FAILURE(make());
    EXPECT_EQ(maker_->free(units_.back()), CUDA_SUCCESS);
    units_.pop_back();
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// While its memory is made, which takes long.
TEST_F(NewUnit, IsMappedWhereUntrustedWorkHasComeMeanwhile)
{
    has_barriers_ = true;
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    EXPECT_TRUE(find_theirs(0, false));
    static std::atomic<bool> launched;
    static mover *launching;
    static decltype(driver::cuMemCreate) create;
    launched = false;
    launching = moves_.get();
    create = card_.calls.cuMemCreate;
    card_.calls.cuMemCreate =
        [](CUmemGenericAllocationHandle *made, std::size_t bytes,
           const CUmemAllocationProp *of, unsigned long long flags) {
            if (!launched.exchange(true)) {
                mapped_to_->events_done = false; // it is in flight from here on
                launch_untrusted(*launching, [] {});
            }
            return create(made, bytes, of, flags);
        };
    ASSERT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return moves_->takes_hidden(); },
        [] { usleep(100); }));
    units_.push_back(0);
    ASSERT_EQ(maker_->allocate(&units_.back(), unit_bytes), CUDA_SUCCESS);
    EXPECT_TRUE(launched);
    EXPECT_TRUE(is_mapped());
    card_.events_done = true;
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(NewUnit, AnyAddressInATableMayBeOneOfIt)
{
    ASSERT_NO_FATAL_FAILURE(make());
    EXPECT_TRUE(moves_->any_is_address({units_.back() + unit_bytes / 2}));
    fetched_for_launches();
    EXPECT_FALSE(moves_->any_is_address({units_.back() + unit_bytes / 2}))
        << "work was given its begin";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// Work on such memory may run as a whole: see unrolled_graphs.
TEST_F(Mover, IsAtRestWithWhatLiesInVramOnceNothingHasMovedForAWhile)
{
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    const auto at_rest = [this](bool with_those_in_ram) {
        std::vector<CUdeviceptr> those;
        for (std::size_t i = 0; i < units_.size(); i++)
            if (is_in_vram(i) != with_those_in_ram)
                those.push_back(units_[i]);
        return !those.empty() && moves_->is_at_rest(those);
    };
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return at_rest(false); },
        [] { usleep(1000); }))
        << "nobody launches";
    EXPECT_FALSE(at_rest(true));
    // Once it moves again, it is not.
    bool moved = false;
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return moved; },
        [&] {
            round(0);
            moved = !at_rest(false);
        }));
    expected_end_ = "a test";
    moves_->fix_all(expected_end_.c_str());
    EXPECT_TRUE(moves_->is_at_rest(units_)) << "nothing moves any more";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// A program that turns round uses its last unit soon again: the unit stays for
// that use, and then leaves. The next unit takes its frame, however early.
TEST_F(Mover, RoomThatComesFreeAsPlannedIsFilledAtOnce)
{
    ASSERT_NO_FATAL_FAILURE(start(12 * unit_bytes));
    for (int i = 0; i < 40; i++)
        forth_and_back_to(0);
    forth_and_back_to(8);
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return in_vram(0) == 8; },
        [] { usleep(1000); }))
        << in_vram(0);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// Blocks of a model's layers, on a card that holds three quarters of them.
TEST_F(Mover, BlocksOfManySizesMoveWithoutAnythingBeingMadeAnew)
{
    sizes_ = {112 * MiB, 32 * MiB, 66 * MiB, 20 * MiB, 96 * MiB, 40 * MiB};
    units_.resize(30);
    card_share_ = 1400 * MiB;
    static std::atomic<unsigned> copies;
    card_.calls.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, std::size_t,
                                   CUstream) {
        copies++;
        return CUDA_SUCCESS;
    };
    ASSERT_NO_FATAL_FAILURE(start(3000 * MiB));
    for (int i = 0; i < 20; i++)
        round(0);
    std::uint64_t more = 0;
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(120);
    do {
        const std::uint64_t before = made();
        copies = 0;
        for (int i = 0; i < 10; i++)
            round(0);
        more = made() - before;
    } while ((more > 0 || copies < 10) &&
             std::chrono::steady_clock::now() < end);
    EXPECT_EQ(more, 0U) << "handles in ten rounds";
    EXPECT_GE(copies, 10U) << "in those";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

namespace {

// Units copied between VRAM and system RAM, or read to see whether they have
// changed.
std::atomic<unsigned> units_read{0};

} // namespace

TEST_F(Mover, WhatIsFreedAndAllocatedAgainIsNeverCopied)
{
    card_.calls.cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, std::size_t,
                                   CUstream) {
        units_read++;
        return CUDA_SUCCESS;
    };
    card_.calls.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, unsigned, unsigned,
                                    CUstream, void **, void **) {
        units_read++;
        return CUDA_SUCCESS;
    };
    unmaps_ = true;
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    for (const CUdeviceptr each : units_)
        moves_->vacate(each);
    const auto freed_rounds = [this](int count) {
        for (int each = 0; each < count; each++)
            for (std::size_t i = 0; i < units_.size(); i++) {
                moves_->occupy(units_[i], unit_bytes);
                launch(i, i + 1);
                moves_->vacate(units_[i]);
                usleep(500);
            }
    };
    const auto mapped = [this] {
        const std::lock_guard guard(card_.lock);
        return card_.mapped;
    };
    // At first some are in system RAM, mapped, and the program may write to
    // them there.
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120),
        [&] {
            const unsigned before = units_read;
            const auto there = mapped();
            freed_rounds(5);
            return units_read == before && mapped() != there;
        },
        [] {}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, WhoNeedsRoomWaitsForWhatRanBeforeItBegan)
{
    card_.calls.cuCtxSynchronize = [] {
        static std::atomic<bool> once{true};
        if (once.exchange(false))
            usleep(2500000);
        return CUDA_SUCCESS;
    };
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    EXPECT_TRUE(moves_->make_way(unit_bytes));
    limits_->uncharge_physical(unit_bytes);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, WhoNeedsRoomSleepsWhereTheLedgerWakesIt)
{
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    limits_->waits = true;
    EXPECT_TRUE(moves_->make_way(unit_bytes));
    EXPECT_GE(limits_->slept, 1u);
    limits_->uncharge_physical(unit_bytes);
    limits_->waits = false;
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, WhoSleepsInTheLedgerKeepsItsPlaceUntilThatIsInVain)
{
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    moves_->fix(units_[0]);
    limits_->waits = true;
    EXPECT_FALSE(moves_->make_way(8 * unit_bytes)) << "one unit stays";
    EXPECT_GE(limits_->longest_ns, 10000000000u);
    EXPECT_GE(limits_->called_off, 1u);
    limits_->waits = false;
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Mover, ItsEndWakesWhoSleepsInTheLedger)
{
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    moves_->fix(units_[0]);
    limits_->waits = true;
    auto answer = std::async(std::launch::async,
                             [&] { return moves_->make_way(8 * unit_bytes); });
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return limits_->slept > 0; },
        [] { usleep(1000); }));
    moves_->stop(nullptr);
    EXPECT_FALSE(answer.get());
    limits_->waits = false;
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// As one that sleeps there and whose signal handler calls exit().
TEST_F(Mover, ItsEndDoesNotNeedWhoSleepsInTheLedger)
{
    ASSERT_NO_FATAL_FAILURE(start(8 * unit_bytes));
    moves_->fix(units_[0]);
    limits_->waits = limits_->sleeps_on = true;
    auto answer = std::async(std::launch::async,
                             [&] { return moves_->make_way(8 * unit_bytes); });
    EXPECT_TRUE(wait_until(
        std::chrono::seconds(120), [&] { return limits_->slept > 0; },
        [] { usleep(1000); }));
    auto end =
        std::async(std::launch::async, [&] { return moves_->stop(nullptr); });
    EXPECT_EQ(end.wait_for(std::chrono::seconds(120)),
              std::future_status::ready);
    limits_->let_go();
    EXPECT_FALSE(answer.get());
    limits_->waits = false;
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WorkSeesWhatItWasGivenAndNothingElse)
{
    launch_what({units_[0] + 4096, units_[9]});
    EXPECT_EQ(mapped_then_, (those{0, 9}));
    launch_what({units_[5]});
    EXPECT_EQ(mapped_then_, (those{5}));
    EXPECT_EQ(found_.so_far().launches, 2u);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WorkThatNobodyVouchesForSeesAll)
{
    launch_what({units_[0]});
    launch_what({units_[0]}, 0, false);
    EXPECT_EQ(mapped_then_, all_);
    launch_what({units_[3]});
    EXPECT_EQ(mapped_then_, (those{3}));
    EXPECT_EQ(found_.so_far().untrusted_launches, 1u);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WorkThatReliesOnAnAddressInNoBlockSeesAll)
{
    // No sanitizer has memory there, which would be the program's own.
    constexpr CUdeviceptr drivers = CUdeviceptr{0x48} << 40;
    constexpr CUdeviceptr nobodys = CUdeviceptr{0x49} << 40;
    launch_counts counts;
    const auto launch = [&](CUdeviceptr base, bool is_added_to = false) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = 1;
                out.kernel = "kernel";
                out.trusted = out.proven = true;
                out.counts = &counts;
                out.add(units_[0]);
                out.rely_on(base, is_added_to);
            },
            [this] {
                mapped_then_ = mapped();
                return CUDA_SUCCESS;
            });
    };
    launch(units_[2] + 64);
    EXPECT_EQ(mapped_then_, (those{0}));
    EXPECT_EQ(counts.proven.load(), 1u);
    launch(drivers);
    EXPECT_EQ(mapped_then_, all_);
    EXPECT_EQ(counts.untrusted.load(), 1u);
    // The end of the last block: that block is named.
    launch(units_.back() + unit_bytes);
    EXPECT_EQ(counts.proven.load(), 2u);
    card_.calls.cuPointerGetAttribute = [](void *out, CUpointer_attribute,
                                           CUdeviceptr at) {
        *static_cast<unsigned *>(out) = CU_MEMORYTYPE_HOST;
        return at == drivers ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    launch(drivers);
    EXPECT_EQ(mapped_then_, (those{0})) << "the driver's own memory";
    EXPECT_EQ(counts.proven.load(), 3u);
    launch(nobodys);
    EXPECT_EQ(counts.untrusted.load(), 2u);
    launch(reinterpret_cast<CUdeviceptr>(&counts));
    EXPECT_EQ(mapped_then_, (those{0})) << "the program's own memory";
    EXPECT_EQ(counts.proven.load(), 4u);
    launch(reinterpret_cast<CUdeviceptr>(&counts), true);
    EXPECT_EQ(mapped_then_, all_) << "with a loaded number it may be anything";
    EXPECT_EQ(counts.untrusted.load(), 3u);
    launch(units_[2], true);
    EXPECT_EQ(counts.proven.load(), 5u);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, NamesHelpWhereNoLoadedNumberIsAddedToAnUnknownAddress)
{
    constexpr CUdeviceptr nobodys = CUdeviceptr{0x49} << 40;
    launch_counts counts;
    const auto launch = [&](std::initializer_list<work::base> bases) {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = 1;
                out.kernel = "kernel";
                out.trusted = out.proven = out.by_name = true;
                out.counts = &counts;
                out.add(units_[0]);
                for (const work::base &each : bases)
                    out.rely_on(each.address, each.is_added_to);
            },
            [this] {
                mapped_then_ = mapped();
                return CUDA_SUCCESS;
            });
    };
    launch({{units_[0], true}, {nobodys, false}});
    EXPECT_EQ(mapped_then_, (those{0}));
    EXPECT_EQ(counts.named.load(), 1u);
    launch({{nobodys, false}, {nobodys, true}});
    EXPECT_EQ(mapped_then_, all_);
    EXPECT_EQ(counts.untrusted.load(), 1u);
    launch({{units_[0] + 64, false}});
    EXPECT_EQ(counts.proven.load(), 1u);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WhatIsToStayIsSeenByAll)
{
    launch_what({units_[0]});
    moves_->fix(units_[10]);
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 10}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WhatAKernelLeavesInMemoryStays)
{
    launch_what({units_[7], units_[2]}, 1);
    EXPECT_EQ(mapped_then_, (those{2, 7}));
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 7}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WhatATableInPinnedMemoryNamesStays)
{
    const std::vector<CUdeviceptr> table{12345, units_[4], units_[11] + 64};
    const auto at = reinterpret_cast<CUdeviceptr>(table.data());
    launch_what({at});
    EXPECT_EQ(mapped_then_, those{});
    pinned_.add(table.data(), table.size() * sizeof table[0]);
    // A number that no work was given may be any number.
    launch_what({at});
    EXPECT_EQ(mapped_then_, (those{4}));
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 4}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// Such a kernel takes no address from memory.
TEST_F(Checked, ProvenKernelSeesNothingThatTablesName)
{
    launch_what({units_[0]}); // from here on the rest is hidden
    moves_->note_table({units_[4]});
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 4}));
    launch_proven({units_[1]});
    EXPECT_EQ(mapped_then_, those{1});
    const std::vector<CUdeviceptr> table{units_[7]};
    const auto at = reinterpret_cast<CUdeviceptr>(table.data());
    pinned_.add(table.data(), sizeof table[0], true);
    launch_proven({at, units_[1]});
    EXPECT_EQ(mapped_then_, those{1}) << "nor what managed memory may name";
    EXPECT_EQ(found_.so_far().untrusted_launches, 0u);
    launch_what({units_[2]});
    EXPECT_EQ(mapped_then_, (those{2, 4}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, ProvenKernelReachesNothingByWhatIsNoPointer)
{
    launch_what({units_[0]}); // from here on the rest is hidden
    launch_proven({units_[1]}, {units_[4]});
    EXPECT_EQ(mapped_then_, those{1});
    launch_proven({units_[1]}, {units_[4]}, false);
    EXPECT_EQ(mapped_then_, (those{1, 4})) << "the proof does not hold";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WhatALongTableNamesStaysAsFarAsItGoesOn)
{
    constexpr std::size_t window = table_window_bytes / sizeof(CUdeviceptr);
    std::vector<CUdeviceptr> table(5 * window);
    table[0] = units_[4];
    table[window + 1] = units_[5];
    table[3 * window - 1] = units_[6];
    const auto at = reinterpret_cast<CUdeviceptr>(table.data());
    pinned_.add(table.data(), table.size() * sizeof table[0]);
    launch_what({at});
    EXPECT_EQ(mapped_then_, (those{4, 5, 6}));
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 4, 5, 6}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, NobodyVouchesForWorkWithATableThatHasNoEnd)
{
    const std::vector<CUdeviceptr> table(
        max_table_bytes / sizeof(CUdeviceptr) + 1, units_[4]);
    pinned_.add(table.data(), table.size() * sizeof table[0]);
    launch_what({reinterpret_cast<CUdeviceptr>(table.data())});
    EXPECT_EQ(mapped_then_, all_);
    EXPECT_EQ(found_.so_far().untrusted_launches, 1u);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, NobodyVouchesForWorkThatIsGivenManagedMemory)
{
    const std::vector<CUdeviceptr> table{units_[4]};
    pinned_.add(table.data(), sizeof table[0], true);
    launch_what({reinterpret_cast<CUdeviceptr>(table.data())});
    EXPECT_EQ(mapped_then_, all_);
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, those{1});
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WhereTablesMayNotBeReadMovementEndsBeforeWorkThatIsGivenOne)
{
    const std::vector<CUdeviceptr> table{units_[4]};
    pinned_.add(table.data(), sizeof table[0]);
    launch_what({units_[1]});
    expected_end_ = mover::unreadable_why;
    if (!with_reading_denied([&] {
            launch_what({reinterpret_cast<CUdeviceptr>(table.data())});
        }))
        GTEST_SKIP() << "no filters of system calls";
    EXPECT_EQ(mapped_then_, all_);
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, all_) << "for good";
    ASSERT_NO_FATAL_FAILURE(free_all());
}

// Five thousand places in an allocation, the odd ones among them, as a caching
// allocator hands them out.
TEST_F(Checked, WhatATableNamesStaysHoweverManyAddressesWorkWasGiven)
{
    launch_what({units_[4] + 4096 + 8});
    launch_what({units_[5] + 512});
    std::vector<CUdeviceptr> given;
    for (std::uint64_t i = 1; i <= 5000; i++) {
        given.push_back(units_[5] + i * 1024);
        if (given.size() == work::max_addresses) {
            launch_what(given);
            given.clear();
        }
    }
    launch_what(given);
    const std::vector<CUdeviceptr> table{units_[4] + 4096 + 8, units_[5] + 512};
    moves_->note_table(table);
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 4, 5}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WorkSeesWhatEndsAtAnAddressItWasGiven)
{
    launch_what({units_[6] + unit_bytes, units_[2]});
    EXPECT_EQ(mapped_then_, (those{2, 6}));
    const std::vector<CUdeviceptr> table{units_[6] + unit_bytes};
    moves_->note_table(table);
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 6}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(CheckedSmall, WhatATableNamesOfASmallAllocationStays)
{
    launch_what({units_[3] + 512});
    moves_->note_table({units_[3] + 512});
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1, 3}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, AQuestionToTheDriverFindsItsMemory)
{
    launch_what({units_[0]});
    moves_->while_mapped(units_[8], [this] {
        mapped_then_ = mapped();
        return CUDA_SUCCESS;
    });
    EXPECT_EQ(mapped_then_, (those{0, 8}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, AllIsMappedOnceItEnds)
{
    launch_what({units_[0]});
    moves_->stop(nullptr);
    EXPECT_EQ(mapped(), all_);
    launch_what({units_[5]});
    EXPECT_EQ(mapped_then_, all_);
    ASSERT_NO_FATAL_FAILURE(free_all());
}

TEST_F(Checked, WhatMakesWayForWhatCannotSpillIsReadWhereItIs)
{
    launch_what({units_[0]});
    EXPECT_TRUE(moves_->make_way(unit_bytes));
    limits_->uncharge_physical(unit_bytes);
    launch_what({units_[1]});
    EXPECT_EQ(mapped_then_, (those{1}));
    ASSERT_NO_FATAL_FAILURE(free_all());
}
