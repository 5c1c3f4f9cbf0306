// SPDX-License-Identifier: GPL-2.0-or-later
// Charges that wait for room: their order, and the ends of a wait. The state
// that poll() reports to clients and managers.
#include "support.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

namespace {

using namespace guest;

constexpr u64 limit = 64 * mib;
constexpr int poll_limit_ms = 120000;

/// A time of CLOCK_MONOTONIC.
u64 in_ns(u64 from_now)
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000 +
           static_cast<u64>(now.tv_nsec) + from_now;
}

class waiting : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, limit, chunk);
        holder = open_client(id);
    }
    void TearDown() override
    {
        holder.reset();
        driver_test::TearDown();
    }

    emuv_query_instance now() const { return query(control, id); }
    bool wait_for_waiters(unsigned count) const
    {
        return wait_until([&] { return now().waiters == count; });
    }

    int id = -1;
    descriptor holder; ///< who fills the instance
};

/// A client with a thread whose charge waits.
class waiter
{
public:
    waiter(int id, u64 bytes, u64 deadline_ns = EMUV_NO_DEADLINE)
        : client(open_client(id)),
          answer_(std::async(std::launch::async, [this, bytes, deadline_ns] {
              thread_ = pthread_self();
              has_thread_ = true;
              return charge_wait(client, bytes, deadline_ns);
          }))
    {}

    /// Waits for the call's answer.
    int answer() { return answer_.get(); }
    bool waits() const
    {
        return answer_.wait_for(std::chrono::seconds(0)) !=
               std::future_status::ready;
    }
    /// Sends a signal to the thread that waits.
    void signal(int number) const
    {
        ASSERT_TRUE(wait_until([&] { return has_thread_.load(); }));
        pthread_kill(thread_, number);
    }

    const descriptor client;

private:
    std::atomic<pthread_t> thread_{};
    std::atomic<bool> has_thread_{false};
    std::future<int> answer_;
};

/// A signal with a handler that does nothing.
class ignored_signal
{
public:
    ignored_signal(int number, int flags) : number_(number)
    {
        struct sigaction handle
        {};
        handle.sa_handler = [](int) { handled++; };
        handle.sa_flags = flags;
        sigaction(number_, &handle, &before_);
    }
    ~ignored_signal() { sigaction(number_, &before_, nullptr); }
    ignored_signal(const ignored_signal &) = delete;
    ignored_signal &operator=(const ignored_signal &) = delete;

    static inline std::atomic<unsigned> handled{0};

private:
    const int number_;
    struct sigaction before_
    {};
};

// --- who is served ---

TEST_F(waiting, WhatFitsIsChargedAtOnce)
{
    EXPECT_EQ(charge_wait(holder, limit - 1), 0);
    EXPECT_EQ(charge_wait(holder, 1, 0), 0);
    EXPECT_EQ(charge_wait(holder, 0, 0), 0);
    EXPECT_EQ(now().physical_used_bytes, limit);
    EXPECT_EQ(now().waiters, 0U);
}

TEST_F(waiting, MoreThanTheInstanceHasIsRefusedAtOnce)
{
    EXPECT_EQ(charge_wait(holder, limit + 1), ENOSPC);
    EXPECT_EQ(charge_wait(holder, ~u64{0}), ENOSPC);
    EXPECT_EQ(now().physical_used_bytes, 0U);
}

TEST_F(waiting, IsServedOnceOthersHaveReturnedEnough)
{
    ASSERT_EQ(charge(holder, limit), 0);
    waiter one(id, 10 * mib);
    ASSERT_TRUE(wait_for_waiters(1));
    EXPECT_EQ(attribute(id, "waiters"), "1");
    const auto all = list_clients(control, id);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].waiting_bytes, 0U);
    EXPECT_EQ(all[1].waiting_bytes, 10 * mib)
        << "all see who waits, for how much";
    ASSERT_EQ(uncharge(holder, 10 * mib - 1), 0);
    EXPECT_EQ(now().waiters, 1U);
    EXPECT_EQ(now().physical_used_bytes, limit - 10 * mib + 1)
        << "it happens whole or not at all";
    ASSERT_EQ(uncharge(holder, 1), 0);
    EXPECT_EQ(now().waiters, 0U) << "served by whoever returned the bytes";
    EXPECT_EQ(now().physical_used_bytes, limit);
    EXPECT_EQ(one.answer(), 0);
    EXPECT_EQ(uncharge(one.client, 10 * mib), 0);
}

TEST_F(waiting, IsServedInTheOrderOfArrival)
{
    ASSERT_EQ(charge(holder, limit), 0);
    // The largest first: who asks for less does not overtake.
    const std::array<u64, 5> sizes{9 * mib, 1, 5 * mib, 2 * mib, 3};
    std::vector<std::unique_ptr<waiter>> all;
    for (const auto bytes : sizes) {
        all.push_back(std::make_unique<waiter>(id, bytes));
        ASSERT_TRUE(wait_for_waiters(static_cast<unsigned>(all.size())));
    }
    for (std::size_t i = 0; i < all.size(); i++) {
        ASSERT_EQ(uncharge(holder, sizes.at(i)), 0);
        EXPECT_EQ(all[i]->answer(), 0) << i;
        EXPECT_EQ(now().waiters, all.size() - 1 - i);
        for (std::size_t behind = i + 1; behind < all.size(); behind++)
            EXPECT_TRUE(all[behind]->waits()) << behind << " before " << i;
        EXPECT_EQ(now().physical_used_bytes, limit);
    }
}

TEST_F(waiting, NobodyOvertakesThoseWhoWait)
{
    ASSERT_EQ(charge(holder, limit), 0);
    waiter large(id, 32 * mib);
    ASSERT_TRUE(wait_for_waiters(1));
    ASSERT_EQ(uncharge(holder, 31 * mib), 0);
    EXPECT_EQ(charge(holder, 1), ENOSPC) << "what is free is spoken for";
    EXPECT_EQ(charge(holder, 0), 0);
    EXPECT_EQ(charge_wait(holder, 1, 0), ETIMEDOUT);
    EXPECT_EQ(now().physical_used_bytes, limit - 31 * mib);
    ASSERT_EQ(uncharge(holder, mib), 0);
    EXPECT_EQ(large.answer(), 0);
    ASSERT_EQ(uncharge(holder, 1), 0);
    EXPECT_EQ(charge(holder, 1), 0) << "nobody waits any more";
}

TEST_F(waiting, AClientInItsOwnWayHoldsNobodyUp)
{
    ASSERT_EQ(charge(holder, limit - 4 * mib), 0);
    auto own = std::async(std::launch::async,
                          [&] { return charge_wait(holder, 5 * mib); });
    ASSERT_TRUE(wait_for_waiters(1));
    const auto other = open_client(id);
    EXPECT_EQ(charge(other, mib), 0);
    EXPECT_EQ(charge_wait(other, 3 * mib), 0);
    EXPECT_EQ(now().waiters, 1U);
    // From here on others could serve it, so it is in line.
    ASSERT_EQ(uncharge(holder, mib), 0);
    EXPECT_EQ(charge(other, 1), ENOSPC);
    ASSERT_EQ(uncharge(other, 4 * mib), 0);
    EXPECT_EQ(own.get(), 0);
}

TEST_F(waiting, TheFirstHoldsTheOthersUpForALimitedTime)
{
    ASSERT_EQ(charge(holder, limit - mib), 0);
    waiter large(id, 2 * mib);
    ASSERT_TRUE(wait_for_waiters(1));
    waiter small(id, mib - 1);
    EXPECT_EQ(small.answer(), 0) << "nobody has returned anything";
    EXPECT_TRUE(large.waits());
    EXPECT_EQ(charge(holder, 1), 0);
    ASSERT_EQ(uncharge(holder, 2 * mib), 0);
    EXPECT_EQ(large.answer(), 0);
}

TEST_F(waiting, AClientThatHeldOthersUpInVainDoesNotDoSoAgainSoon)
{
    ASSERT_EQ(charge(holder, limit - 3 * mib), 0);
    waiter large(id, 4 * mib);
    ASSERT_TRUE(wait_for_waiters(1));
    waiter small(id, mib);
    EXPECT_EQ(small.answer(), 0) << "the first one has had its time";
    auto again = std::async(std::launch::async,
                            [&] { return charge_wait(large.client, 3 * mib); });
    ASSERT_TRUE(wait_for_waiters(2));
    EXPECT_EQ(charge(small.client, mib), 0) << "its client rests";
    ASSERT_EQ(uncharge(holder, 6 * mib), 0);
    EXPECT_EQ(large.answer(), 0);
    EXPECT_EQ(again.get(), 0);
}

TEST_F(waiting, AClientCanEndItsOwnWaits)
{
    ASSERT_EQ(charge(holder, limit - mib), 0);
    waiter one(id, 2 * mib);
    ASSERT_TRUE(wait_for_waiters(1));
    auto two = std::async(std::launch::async,
                          [&] { return charge_wait(one.client, 3 * mib); });
    ASSERT_TRUE(wait_for_waiters(2));
    waiter other(id, mib);
    ASSERT_TRUE(wait_for_waiters(3));
    auto argument = fresh<emuv_charge>();
    argument.flags = EMUV_UNCHARGE_CANCEL;
    ASSERT_EQ(call(holder, EMUV_IOC_UNCHARGE, argument), 0);
    EXPECT_EQ(now().waiters, 3U) << "others' waits go on";
    ASSERT_EQ(call(one.client, EMUV_IOC_UNCHARGE, argument), 0);
    EXPECT_EQ(one.answer(), ECANCELED);
    EXPECT_EQ(two.get(), ECANCELED);
    EXPECT_EQ(other.answer(), 0) << "what is free goes to those behind";
    EXPECT_EQ(query(one.client).physical_used_bytes, limit);
    argument.bytes = 1;
    EXPECT_EQ(call(one.client, EMUV_IOC_UNCHARGE, argument), EINVAL);
}

TEST_F(waiting, OneReturnServesAllThatFit)
{
    ASSERT_EQ(charge(holder, limit), 0);
    waiter one(id, mib);
    ASSERT_TRUE(wait_for_waiters(1));
    waiter two(id, 2 * mib);
    ASSERT_TRUE(wait_for_waiters(2));
    waiter three(id, limit);
    ASSERT_TRUE(wait_for_waiters(3));
    ASSERT_EQ(uncharge(holder, 4 * mib), 0);
    EXPECT_EQ(now().waiters, 1U);
    EXPECT_EQ(one.answer(), 0);
    EXPECT_EQ(two.answer(), 0);
    EXPECT_EQ(now().physical_used_bytes, limit - mib);
    ASSERT_EQ(uncharge(one.client, mib), 0);
    ASSERT_EQ(uncharge(two.client, 2 * mib), 0);
    ASSERT_EQ(uncharge(holder, limit - 4 * mib), 0);
    EXPECT_EQ(three.answer(), 0);
}

TEST_F(waiting, AClientThatClosesServesThoseWhoWait)
{
    ASSERT_EQ(charge(holder, limit), 0);
    waiter one(id, limit);
    ASSERT_TRUE(wait_for_waiters(1));
    holder.reset();
    EXPECT_EQ(one.answer(), 0);
    EXPECT_EQ(list_clients(control, id).at(0).physical_bytes, limit);
}

TEST_F(waiting, AKilledHolderServesThoseWhoWait)
{
    process child([&](channel &us) -> std::string {
        const auto own = open_client(id);
        CHILD_EXPECT(charge(own, limit) == 0);
        us.send();
        us.receive();
        return "";
    });
    child.conversation().receive();
    waiter one(id, limit);
    ASSERT_TRUE(wait_for_waiters(1));
    child.kill_now();
    EXPECT_EQ(one.answer(), 0);
}

TEST_F(waiting, ThreadsOfOneClientMayWaitForEachOther)
{
    ASSERT_EQ(charge(holder, limit), 0);
    auto answer = std::async(std::launch::async,
                             [&] { return charge_wait(holder, mib); });
    ASSERT_TRUE(wait_for_waiters(1));
    ASSERT_EQ(uncharge(holder, mib), 0);
    EXPECT_EQ(answer.get(), 0);
    EXPECT_EQ(now().physical_used_bytes, limit);
}

TEST_F(waiting, NoWakeUpIsLost)
{
    constexpr unsigned threads = 16;
    constexpr unsigned rounds = 300;
    std::atomic<unsigned> served{0};
    std::atomic<unsigned> wrong{0};
    std::vector<std::thread> all;
    for (unsigned thread = 0; thread < threads; thread++)
        all.emplace_back([&, thread] {
            const auto own = open_client(id);
            std::mt19937 chance(thread);
            for (unsigned round = 0; round < rounds; round++) {
                // Far more than there is, all in all; some give up.
                const u64 bytes = 1 + chance() % limit;
                const bool hurries = chance() % 8 == 0;
                const int answer = charge_wait(
                    own, bytes, hurries ? in_ns(1000) : EMUV_NO_DEADLINE);
                served += answer == 0;
                wrong += answer != 0 && !(hurries && answer == ETIMEDOUT);
                if (answer == 0)
                    wrong += uncharge(own, bytes) != 0;
            }
        });
    // That all of them end is what is tested.
    for (auto &each : all)
        each.join();
    EXPECT_EQ(wrong, 0U);
    EXPECT_GE(served, threads * rounds / 2);
    EXPECT_EQ(now().physical_used_bytes, 0U);
    EXPECT_EQ(now().waiters, 0U);
    EXPECT_EQ(now().state & EMUV_STATE_ROOM, EMUV_STATE_ROOM);
}

// --- what ends a wait ---

TEST_F(waiting, ATimeLimitEndsItAndNothingIsCharged)
{
    ASSERT_EQ(charge(holder, limit - mib), 0);
    auto argument = fresh<emuv_charge>();
    for (const u64 deadline_ns : {u64{0}, in_ns(0), in_ns(1000000)}) {
        argument.flags = EMUV_CHARGE_WAIT;
        argument.bytes = 2 * mib;
        argument.deadline_ns = deadline_ns;
        argument.free_bytes = 4711;
        EXPECT_EQ(call(holder, EMUV_IOC_CHARGE, argument), ETIMEDOUT);
        EXPECT_EQ(argument.free_bytes, 4711U) << "written back on failure";
    }
    EXPECT_EQ(now().physical_used_bytes, limit - mib);
    EXPECT_EQ(now().waiters, 0U);
    EXPECT_EQ(charge(holder, mib), 0);
}

TEST_F(waiting, WhoGivesUpLetsThoseBehindThrough)
{
    ASSERT_EQ(charge(holder, limit - mib), 0);
    {
        const ignored_signal by(SIGUSR1, 0);
        waiter large(id, 2 * mib);
        ASSERT_TRUE(wait_for_waiters(1));
        waiter small(id, mib);
        ASSERT_TRUE(wait_for_waiters(2));
        large.signal(SIGUSR1);
        EXPECT_EQ(large.answer(), EINTR);
        EXPECT_EQ(small.answer(), 0);
        EXPECT_EQ(now().physical_used_bytes, limit);
    }
}

TEST_F(waiting, ASignalEndsIt)
{
    const ignored_signal by(SIGUSR1, 0);
    ASSERT_EQ(charge(holder, limit), 0);
    {
        waiter one(id, mib);
        ASSERT_TRUE(wait_for_waiters(1));
        one.signal(SIGUSR1);
        EXPECT_EQ(one.answer(), EINTR);
    }
    EXPECT_EQ(now().waiters, 0U);
    EXPECT_EQ(now().physical_used_bytes, limit);
}

TEST_F(waiting, AHandlerThatRestartsCallsLetsItGoOnBehindTheOthers)
{
    const ignored_signal by(SIGUSR1, SA_RESTART);
    ASSERT_EQ(charge(holder, limit), 0);
    waiter one(id, 2 * mib);
    ASSERT_TRUE(wait_for_waiters(1));
    waiter two(id, 2 * mib);
    ASSERT_TRUE(wait_for_waiters(2));
    const unsigned before = ignored_signal::handled;
    one.signal(SIGUSR1);
    ASSERT_TRUE(wait_until([&] { return ignored_signal::handled != before; }));
    ASSERT_TRUE(wait_for_waiters(2));
    ASSERT_EQ(uncharge(holder, 2 * mib), 0);
    EXPECT_EQ(two.answer(), 0);
    EXPECT_TRUE(one.waits());
    ASSERT_EQ(uncharge(holder, 2 * mib), 0);
    EXPECT_EQ(one.answer(), 0);
}

TEST_F(waiting, AKilledWaiterIsNotServedAndBlocksNobody)
{
    ASSERT_EQ(charge(holder, limit - mib), 0);
    process child([&](channel &) -> std::string {
        charge_wait(open_client(id), 2 * mib);
        return "was not killed";
    });
    ASSERT_TRUE(wait_for_waiters(1));
    waiter behind(id, mib);
    ASSERT_TRUE(wait_for_waiters(2));
    child.kill_now();
    EXPECT_EQ(behind.answer(), 0);
    ASSERT_TRUE(wait_for_waiters(0));
    EXPECT_EQ(now().physical_used_bytes, limit);
}

TEST_F(waiting, AnAnswerThatCannotBeWrittenLetsOthersThrough)
{
    ASSERT_EQ(charge(holder, limit), 0);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *at = mmap(nullptr, page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    auto argument = fresh<emuv_charge>();
    argument.flags = EMUV_CHARGE_WAIT;
    argument.bytes = mib;
    argument.deadline_ns = EMUV_NO_DEADLINE;
    std::memcpy(at, &argument, sizeof argument);
    const auto own = open_client(id);
    auto answer = std::async(std::launch::async, [&] {
        return call(own.get(), EMUV_IOC_CHARGE, at);
    });
    ASSERT_TRUE(wait_for_waiters(1));
    waiter behind(id, mib);
    ASSERT_TRUE(wait_for_waiters(2));
    ASSERT_EQ(mprotect(at, page, PROT_READ), 0);
    ASSERT_EQ(uncharge(holder, mib), 0);
    EXPECT_EQ(answer.get(), EFAULT);
    EXPECT_EQ(behind.answer(), 0);
    EXPECT_EQ(now().physical_used_bytes, limit);
    munmap(at, page);
}

TEST_F(waiting, AnInstanceThatIsWaitedForIsBusy)
{
    ASSERT_EQ(charge(holder, limit), 0);
    waiter one(id, mib);
    ASSERT_TRUE(wait_for_waiters(1));
    EXPECT_EQ(destroy(control, id), EBUSY);
    EXPECT_EQ(unload(), EWOULDBLOCK);
    EXPECT_TRUE(one.waits());
    holder.reset();
    EXPECT_EQ(destroy(control, id), EBUSY);
    EXPECT_EQ(one.answer(), 0);
}

TEST_F(waiting, AnInstanceCanBeDestroyedOnceItsWaitersAreKilled)
{
    ASSERT_EQ(charge(holder, limit), 0);
    process child([&](channel &) -> std::string {
        charge_wait(open_client(id), mib);
        return "was not killed";
    });
    ASSERT_TRUE(wait_for_waiters(1));
    holder.reset();
    child.kill_now();
    EXPECT_EQ(destroy_eventually(control, id), 0);
}

// --- poll() ---

short polled(int fd, int timeout_ms)
{
    pollfd what{fd, POLLIN | POLLOUT | POLLPRI, 0};
    return checked(poll(&what, 1, timeout_ms), "poll") ? what.revents : 0;
}

/// Reported events, without POLLIN and POLLOUT, which always are.
short news(const descriptor &client)
{
    const short got = polled(client.get(), 0);
    EXPECT_EQ(got & (POLLIN | POLLOUT), POLLIN | POLLOUT);
    return got & static_cast<short>(~(POLLIN | POLLOUT));
}

/// Sleeps until there is news; false if there is none for very long.
bool sleep_until_news(const descriptor &client)
{
    pollfd what{client.get(), POLLPRI, 0};
    return checked(poll(&what, 1, poll_limit_ms), "poll") == 1 &&
           what.revents == POLLPRI;
}

TEST_F(waiting, PollTellsOfAChangeUntilItHasBeenAskedFor)
{
    const auto other = open_client(id);
    EXPECT_EQ(news(other), 0);
    ASSERT_EQ(charge(holder, limit / 2), 0);
    EXPECT_EQ(news(other), 0) << "there is room as before";
    ASSERT_EQ(charge(holder, limit / 2 - 1), 0);
    EXPECT_EQ(news(other), POLLPRI);
    EXPECT_EQ(news(other), POLLPRI) << "it has not asked";
    EXPECT_EQ(query(other).state, EMUV_STATE_ROOM | EMUV_STATE_NEAR_LIMIT);
    EXPECT_EQ(news(other), 0);
    EXPECT_EQ(news(holder), POLLPRI) << "each asks for itself";
    ASSERT_EQ(charge(holder, 1), 0);
    EXPECT_EQ(news(other), POLLPRI);
    EXPECT_EQ(query(other).state, EMUV_STATE_NEAR_LIMIT);
    // A change and back is no news.
    ASSERT_EQ(uncharge(holder, 1), 0);
    EXPECT_EQ(news(other), POLLPRI);
    ASSERT_EQ(charge(holder, 1), 0);
    EXPECT_EQ(news(other), 0);
    ASSERT_EQ(uncharge(holder, limit / 8 - 1), 0);
    EXPECT_EQ(query(other).state, EMUV_STATE_ROOM | EMUV_STATE_NEAR_LIMIT)
        << "an eighth must be free";
    ASSERT_EQ(uncharge(holder, 1), 0);
    EXPECT_EQ(query(other).state, EMUV_STATE_ROOM);
}

TEST_F(waiting, AnOlderCallerIsNotTakenForToldOfTheState)
{
    const auto other = open_client(id);
    ASSERT_EQ(charge(holder, limit), 0);
    auto older = fresh<emuv_query_instance>();
    older.size = offsetof(emuv_query_instance, state);
    ASSERT_EQ(call(other, EMUV_IOC_QUERY_INSTANCE, older), 0);
    EXPECT_EQ(news(other), POLLPRI);
    query(other);
    EXPECT_EQ(news(other), 0);
}

TEST_F(waiting, PollWakesWhoSleeps)
{
    const auto other = open_client(id);
    auto woken =
        std::async(std::launch::async, [&] { return sleep_until_news(other); });
    ASSERT_EQ(charge(holder, limit), 0);
    EXPECT_TRUE(woken.get());
    EXPECT_EQ(query(other).state, EMUV_STATE_NEAR_LIMIT);
    woken =
        std::async(std::launch::async, [&] { return sleep_until_news(other); });
    ASSERT_EQ(uncharge(holder, limit), 0);
    EXPECT_TRUE(woken.get());
    EXPECT_EQ(query(other).state, EMUV_STATE_ROOM);
}

TEST_F(waiting, WhoHoldsIsToldThatOthersWait)
{
    ASSERT_EQ(charge(holder, limit), 0);
    query(holder);
    auto woken = std::async(std::launch::async,
                            [&] { return sleep_until_news(holder); });
    waiter one(id, mib);
    EXPECT_TRUE(woken.get());
    EXPECT_EQ(query(holder).state, EMUV_STATE_NEAR_LIMIT | EMUV_STATE_WAITERS);
    EXPECT_EQ(query(holder).waiters, 1U);
    EXPECT_EQ(query(one.client).state, EMUV_STATE_NEAR_LIMIT)
        << "its own wait is no news to it";
    EXPECT_EQ(now().state, EMUV_STATE_NEAR_LIMIT | EMUV_STATE_WAITERS);

    // A second one, of another client: now others wait for the first one, too.
    woken = std::async(std::launch::async,
                       [&] { return sleep_until_news(one.client); });
    waiter two(id, mib);
    EXPECT_TRUE(woken.get());
    EXPECT_EQ(query(one.client).state,
              EMUV_STATE_NEAR_LIMIT | EMUV_STATE_WAITERS);
    holder.reset();
    EXPECT_EQ(one.answer(), 0);
    EXPECT_EQ(two.answer(), 0);
}

TEST_F(waiting, AnInstanceOfNoVramHasNoRoomAndNoLimitToBeNear)
{
    const int other = create(control, 0, chunk);
    EXPECT_EQ(query(control, other).state, 0U);
    EXPECT_EQ(attribute(other, "state"), "");
    EXPECT_EQ(charge_wait(open_client(other), 1), ENOSPC);
}

TEST_F(waiting, ManagersPollTheAttribute)
{
    const descriptor state(
        open(attribute_path(id, "state").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(state);
    char text[64] = "";
    const auto reread = [&] {
        const auto got = pread(state.get(), text, sizeof text - 1, 0);
        text[got > 0 ? got : 0] = '\0';
        return std::string(text);
    };
    const auto told = [&] {
        pollfd what{state.get(), POLLPRI, 0};
        return checked(poll(&what, 1, poll_limit_ms), "poll") == 1;
    };
    EXPECT_EQ(reread(), "room\n");
    ASSERT_EQ(charge(holder, limit), 0);
    EXPECT_TRUE(told());
    EXPECT_EQ(reread(), "near-limit\n");
    waiter one(id, mib);
    EXPECT_TRUE(told());
    EXPECT_EQ(reread(), "near-limit waiters\n");
    ASSERT_EQ(uncharge(holder, limit), 0);
    EXPECT_TRUE(told());
    EXPECT_EQ(one.answer(), 0);
    EXPECT_EQ(reread(), "room\n");
}

TEST_F(waiting, WhoPollsIsToldThatTheHostComesNearItsFloor)
{
    holder.reset();
    const u64 available = settled_available();
    reload("host_floor_mb=" + std::to_string(available / 2 / mib));
    id = create(control, creation(limit, available / chunk * chunk, EMUV_ANY,
                                  EMUV_CREATE_OVERCOMMIT));
    const auto one = open_client(id);
    ASSERT_EQ(query(one).state, EMUV_STATE_ROOM);
    auto woken =
        std::async(std::launch::async, [&] { return sleep_until_news(one); });
    const auto other = open_client(id);
    const auto taken = allocate(other, available * 7 / 16, EMUV_ALLOC_POPULATE);
    EXPECT_TRUE(woken.get());
    EXPECT_EQ(query(one).state, EMUV_STATE_ROOM | EMUV_STATE_NEAR_FLOOR);
    EXPECT_EQ(attribute(id, "state"), "room near-floor");
    woken =
        std::async(std::launch::async, [&] { return sleep_until_news(one); });
    ASSERT_EQ(release(other, taken.offset), 0);
    EXPECT_TRUE(woken.get());
    EXPECT_EQ(query(one).state, EMUV_STATE_ROOM);
}

TEST_F(waiting, ManagersAreToldThatTheHostComesNearItsFloor)
{
    holder.reset();
    const u64 available = settled_available();
    reload("host_floor_mb=" + std::to_string(available / 2 / mib));
    id = create(control, creation(limit, available / chunk * chunk, EMUV_ANY,
                                  EMUV_CREATE_OVERCOMMIT));
    const descriptor state(
        open(attribute_path(id, "state").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(state);
    const auto reread = [&] {
        char text[64] = "";
        const auto got = pread(state.get(), text, sizeof text - 1, 0);
        return std::string(text, static_cast<std::size_t>(got > 0 ? got : 0));
    };
    // News may be none, as another reader's look is.
    const auto told = [&](const std::string &what) {
        for (;;) {
            pollfd one{state.get(), POLLPRI, 0};
            if (checked(poll(&one, 1, poll_limit_ms), "poll") != 1)
                return false;
            if (reread() == what)
                return true;
        }
    };
    ASSERT_EQ(reread(), "room\n");
    const auto other = open_client(id);
    const auto taken = allocate(other, available * 7 / 16, EMUV_ALLOC_POPULATE);
    EXPECT_TRUE(told("room near-floor\n"));
    ASSERT_EQ(release(other, taken.offset), 0);
    EXPECT_TRUE(told("room\n"));
}

} // namespace
