// SPDX-License-Identifier: GPL-2.0-or-later
// Writes by work that was given no address there, at every instant of a unit's
// way: each is kept, or it is a fault. The card is one of tables, of which each
// cell of memory holds a number.
#include "fake_driver.hpp"
#include "idle_driver.hpp"
#include "movement/block_maker.hpp"
#include "movement/mover.hpp"
#include "store/placement.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;
constexpr std::uint64_t unit_bytes = max_moving_bytes;
constexpr std::uint64_t cell_bytes = lanes::turn_bytes;
constexpr std::size_t cells = unit_bytes / cell_bytes;

// The driver's card. Around each of its calls others write to the program's
// units.
class card
{
public:
    using content = std::array<unsigned, cells>;

    card() { the = this; }
    ~card() { the = nullptr; }
    card(const card &) = delete;
    card &operator=(const card &) = delete;

    void start()
    {
        succeed_otherwise(tables.calls);
        const driver idle = idle_driver();
        tables.calls.cuMemHostAlloc = idle.cuMemHostAlloc;
        tables.calls.cuMemFreeHost = idle.cuMemFreeHost;
        own_ = tables.calls;
        tables.calls.cuMemMap =
            [](CUdeviceptr at, std::size_t bytes, std::size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags) {
                return the->between([&] {
                    const auto was = the->was_mapped_.find(at);
                    the->called_off +=
                        was != the->was_mapped_.end() && was->second == handle;
                    return the->own_.cuMemMap(at, bytes, offset, handle, flags);
                });
            };
        tables.calls.cuMemUnmap = [](CUdeviceptr at, std::size_t bytes) {
            return the->between([&] {
                the->writable_.erase(at);
                the->note_mapping(at);
                return the->own_.cuMemUnmap(at, bytes);
            });
        };
        tables.calls.cuMemSetAccess = [](CUdeviceptr at, std::size_t bytes,
                                         const CUmemAccessDesc *access,
                                         std::size_t count) {
            return the->between(
                [&] { return the->set_access(at, bytes, access, count); });
        };
        tables.calls.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from,
                                        std::size_t bytes, CUstream) {
            const CUresult result =
                the->between([&] { return the->copy(to, from, bytes); });
            the->stall_where_asked(from);
            return result;
        };
        tables.calls.cuLaunchKernel =
            [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
               unsigned, unsigned, CUstream, void **given, void **) {
                const CUresult result =
                    the->between([&] { return the->digest(given); });
                the->stall_where_asked(*static_cast<CUdeviceptr *>(given[0]));
                return result;
            };
    }

    // From here on others write to a unit, which is empty or holds anything.
    void watch(CUdeviceptr unit, bool is_empty = true)
    {
        const std::lock_guard guard(lock_);
        units_.push_back(unit);
        if (is_empty)
            expected_[unit].fill(0);
        else
            expected_[unit].fill({});
    }
    // From here on they do not.
    void unwatch(CUdeviceptr unit)
    {
        const std::lock_guard guard(lock_);
        std::erase(units_, unit);
    }
    // From here on the contents of a unit do not count.
    void vacate(CUdeviceptr unit)
    {
        const std::lock_guard guard(lock_);
        expected_[unit].fill({});
        vacant_.insert(unit);
    }
    // From here on what is written there counts.
    void occupy(CUdeviceptr unit)
    {
        const std::lock_guard guard(lock_);
        vacant_.erase(unit);
    }

    // The program reads and writes what it named: see write_locked().
    void use(CUdeviceptr unit, unsigned value)
    {
        const std::lock_guard guard(lock_);
        EXPECT_TRUE(write_locked(unit, 0, value)) << "it is not mapped";
    }

    // A write by others, of a number that may be there.
    bool stray_to(CUdeviceptr unit)
    {
        const std::lock_guard guard(lock_);
        return write_locked(unit, random_() % cells, 1);
    }

    // The next call that reads a unit which is out of reach does not return
    // before resume(). The caller has to see to that.
    void stall()
    {
        const std::lock_guard guard(lock_);
        stalls_ = true;
    }
    // The unit that such a call reads, once there is one.
    std::optional<CUdeviceptr> stalled()
    {
        const std::lock_guard guard(lock_);
        return stalled_;
    }
    void resume()
    {
        const std::lock_guard guard(lock_);
        stalls_ = false;
        stalled_.reset();
        goes_on_.notify_all();
    }

    void strays_write(bool do_so)
    {
        const std::lock_guard guard(lock_);
        strays_ = do_so;
    }

    // Units that do not hold what was written to them.
    unsigned lost()
    {
        const std::lock_guard guard(lock_);
        return static_cast<unsigned>(
            std::count_if(units_.begin(), units_.end(), [this](CUdeviceptr at) {
                content *const there = at_address(at, nullptr);
                return there == nullptr || !is_as(*there, expected_[at]);
            }));
    }

    // True once units have moved often enough while others wrote to them.
    bool has_seen_enough()
    {
        const std::lock_guard guard(lock_);
        return kept > 0 && faults > 0 && digests > 100 && copies > 100;
    }

    FakeDriver tables;
    std::atomic<unsigned> kept{0};
    std::atomic<unsigned> faults{0};
    std::atomic<unsigned> to_vacant{0}; // of those that were kept
    std::atomic<unsigned> digests{0};
    std::atomic<unsigned> copies{0};
    std::atomic<unsigned> called_off{
        0}; // units that came back to where they were

private:
    // The number written to each cell; none if it does not count.
    using expectation = std::array<std::optional<unsigned>, cells>;

    static bool is_as(const content &there, const expectation &expected)
    {
        for (std::size_t i = 0; i < cells; i++)
            if (expected[i] && *expected[i] != there[i])
                return false;
        return true;
    }

    template <typename Call>
    CUresult between(Call real)
    {
        const std::lock_guard guard(lock_);
        stray();
        const CUresult result = real();
        stray();
        return result;
    }

    // Twice the same number makes no difference: memory may look as before.
    void stray()
    {
        for (int i = 0; strays_ && i < 3; i++) {
            const CUdeviceptr unit = units_[random_() % units_.size()];
            const bool done = write_locked(unit, random_() % cells, 1);
            (done ? kept : faults)++;
            to_vacant += done && vacant_.contains(unit);
        }
    }

    bool write_locked(CUdeviceptr unit, std::size_t cell, unsigned value)
    {
        content *const there = at_address(unit, nullptr);
        if (there == nullptr || !writable_.contains(unit))
            return false;
        EXPECT_TRUE(is_as(*there, expected_[unit])) << "it is read wrongly";
        (*there)[cell] ^= value;
        if (!vacant_.contains(unit))
            expected_[unit][cell] = (*there)[cell];
        return true;
    }

    // See stall().
    void stall_where_asked(CUdeviceptr reads)
    {
        std::unique_lock lock(lock_);
        const auto memory = memory_at(reads);
        if (!stalls_ || stalled_ || !memory)
            return;
        for (const CUdeviceptr each : units_)
            if (const auto was = was_mapped_.find(each);
                was != was_mapped_.end() && was->second == *memory &&
                !writable_.contains(each))
                stalled_ = each;
        goes_on_.wait(lock, [this] { return !stalled_; });
    }

    // Notes what a unit loses.
    void note_mapping(CUdeviceptr at)
    {
        const std::lock_guard guard(tables.lock);
        const auto is = tables.mapped.find(at);
        if (is == tables.mapped.end() || !expected_.contains(at))
            return;
        // Memory that another unit had before is this one's now.
        std::erase_if(was_mapped_, [&](const auto &each) {
            return each.second == is->second;
        });
        was_mapped_[at] = is->second;
    }

    // The memory that is mapped there, and the cell of it; null if there is
    // none.
    content *at_address(CUdeviceptr at, std::size_t *cell)
    {
        const auto memory = memory_at(at, cell);
        return memory ? &holds_[*memory] : nullptr;
    }
    std::optional<CUmemGenericAllocationHandle>
    memory_at(CUdeviceptr at, std::size_t *cell = nullptr)
    {
        const std::lock_guard guard(tables.lock);
        auto found = tables.mapped.upper_bound(at);
        if (found == tables.mapped.begin())
            return {};
        --found;
        const std::uint64_t offset = at - found->first;
        if (offset >= unit_bytes)
            return {};
        if (cell != nullptr)
            *cell = offset / cell_bytes;
        return found->second;
    }

    CUresult set_access(CUdeviceptr at, std::size_t bytes,
                        const CUmemAccessDesc *access, std::size_t count)
    {
        const bool writes = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        const CUresult result = own_.cuMemSetAccess(at, bytes, access, count);
        if (result == CUDA_SUCCESS && writes)
            writable_.insert(at);
        else
            writable_.erase(at);
        return result;
    }

    CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes)
    {
        copies++;
        std::size_t first = 0;
        std::size_t source_first = 0;
        content *const target = at_address(to, &first);
        content *const source = at_address(from, &source_first);
        EXPECT_TRUE(target != nullptr && source != nullptr);
        for (std::size_t i = 0; i < bytes / cell_bytes; i++) {
            if (target != nullptr && source != nullptr)
                (*target)[first + i] = (*source)[source_first + i];
            if (i == 0 && bytes > cell_bytes)
                stray(); // one part of it has passed
        }
        return CUDA_SUCCESS;
    }

    CUresult digest(void **given)
    {
        digests++;
        content *const there =
            at_address(*static_cast<CUdeviceptr *>(given[0]), nullptr);
        EXPECT_NE(there, nullptr);
        auto *const sum = reinterpret_cast<std::uint64_t *>(
            *static_cast<CUdeviceptr *>(given[3]));
        sum[0] = sum[1] = 0;
        for (std::size_t i = 0; there != nullptr && i < cells; i++) {
            sum[0] = sum[0] * 31 + (*there)[i] + 1;
            sum[1] = sum[1] * 37 + (*there)[i] + 1;
        }
        return CUDA_SUCCESS;
    }

    static inline card *the = nullptr;
    std::mutex lock_;
    driver own_{};
    std::mt19937 random_{7};
    bool strays_ = false;
    bool stalls_ = false;
    std::optional<CUdeviceptr> stalled_;
    std::condition_variable goes_on_;
    std::vector<CUdeviceptr> units_;
    std::map<CUmemGenericAllocationHandle, content> holds_;
    std::set<CUdeviceptr> writable_;
    std::set<CUdeviceptr> vacant_;
    std::map<CUdeviceptr, CUmemGenericAllocationHandle> was_mapped_;
    std::map<CUdeviceptr, expectation> expected_;
};

// Eight units fit on the card, and twelve are there.
class Stray : public ::testing::Test
{
protected:
    // The same, in a test that starts it several times.
    void start_anew(bool unmaps)
    {
        maker_.reset();
        moves_.reset();
        host_.reset();
        shares_.reset();
        limits_.reset();
        rows_ = std::make_unique<ledger_file>();
        card_.reset();
        card_ = std::make_unique<card>();
        start(unmaps);
    }

    void start(bool unmaps)
    {
        card_->start();
        ASSERT_EQ(rows_->open(nullptr), 0);
        limits_ = std::make_unique<file_ledger>(*rows_, 0, 8 * unit_bytes,
                                                12 * unit_bytes);
        shares_ = std::make_unique<budget>(budget::options{
            .calls = card_->tables.calls, .ledgers = {limits_.get()}});
        host_ = std::make_unique<numa_store>(card_->tables.calls);
        moves_ = std::make_unique<mover>(mover::options{
            .calls = card_->tables.calls,
            .shares = *shares_,
            .record = record_,
            .tell = [](const char *why) { ADD_FAILURE() << why; },
            .always = true,
            .unmaps = unmaps});
        maker_ = std::make_unique<block_maker>(
            block_maker::options{.calls = card_->tables.calls,
                                 .host = *host_,
                                 .shares = *shares_,
                                 .moves = *moves_});
        for (CUdeviceptr &each : units_) {
            ASSERT_EQ(maker_->allocate(&each, unit_bytes), CUDA_SUCCESS);
            card_->watch(each);
        }
    }

    void launch(std::size_t which, unsigned writes)
    {
        moves_->run(
            reinterpret_cast<CUstream>(0x20),
            [&](work &out) {
                out.what = which + 1;
                out.trusted = true;
                out.add(units_[which]);
            },
            [&] {
                card_->use(units_[which], writes);
                return CUDA_SUCCESS;
            });
        usleep(500); // for the mover's thread
    }

    // Rounds in which the program writes now and then, and others all the time.
    void run()
    {
        std::mt19937 random(11);
        const auto rounds = [&](int count) {
            for (int each = 0; each < count; each++)
                for (std::size_t i = 0; i < units_.size(); i++)
                    launch(i, random() % 8 == 0 ? 2 : 0);
        };
        rounds(20); // it is known what comes next
        const auto limit =
            std::chrono::steady_clock::now() + std::chrono::seconds(120);
        for (int i = 0; i < 40 || !card_->has_seen_enough(); i++) {
            if (std::chrono::steady_clock::now() > limit)
                break;
            card_->strays_write(true);
            rounds(2);
            // Now and then one after the other, so that digests are the same.
            card_->strays_write(false);
            rounds(1);
        }
        end();
    }

    // Goes on until it has seen enough, and once more.
    template <typename Step, typename Enough>
    void go_on(Step step, Enough enough)
    {
        const auto limit =
            std::chrono::steady_clock::now() + std::chrono::seconds(120);
        for (int i = 0; i < 20; i++)
            round(); // it is known what comes next
        card_->strays_write(true);
        for (int i = 0; i < 20 || !enough(); i++) {
            if (std::chrono::steady_clock::now() > limit)
                break;
            step();
        }
        card_->strays_write(false);
        card_->resume();
        EXPECT_TRUE(enough())
            << card_->kept << " kept, " << card_->faults << " faults, "
            << card_->to_vacant << " to what is vacant, " << card_->digests
            << " digests, " << card_->copies << " copies, " << card_->called_off
            << " called off";
        end();
    }

    void end()
    {
        moves_->stop(nullptr);
        EXPECT_EQ(card_->lost(), 0u);
        EXPECT_GT(card_->kept, 0u);
        EXPECT_GT(card_->faults, 0u);
        EXPECT_GT(card_->digests, 100u) << "nothing moved";
        EXPECT_GT(card_->copies, 100u) << "nothing moved";
        for (const CUdeviceptr each : units_)
            EXPECT_EQ(maker_->free(each), CUDA_SUCCESS);
        EXPECT_TRUE(card_->tables.empty());
    }

    unsigned any(unsigned below)
    {
        return static_cast<unsigned>(random_() % below);
    }

    std::size_t index_of(CUdeviceptr unit) const
    {
        return static_cast<std::size_t>(
            std::find(units_.begin(), units_.end(), unit) - units_.begin());
    }

    // Uses all units in turn.
    void round()
    {
        for (std::size_t i = 0; i < units_.size(); i++)
            launch(i, random_() % 8 == 0 ? 2 : 0);
    }

    std::unique_ptr<card> card_ = std::make_unique<card>();
    trace record_;
    std::unique_ptr<ledger_file> rows_ = std::make_unique<ledger_file>();
    std::unique_ptr<file_ledger> limits_;
    std::unique_ptr<budget> shares_;
    std::unique_ptr<numa_store> host_;
    std::unique_ptr<mover> moves_;
    std::unique_ptr<block_maker> maker_;
    std::vector<CUdeviceptr> units_ = std::vector<CUdeviceptr>(12);
    std::mt19937 random_{11};
};

} // namespace

TEST_F(Stray, WritesAreKeptOrFaultWhereWhatLeftIsMapped)
{
    ASSERT_NO_FATAL_FAILURE(start(false));
    run();
}

TEST_F(Stray, WritesAreKeptOrFaultWhereWhatLeftIsMappedNowhere)
{
    ASSERT_NO_FATAL_FAILURE(start(true));
    run();
}

// The program uses a unit while the unit moves: it is mapped as it was.
TEST_F(Stray, WritesAreKeptOrFaultWhereMotionsAreCalledOff)
{
    for (const bool unmaps : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(start_anew(unmaps));
        unsigned step = 0;
        go_on(
            [&] {
                for (std::size_t i = 0; i < units_.size(); i++) {
                    launch(i, any(3));
                    // Out of turn, as nobody foresees. Seldom: most is
                    // foreseen.
                    if (++step % 32 == 0)
                        card_->stall();
                    if (const auto moves = card_->stalled()) {
                        launch(index_of(*moves), any(3));
                        card_->resume();
                    }
                }
            },
            [this] {
                return card_->called_off > 20 && card_->has_seen_enough();
            });
    }
}

// A unit is freed in stream order, and allocated again some time later. Until
// then nothing there counts, and from then on all does.
TEST_F(Stray, WritesToWhatIsAllocatedAgainAreKeptOrFault)
{
    for (const bool unmaps : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(start_anew(unmaps));
        unsigned again = 0;
        unsigned later_kept = 0;
        unsigned later_faults = 0;
        go_on(
            [&] {
                const CUdeviceptr unit = units_[5];
                const std::size_t end = 6 + random_() % 6;
                for (std::size_t i = 0; i < units_.size(); i++) {
                    launch(i, any(3));
                    if (i == 5) {
                        card_->vacate(unit);
                        moves_->vacate(unit);
                    }
                    if (i != end)
                        continue;
                    moves_->occupy(unit, unit_bytes);
                    card_->occupy(unit);
                    // Before the program names it.
                    for (int j = 0; j < 4; j++)
                        (card_->stray_to(unit) ? later_kept : later_faults)++;
                }
                again++;
            },
            [&] {
                return again > 100 && card_->to_vacant > 0 && later_kept > 0 &&
                       (!unmaps || later_faults > 0) &&
                       card_->has_seen_enough();
            });
    }
}

// The driver is asked for such memory, or work is captured that names it.
TEST_F(Stray, WritesToWhatStaysFromNowOnAreKept)
{
    for (const bool unmaps : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(start_anew(unmaps));
        unsigned fixed = 0;
        unsigned rounds = 0;
        go_on(
            [&] {
                // Five of them are left to move.
                if (++rounds % 10 == 0 && fixed < 3)
                    moves_->fix(units_[4 * fixed++]);
                for (std::size_t i = 0; i < units_.size(); i++) {
                    launch(i, any(3));
                    for (unsigned j = 0; j < fixed; j++)
                        EXPECT_TRUE(card_->stray_to(units_[4 * j]));
                }
            },
            [&] { return rounds > 60 && card_->has_seen_enough(); });
    }
}

// Units are freed while they move, and others come in their place.
TEST_F(Stray, WritesBesideWhatIsFreedAreKeptOrFault)
{
    for (const bool unmaps : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(start_anew(unmaps));
        unsigned freed = 0;
        go_on(
            [&] {
                round();
                CUdeviceptr &unit = units_[random_() % units_.size()];
                card_->unwatch(unit);
                EXPECT_EQ(maker_->free(unit), CUDA_SUCCESS);
                EXPECT_FALSE(card_->stray_to(unit));
                ASSERT_EQ(maker_->allocate(&unit, unit_bytes), CUDA_SUCCESS);
                card_->watch(unit, false);
                freed++;
            },
            [&] { return freed > 50 && card_->has_seen_enough(); });
    }
}
