// SPDX-License-Identifier: GPL-2.0-or-later
// Permissions: the table of docs/reference/tenancy.md, cell by cell, and rules
// outside the table.
#include "support.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <grp.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using namespace guest;

/// The group of the nodes by the udev rule; it has no name here.
constexpr gid_t render = 4711;

class permission : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, gib, 64 * mib);
        owner = open_client(id);
        const auto before = allocate(owner, 32 * mib);
        const auto theirs = allocate(owner, chunk);
        ASSERT_EQ(theirs.offset, 32 * mib);
        ASSERT_EQ(pwrite(owner.get(), "secret", 6, 32 * mib), 6);
        ASSERT_EQ(release(owner, before.offset), 0);
    }

    void TearDown() override
    {
        owner.reset();
        driver_test::TearDown();
    }

    /// Opens the node's mode to all users, as an administrator may.
    void open_to_all() const
    {
        ASSERT_EQ(chmod(node_path(id).c_str(), 0666), 0);
    }

    int id = -1;
    /// Whose region lies at 32 MiB.
    descriptor owner;
};

/// Checks that a client without the right can use no raw offset space in any
/// way. Empty if so.
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

std::string check_raw(const descriptor &node)
{
    char bytes[7] = {};
    CHILD_EXPECT(pread(node.get(), bytes, 6, 32 * mib) == 6);
    CHILD_EXPECT(std::strcmp(bytes, "secret") == 0);
    CHILD_EXPECT(pwrite(node.get(), "s", 1, 32 * mib) == 1);
    CHILD_EXPECT(map_error(node.get(), chunk, 32 * mib) == EACCES);
    return "";
}

/// Drops all of root's capabilities but one.
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

TEST_F(permission, AttributesAreForEverybody)
{
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        CHILD_EXPECT(attribute(id, "physical_bytes") == std::to_string(gib));
        CHILD_EXPECT(!attribute(id, "vram_info").empty());
        return "";
    });
    EXPECT_EQ(said, "");
}

TEST_F(permission, ReadOfAnOwnRegionStopsBeforeWhatLiesBehindIt)
{
    open_to_all();
    const auto said = in_child({.uid = nobody}, [&](channel &) -> std::string {
        const auto node = open_raw(id);
        region got;
        // Just before the owner's.
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
            // Not by reopening the same file under another name either.
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

TEST_F(permission, RegionDescriptorCannotBeMappedExecutable)
{
    const auto client = open_client(id);
    const auto exported = export_region(client, allocate(client, chunk).offset);
    EXPECT_EQ(map_error(exported.get(), chunk, 0, PROT_READ | PROT_EXEC),
              EPERM);
    EXPECT_EQ(
        map_error(exported.get(), chunk, 0, PROT_READ | PROT_WRITE | PROT_EXEC),
        EPERM);
    // Nor made so later.
    const mapping map(exported.get(), chunk);
    EXPECT_EQ(error_of(mprotect(map.data(), chunk, PROT_READ | PROT_EXEC)),
              EACCES);
    EXPECT_EQ(error_of(mprotect(map.data(), chunk, PROT_READ)), 0);
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

// --- the table ---

/// A table of docs/reference/tenancy.md. The keys are the first word of a row,
/// then the first word of a column.
using table = std::map<std::string, std::map<std::string, std::string>>;

std::vector<std::string> cells_of(const std::string &line)
{
    std::vector<std::string> cells;
    std::istringstream in(line.substr(1));
    for (std::string cell; std::getline(in, cell, '|');) {
        const auto begin = cell.find_first_not_of(' ');
        const auto end = cell.find_last_not_of(' ');
        cells.push_back(begin == std::string::npos
                            ? ""
                            : cell.substr(begin, end - begin + 1));
    }
    return cells;
}

/// The first table of the page.
table documented()
{
    table rows;
    std::ifstream page(EMUV_TENANCY);
    std::vector<std::string> columns;
    for (std::string line; std::getline(page, line);) {
        if (!line.starts_with("|")) {
            if (!columns.empty())
                break;
            continue;
        }
        const auto cells = cells_of(line);
        if (columns.empty())
            columns = cells;
        else if (!cells[0].starts_with("---"))
            for (std::size_t i = 1; i < cells.size() && i < columns.size(); i++)
                rows[cells[0]][columns[i]] = cells[i];
    }
    return rows;
}

/// A tenant's surroundings: descriptors handed to it, and other tenants.
struct world
{
    int id;       ///< the instance of its own node
    int other_id; ///< another tenant's instance
    u64 others;   ///< offset of another client's region
    const descriptor *node = nullptr;
    const descriptor *control = nullptr;
    const descriptor *swap = nullptr; ///< a file to swap to, if there is one
};

/// How a process becomes a tenant: root's preparation, and the process.
struct tenant
{
    std::string name;
    std::function<void()> become = [] {};
    mode_t node_mode = 0660;
    mode_t control_mode = 0600;
    unsigned long clone_flags = 0;
    bool handed_node = false;
    bool handed_control = false;
};

void become_user(uid_t uid, gid_t group)
{
    checked(setgroups(1, &group), "setgroups");
    checked(setresgid(uid, uid, uid), "setresgid");
    checked(setresuid(uid, uid, uid), "setresuid");
}

void become_other_user()
{
    become_user(nobody, nobody);
}

/// Drops a capability of this process for good.
void give_up(int capability)
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    checked(syscall(SYS_capget, &header, sets), "capget");
    auto &set = sets[capability / 32];
    set.effective &= ~(1U << (capability % 32));
    set.permitted &= ~(1U << (capability % 32));
    set.inheritable &= ~(1U << (capability % 32));
    checked(syscall(SYS_capset, &header, sets), "capset");
}

/// Makes the process root of a user namespace of its own.
void become_root_of_user_namespace(unsigned long with = 0)
{
    const auto uid = geteuid();
    // setresuid() left the process undumpable, so it does not own its maps.
    checked(prctl(PR_SET_DUMPABLE, 1), "PR_SET_DUMPABLE");
    checked(unshare(CLONE_NEWUSER | static_cast<int>(with)), "unshare");
    write_text("/proc/self/setgroups", "deny");
    if (!write_text("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1"))
        throw std::runtime_error("uid_map");
}

/// Makes the mounts of a container, as a runtime would. The process already has
/// its own mount and PID namespace.
void enter_container(const std::string &node)
{
    const auto must = [](int result, const char *what) {
        checked(result, what);
    };
    must(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "private");
    char folder[] = "/tmp/emuv-container.XXXXXX";
    if (mkdtemp(folder) == nullptr)
        throw std::runtime_error("mkdtemp");
    must(mount("dev", folder, "tmpfs", 0, "mode=755"), "tmpfs");
    if (!node.empty()) {
        const auto place = folder + node.substr(node.rfind('/'));
        const descriptor file(open(place.c_str(), O_CREAT | O_CLOEXEC, 0644));
        must(mount(node.c_str(), place.c_str(), nullptr, MS_BIND, nullptr),
             "bind");
    }
    must(mount(folder, "/dev", nullptr, MS_BIND | MS_REC, nullptr), "/dev");
    // Without what is mounted in it, such as debugfs.
    must(mount("/sys", "/sys", nullptr, MS_BIND, nullptr), "/sys");
    must(mount(nullptr, "/sys", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY,
               nullptr),
         "read-only");
    must(mount("proc", "/proc", "proc", 0, nullptr), "/proc");
}

/// Keeps the capabilities that container runtimes leave root by default,
/// without CAP_MKNOD.
void keep_container_capabilities(std::set<int> kept = {})
{
    kept.merge(std::set<int>{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FSETID,
                             CAP_FOWNER, CAP_KILL, CAP_SETGID, CAP_SETUID,
                             CAP_SETPCAP, CAP_SETFCAP, CAP_NET_BIND_SERVICE,
                             CAP_NET_RAW, CAP_SYS_CHROOT, CAP_AUDIT_WRITE});
    for (int capability = 0; capability <= CAP_LAST_CAP; capability++)
        if (!kept.contains(capability))
            give_up(capability);
}

/// A control group whose processes may create any device node, as container
/// runtimes allow by default, but may open none.
class device_cgroup
{
public:
    device_cgroup() : group_("devices")
    {
        // The kind of access is in the upper half of the context's first word.
        constexpr bpf_insn program[] = {
            {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_2, BPF_REG_1, 0, 0},
            {BPF_ALU | BPF_RSH | BPF_K, BPF_REG_2, 0, 0, 16},
            {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
            {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_2, 0, 1, BPF_DEVCG_ACC_MKNOD},
            {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
            {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
        bpf_attr load{};
        load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
        load.insns = reinterpret_cast<std::uint64_t>(program);
        load.insn_cnt = std::size(program);
        load.license = reinterpret_cast<std::uint64_t>("GPL");
        const descriptor loaded(static_cast<int>(
            syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load)));
        const descriptor folder(
            open(group_.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        bpf_attr attach{};
        attach.target_fd = static_cast<std::uint32_t>(folder.get());
        attach.attach_bpf_fd = static_cast<std::uint32_t>(loaded.get());
        attach.attach_type = BPF_CGROUP_DEVICE;
        usable_ =
            loaded && folder &&
            syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) == 0;
    }

    bool usable() const { return usable_; }
    void enter() const
    {
        if (!group_.enter())
            throw std::runtime_error("cgroup.procs");
    }

private:
    memory_cgroup group_;
    bool usable_ = false;
};

/// The driver's nodes with their device numbers, for creating them again.
std::map<std::string, dev_t> nodes_there_are()
{
    std::map<std::string, dev_t> nodes;
    for (const auto &each : std::filesystem::directory_iterator("/dev")) {
        struct stat is = {};
        const auto path = each.path().string();
        if (path.starts_with("/dev/emuv") && stat(path.c_str(), &is) == 0)
            nodes[path] = is.st_rdev;
    }
    return nodes;
}

constexpr uid_t container_user = 100000;

/// All tenants of the table.
std::vector<tenant> tenants(int id, const device_cgroup &confined)
{
    const auto node = node_path(id);
    const auto container = [node] {
        enter_container(node);
        keep_container_capabilities();
    };
    const auto with_a_user_namespace = [](const std::string &with) {
        enter_container(with);
        become_user(container_user, container_user);
        become_root_of_user_namespace(CLONE_NEWNS);
    };
    const auto with_nodes_of_its_own = [] {
        const auto nodes = nodes_there_are();
        enter_container("");
        keep_container_capabilities({CAP_MKNOD});
        for (const auto &[path, number] : nodes)
            checked(mknod(path.c_str(), S_IFCHR | 0600, number), "mknod");
    };
    const auto namespaces = CLONE_NEWNS | CLONE_NEWPID;
    std::vector<tenant> all = {
        {.name = "root"},
        {.name = "root without CAP_SYS_RAWIO",
         .become = [] { give_up(CAP_SYS_RAWIO); }},
        {.name = "root without CAP_SYS_ADMIN",
         .become = [] { give_up(CAP_SYS_ADMIN); }},
        {.name = "group render", .become = [] { become_user(nobody, render); }},
        {.name = "another user", .become = become_other_user},
        {.name = "another user, the node 0666",
         .become = become_other_user,
         .node_mode = 0666},
        {.name = "another user, the control node 0666",
         .become = become_other_user,
         .control_mode = 0666},
        {.name = "another user, handed the open node",
         .become = become_other_user,
         .handed_node = true},
        {.name = "another user, handed the open control node",
         .become = become_other_user,
         .handed_control = true},
        {.name = "another user with CAP_SYS_RAWIO, the node 0666",
         .become = [] { keep_one_capability(CAP_SYS_RAWIO); },
         .node_mode = 0666},
        {.name = "root of a user namespace",
         .become =
             [] {
                 become_other_user();
                 become_root_of_user_namespace();
             }},
        {.name = "root of a user namespace, both nodes 0666",
         .become =
             [] {
                 become_other_user();
                 become_root_of_user_namespace();
             },
         .node_mode = 0666,
         .control_mode = 0666},
        {.name = "a container with the node",
         .become = container,
         .clone_flags = namespaces},
        {.name = "a container without the node",
         .become =
             [] {
                 enter_container("");
                 keep_container_capabilities();
             },
         .clone_flags = namespaces},
        {.name = "a container in a user namespace, with the node",
         .become = [=] { with_a_user_namespace(node); },
         .clone_flags = namespaces},
        {.name = "a container in a user namespace, with the node 0666",
         .become = [=] { with_a_user_namespace(node); },
         .node_mode = 0666,
         .clone_flags = namespaces},
        {.name = "a container in a user namespace, handed the open node",
         .become = [=] { with_a_user_namespace(""); },
         .clone_flags = namespaces,
         .handed_node = true},
        {.name = "a container with CAP_MKNOD, no device cgroup",
         .become = with_nodes_of_its_own,
         .clone_flags = namespaces},
    };
    if (confined.usable())
        all.push_back({.name = "a container with CAP_MKNOD, in a device cgroup",
                       .become =
                           [=, &confined] {
                               confined.enter();
                               with_nodes_of_its_own();
                           },
                       .clone_flags = namespaces});
    return all;
}

/// The word in the table for the results of calls: one word if all are alike.
std::string word(const std::set<int> &errors)
{
    std::string text;
    for (const int error : errors) {
        const char *const name = strerrorname_np(error);
        text += text.empty() ? "" : "/";
        text += error == 0 ? "yes" : name != nullptr ? name : "?";
    }
    return text;
}

int open_error(const std::string &path, int flags)
{
    return descriptor(open(path.c_str(), flags | O_CLOEXEC)) ? 0 : errno;
}

std::string own_memory(const descriptor &node)
{
    std::set<int> errors;
    region got;
    errors.insert(try_allocate(node, 2 * chunk, got));
    errors.insert(
        error_of(pwrite(node.get(), "a", 1, static_cast<off_t>(got.offset))));
    errors.insert(map_error(node.get(), got.bytes, got.offset));
    errors.insert(charge(node, 100));
    errors.insert(uncharge(node, 100));
    // There is room: it need not wait.
    auto waiting = fresh<emuv_charge>();
    waiting.flags = EMUV_CHARGE_WAIT;
    waiting.bytes = 100;
    waiting.deadline_ns = EMUV_NO_DEADLINE;
    errors.insert(call(node, EMUV_IOC_CHARGE, waiting));
    auto back = fresh<emuv_charge>();
    back.flags = EMUV_UNCHARGE_CANCEL;
    back.bytes = 100;
    errors.insert(call(node, EMUV_IOC_UNCHARGE, back));
    auto state = fresh<emuv_query_instance>();
    errors.insert(call(node, EMUV_IOC_QUERY_INSTANCE, state));
    auto memory = fresh<emuv_query_client>();
    memory.flags = EMUV_QUERY_MEMORY;
    errors.insert(call(node, EMUV_IOC_QUERY_CLIENT, memory));
    pollfd poller{node.get(), POLLIN, 0};
    errors.insert(poll(&poller, 1, 0) == 1 ? 0 : EIO);
    for (const unsigned flags : {0U, EMUV_EXPORT_DMABUF}) {
        auto exported = fresh<emuv_export>();
        exported.flags = flags;
        exported.offset = got.offset;
        errors.insert(call(node, EMUV_IOC_EXPORT, exported));
        const descriptor file(exported.fd);
        region imported;
        // The tenant already holds its own region; a dma-buf is no region
        // descriptor.
        if (import_region(node, file, imported) != (flags ? EINVAL : EEXIST))
            errors.insert(EPROTO);
    }
    errors.insert(discard(node, got.offset, got.bytes));
    errors.insert(release(node, got.offset));
    return word(errors);
}

/// Reading and writing a chunk that is not the caller's.
std::string read_and_write(const descriptor &node, u64 offset)
{
    const auto at = static_cast<off_t>(offset);
    char byte = 'x';
    std::set<int> errors;
    errors.insert(error_of(pread(node.get(), &byte, 1, at)));
    errors.insert(error_of(pwrite(node.get(), "s", 1, at)));
    int ends[2];
    checked(pipe2(ends, O_CLOEXEC), "pipe2");
    loff_t place = at;
    errors.insert(error_of(splice(node.get(), &place, ends[1], nullptr, 1, 0)));
    close(ends[0]);
    close(ends[1]);
    if (!errors.contains(0) && byte != 'x')
        errors.insert(EPROTO);
    return word(errors);
}

/// Mapping and discarding it.
std::string map_and_discard(const descriptor &node, u64 offset)
{
    std::set<int> errors;
    errors.insert(map_error(node.get(), chunk, offset));
    errors.insert(map_error(node.get(), chunk, offset, PROT_READ));
    errors.insert(discard(node, offset + chunk - 4096, 4096));
    // The tenant can never export the region as its own.
    auto exported = fresh<emuv_export>();
    exported.offset = offset;
    if (release(node, offset) != ENOENT ||
        call(node, EMUV_IOC_EXPORT, exported) != ENOENT)
        errors.insert(EPROTO);
    return word(errors);
}

/// Reading what no client has allocated.
std::string read_nobodys(const descriptor &node)
{
    char byte = 0;
    const int error = error_of(pread(node.get(), &byte, 1, 60 * mib));
    return word({byte == 0 ? error : EPROTO});
}

/// Creating an instance of each kind, resizing it, and destroying it in each
/// way.
std::string create_and_destroy(const descriptor &control,
                               const descriptor *swap)
{
    std::vector<unsigned> kinds = {0U, EMUV_CREATE_GUARANTEED};
    if (swap != nullptr)
        kinds.push_back(EMUV_CREATE_SWAP);
    std::set<int> errors;
    for (const unsigned kind : kinds) {
        for (const unsigned how : {0U, EMUV_DESTROY_FORCE}) {
            auto argument = creation(mib, chunk, EMUV_ANY, kind);
            if (kind == EMUV_CREATE_SWAP)
                argument.swap_fd = swap->get();
            const int error = call(control, EMUV_IOC_CREATE, argument);
            auto size = fresh<emuv_resize>();
            size.id = error == 0 ? argument.id : 77;
            size.flags = EMUV_RESIZE_PHYSICAL | EMUV_RESIZE_VIRTUAL;
            size.physical_bytes = 2 * mib;
            size.virtual_bytes = 2 * chunk;
            errors.insert(call(control, EMUV_IOC_RESIZE, size));
            auto gone = fresh<emuv_destroy>();
            gone.id = size.id;
            gone.flags = how;
            errors.insert(error);
            errors.insert(call(control, EMUV_IOC_DESTROY, gone));
        }
    }
    return word(errors);
}

/// Tries the calling tenant's row.
std::map<std::string, std::string> row(const world &around)
{
    std::map<std::string, std::string> cells;
    const std::string none = "–";
    const auto path = node_path(around.id);

    descriptor control;
    cells["control"] = word({open_error("/dev/emuv-control", O_RDWR)});
    if (cells["control"] == "yes")
        control = descriptor(open("/dev/emuv-control", O_RDWR | O_CLOEXEC));
    const auto &to_create = around.control ? *around.control : control;
    cells["create"] = none;
    if (to_create)
        cells["create"] = create_and_destroy(to_create, around.swap);

    descriptor opened;
    cells["open"] =
        word({open_error(path, O_RDWR), open_error(path, O_RDONLY)});
    if (cells["open"] == "yes")
        opened = open_raw(around.id);
    const auto &node = around.node ? *around.node : opened;
    cells["own memory"] = cells["others' memory"] = cells["others' mappings"] =
        cells["raw space"] = none;
    if (node) {
        cells["own memory"] = own_memory(node);
        cells["others' memory"] = read_and_write(node, around.others);
        cells["others' mappings"] = map_and_discard(node, around.others);
        cells["raw space"] = read_nobodys(node);
    }

    cells["other instance"] =
        word({open_error(node_path(around.other_id), O_RDWR)});
    cells["attributes"] = word(
        {open_error(attribute_path(around.id, "physical_used_bytes"), O_RDONLY),
         open_error(attribute_path(around.id, "state"), O_RDONLY)});
    const auto folder =
        "/sys/kernel/debug/emuv/emuv" + std::to_string(around.id);
    cells["debugging"] = word({open_error(folder + "/regions", O_RDONLY),
                               open_error(folder + "/clients", O_RDONLY)});
    cells["floor"] = word(
        {open_error("/sys/module/emuv/parameters/host_floor_mb", O_WRONLY)});
    cells["unload"] =
        word({error_of(syscall(SYS_delete_module, "emuv", O_NONBLOCK))});
    return cells;
}

/// A compressed RAM disk to swap to, where there is one.
struct swap_disk
{
    swap_disk()
    {
        if (load_stock_module("zram num_devices=1") &&
            write_text("/sys/block/zram0/disksize", std::to_string(16 * mib)))
            file = descriptor(
                open("/dev/zram0", O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC));
    }
    ~swap_disk()
    {
        if (!file)
            return;
        file.reset();
        // The driver's last file may be closed a moment later.
        wait_until([] { return write_text("/sys/block/zram0/reset", "1"); });
    }
    swap_disk(const swap_disk &) = delete;
    swap_disk &operator=(const swap_disk &) = delete;

    descriptor file;
};

/// Compares the tried rows with the rows of the page.
class who_may_do_what : public permission
{
protected:
    void SetUp() override
    {
        permission::SetUp();
        if (HasFatalFailure())
            return;
        other_id = create(control, mib, chunk);
        for (const int each : {id, other_id}) {
            const auto path = node_path(each);
            ASSERT_EQ(chown(path.c_str(), 0, render), 0);
            ASSERT_EQ(chmod(path.c_str(), 0660), 0);
        }
    }

    /// A tenant's results, cell by cell, or one cell with the failure.
    std::map<std::string, std::string> ask(const tenant &who)
    {
        const auto neighbour = open_client(id);
        const auto theirs = allocate(neighbour, chunk);
        const std::string secret(chunk, 'n');
        checked(pwrite(neighbour.get(), secret.data(), secret.size(),
                       static_cast<off_t>(theirs.offset)),
                "pwrite");
        checked(chmod(node_path(id).c_str(), who.node_mode), "chmod");
        checked(chmod("/dev/emuv-control", who.control_mode), "chmod");
        world around{.id = id, .other_id = other_id, .others = theirs.offset};
        descriptor node;
        process::options how{.clone_flags = who.clone_flags};
        if (disk.file) {
            around.swap = &disk.file;
            how.keep.push_back(disk.file.get());
        }
        if (who.handed_node) {
            node = open_raw(id);
            around.node = &node;
            how.keep.push_back(node.get());
        }
        if (who.handed_control) {
            around.control = &control;
            how.keep.push_back(control.get());
        }
        const auto said = in_child(how, [&](channel &) {
            who.become();
            std::string text;
            for (const auto &[column, cell] : row(around))
                text += column + "=" + cell + ";";
            return text;
        });
        std::map<std::string, std::string> cells;
        std::istringstream in(said);
        for (std::string part; std::getline(in, part, ';');)
            cells[part.substr(0, part.find('='))] =
                part.substr(part.find('=') + 1);
        // A tenant without access has changed nothing.
        if (cells["others' memory"] != "yes") {
            const mapping map(neighbour.get(), chunk, theirs.offset);
            EXPECT_FALSE(first_other(map.data(), chunk, 'n'));
        }
        return cells;
    }

    int other_id = -1;
    const swap_disk disk;
};

TEST_F(who_may_do_what, IsAsThePageSays)
{
    auto page = documented();
    ASSERT_FALSE(page.empty()) << "no table in " << EMUV_TENANCY;
    const device_cgroup confined;
    if (!confined.usable()) {
        ASSERT_EQ(page.erase("a container with CAP_MKNOD, in a device cgroup"),
                  1U);
    }
    const bool debugs = exists("/sys/kernel/debug/emuv");
    for (const auto &who : tenants(id, confined)) {
        SCOPED_TRACE(who.name);
        auto cells = ask(who);
        if (!debugs)
            cells["debugging"] = page[who.name]["debugging"];
        EXPECT_EQ(cells, page[who.name]);
        page.erase(who.name);
    }
    for (const auto &[name, cells] : page)
        ADD_FAILURE() << "nobody here is '" << name << "'";
}

TEST_F(who_may_do_what, DeviceCgroupsAreThereToBeTried)
{
    if (!device_cgroup().usable())
        GTEST_SKIP() << "this kernel has none (CONFIG_CGROUP_BPF)";
}

/// The rows of user namespaces cannot be tried if a sysctl such as
/// kernel.unprivileged_userns_clone forbids them. This test then fails, so that
/// they are not skipped in silence.
TEST_F(who_may_do_what, UserNamespacesAreThereToBeTried)
{
    EXPECT_EQ(in_child({.uid = nobody},
                       [](channel &) -> std::string {
                           become_root_of_user_namespace();
                           return "";
                       }),
              "");
}

// --- numbers that a tenant sees ---

TEST_F(who_may_do_what, NumbersOnANodeAreTheTenantsOwn)
{
    owner.reset();
    // Another tenant has more clients and more memory.
    const auto theirs = open_client(other_id);
    for (int i = 0; i < 3; i++)
        open_client(other_id);
    const auto region_there = allocate(theirs, chunk);
    charge(theirs, 12345);
    auto report = fresh<emuv_report>();
    report.fetched_bytes = report.evicted_bytes = report.spills =
        report.faults = report.hit_bytes = report.miss_bytes =
            report.stalled_ns = 99;
    ASSERT_EQ(call(theirs, EMUV_IOC_REPORT, report), 0);

    const auto node = open_client(id);
    const auto first = list_clients(node).front().client;
    for (const int asked : {id, other_id, 1023, -1}) {
        const auto of = query(node, asked);
        EXPECT_EQ(of.id, id);
        EXPECT_EQ(of.clients, 1U);
        EXPECT_EQ(of.physical_bytes, gib);
        EXPECT_EQ(of.virtual_bytes, 64 * mib);
        EXPECT_EQ(of.physical_used_bytes, 0U);
        EXPECT_EQ(of.virtual_used_bytes, 0U);
        EXPECT_EQ(of.unowned_bytes, 0U);
        EXPECT_EQ(of.resident_bytes, 0U);
        EXPECT_EQ(of.fetched_bytes + of.evicted_bytes + of.spills + of.faults +
                      of.hit_bytes + of.miss_bytes + of.stalled_ns,
                  0U);
        EXPECT_EQ(of.waiters, 0U);
        const auto clients = list_clients(node, asked, EMUV_QUERY_MEMORY);
        ASSERT_EQ(clients.size(), 1U);
        EXPECT_EQ(clients[0].resident_bytes + clients[0].pinned_bytes +
                      clients[0].lingering_bytes + clients[0].waiting_bytes,
                  0U);
        EXPECT_EQ(clients[0].id, id);
        EXPECT_EQ(clients[0].pid, getpid());
    }
    // Clients of another tenant come and go: no number here shows them.
    for (int i = 0; i < 5; i++)
        open_client(other_id);
    open_client(id);
    EXPECT_EQ(list_clients(open_client(id)).back().client, first + 2);
    // Another tenant's region cannot be imported by its descriptor.
    const auto exported = export_region(theirs, region_there.offset);
    region imported;
    EXPECT_EQ(import_region(node, exported, imported), EXDEV);
}

} // namespace
