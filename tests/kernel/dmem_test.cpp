// SPDX-License-Identifier: GPL-2.0-or-later
// The device-memory cgroup: a cgroup's limit holds for physical bytes, and all
// that is charged comes back. Few kernels have that controller.
#include "support.hpp"

#include <cerrno>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace guest;

/// A group of the controller, removed with the object.
class dmem_cgroup
{
public:
    dmem_cgroup()
    {
        write_text("/sys/fs/cgroup/cgroup.subtree_control", "+dmem");
        usable = mkdir(folder_, 0755) == 0 && exists(file("dmem.max"));
    }
    ~dmem_cgroup() { rmdir(folder_); }
    dmem_cgroup(const dmem_cgroup &) = delete;
    dmem_cgroup &operator=(const dmem_cgroup &) = delete;

    bool usable = false;

    static bool enter()
    {
        return write_text(file("cgroup.procs"), std::to_string(getpid()));
    }
    static bool limit(int id, u64 bytes)
    {
        return write_text(file("dmem.max"),
                          region(id) + " " + std::to_string(bytes));
    }
    /// The bytes that the group has of an instance.
    static u64 current(int id)
    {
        std::istringstream lines(read_text(file("dmem.current")));
        std::string name;
        for (u64 bytes = 0; lines >> name >> bytes;)
            if (name == region(id))
                return bytes;
        return 0;
    }

private:
    static constexpr auto *folder_ = "/sys/fs/cgroup/emuv-dmem-test";

    static std::string file(const std::string &name)
    {
        return std::string(folder_) + "/" + name;
    }
    static std::string region(int id)
    {
        return "emuv/emuv" + std::to_string(id);
    }
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

    /// Runs in a process of the group that has the client.
    std::string in_group(const process::body &run)
    {
        return in_child({.keep = {client.get(), control.get()}},
                        [&](channel &with) -> std::string {
                            CHILD_EXPECT(dmem_cgroup::enter());
                            return run(with);
                        });
    }

    const dmem_cgroup group;
    int id = -1;
    descriptor client;
};

TEST_F(dmem, LimitHoldsAndRefusesWhatPassesIt)
{
    ASSERT_TRUE(dmem_cgroup::limit(id, 16 * mib));
    EXPECT_EQ(in_group([&](channel &) -> std::string {
                  CHILD_EXPECT(charge(client, 17 * mib) == ENOSPC);
                  CHILD_EXPECT(charge(client, 16 * mib) == 0);
                  CHILD_EXPECT(charge(client, 1) == ENOSPC);
                  CHILD_EXPECT(dmem_cgroup::current(id) == 16 * mib);
                  return "";
              }),
              "");
    // The limit is the group's, not the client's.
    EXPECT_EQ(charge(client, 48 * mib), 0);
    EXPECT_EQ(charge(client, 1), ENOSPC);
    EXPECT_EQ(query(control, id).physical_used_bytes, 64 * mib);
}

TEST_F(dmem, RefusalLeavesTheLedgerAsItWas)
{
    ASSERT_TRUE(dmem_cgroup::limit(id, 16 * mib));
    EXPECT_EQ(in_group([&](channel &) -> std::string {
                  CHILD_EXPECT(charge(client, 32 * mib) == ENOSPC);
                  return "";
              }),
              "");
    EXPECT_EQ(query(control, id).physical_used_bytes, 0U);
    EXPECT_EQ(charge(client, 64 * mib), 0);
    EXPECT_EQ(dmem_cgroup::current(id), 0U);
}

TEST_F(dmem, PartsComeBackWhoeverReturnsThem)
{
    EXPECT_EQ(in_group([&](channel &) -> std::string {
                  CHILD_EXPECT(charge(client, 32 * mib) == 0);
                  CHILD_EXPECT(uncharge(client, 10 * mib) == 0);
                  CHILD_EXPECT(dmem_cgroup::current(id) == 22 * mib);
                  return "";
              }),
              "");
    EXPECT_EQ(uncharge(client, 12 * mib), 0);
    EXPECT_EQ(dmem_cgroup::current(id), 10 * mib);
    EXPECT_EQ(uncharge(client, 10 * mib), 0);
    EXPECT_EQ(dmem_cgroup::current(id), 0U);
}

TEST_F(dmem, AllComesBackWithTheClient)
{
    EXPECT_EQ(in_group([&](channel &) -> std::string {
                  const auto own = open_client(id);
                  CHILD_EXPECT(charge(own, 32 * mib) == 0);
                  CHILD_EXPECT(uncharge(own, 3) == 0);
                  return "";
              }),
              "");
    EXPECT_TRUE(wait_until([&] { return dmem_cgroup::current(id) == 0; }));
}

TEST_F(dmem, InstanceTakenFromItsHoldersLeavesTheNumberToAnother)
{
    EXPECT_EQ(in_group([&](channel &) -> std::string {
                  CHILD_EXPECT(charge(client, 32 * mib) == 0);
                  return "";
              }),
              "");
    ASSERT_EQ(destroy(control, id, EMUV_DESTROY_FORCE), 0);
    ASSERT_EQ(create(control, creation(64 * mib, chunk, id)), id);
    EXPECT_EQ(dmem_cgroup::current(id), 0U);
    EXPECT_EQ(in_group([&](channel &) -> std::string {
                  const auto own = open_client(id);
                  CHILD_EXPECT(charge(own, mib) == 0);
                  CHILD_EXPECT(dmem_cgroup::current(id) == mib);
                  return "";
              }),
              "");
}

} // namespace
