// SPDX-License-Identifier: GPL-2.0-or-later
// Calls in which one thing fails: each allocation of objects and pages, and
// each copy from and to the caller, one at a time. So it is with the work that
// the kernel's threads do for a swap file. This needs a kernel that injects
// faults: see scripts/debug-kernel.
#include "support.hpp"
#include "vgem.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using namespace guest;

/// Makes the n-th operation that can fail in this thread fail.
class injector
{
public:
    injector()
        : file_(open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC)),
          usable_(file_ && make_failures_silent())
    {}

    bool usable() const { return usable_; }

    /// Counts the operations in a call that can fail, by failing one far
    /// beyond.
    unsigned count(const std::function<void()> &call)
    {
        constexpr unsigned beyond = 1'000'000;
        arm(beyond);
        call();
        std::array<char, 16> text{};
        checked(pread(file_.get(), text.data(), text.size() - 1, 0),
                "fail-nth");
        disarm();
        return beyond - static_cast<unsigned>(std::stoul(text.data()));
    }

    void arm(unsigned nth)
    {
        const auto text = std::to_string(nth);
        checked(pwrite(file_.get(), text.data(), text.size(), 0), "fail-nth");
    }

    /// Stops injecting. True if the n-th operation was reached.
    bool disarm()
    {
        // Reading copies the number out, and this copy may be the one that
        // fails. Then the call itself had not reached the n-th operation.
        std::array<char, 16> text{};
        const bool struck =
            pread(file_.get(), text.data(), text.size(), 0) > 0 &&
            text[0] == '0';
        // This write may fail likewise, and then nothing is left to disarm.
        static_cast<void>(!pwrite(file_.get(), "0", 1, 0));
        return struck;
    }

    /// For another thread, while this one sleeps: from now on nothing fails. So
    /// a signal's frame can be written.
    void spare()
    {
        std::array<char, 16> text{};
        if (pread(file_.get(), text.data(), text.size(), 0) > 0 &&
            text[0] != '0')
            checked(pwrite(file_.get(), "1000000", 7, 0), "fail-nth");
    }

private:
    descriptor file_;
    bool usable_;
};

/// The same for the kernel's threads that work for swap files. It is not known
/// which of them takes a work, so that all of them are told.
class worker_injector
{
public:
    void arm(unsigned nth)
    {
        for (const auto &name : names_in("/proc")) {
            const auto folder = "/proc/" + name;
            if (name.find_first_not_of("0123456789") == std::string::npos &&
                serves(command_of(folder)) &&
                write_text(folder + "/fail-nth", std::to_string(nth)))
                armed_.push_back(folder);
        }
    }

    /// True once an operation of a swap file's work has failed.
    bool struck() const
    {
        return std::ranges::any_of(armed_, [](const auto &folder) {
            return command_of(folder).find("emuv_swap") != std::string::npos &&
                   first_line(folder + "/fail-nth") == "0";
        });
    }

    /// Stops injecting. True if an operation of a swap file's work has failed.
    bool disarm()
    {
        const bool answer = struck();
        for (const auto &folder : armed_)
            write_text(folder + "/fail-nth", "0");
        armed_.clear();
        return answer;
    }

    ~worker_injector() { disarm(); }

private:
    std::vector<std::string> armed_;

    /// Threads come and go meanwhile.
    static std::string first_line(const std::string &path)
    {
        std::ifstream file(path);
        std::string line;
        std::getline(file, line);
        return line;
    }
    /// Such a thread's name also tells the queue that it works for.
    static std::string command_of(const std::string &folder)
    {
        return first_line(folder + "/comm");
    }
    static bool serves(const std::string &command)
    {
        return command.starts_with("kworker/u") ||
               command.starts_with("emuv_swap");
    }
};

/// The driver's notes about chunks that leave for a swap file and come back.
class swap_trace
{
public:
    swap_trace() : usable(write_text(event, "1")) {}
    ~swap_trace() { write_text(event, "0"); }
    swap_trace(const swap_trace &) = delete;
    swap_trace &operator=(const swap_trace &) = delete;

    const bool usable;

    /// The number of chunks that failed to go this way: "out" or "in".
    static u64 failures(const std::string &way)
    {
        std::ifstream file(folder + "trace");
        u64 count = 0;
        for (std::string line; std::getline(file, line);)
            count += line.find(" " + way + " err=-") != std::string::npos;
        return count;
    }

private:
    static inline const std::string folder = "/sys/kernel/debug/tracing/";
    static inline const std::string event =
        folder + "events/emuv/emuv_swap/enable";
};

/// True if the running kernel has a function of this name.
bool has_symbol(const std::string &name)
{
    std::ifstream symbols("/proc/kallsyms");
    for (std::string address, type, each, rest;
         symbols >> address >> type >> each && std::getline(symbols, rest);)
        if (each == name)
            return true;
    return false;
}

/// A call to try, and how to undo it.
struct attempt
{
    /// 0 or the errno.
    std::function<int()> call;
    /// Restores the state from before a successful call.
    std::function<void()> undo = [] {};
    /// Restores what a failed call may change, such as backed memory of the
    /// caller.
    std::function<void()> settle = [] {};
    /// The errors that a failure may end with.
    std::vector<int> errors = {ENOMEM, EFAULT};
    /// True if the call must tell some failures, and not make up for them.
    bool refuses = true;
    /// True if something in the call can fail.
    bool fails = true;
};

/// State that a failed call must not change.
struct state
{
    u64 physical;
    u64 virtual_;
    u64 physical_used;
    u64 virtual_used;
    u64 unowned;
    /// In RAM or in the swap file.
    u64 backed;
    u64 reserve;
    u64 spills;
    unsigned waiters;
    std::size_t clients;
    std::size_t instances;
    std::size_t descriptors;

    bool operator==(const state &) const = default;
};

std::ostream &operator<<(std::ostream &out, const state &of)
{
    return out << "physical " << of.physical_used << " of " << of.physical
               << ", virtual " << of.virtual_used << " of " << of.virtual_
               << ", unowned " << of.unowned << ", backed " << of.backed
               << ", reserve " << of.reserve << ", spills " << of.spills
               << ", waiters " << of.waiters << ", clients " << of.clients
               << ", instances " << of.instances << ", descriptors "
               << of.descriptors;
}

/// A RAM disk as a swap file; nothing where the kernel has none.
descriptor open_ram_disk()
{
    load_stock_module("brd rd_nr=1 rd_size=65536");
    return descriptor(open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC));
}

class failure : public driver_test
{
protected:
    void SetUp() override
    {
        if (!inject.usable())
            GTEST_SKIP() << "this kernel injects no faults";
        // No fault of the test's own memory may be the operation that fails.
        checked(mlockall(MCL_CURRENT), "mlockall");
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, 64 * mib, 64 * mib);
        client = open_client(id);
        got = allocate(client, region_bytes);
    }

    void TearDown() override
    {
        client.reset();
        // A test may be skipped with the driver loaded.
        if (inject.usable())
            driver_test::TearDown();
        munlockall();
    }

    state now() const
    {
        const auto of = query(control, id);
        const auto clients = list_clients(control, id);
        u64 physical = 0;
        u64 virtual_ = of.unowned_bytes;
        for (const auto &one : clients) {
            physical += one.physical_bytes;
            virtual_ += one.virtual_bytes;
        }
        EXPECT_EQ(of.physical_used_bytes, physical);
        EXPECT_EQ(of.virtual_used_bytes, virtual_);
        return {of.physical_bytes,
                of.virtual_bytes,
                of.physical_used_bytes,
                of.virtual_used_bytes,
                of.unowned_bytes,
                of.resident_bytes + of.swapped_bytes,
                of.reserve_bytes,
                of.spills - reported,
                of.waiters,
                clients.size(),
                names_in("/sys/class/emuv").size(),
                names_in("/proc/self/fd").size()};
    }

    /// Expects the state from before. A chunk on its way to a swap file, or
    /// back, counts twice or not at all for a moment.
    void expect_unchanged(const state &before)
    {
        if (query(control, id).created & EMUV_CREATE_SWAP)
            wait_until([&] { return now() == before; });
        ASSERT_EQ(now(), before);
    }

    /// Fails the first, second, ... operation of a call, until the call has no
    /// more operations that can fail.
    void sweep(const attempt &of)
    {
        // Run once without failures, so that allocations made only once exist.
        ASSERT_EQ(of.call(), 0);
        of.undo();
        of.settle();
        const auto before = now();
        unsigned refused = 0, injected = 0;
        for (unsigned nth = 1;; nth++) {
            SCOPED_TRACE("failing number " + std::to_string(nth));
            ASSERT_LT(nth, 2000U) << "there seems to be no end of it";
            inject.arm(nth);
            const int error = of.call();
            const bool struck = inject.disarm();
            injected += struck ? 1 : 0;
            if (error) {
                EXPECT_TRUE(struck) << std::strerror(error);
                EXPECT_TRUE(std::ranges::count(of.errors, error))
                    << std::strerror(error);
                refused++;
            } else {
                of.undo();
            }
            of.settle();
            ASSERT_NO_FATAL_FAILURE(expect_unchanged(before));
            ASSERT_EQ(of.call(), 0) << "not even when nothing fails any more";
            of.undo();
            of.settle();
            ASSERT_NO_FATAL_FAILURE(expect_unchanged(before));
            if (!struck)
                break;
        }
        EXPECT_TRUE(refused || !of.refuses) << "this call tells no failure";
        EXPECT_TRUE(injected || !of.fails) << "nothing in this call can fail";
    }

    /// Calls only ioctl(), so that nothing else can fail; 0 or the errno.
    template <class T>
    static int ask(const descriptor &on, unsigned long request, T &argument)
    {
        return error_of(ioctl(on.get(), request, &argument));
    }

    /// Sweeps ALLOC of two chunks, untouched and populated.
    void sweep_alloc()
    {
        for (const unsigned flags : {0U, EMUV_ALLOC_POPULATE}) {
            auto argument = fresh<emuv_alloc>();
            sweep(
                {.call =
                     [&] {
                         argument = fresh<emuv_alloc>();
                         argument.flags = flags;
                         argument.bytes = 2 * chunk;
                         return ask(client, EMUV_IOC_ALLOC, argument);
                     },
                 .undo =
                     [&] { ASSERT_EQ(release(client, argument.offset), 0); }});
        }
    }

    static constexpr u64 region_bytes = 4 * chunk;
    injector inject;
    int id = -1;
    descriptor client;
    region got;
    /// Spills that were reported with success: counters never go back.
    u64 reported = 0;
};

/// Another thread's charges that wait, one at a time, and end with the object.
class sleeper
{
public:
    sleeper(const descriptor &control, int id, const descriptor &client)
        : control_(control), id_(id), client_(client)
    {}
    ~sleeper()
    {
        if (!answer_.valid())
            return;
        auto argument = fresh<emuv_charge>();
        argument.flags = EMUV_UNCHARGE_CANCEL;
        call(client_, EMUV_IOC_UNCHARGE, argument);
    }
    sleeper(const sleeper &) = delete;
    sleeper &operator=(const sleeper &) = delete;

    /// Returns once the charge waits.
    void start(u64 bytes)
    {
        answer_ = std::async(std::launch::async, [this, bytes] {
            return charge_wait(client_, bytes);
        });
        EXPECT_TRUE(
            wait_until([&] { return query(control_, id_).waiters == 1; }));
    }
    /// Waits for the charge's answer.
    int answer() { return answer_.get(); }

private:
    const descriptor &control_;
    const int id_;
    const descriptor &client_;
    std::future<int> answer_;
};

/// A thread that does something as soon as a charge of this one waits. This
/// thread may be told to fail meanwhile, so that it calls nothing.
class bystander
{
public:
    bystander(std::function<bool()> waits, std::function<void()> act)
        : waits_(std::move(waits)), act_(std::move(act)),
          thread_([this] { run(); })
    {}
    ~bystander()
    {
        look_away();
        rest();
        phase_ = phase::ended;
        thread_.join();
    }
    bystander(const bystander &) = delete;
    bystander &operator=(const bystander &) = delete;

    void watch()
    {
        acted_ = false;
        phase_ = phase::watches;
    }
    void look_away() { phase_ = phase::turns; }
    /// Waits until it does nothing any more. True if it has acted.
    bool rest()
    {
        EXPECT_TRUE(wait_until([&] { return phase_ == phase::rests; }));
        return acted_;
    }

private:
    enum class phase
    {
        rests,
        watches,
        turns,
        ended
    };

    void run()
    {
        for (phase at = phase_; at != phase::ended; at = phase_) {
            const bool acts = at == phase::watches && waits_();
            if (acts) {
                act_();
                acted_ = true;
            }
            if (acts || at == phase::turns)
                phase_.compare_exchange_strong(at, phase::rests);
            else
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    const std::function<bool()> waits_;
    const std::function<void()> act_;
    std::atomic<phase> phase_{phase::rests};
    std::atomic<bool> acted_{false};
    std::thread thread_;
};

// --- the control node ---

TEST_F(failure, InCreateLeavesNoInstance)
{
    for (const unsigned flags : {0U, EMUV_CREATE_GUARANTEED}) {
        auto argument = fresh<emuv_create>();
        sweep({.call =
                   [&] {
                       argument = creation(mib, 2 * chunk, EMUV_ANY, flags);
                       return ask(control, EMUV_IOC_CREATE, argument);
                   },
               .undo = [&] { ASSERT_EQ(destroy(control, argument.id), 0); }});
    }
}

TEST_F(failure, InCreateWithASwapFileLeavesTheFileToOthers)
{
    const auto file = open_ram_disk();
    if (!file)
        GTEST_SKIP() << "no RAM disk here";
    auto argument = fresh<emuv_create>();
    sweep({.call =
               [&] {
                   argument =
                       creation(mib, 2 * chunk, EMUV_ANY, EMUV_CREATE_SWAP);
                   argument.swap_fd = file.get();
                   return ask(control, EMUV_IOC_CREATE, argument);
               },
           .undo = [&] { ASSERT_EQ(destroy(control, argument.id), 0); }});
}

TEST_F(failure, InDestroyLeavesTheInstanceWholeOrGone)
{
    auto argument = fresh<emuv_destroy>();
    argument.id = create(control, mib, chunk);
    sweep({.call = [&] { return ask(control, EMUV_IOC_DESTROY, argument); },
           .undo =
               [&] {
                   ASSERT_EQ(create(control, creation(mib, chunk, argument.id)),
                             argument.id);
               }});
}

TEST_F(failure, InDestroyByForceLeavesTheInstanceWholeOrGone)
{
    auto argument = fresh<emuv_destroy>();
    argument.id = create(control, mib, chunk);
    argument.flags = EMUV_DESTROY_FORCE;
    auto holder = open_client(argument.id);
    allocate(holder, chunk, EMUV_ALLOC_POPULATE);
    sweep({.call = [&] { return ask(control, EMUV_IOC_DESTROY, argument); },
           .undo =
               [&] {
                   ASSERT_EQ(create(control, creation(mib, chunk, argument.id)),
                             argument.id);
                   holder = open_client(argument.id);
                   allocate(holder, chunk, EMUV_ALLOC_POPULATE);
               }});
}

TEST_F(failure, InResizeServesThoseWhoWaitOrLeavesThemWaiting)
{
    ASSERT_EQ(charge(client, 64 * mib), 0);
    const auto other = open_client(id);
    sleeper waits(control, id, other);
    waits.start(2 * mib);
    auto sizes = resizing(id, 66 * mib, 64 * mib);
    auto before = resizing(id, 64 * mib, 64 * mib);
    sweep({.call = [&] { return ask(control, EMUV_IOC_RESIZE, sizes); },
           .undo =
               [&] {
                   ASSERT_EQ(waits.answer(), 0);
                   ASSERT_EQ(uncharge(other, 2 * mib), 0);
                   ASSERT_EQ(call(control, EMUV_IOC_RESIZE, before), 0);
                   waits.start(2 * mib);
               }});

    // One that waits for more than there is any more.
    ASSERT_EQ(uncharge(client, 60 * mib), 0);
    ASSERT_EQ(waits.answer(), 0);
    waits.start(62 * mib);
    sizes = resizing(id, 60 * mib, 64 * mib);
    sweep({.call = [&] { return ask(control, EMUV_IOC_RESIZE, sizes); },
           .undo =
               [&] {
                   ASSERT_EQ(waits.answer(), ENOSPC);
                   ASSERT_EQ(call(control, EMUV_IOC_RESIZE, before), 0);
                   waits.start(62 * mib);
               }});
}

TEST_F(failure, InReadingTheListsOfDebugfsGivesAllOrAnError)
{
    const mapping map(client.get(), chunk, got.offset);
    map[0] = 1;
    ASSERT_EQ(charge(client, mib), 0);
    std::array<char, 4096> text{};
    std::size_t length = 0;
    for (const char *name : {"regions", "clients"}) {
        const auto path =
            "/sys/kernel/debug/emuv/emuv" + std::to_string(id) + "/" + name;
        const auto whole = read_text(path) + "\n";
        ASSERT_LT(whole.size(), text.size());
        sweep({.call =
                   [&] {
                       length = 0;
                       const int file =
                           open(path.c_str(), O_RDONLY | O_CLOEXEC);
                       if (file < 0)
                           return errno;
                       ssize_t count = 0;
                       while ((count = read(file, text.data() + length,
                                            text.size() - length)) > 0)
                           length += static_cast<std::size_t>(count);
                       const int error = error_of(count);
                       close(file);
                       return error;
                   },
               .undo =
                   [&] {
                       EXPECT_EQ(std::string_view(text.data(), length), whole);
                   }});
    }
}

TEST_F(failure, InQueriesChangesNothing)
{
    for (const auto *node : {&control, &client}) {
        sweep({.call = [&] {
            auto argument = fresh<emuv_version>();
            return ask(*node, EMUV_IOC_VERSION, argument);
        }});
        sweep({.call = [&] {
            auto argument = fresh<emuv_query_instance>();
            argument.id = id;
            return ask(*node, EMUV_IOC_QUERY_INSTANCE, argument);
        }});
        for (const unsigned flags : {0U, EMUV_QUERY_MEMORY})
            sweep({.call = [&] {
                auto argument = fresh<emuv_query_client>();
                argument.flags = flags;
                argument.id = id;
                return ask(*node, EMUV_IOC_QUERY_CLIENT, argument);
            }});
    }
}

// --- clients ---

TEST_F(failure, InOpenLeavesNoClient)
{
    int file = -1;
    const auto path = node_path(id);
    sweep({.call =
               [&] {
                   file = open(path.c_str(), O_RDWR | O_CLOEXEC);
                   return error_of(file);
               },
           .undo = [&] { close(file); }});
}

TEST_F(failure, InChargeAndUnchargeLeavesTheLedgerAsItWas)
{
    auto argument = fresh<emuv_charge>();
    argument.bytes = 3 * mib;
    sweep({.call = [&] { return ask(client, EMUV_IOC_CHARGE, argument); },
           .undo = [&] { ASSERT_EQ(uncharge(client, 3 * mib), 0); }});
    argument.flags = EMUV_CHARGE_WAIT;
    argument.deadline_ns = EMUV_NO_DEADLINE;
    sweep({.call = [&] { return ask(client, EMUV_IOC_CHARGE, argument); },
           .undo = [&] { ASSERT_EQ(uncharge(client, 3 * mib), 0); }});
    argument = fresh<emuv_charge>();
    argument.bytes = 3 * mib;
    ASSERT_EQ(charge(client, 3 * mib), 0);
    sweep({.call = [&] { return ask(client, EMUV_IOC_UNCHARGE, argument); },
           .undo = [&] { ASSERT_EQ(charge(client, 3 * mib), 0); }});
}

TEST_F(failure, InAnUnchargeThatCancelsLeavesTheWaitOrEndsIt)
{
    ASSERT_EQ(charge(client, 64 * mib), 0);
    sleeper waits(control, id, client);
    waits.start(8 * mib);
    for (const u64 bytes : {u64{0}, mib}) {
        auto argument = fresh<emuv_charge>();
        argument.flags = EMUV_UNCHARGE_CANCEL;
        argument.bytes = bytes;
        sweep({.call = [&] { return ask(client, EMUV_IOC_UNCHARGE, argument); },
               .undo =
                   [&] {
                       ASSERT_EQ(waits.answer(), ECANCELED);
                       ASSERT_EQ(charge(client, bytes), 0);
                       waits.start(8 * mib);
                   }});
    }
}

class failing_sleep : public failure
{
protected:
    void SetUp() override
    {
        failure::SetUp();
        if (IsSkipped() || HasFatalFailure())
            return;
        holder = open_client(id);
        ASSERT_EQ(charge(holder, 64 * mib), 0);
        argument = fresh<emuv_charge>();
        argument.flags = EMUV_CHARGE_WAIT;
        argument.bytes = 3 * mib;
        argument.deadline_ns = EMUV_NO_DEADLINE;
    }

    void TearDown() override
    {
        holder.reset();
        failure::TearDown();
    }

    bool sleeps() const { return query(control, id).waiters == 1; }

    /// Charges; `other` may act once the charge waits.
    int watched_charge(bystander &other)
    {
        other.watch();
        const int error = ask(client, EMUV_IOC_CHARGE, argument);
        other.look_away();
        return error;
    }

    descriptor holder; ///< who has all of the instance
    emuv_charge argument;
};

TEST_F(failing_sleep, ThatIsServedChargesAllOrNothing)
{
    bystander other([&] { return sleeps(); },
                    [&] { EXPECT_EQ(uncharge(holder, 3 * mib), 0); });
    unsigned served = 0;
    sweep({.call = [&] { return watched_charge(other); },
           .undo = [&] { ASSERT_EQ(uncharge(client, 3 * mib), 0); },
           .settle =
               [&] {
                   if (!other.rest())
                       return;
                   served++;
                   ASSERT_EQ(charge(holder, 3 * mib), 0);
               }});
    EXPECT_GT(served, 0U);
}

TEST_F(failing_sleep, ThatASignalEndsChargesNothing)
{
    struct sigaction handle
    {
    }, before{};
    handle.sa_handler = [](int) {};
    sigaction(SIGUSR1, &handle, &before);
    const auto thread = pthread_self();
    bystander other([&] { return sleeps(); },
                    [&] {
                        inject.spare();
                        pthread_kill(thread, SIGUSR1);
                    });
    unsigned interrupted = 0;
    sweep({.call =
               [&] {
                   const int error = watched_charge(other);
                   return error == EINTR ? 0 : error;
               },
           .settle = [&] { interrupted += other.rest() ? 1 : 0; }});
    EXPECT_GT(interrupted, 0U);
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(failing_sleep, ThatLastsTooLongChargesNothing)
{
    const auto set_deadline = [&] {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        argument.deadline_ns = static_cast<u64>(now.tv_sec) * 1'000'000'000 +
                               static_cast<u64>(now.tv_nsec) + 100'000'000;
    };
    set_deadline();
    sweep({.call =
               [&] {
                   const int error = ask(client, EMUV_IOC_CHARGE, argument);
                   return error == ETIMEDOUT ? 0 : error;
               },
           .settle = set_deadline});
}

TEST_F(failure, InReportLeavesTheCountersAsTheyWere)
{
    auto argument = fresh<emuv_report>();
    argument.spills = 1;
    sweep({.call = [&] { return ask(client, EMUV_IOC_REPORT, argument); },
           .undo = [&] { reported++; }});
}

TEST_F(failure, InAllocLeavesNoRegion)
{
    sweep_alloc();
}

TEST_F(failure, InFreeLeavesTheRegionWholeOrGone)
{
    auto argument = fresh<emuv_free>();
    argument.offset = allocate(client, chunk).offset;
    sweep({.call = [&] { return ask(client, EMUV_IOC_FREE, argument); },
           .undo = [&] { argument.offset = allocate(client, chunk).offset; }});
}

TEST_F(failure, InExportLeavesNoDescriptor)
{
    for (const unsigned flags : {0U, EMUV_EXPORT_DMABUF}) {
        auto argument = fresh<emuv_export>();
        sweep({.call =
                   [&] {
                       argument = fresh<emuv_export>();
                       argument.flags = flags;
                       argument.offset = got.offset;
                       return ask(client, EMUV_IOC_EXPORT, argument);
                   },
               .undo = [&] { close(argument.fd); }});
    }
}

TEST_F(failure, InImportLeavesNothingHeld)
{
    const auto exported = export_region(client, got.offset);
    const auto other = open_client(id);
    auto argument = fresh<emuv_import>();
    sweep({.call =
               [&] {
                   argument = fresh<emuv_import>();
                   argument.fd = exported.get();
                   return ask(other, EMUV_IOC_IMPORT, argument);
               },
           .undo = [&] { ASSERT_EQ(release(other, argument.offset), 0); }});
    EXPECT_EQ(list_clients(control, id).back().imported_bytes, 0U);
}

// --- memory ---

class failing_memory : public failure
{
protected:
    /// Nothing of the region is backed.
    void empty() { ASSERT_EQ(discard(client, got.offset, got.bytes), 0); }
};

TEST_F(failing_memory, DiscardZeroesAllOrNothing)
{
    auto argument = fresh<emuv_discard>();
    argument.offset = got.offset;
    argument.bytes = got.bytes;
    const mapping map(client.get(), got.bytes, got.offset);
    const auto fill = [&] { std::memset(map.data(), 'x', map.size()); };
    fill();
    sweep(
        {.call = [&] { return ask(client, EMUV_IOC_DISCARD, argument); },
         .undo =
             [&] {
                 EXPECT_FALSE(first_other(map.data(), map.size()));
                 fill();
             },
         .settle =
             [&] { EXPECT_FALSE(first_other(map.data(), map.size(), 'x')); }});
}

TEST_F(failing_memory, WriteFailsOrWrites)
{
    const std::vector<char> data(8192, 'w');
    // Across the border of two chunks, so that the call may come up short.
    const auto where = static_cast<off_t>(got.offset + chunk - 4096);
    sweep({.call =
               [&] {
                   const auto wrote =
                       pwrite(client.get(), data.data(), data.size(), where);
                   return wrote == 4096 ? ENOMEM : error_of(wrote);
               },
           .settle = [&] { empty(); }});
}

TEST_F(failing_memory, ReadFailsOrReads)
{
    std::vector<char> data(8192);
    const auto where = static_cast<off_t>(got.offset + chunk - 4096);
    ASSERT_EQ(pwrite(client.get(), "x", 1, where), 1);
    // A copy that fails although the reader's memory takes bytes: the driver
    // can only think that its own memory has failed.
    sweep({.call =
               [&] {
                   const auto read =
                       pread(client.get(), data.data(), data.size(), where);
                   // The copy of the remaining bytes failed.
                   return read == 4096 ? EFAULT : error_of(read);
               },
           .errors = {ENOMEM, EFAULT, EIO},
           // The kernel injects no failure into copies that would notice
           // failed memory, which only some processors tell of.
           .refuses = !has_symbol("_copy_mc_to_iter"),
           .fails = !has_symbol("_copy_mc_to_iter")});
}

TEST_F(failing_memory, MmapMapsOrLeavesNothing)
{
    const auto exported = export_region(client, got.offset);
    const auto dmabuf = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    const struct
    {
        const descriptor &file;
        u64 offset;
    } files[] = {{client, got.offset}, {exported, 0}, {dmabuf, 0}};
    for (const auto &[file, offset] : files) {
        void *map = nullptr;
        sweep({.call =
                   [&, fd = file.get(), from = static_cast<off_t>(offset)] {
                       map = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED, fd, from);
                       return map == MAP_FAILED ? errno : 0;
                   },
               .undo = [&] { munmap(map, region_bytes); }});
    }
}

TEST_F(failing_memory, TouchBacksOrRaisesSigbus)
{
    // Map anew each time, so that page tables must be allocated.
    mapping map(client.get(), got.bytes, got.offset);
    sweep({.call =
               [&] {
                   return signal_of_write(map.data() + chunk) == SIGBUS ? ENOMEM
                                                                        : 0;
               },
           .settle =
               [&] {
                   map = mapping(client.get(), got.bytes, got.offset);
                   empty();
               }});
}

TEST_F(failing_memory, PunchingHolesNeedsNothing)
{
    const auto exported = export_region(client, got.offset);
    const mapping map(client.get(), got.bytes, got.offset);
    const auto fill = [&] { std::memset(map.data(), 'x', map.size()); };
    fill();
    // The call copies nothing, not even from the caller: no sweep is possible.
    inject.arm(1);
    const int error = error_of(
        fallocate(exported.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  static_cast<off_t>(got.bytes)));
    inject.disarm();
    EXPECT_EQ(error, 0);
    EXPECT_FALSE(first_other(map.data(), map.size()));
}

// --- kinds of instances ---

/// A kind of RAM behind an instance.
struct kind
{
    const char *name;
    unsigned flags;
};

void PrintTo(const kind &of, std::ostream *out)
{
    *out << of.name;
}

class failing_kind : public failure, public testing::WithParamInterface<kind>
{
protected:
    void SetUp() override
    {
        failure::SetUp();
        if (IsSkipped() || HasFatalFailure())
            return;
        if (swaps()) {
            file = open_ram_disk();
            if (!file)
                GTEST_SKIP() << "no RAM disk here";
        }
        use(make());
    }

    bool swaps() const { return GetParam().flags & EMUV_CREATE_SWAP; }
    bool is_guaranteed() const
    {
        return GetParam().flags & EMUV_CREATE_GUARANTEED;
    }

    /// Makes an instance of the kind.
    int make(int wanted = EMUV_ANY) const
    {
        auto argument = creation(physical, virtual_, wanted, GetParam().flags);
        argument.swap_fd = swaps() ? file.get() : 0;
        return create(control, argument);
    }

    /// Has another instance be the one whose state must not change.
    void use(int other)
    {
        client.reset();
        ASSERT_EQ(destroy_eventually(control, id), 0);
        id = other;
        client = open_client(id);
        got = allocate(client, region_bytes);
    }

    void empty() { ASSERT_EQ(discard(client, got.offset, got.bytes), 0); }

    /// All these bytes leave RAM, if the instance has a swap file.
    void leave(int of, u64 bytes) const
    {
        EXPECT_TRUE(!swaps() || wait_until([&] {
            write_text("/proc/sys/vm/drop_caches", "2");
            return query(control, of).swapped_bytes == bytes;
        }));
    }

    static constexpr u64 physical = 64 * mib;
    static constexpr u64 virtual_ = 16 * chunk;
    descriptor file;
};

INSTANTIATE_TEST_SUITE_P(
    kinds, failing_kind,
    testing::Values(kind{"Plain", 0},
                    kind{"Guaranteed", EMUV_CREATE_GUARANTEED},
                    kind{"Swapping", EMUV_CREATE_SWAP}),
    [](const auto &of) { return std::string(of.param.name); });

TEST_P(failing_kind, AllocLeavesNoRegionAndOthersBytes)
{
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 1);
    sweep_alloc();
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 1));
}

// A guaranteed touch needs page tables only, and the kernel tries again without
// one. So it does if a fault has let mmap_lock go to wait for RAM.
TEST_P(failing_kind, OnlyATouchOfAPlainOneRaisesSigbusAndOthersBytesStay)
{
    const auto others = allocate(client, 2 * chunk);
    const mapping theirs(client.get(), others.bytes, others.offset);
    fill_pattern(theirs.data(), theirs.size(), 2);
    mapping map(client.get(), got.bytes, got.offset);
    const bool plain = !swaps() && !is_guaranteed();
    sweep({.call =
               [&] { return signal_of_write(map.data() + chunk) ? ENOMEM : 0; },
           .settle =
               [&] {
                   map = mapping(client.get(), got.bytes, got.offset);
                   empty();
               },
           .errors = plain ? std::vector{ENOMEM} : std::vector<int>{},
           .refuses = plain});
    EXPECT_FALSE(first_pattern_error(theirs.data(), theirs.size(), 2));
}

TEST_P(failing_kind, WriteFailsOrWritesAndAGuaranteedOneNeverLacksRam)
{
    const std::vector<char> data(8192, 'w');
    const auto where = static_cast<off_t>(got.offset + chunk - 4096);
    const int cut_short = is_guaranteed() ? EFAULT : ENOMEM;
    sweep({.call =
               [&] {
                   const auto wrote =
                       pwrite(client.get(), data.data(), data.size(), where);
                   return wrote == 4096 ? cut_short : error_of(wrote);
               },
           .settle = [&] { empty(); },
           .errors = is_guaranteed() ? std::vector{EFAULT}
                                     : std::vector{ENOMEM, EFAULT}});
}

TEST_P(failing_kind, ResizeChangesAllOrNothing)
{
    const mapping map(client.get(), got.bytes, got.offset);
    fill_pattern(map.data(), map.size(), 3);
    const auto promised = promisable(control);
    auto before = resizing(id, physical, virtual_);
    for (auto sizes : {resizing(id, 80 * mib, 20 * chunk),
                       resizing(id, 32 * mib, 8 * chunk)})
        sweep({.call = [&] { return ask(control, EMUV_IOC_RESIZE, sizes); },
               .undo =
                   [&] {
                       ASSERT_EQ(call(control, EMUV_IOC_RESIZE, before), 0);
                   }});
    EXPECT_EQ(promisable(control), promised);
    EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 3));
}

TEST_P(failing_kind, RevokingTakesAllFromTheHoldersOrNothing)
{
    // A swap file serves one instance.
    use(create(control, physical, virtual_));
    int target = EMUV_ANY;
    descriptor holder;
    mapping map;
    std::unique_ptr<sleeper> waits;
    const auto hold = [&] {
        // The last holder lets the swap file go.
        waits.reset();
        map.reset();
        holder.reset();
        target = make(target);
        holder = open_client(target);
        map = mapping(holder.get(), 2 * chunk,
                      allocate(holder, 2 * chunk).offset);
        fill_pattern(map.data(), map.size(), 4);
        ASSERT_EQ(charge(holder, physical), 0);
        waits = std::make_unique<sleeper>(control, target, holder);
        waits->start(mib);
        leave(target, map.size());
    };
    hold();
    auto argument = fresh<emuv_destroy>();
    argument.id = target;
    argument.flags = EMUV_DESTROY_FORCE;
    sweep({.call = [&] { return ask(control, EMUV_IOC_DESTROY, argument); },
           .undo =
               [&] {
                   EXPECT_EQ(waits->answer(), ENODEV);
                   EXPECT_EQ(charge(holder, 0), ENODEV);
                   EXPECT_EQ(signal_of_read(map.data()), SIGBUS);
                   hold();
               },
           .settle =
               [&] {
                   const auto of = query(control, target);
                   EXPECT_EQ(of.waiters, 1U);
                   EXPECT_EQ(of.physical_used_bytes, physical);
                   EXPECT_EQ(of.virtual_used_bytes, map.size());
                   EXPECT_FALSE(first_pattern_error(map.data(), map.size(), 4));
                   leave(target, map.size());
               }});
}

// --- swap files ---

/// An instance with a swap file, and one chunk of it.
class failing_swap : public failure
{
protected:
    void SetUp() override
    {
        failure::SetUp();
        if (IsSkipped() || HasFatalFailure())
            return;
        file = open_ram_disk();
        if (!file)
            GTEST_SKIP() << "no RAM disk here";
        auto argument = creation(mib, chunk, EMUV_ANY, EMUV_CREATE_SWAP);
        argument.swap_fd = file.get();
        swapping = create(control, argument);
        user = open_client(swapping);
        its = allocate(user, chunk);
        map = mapping(user.get(), chunk, its.offset);
        fill_pattern(map.data(), chunk, 1);
    }

    void TearDown() override
    {
        map.reset();
        user.reset();
        if (swapping >= 0) {
            EXPECT_EQ(destroy_eventually(control, swapping), 0);
        }
        failure::TearDown();
    }

    /// Asks the kernel to shrink. True once the chunk has left RAM.
    bool is_away() const
    {
        write_text("/proc/sys/vm/drop_caches", "2");
        return query(control, swapping).swapped_bytes == chunk;
    }
    void leave() const
    {
        ASSERT_TRUE(wait_until([&] { return is_away(); }));
    }

    int read_some()
    {
        return error_of(pread(user.get(), data.data(), data.size(),
                              static_cast<off_t>(its.offset)));
    }

    void expect_its_bytes() const
    {
        EXPECT_FALSE(first_pattern_error(map.data(), chunk, 1));
        const auto of = query(control, swapping);
        EXPECT_EQ(of.resident_bytes, chunk);
        EXPECT_EQ(of.swapped_bytes, 0U);
    }

    descriptor file;
    int swapping = -1;
    descriptor user;
    region its;
    mapping map;
    std::array<char, 64> data{};
};

TEST_F(failing_swap, ReturnLosesNoByte)
{
    leave();
    sweep({.call = [&] { return read_some(); },
           .settle = [&] { leave(); },
           .errors = {ENOMEM, EFAULT, EIO}});
    sweep({.call = [&] { return signal_of_read(map.data()) ? ENOMEM : 0; },
           .settle = [&] { leave(); },
           .refuses = false});
    expect_its_bytes();
}

TEST_F(failing_swap, DiscardOfAPartZeroesItOrNothing)
{
    constexpr u64 half = chunk / 2;
    auto argument = fresh<emuv_discard>();
    argument.offset = its.offset + half;
    argument.bytes = half;
    leave();
    sweep({.call = [&] { return ask(user, EMUV_IOC_DISCARD, argument); },
           .undo =
               [&] {
                   EXPECT_FALSE(first_pattern_error(map.data(), half, 1));
                   EXPECT_FALSE(first_other(map.data() + half, half));
                   fill_pattern(map.data(), chunk, 1);
               },
           .settle =
               [&] {
                   expect_its_bytes();
                   leave();
               },
           .errors = {ENOMEM, EFAULT, EIO}});
}

TEST_F(failing_swap, WorkOfTheKernelsThreadsLosesNoByte)
{
    const swap_trace trace;
    ASSERT_TRUE(trace.usable);
    const u64 not_written = trace.failures("out");
    const u64 not_read = trace.failures("in");
    worker_injector workers;
    const auto go_and_come_back = [&](unsigned nth) {
        SCOPED_TRACE("failing number " + std::to_string(nth));
        workers.arm(nth);
        EXPECT_TRUE(wait_until([&] { return is_away() || workers.struck(); }));
        workers.disarm();
        expect_its_bytes();
        leave();
        workers.arm(nth);
        const int error = read_some();
        workers.disarm();
        EXPECT_TRUE(!error || error == ENOMEM || error == EIO)
            << std::strerror(error);
        expect_its_bytes();
    };
    for (unsigned nth = 1; nth <= 12; nth++)
        go_and_come_back(nth);
    // Now and then a thread has other work first.
    EXPECT_TRUE(wait_until([&] {
        go_and_come_back(1);
        return trace.failures("out") > not_written &&
               trace.failures("in") > not_read;
    })) << "no write or no read has failed";
}

// --- devices ---

TEST_F(failing_memory, ImportIntoADeviceMapsAllOrLeavesNothingHeld)
{
    auto device = open_vgem();
    if (!device)
        GTEST_SKIP() << "this kernel has no vgem";
    const auto dmabuf = export_region(client, got.offset, EMUV_EXPORT_DMABUF);
    __u32 handle = 0;
    bool lost = false;
    // First with no chunk backed beforehand, then with all chunks.
    for (const bool backed : {false, true})
        sweep({.call =
                   [&] {
                       const int error = vgem_import(device, dmabuf, handle);
                       lost = error == EFAULT;
                       return error;
                   },
               .undo =
                   [&] {
                       EXPECT_EQ(discard(client, got.offset, chunk), EBUSY);
                       EXPECT_EQ(vgem_drop(device, handle), 0);
                   },
               .settle =
                   [&] {
                       // If the answer could not be written, vgem keeps an
                       // unknown handle until it is closed.
                       if (lost) {
                           device.reset();
                           device = open_vgem();
                       }
                       // No device holds the region any more.
                       empty();
                       if (backed) {
                           const mapping map(client.get(), got.bytes,
                                             got.offset);
                           for (u64 at = 0; at < map.size(); at += chunk)
                               map[at] = 1;
                       }
                   }});
}

// --- the module ---

TEST(module, FailureInLoadingLeavesNothing)
{
    injector inject;
    if (!inject.usable())
        GTEST_SKIP() << "this kernel injects no faults";
    const descriptor file(open(module_file().c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file);
    const auto insert = [&](const char *parameters) {
        return error_of(syscall(SYS_finit_module, file.get(), parameters, 0));
    };
    const auto *const good = "physical_vram_mb=1,1 virtual_vram_mb=2,2";
    ASSERT_EQ(insert(good), 0);
    ASSERT_EQ(unload(), 0);

    // Most of a load is the kernel's own work: it copies and relocates the
    // module. Then it parses parameters, enters the module in sysfs (some
    // hundred allocations) and starts it. Begin soon after the parsing.
    const unsigned first =
        32 + inject.count([&] { ASSERT_EQ(insert("instance_id=-1"), EINVAL); });
    unsigned refused = 0;
    for (unsigned nth = first;; nth++) {
        SCOPED_TRACE("failing number " + std::to_string(nth));
        ASSERT_LT(nth, first + 2000U) << "there seems to be no end of it";
        inject.arm(nth);
        const int error = insert(good);
        const bool struck = inject.disarm();
        if (error) {
            EXPECT_TRUE(struck) << std::strerror(error);
            refused++;
        } else {
            ASSERT_EQ(unload(), 0);
        }
        ASSERT_EQ(leftovers(), "");
        if (!struck)
            break;
    }
    EXPECT_GT(refused, 0U);
    ASSERT_EQ(insert(good), 0);
    EXPECT_TRUE(exists("/dev/emuv1"));
    ASSERT_EQ(unload(), 0);
}

} // namespace
