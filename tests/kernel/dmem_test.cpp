// SPDX-License-Identifier: GPL-2.0-or-later
// The device-memory cgroup: a cgroup's limit holds for physical bytes, and all
// that is charged comes back. Few kernels have that controller.
#include "support.hpp"

#include <cerrno>
#include <ctime>
#include <sstream>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace guest;

const std::string root_group = "/sys/fs/cgroup";

/// The bytes that a group has of an instance.
u64 current(const std::string &group, int id)
{
    std::istringstream lines(read_text(group + "/dmem.current"));
    std::string name;
    for (u64 bytes = 0; lines >> name >> bytes;)
        if (name == "emuv/emuv" + std::to_string(id))
            return bytes;
    return 0;
}

/// A group of the controller, removed with the object.
class dmem_cgroup
{
public:
    explicit dmem_cgroup(const std::string &name,
                         const std::string &parent = root_group)
        : folder_(parent + "/" + name)
    {
        write_text(parent + "/cgroup.subtree_control", "+dmem");
        usable =
            mkdir(folder_.c_str(), 0755) == 0 && exists(folder_ + "/dmem.max");
    }
    ~dmem_cgroup() { remove(); }
    dmem_cgroup(const dmem_cgroup &) = delete;
    dmem_cgroup &operator=(const dmem_cgroup &) = delete;

    bool usable = false;

    const std::string &folder() const { return folder_; }
    bool remove() const { return rmdir(folder_.c_str()) == 0; }
    bool enter() const
    {
        return write_text(folder_ + "/cgroup.procs", std::to_string(getpid()));
    }
    bool limit(int id, u64 bytes) const
    {
        return write_text(folder_ + "/dmem.max", "emuv/emuv" +
                                                     std::to_string(id) + " " +
                                                     std::to_string(bytes));
    }
    u64 has(int id) const { return current(folder_, id); }

private:
    std::string folder_;
};

class dmem : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        if (!group.usable)
            GTEST_SKIP() << "no device-memory cgroup here";
        id = create(control, 64 * mib, chunk);
        client = open_client(id);
    }

    void TearDown() override
    {
        client.reset();
        driver_test::TearDown();
    }

    /// Runs in a process of a group that has the client.
    std::string in_group(const dmem_cgroup &which, const process::body &run)
    {
        return in_child({.keep = {client.get(), control.get()}},
                        [&](channel &with) -> std::string {
                            CHILD_EXPECT(which.enter());
                            return run(with);
                        });
    }

    /// Charges the client's bytes to a group.
    void charge_in(const dmem_cgroup &which, u64 bytes, int error = 0)
    {
        EXPECT_EQ(in_group(which,
                           [&](channel &) -> std::string {
                               CHILD_EXPECT(charge(client, bytes) == error);
                               return "";
                           }),
                  "");
    }

    const dmem_cgroup group{"emuv-dmem-test"};
    int id = -1;
    descriptor client;
};

TEST_F(dmem, LimitHoldsAndRefusesWhatPassesIt)
{
    ASSERT_TRUE(group.limit(id, 16 * mib));
    EXPECT_EQ(in_group(group,
                       [&](channel &) -> std::string {
                           CHILD_EXPECT(charge(client, 17 * mib) == ENOSPC);
                           CHILD_EXPECT(charge(client, 16 * mib) == 0);
                           CHILD_EXPECT(charge(client, 1) == ENOSPC);
                           CHILD_EXPECT(group.has(id) == 16 * mib);
                           return "";
                       }),
              "");
    // The limit is the group's, not the client's.
    EXPECT_EQ(charge(client, 48 * mib), 0);
    EXPECT_EQ(charge(client, 1), ENOSPC);
    EXPECT_EQ(query(control, id).physical_used_bytes, 64 * mib);
}

TEST_F(dmem, LimitOfAGroupAboveHoldsToo)
{
    ASSERT_TRUE(group.limit(id, 16 * mib));
    const dmem_cgroup below("below", group.folder());
    ASSERT_TRUE(below.usable);
    charge_in(below, 17 * mib, ENOSPC);
    charge_in(below, 16 * mib);
    EXPECT_EQ(group.has(id), 16 * mib);
    EXPECT_EQ(uncharge(client, 16 * mib), 0);
    EXPECT_EQ(group.has(id), 0U);
}

TEST_F(dmem, RefusalLeavesTheLedgerAsItWas)
{
    ASSERT_TRUE(group.limit(id, 16 * mib));
    charge_in(group, 32 * mib, ENOSPC);
    EXPECT_EQ(query(control, id).physical_used_bytes, 0U);
    EXPECT_EQ(charge(client, 64 * mib), 0);
    EXPECT_EQ(group.has(id), 0U);
}

TEST_F(dmem, WhatTheLedgerRefusesLeavesEachGroupAsItWas)
{
    const dmem_cgroup second("emuv-dmem-second");
    ASSERT_TRUE(second.usable);
    charge_in(group, 48 * mib);
    charge_in(second, 8 * mib);
    charge_in(second, 9 * mib, ENOSPC);
    EXPECT_EQ(group.has(id), 48 * mib);
    EXPECT_EQ(second.has(id), 8 * mib);

    // A wait that ends in vain.
    EXPECT_EQ(in_group(second,
                       [&](channel &) -> std::string {
                           timespec now{};
                           clock_gettime(CLOCK_MONOTONIC, &now);
                           auto wait = fresh<emuv_charge>();
                           wait.flags = EMUV_CHARGE_WAIT;
                           wait.bytes = 9 * mib;
                           wait.deadline_ns =
                               static_cast<u64>(now.tv_sec) * 1'000'000'000 +
                               static_cast<u64>(now.tv_nsec) + 1'000'000;
                           CHILD_EXPECT(call(client, EMUV_IOC_CHARGE, wait) ==
                                        ETIMEDOUT);
                           return "";
                       }),
              "");
    EXPECT_EQ(group.has(id), 48 * mib);
    EXPECT_EQ(second.has(id), 8 * mib);

    // An answer that cannot be written back.
    EXPECT_EQ(in_group(second,
                       [&](channel &) -> std::string {
                           auto *at = static_cast<emuv_charge *>(
                               mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
                           CHILD_EXPECT(at != MAP_FAILED);
                           *at = fresh<emuv_charge>();
                           at->bytes = 4 * mib;
                           CHILD_EXPECT(mprotect(at, 4096, PROT_READ) == 0);
                           CHILD_EXPECT(call(client.get(), EMUV_IOC_CHARGE,
                                             at) == EFAULT);
                           return "";
                       }),
              "");
    EXPECT_EQ(group.has(id), 48 * mib);
    EXPECT_EQ(second.has(id), 8 * mib);
    EXPECT_EQ(query(control, id).physical_used_bytes, 56 * mib);
    EXPECT_EQ(uncharge(client, 56 * mib), 0);
    EXPECT_EQ(group.has(id) + second.has(id), 0U);
}

TEST_F(dmem, NoChargeIsTooLargeToBeRefused)
{
    for (const u64 bytes :
         {64 * mib + 1, u64{EMUV_MAX_BYTES}, u64{1} << 63, ~u64{0}})
        charge_in(group, bytes, ENOSPC);
    EXPECT_EQ(group.has(id), 0U);
    charge_in(group, 64 * mib);
    EXPECT_EQ(group.has(id), 64 * mib);
}

TEST_F(dmem, PartsComeBackWhoeverReturnsThem)
{
    EXPECT_EQ(in_group(group,
                       [&](channel &) -> std::string {
                           CHILD_EXPECT(charge(client, 32 * mib) == 0);
                           for (u64 byte = 1; byte <= 1000; byte++) {
                               CHILD_EXPECT(uncharge(client, 1) == 0);
                               CHILD_EXPECT(group.has(id) == 32 * mib - byte);
                           }
                           return "";
                       }),
              "");
    EXPECT_EQ(uncharge(client, 12 * mib), 0);
    EXPECT_EQ(group.has(id), 20 * mib - 1000);
    EXPECT_EQ(uncharge(client, 20 * mib - 1000), 0);
    EXPECT_EQ(group.has(id), 0U);
}

TEST_F(dmem, AllComesBackWithTheClient)
{
    EXPECT_EQ(in_group(group,
                       [&](channel &) -> std::string {
                           const auto own = open_client(id);
                           CHILD_EXPECT(charge(own, 32 * mib) == 0);
                           CHILD_EXPECT(uncharge(own, 3) == 0);
                           return "";
                       }),
              "");
    EXPECT_TRUE(wait_until([&] { return group.has(id) == 0; }));
}

// Others hold the client then. The groups above count what that one was
// charged.
TEST_F(dmem, AllComesBackFromARemovedGroup)
{
    {
        const dmem_cgroup below("below", group.folder());
        ASSERT_TRUE(below.usable);
        charge_in(below, 32 * mib);
        EXPECT_TRUE(wait_until([&] { return below.remove(); }));
    }
    EXPECT_EQ(group.has(id), 32 * mib);
    EXPECT_EQ(uncharge(client, 10 * mib), 0);
    EXPECT_GE(group.has(id), 22 * mib);
    EXPECT_EQ(uncharge(client, 22 * mib), 0);
    EXPECT_EQ(group.has(id), 0U);
}

TEST_F(dmem, AllComesBackWhereTheControllerWasTakenAway)
{
    const dmem_cgroup below("below", group.folder());
    ASSERT_TRUE(below.usable);
    charge_in(below, 32 * mib);
    ASSERT_TRUE(
        write_text(group.folder() + "/cgroup.subtree_control", "-dmem"));
    EXPECT_EQ(uncharge(client, 10 * mib), 0);
    EXPECT_GE(group.has(id), 22 * mib);
    ASSERT_TRUE(
        write_text(group.folder() + "/cgroup.subtree_control", "+dmem"));
    EXPECT_EQ(uncharge(client, 10 * mib), 0);
    EXPECT_GE(group.has(id), 12 * mib);
    EXPECT_EQ(uncharge(client, 12 * mib), 0);
    EXPECT_EQ(group.has(id), 0U);
    charge_in(below, 5 * mib);
    EXPECT_EQ(below.has(id), 5 * mib);
}

TEST_F(dmem, MoreThanTheFirstSizeIsChargedAfterAResize)
{
    auto change = fresh<emuv_resize>();
    change.id = id;
    change.flags = EMUV_RESIZE_PHYSICAL;
    change.physical_bytes = 256 * mib;
    ASSERT_EQ(call(control, EMUV_IOC_RESIZE, change), 0);
    ASSERT_TRUE(group.limit(id, 128 * mib));
    charge_in(group, 129 * mib, ENOSPC);
    charge_in(group, 128 * mib);
    EXPECT_EQ(group.has(id), 128 * mib);
}

TEST_F(dmem, InstanceTakenFromItsHoldersLeavesTheNumberToAnother)
{
    charge_in(group, 32 * mib);
    ASSERT_EQ(destroy(control, id, EMUV_DESTROY_FORCE), 0);
    ASSERT_EQ(create(control, creation(64 * mib, chunk, id)), id);
    EXPECT_EQ(group.has(id), 0U);
    EXPECT_EQ(in_group(group,
                       [&](channel &) -> std::string {
                           const auto own = open_client(id);
                           CHILD_EXPECT(charge(own, mib) == 0);
                           CHILD_EXPECT(group.has(id) == mib);
                           return "";
                       }),
              "");
}

} // namespace
