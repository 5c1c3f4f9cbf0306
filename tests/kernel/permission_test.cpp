// SPDX-License-Identifier: GPL-2.0-or-later
// Permissions: the control node, the raw offset space, and descriptors in the
// hands of the less privileged.
#include "support.hpp"

#include <cerrno>
#include <cstring>

#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using namespace guest;

class permission : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, gib, 64 * mib);
        const auto raw = open_raw(id);
        ASSERT_EQ(pwrite(raw.get(), "secret", 6, 32 * mib), 6);
    }

    /// As an administrator would who lets everybody use it.
    void open_to_all() const
    {
        ASSERT_EQ(chmod(node_path(id).c_str(), 0666), 0);
    }

    int id = -1;
};

/// What a client with no right to it gets of the raw offset space: nothing, in
/// any way. Empty if so.
std::string check_no_raw(const descriptor &node)
{
    char byte = 'x';
    CHILD_EXPECT(error_of(pread(node.get(), &byte, 1, 32 * mib)) == EACCES);
    CHILD_EXPECT(byte == 'x');
    CHILD_EXPECT(error_of(pwrite(node.get(), "y", 1, 32 * mib)) == EACCES);
    CHILD_EXPECT(map_error(node.get(), chunk, 32 * mib) == EACCES);
    CHILD_EXPECT(map_error(node.get(), chunk, 32 * mib, PROT_READ) == EACCES);
    CHILD_EXPECT(discard(node, 32 * mib, chunk) == EACCES);
    int ends[2];
    CHILD_EXPECT(pipe2(ends, O_CLOEXEC) == 0);
    loff_t place = 32 * mib;
    CHILD_EXPECT(error_of(splice(node.get(), &place, ends[1], nullptr, 1, 0)) ==
                 EACCES);
    CHILD_EXPECT(write(ends[1], "y", 1) == 1);
    CHILD_EXPECT(error_of(splice(ends[0], nullptr, node.get(), &place, 1, 0)) ==
                 EACCES);
    close(ends[0]);
    close(ends[1]);
    return "";
}

/// What every client may do: use regions of its own. Empty if so.
std::string check_own_regions(const descriptor &node)
{
    region got;
    CHILD_EXPECT(try_allocate(node, 2 * chunk, got) == 0);
    CHILD_EXPECT(pwrite(node.get(), "a", 1, static_cast<off_t>(got.offset)) ==
                 1);
    const mapping map(node.get(), got.bytes, got.offset);
    CHILD_EXPECT(map[0] == 'a');
    CHILD_EXPECT(charge(node, 100) == 0);
    CHILD_EXPECT(uncharge(node, 100) == 0);
    CHILD_EXPECT(export_region(node, got.offset).get() >= 0);
    CHILD_EXPECT(discard(node, got.offset, got.bytes) == 0);
    CHILD_EXPECT(release(node, got.offset) == 0);
    return "";
}

std::string check_raw(const descriptor &node)
{
    char bytes[7] = {};
    CHILD_EXPECT(pread(node.get(), bytes, 6, 32 * mib) == 6);
    CHILD_EXPECT(std::strcmp(bytes, "secret") == 0);
    CHILD_EXPECT(pwrite(node.get(), "s", 1, 32 * mib) == 1);
    const mapping map(node.get(), chunk, 32 * mib);
    CHILD_EXPECT(map[1] == 'e');
    return "";
}

/// Leaves the process nothing of root's powers but one capability.
void keep_one_capability(int capability)
{
    checked(prctl(PR_SET_KEEPCAPS, 1), "PR_SET_KEEPCAPS");
    checked(setresgid(nobody, nobody, nobody), "setresgid");
    checked(setresuid(nobody, nobody, nobody), "setresuid");
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    sets[capability / 32].effective = sets[capability / 32].permitted =
        1U << (capability % 32);
    checked(syscall(SYS_capset, &header, sets), "capset");
}

TEST_F(permission, NobodyOpensNeitherNode)
{
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        CHILD_EXPECT(error_of(open("/dev/emuv-control", O_RDWR | O_CLOEXEC)) ==
                     EACCES);
        CHILD_EXPECT(error_of(open("/dev/emuv-control",
                                   O_RDONLY | O_CLOEXEC)) == EACCES);
        CHILD_EXPECT(error_of(open(node_path(id).c_str(),
                                   O_RDWR | O_CLOEXEC)) == EACCES);
        CHILD_EXPECT(error_of(open(node_path(id).c_str(),
                                   O_RDONLY | O_CLOEXEC)) == EACCES);
        return "";
    });
    EXPECT_EQ(said, "");
}

TEST_F(permission, AttributesAreForEverybody)
{
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        CHILD_EXPECT(attribute(id, "physical_bytes") == std::to_string(gib));
        CHILD_EXPECT(!attribute(id, "vram_info").empty());
        return "";
    });
    EXPECT_EQ(said, "");
}

TEST_F(permission, ControlNodeWithOpenModesStillCreatesNothingForNobody)
{
    ASSERT_EQ(chmod("/dev/emuv-control", 0666), 0);
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        const descriptor node(open("/dev/emuv-control", O_RDWR | O_CLOEXEC));
        if (!node)
            return errno == EACCES || errno == EPERM
                       ? ""
                       : "open: " + std::string(std::strerror(errno));
        auto argument = creation(mib, chunk);
        const int created = call(node, EMUV_IOC_CREATE, argument);
        CHILD_EXPECT(created == EACCES || created == EPERM);
        const int destroyed = destroy(node, id);
        CHILD_EXPECT(destroyed == EACCES || destroyed == EPERM);
        return "";
    });
    EXPECT_EQ(said, "");
    EXPECT_EQ(names_in("/sys/class/emuv").size(), 1U);
}

TEST_F(permission, NobodyUsesOwnRegionsAndNothingElse)
{
    open_to_all();
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        const auto node = open_raw(id);
        const auto own = check_own_regions(node);
        return own.empty() ? check_no_raw(node) : own;
    });
    EXPECT_EQ(said, "");
}

TEST_F(permission, ReadOfAnOwnRegionStopsBeforeWhatLiesBehindIt)
{
    open_to_all();
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        const auto node = open_raw(id);
        region got;
        // Just before the raw data.
        CHILD_EXPECT(try_allocate(node, 32 * mib, got) == 0);
        CHILD_EXPECT(got.offset == 0);
        char bytes[16] = {};
        CHILD_EXPECT(pread(node.get(), bytes, sizeof bytes, 32 * mib - 8) == 8);
        CHILD_EXPECT(bytes[8] == 0);
        CHILD_EXPECT(pwrite(node.get(), bytes, sizeof bytes, 32 * mib - 8) <=
                     8);
        CHILD_EXPECT(map_error(node.get(), 2 * chunk, 32 * mib - chunk) ==
                     EACCES);
        CHILD_EXPECT(discard(node, 32 * mib - chunk, 2 * chunk) == EACCES);
        return "";
    });
    EXPECT_EQ(said, "");
    char bytes[7] = {};
    ASSERT_EQ(pread(open_raw(id).get(), bytes, 6, 32 * mib), 6);
    EXPECT_STREQ(bytes, "secret");
}

TEST_F(permission, RootSeesTheRawSpace)
{
    EXPECT_EQ(check_raw(open_raw(id)), "");
}

TEST_F(permission, RootWithoutRawioSeesNoRawSpace)
{
    const without_capability dropped(CAP_SYS_RAWIO);
    const auto node = open_raw(id);
    EXPECT_EQ(check_no_raw(node), "");
    EXPECT_EQ(check_own_regions(node), "");
}

TEST_F(permission, RawioAloneIsEnough)
{
    open_to_all();
    const auto said = in_child({}, [&](channel &) -> std::string {
        keep_one_capability(CAP_SYS_RAWIO);
        return check_raw(open_raw(id));
    });
    EXPECT_EQ(said, "");
}

TEST_F(permission, OtherCapabilitiesAreNotEnough)
{
    open_to_all();
    for (const int capability :
         {CAP_SYS_ADMIN, CAP_DAC_OVERRIDE, CAP_SYS_PTRACE}) {
        const auto said = in_child({}, [&](channel &) -> std::string {
            keep_one_capability(capability);
            return check_no_raw(open_raw(id));
        });
        EXPECT_EQ(said, "") << capability;
    }
}

TEST_F(permission, DescriptorThatRootOpenedGivesNobodyNoRawSpace)
{
    const auto node = open_raw(id);
    const auto said = in_child(
        {.uid = nobody, .keep = {node.get()}}, [&](channel &) -> std::string {
            const auto own = check_own_regions(node);
            return own.empty() ? check_no_raw(node) : own;
        });
    EXPECT_EQ(said, "");
    EXPECT_EQ(check_raw(node), "") << "and root still has it";
}

TEST_F(permission, DescriptorThatNobodyOpenedGivesRootNoRawSpace)
{
    open_to_all();
    process opener({.uid = nobody}, [&](channel &us) -> std::string {
        const auto node = open_raw(id);
        us.send_descriptor(node.get());
        us.receive();
        return "";
    });
    const auto node = opener.conversation().receive_descriptor();
    EXPECT_EQ(check_no_raw(node), "");
    opener.conversation().send();
    EXPECT_EQ(opener.join(), "");
}

TEST_F(permission, RawioGivenUpAfterOpeningIsGone)
{
    const auto node = open_raw(id);
    ASSERT_EQ(check_raw(node), "");
    {
        const without_capability dropped(CAP_SYS_RAWIO);
        EXPECT_EQ(check_no_raw(node), "");
    }
    EXPECT_EQ(check_raw(node), "");
}

TEST_F(permission, RootOfAUserNamespaceSeesNoRawSpace)
{
    open_to_all();
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        // setresuid() left the process undumpable, and its maps not its own.
        prctl(PR_SET_DUMPABLE, 1);
        if (unshare(CLONE_NEWUSER) != 0)
            return errno == EPERM ? "skip" : failed("unshare", __LINE__);
        write_text("/proc/self/setgroups", "deny");
        CHILD_EXPECT(write_text("/proc/self/uid_map", "0 65534 1"));
        CHILD_EXPECT(geteuid() == 0);
        const auto node = open_raw(id);
        const auto own = check_own_regions(node);
        return own.empty() ? check_no_raw(node) : own;
    });
    if (said == "skip")
        GTEST_SKIP() << "user namespaces are not for everybody here";
    EXPECT_EQ(said, "");
}

TEST_F(permission, RootOfAUserNamespaceCreatesNothing)
{
    ASSERT_EQ(chmod("/dev/emuv-control", 0666), 0);
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        prctl(PR_SET_DUMPABLE, 1);
        if (unshare(CLONE_NEWUSER) != 0)
            return errno == EPERM ? "skip" : failed("unshare", __LINE__);
        const descriptor node(open("/dev/emuv-control", O_RDWR | O_CLOEXEC));
        if (!node)
            return "";
        auto argument = creation(mib, chunk);
        const int created = call(node, EMUV_IOC_CREATE, argument);
        CHILD_EXPECT(created == EACCES || created == EPERM);
        return "";
    });
    if (said == "skip")
        GTEST_SKIP() << "user namespaces are not for everybody here";
    EXPECT_EQ(said, "");
}

TEST_F(permission, MappingOfTheRawSpaceStaysWithWhoeverMadeIt)
{
    // A mapping was allowed when it was made; a child that has given up its
    // powers cannot make another.
    const auto node = open_raw(id);
    const mapping map(node.get(), chunk, 32 * mib);
    const auto said = in_child({.uid = nobody, .keep = {node.get()}},
                               [&](channel &) -> std::string {
                                   CHILD_EXPECT(map[0] == 's');
                                   return check_no_raw(node);
                               });
    EXPECT_EQ(said, "");
}

TEST_F(permission, RegionDescriptorNeedsNoPower)
{
    auto client = open_client(id);
    const auto got = allocate(client, chunk);
    ASSERT_EQ(pwrite(client.get(), "a", 1, static_cast<off_t>(got.offset)), 1);
    const auto exported = export_region(client, got.offset);
    const auto said = in_child(
        {.uid = nobody, .keep = {exported.get()}},
        [&](channel &) -> std::string {
            const mapping map(exported.get(), chunk);
            CHILD_EXPECT(map[0] == 'a');
            map[0] = 'b';
            CHILD_EXPECT(map_error(exported.get(), chunk, chunk) == EINVAL);
            // Not even to the same file by another name.
            const auto path = "/proc/self/fd/" + std::to_string(exported.get());
            const descriptor again(open(path.c_str(), O_RDWR | O_CLOEXEC));
            if (again) {
                char byte = 0;
                CHILD_EXPECT(pread(again.get(), &byte, 1,
                                   static_cast<off_t>(chunk)) <= 0);
            }
            return "";
        });
    EXPECT_EQ(said, "");
    char byte = 0;
    ASSERT_EQ(pread(client.get(), &byte, 1, static_cast<off_t>(got.offset)), 1);
    EXPECT_EQ(byte, 'b');
}

TEST_F(permission, ReadOnlyRegionDescriptorCannotBeOpenedForWriting)
{
    const auto reader = open_client(id, O_RDONLY);
    const auto exported = export_region(reader, allocate(reader, chunk).offset);
    const auto path = "/proc/self/fd/" + std::to_string(exported.get());
    const descriptor again(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (again) {
        EXPECT_LT(pwrite(again.get(), "x", 1, 0), 0);
        EXPECT_NE(map_error(again.get(), chunk, 0), 0);
    }
    EXPECT_FALSE(first_other(
        mapping(exported.get(), chunk, 0, PROT_READ).data(), chunk));
}

} // namespace
