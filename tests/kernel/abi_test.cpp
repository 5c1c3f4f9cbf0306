// SPDX-License-Identifier: GPL-2.0-or-later
// The ABI's form: layout, sizes, flags, reserved fields, pointers, and which
// node takes which call.
#include "abi_layout.h"
#include "support.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <ostream>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace guest;

/// An instance with one client that holds a region, and a second region's
/// descriptor from another client.
class abi : public driver_test
{
protected:
    void SetUp() override
    {
        driver_test::SetUp();
        if (HasFatalFailure())
            return;
        id = create(control, creation(64 * mib, 64 * mib, 3));
        client = open_client(id);
        held = allocate(client, chunk);
        other = open_client(id);
        exported = export_region(other, allocate(other, chunk).offset);
        dmabuf = export_region(other, allocate(other, chunk).offset,
                               EMUV_EXPORT_DMABUF);
    }

    void TearDown() override
    {
        dmabuf.reset();
        exported.reset();
        other.reset();
        client.reset();
        driver_test::TearDown();
    }

    int id = -1;
    descriptor client;
    region held;
    descriptor other;
    descriptor exported;
    descriptor dmabuf;
};

/// A part of a structure, in bytes.
struct part
{
    std::size_t at;
    std::size_t bytes;
};

#define MEMBER(type, member)                                                   \
    (part{offsetof(type, member), sizeof(type::member)})
#define FROM(type, member)                                                     \
    (part{offsetof(type, member), sizeof(type) - offsetof(type, member)})

/// One ioctl: a valid call, and the places of its members.
struct form
{
    const char *name;
    unsigned long request;
    bool on_control;
    bool on_node;
    unsigned flags;
    std::vector<std::size_t> reserved;
    std::function<std::vector<unsigned char>(int id, const region &held,
                                             int exported)>
        in_order;
    /// Undoes one successful call.
    std::function<void(const descriptor &node, int id,
                       const std::vector<unsigned char> &argument)>
        undo = nullptr;
    /// Members that only the driver writes, and those that it reads first.
    std::vector<part> answers = {};
    std::vector<part> exchanged = {};
    /// The size of the first version, where the structure has grown since.
    std::size_t first_version = 0;
};

std::ostream &operator<<(std::ostream &out, const form &row)
{
    return out << row.name;
}

template <class T>
std::vector<unsigned char> bytes_of(const T &argument)
{
    std::vector<unsigned char> bytes(sizeof argument);
    std::memcpy(bytes.data(), &argument, sizeof argument);
    return bytes;
}

template <class T>
T read_as(const std::vector<unsigned char> &bytes)
{
    T argument;
    std::memcpy(&argument, bytes.data(), sizeof argument);
    return argument;
}

/// A valid structure: zeros, its size, and the values that `fill` sets.
template <class T>
auto order(void (*fill)(T &, int, const region &, int))
{
    return [fill](int id, const region &held, int exported) {
        auto argument = fresh<T>();
        fill(argument, id, held, exported);
        return bytes_of(argument);
    };
}

const std::vector<form> &forms()
{
    static const std::vector<form> all{
        {"Version",
         EMUV_IOC_VERSION,
         true,
         true,
         0,
         {offsetof(emuv_version, reserved)},
         order<emuv_version>([](emuv_version &, int, const region &, int) {}),
         nullptr,
         {MEMBER(emuv_version, abi), FROM(emuv_version, chunk_bytes)}},
        {"QueryInstance",
         EMUV_IOC_QUERY_INSTANCE,
         true,
         true,
         EMUV_QUERY_NEXT,
         {},
         order<emuv_query_instance>([](emuv_query_instance &a, int id,
                                       const region &, int) { a.id = id; }),
         nullptr,
         {FROM(emuv_query_instance, clients)},
         {MEMBER(emuv_query_instance, id)},
         offsetof(emuv_query_instance, hit_bytes)},
        {"QueryClient",
         EMUV_IOC_QUERY_CLIENT,
         true,
         true,
         EMUV_QUERY_MEMORY,
         {},
         order<emuv_query_client>([](emuv_query_client &a, int id,
                                     const region &, int) { a.id = id; }),
         nullptr,
         {MEMBER(emuv_query_client, pid),
          FROM(emuv_query_client, physical_bytes)},
         {MEMBER(emuv_query_client, id), MEMBER(emuv_query_client, client)},
         offsetof(emuv_query_client, hit_bytes)},
        {"Create",
         EMUV_IOC_CREATE,
         true,
         false,
         EMUV_CREATE_OVERCOMMIT | EMUV_CREATE_GUARANTEED | EMUV_CREATE_SWAP |
             EMUV_CREATE_BIND,
         {offsetof(emuv_create, reserved), offsetof(emuv_create, swap_fd),
          offsetof(emuv_create, reserved2)},
         order<emuv_create>([](emuv_create &a, int, const region &, int) {
             a = creation(mib, chunk);
         }),
         [](const descriptor &node, int,
            const std::vector<unsigned char> &argument) {
             EXPECT_EQ(destroy(node, read_as<emuv_create>(argument).id), 0);
         },
         {},
         {MEMBER(emuv_create, id)},
         offsetof(emuv_create, client_virtual_bytes)},
        {"Destroy",
         EMUV_IOC_DESTROY,
         true,
         false,
         EMUV_DESTROY_FORCE,
         {offsetof(emuv_destroy, reserved)},
         order<emuv_destroy>([](emuv_destroy &a, int id, const region &, int) {
             a.id = id + 1;
         }),
         [](const descriptor &node, int id,
            const std::vector<unsigned char> &) {
             create(node, creation(mib, 0, id + 1));
         }},
        {"Resize",
         EMUV_IOC_RESIZE,
         true,
         false,
         EMUV_RESIZE_PHYSICAL | EMUV_RESIZE_VIRTUAL,
         {offsetof(emuv_resize, reserved), offsetof(emuv_resize, virtual_bytes),
          offsetof(emuv_resize, virtual_bytes) + 4},
         order<emuv_resize>([](emuv_resize &a, int id, const region &, int) {
             a.id = id + 1;
             a.flags = EMUV_RESIZE_PHYSICAL;
             a.physical_bytes = 2 * mib;
         })},
        {"Alloc",
         EMUV_IOC_ALLOC,
         false,
         true,
         EMUV_ALLOC_POPULATE,
         {},
         order<emuv_alloc>(
             [](emuv_alloc &a, int, const region &, int) { a.bytes = chunk; }),
         [](const descriptor &node, int,
            const std::vector<unsigned char> &argument) {
             EXPECT_EQ(release(node, read_as<emuv_alloc>(argument).offset), 0);
         },
         {MEMBER(emuv_alloc, offset)},
         {MEMBER(emuv_alloc, bytes)}},
        {"Export",
         EMUV_IOC_EXPORT,
         false,
         true,
         EMUV_EXPORT_DMABUF,
         {offsetof(emuv_export, reserved)},
         order<emuv_export>([](emuv_export &a, int, const region &held, int) {
             a.offset = held.offset;
         }),
         [](const descriptor &, int,
            const std::vector<unsigned char> &argument) {
             EXPECT_EQ(close(read_as<emuv_export>(argument).fd), 0);
         },
         {MEMBER(emuv_export, fd)}},
        {"Import",
         EMUV_IOC_IMPORT,
         false,
         true,
         0,
         {offsetof(emuv_import, reserved)},
         order<emuv_import>([](emuv_import &a, int, const region &,
                               int exported) { a.fd = exported; }),
         [](const descriptor &node, int,
            const std::vector<unsigned char> &argument) {
             EXPECT_EQ(release(node, read_as<emuv_import>(argument).offset), 0);
         },
         {FROM(emuv_import, offset)}},
        {"Discard",
         EMUV_IOC_DISCARD,
         false,
         true,
         0,
         {},
         order<emuv_discard>([](emuv_discard &a, int, const region &held, int) {
             a.offset = held.offset;
             a.bytes = chunk;
         })},
        {"Charge",
         EMUV_IOC_CHARGE,
         false,
         true,
         EMUV_CHARGE_WAIT,
         {offsetof(emuv_charge, deadline_ns)},
         order<emuv_charge>(
             [](emuv_charge &a, int, const region &, int) { a.bytes = mib; }),
         [](const descriptor &node, int, const std::vector<unsigned char> &) {
             EXPECT_EQ(uncharge(node, mib), 0);
         },
         {MEMBER(emuv_charge, free_bytes)},
         {},
         offsetof(emuv_charge, deadline_ns)},
        {"Uncharge",
         EMUV_IOC_UNCHARGE,
         false,
         true,
         EMUV_UNCHARGE_CANCEL,
         {offsetof(emuv_charge, deadline_ns)},
         order<emuv_charge>(
             [](emuv_charge &a, int, const region &, int) { a.bytes = 1; }),
         [](const descriptor &node, int, const std::vector<unsigned char> &) {
             EXPECT_EQ(charge(node, 1), 0);
         },
         {MEMBER(emuv_charge, free_bytes)},
         {},
         offsetof(emuv_charge, deadline_ns)},
        {"Report",
         EMUV_IOC_REPORT,
         false,
         true,
         0,
         {},
         order<emuv_report>(
             [](emuv_report &a, int, const region &, int) { a.spills = 1; }),
         nullptr,
         {},
         {},
         offsetof(emuv_report, hit_bytes)},
        // The last, since it frees the region that the other calls use.
        {"Free",
         EMUV_IOC_FREE,
         false,
         true,
         0,
         {},
         order<emuv_free>([](emuv_free &a, int, const region &held, int) {
             a.offset = held.offset;
         }),
         nullptr},
    };
    return all;
}

class call_form : public abi, public testing::WithParamInterface<form>
{
protected:
    void SetUp() override
    {
        abi::SetUp();
        if (HasFatalFailure())
            return;
        // Give Destroy an instance to remove, and Uncharge bytes to take back.
        create(control, creation(mib, 0, id + 1));
        ASSERT_EQ(charge(client, 16 * mib), 0);
    }

    const descriptor &node() const
    {
        return GetParam().on_node ? client : control;
    }
    std::vector<unsigned char> in_order() const
    {
        return GetParam().in_order(id, held, exported.get());
    }

    std::size_t whole() const { return in_order().size(); }
    std::size_t first_version() const
    {
        return GetParam().first_version ? GetParam().first_version : whole();
    }

    /// A call in order that succeeds, however many have before.
    std::vector<unsigned char> next_call() const
    {
        auto argument = in_order();
        if (GetParam().request == EMUV_IOC_FREE) {
            const auto offset = allocate(client, chunk).offset;
            std::memcpy(argument.data() + offsetof(emuv_free, offset), &offset,
                        sizeof offset);
        }
        return argument;
    }
    void undo(std::vector<unsigned char> argument) const
    {
        argument.resize(std::max(argument.size(), whole()));
        if (GetParam().undo)
            GetParam().undo(node(), id, argument);
    }

    int issue(std::vector<unsigned char> &argument) const
    {
        return call(node().get(), GetParam().request, argument.data());
    }

    static void set_size(std::vector<unsigned char> &argument, __u32 size)
    {
        std::memcpy(argument.data(), &size, sizeof size);
    }

    /// The valid call still succeeds, so the refusals had no other reason.
    void expect_in_order()
    {
        auto argument = in_order();
        EXPECT_EQ(issue(argument), 0);
        undo(argument);
    }

    /// The call is refused, writes nothing back and changes nothing.
    void expect_refused(std::vector<unsigned char> argument, int error,
                        const std::string &why)
    {
        const auto given = argument;
        const auto ledger = query(control, id);
        const auto instances = names_in("/sys/class/emuv");
        EXPECT_EQ(issue(argument), error) << why;
        EXPECT_EQ(argument, given) << why << ": written back";
        const auto now = query(control, id);
        EXPECT_EQ(std::memcmp(&now, &ledger, sizeof now), 0)
            << why << ": something was done";
        EXPECT_EQ(names_in("/sys/class/emuv"), instances) << why;
    }
};

TEST_P(call_form, InOrderSucceeds)
{
    expect_in_order();
}

TEST_P(call_form, UnknownFlagsAreRefused)
{
    for (unsigned bit = 0; bit < 32; bit++) {
        if (GetParam().flags & (1U << bit))
            continue;
        auto argument = in_order();
        const __u32 flags = 1U << bit;
        std::memcpy(argument.data() + 4, &flags, sizeof flags);
        expect_refused(argument, EINVAL, "flag bit " + std::to_string(bit));
    }
    expect_in_order();
}

TEST_P(call_form, ReservedFieldsMustBeZero)
{
    for (const auto at : GetParam().reserved)
        for (std::size_t byte = 0; byte < 4; byte++) {
            auto argument = in_order();
            argument[at + byte] = 1;
            expect_refused(argument, EINVAL,
                           "reserved byte " + std::to_string(at + byte));
        }
    expect_in_order();
}

TEST_P(call_form, ShorterThanTheFirstVersionIsRefused)
{
    const auto first = static_cast<__u32>(first_version());
    for (const __u32 size : {0U, 1U, 4U, 8U, first - 8, first - 4, first - 1}) {
        auto argument = in_order();
        set_size(argument, size);
        expect_refused(argument, EINVAL, "size " + std::to_string(size));
    }
    expect_in_order();
}

TEST_P(call_form, LongerWithZerosBehindSucceeds)
{
    for (const std::size_t more : {1, 8, 512}) {
        auto argument = next_call();
        argument.resize(argument.size() + more);
        set_size(argument, static_cast<__u32>(argument.size()));
        EXPECT_EQ(issue(argument), 0) << more << " more";
        EXPECT_TRUE(std::all_of(argument.end() - static_cast<long>(more),
                                argument.end(),
                                [](auto byte) { return byte == 0; }));
        undo(argument);
    }
}

TEST_P(call_form, EachSizeSinceTheFirstVersionSucceeds)
{
    for (auto size = first_version(); size <= whole(); size++) {
        auto argument = next_call();
        set_size(argument, static_cast<__u32>(size));
        EXPECT_EQ(issue(argument), 0) << "size " << size;
        undo(argument);
    }
}

TEST_P(call_form, LargestSizeSucceeds)
{
    auto argument = in_order();
    argument.resize(4096);
    set_size(argument, 4096);
    EXPECT_EQ(issue(argument), 0);
    undo(argument);
}

TEST_P(call_form, LongerWithSomethingBehindIsRefused)
{
    for (const std::size_t more : {1, 8, 512}) {
        auto argument = in_order();
        argument.resize(argument.size() + more);
        argument.back() = 1;
        set_size(argument, static_cast<__u32>(argument.size()));
        expect_refused(argument, E2BIG, std::to_string(more) + " more");
    }
    expect_in_order();
}

TEST_P(call_form, LargerThan4096IsRefused)
{
    for (const __u32 size : {4097U, 8192U, 0x7fffffffU, 0xffffffffU}) {
        auto argument = in_order();
        argument.resize(16384);
        set_size(argument, size);
        expect_refused(argument, E2BIG, "size " + std::to_string(size));
    }
    expect_in_order();
}

TEST_P(call_form, UnreadableArgumentGivesEfault)
{
    EXPECT_EQ(call(node().get(), GetParam().request, nullptr), EFAULT);
    EXPECT_EQ(call(node().get(), GetParam().request, MAP_FAILED), EFAULT);
    // The first bytes lie in a mapped page, the rest in an unmapped one.
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto *pages = static_cast<unsigned char *>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(munmap(pages + page, page), 0);
    const auto argument = in_order();
    for (const std::size_t there : {std::size_t{2}, std::size_t{4},
                                    std::size_t{8}, argument.size() - 1}) {
        auto *at = pages + page - there;
        std::memcpy(at, argument.data(), there);
        EXPECT_EQ(call(node().get(), GetParam().request, at), EFAULT)
            << there << " bytes are there";
    }
    munmap(pages, page);
    expect_in_order();
}

/// Bytes at the end of a page, before an unmapped one.
class page_end
{
public:
    page_end()
    {
        void *at = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        checked(at == MAP_FAILED ? -1 : 0, "mmap");
        at_ = static_cast<unsigned char *>(at);
        checked(munmap(at_ + page, page), "munmap");
    }
    page_end(const page_end &) = delete;
    page_end &operator=(const page_end &) = delete;
    ~page_end() { munmap(at_, page); }

    unsigned char *hold(const std::vector<unsigned char> &bytes)
    {
        return static_cast<unsigned char *>(
            std::memcpy(at_ + page - bytes.size(), bytes.data(), bytes.size()));
    }

private:
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    unsigned char *at_ = nullptr;
};

/// The driver touches no byte behind the caller's size.
using ioctl_overrun = call_form;

TEST_P(ioctl_overrun, NothingBehindTheStructureNeedBeMapped)
{
    page_end end;
    std::vector<std::size_t> sizes{whole() + 8, whole() + 256, 4096};
    for (auto size = first_version(); size <= whole(); size++)
        sizes.push_back(size);
    for (const auto size : sizes) {
        auto argument = next_call();
        argument.resize(size);
        set_size(argument, static_cast<__u32>(size));
        auto *at = end.hold(argument);
        EXPECT_EQ(call(node().get(), GetParam().request, at), 0)
            << "size " << size;
        argument.assign(at, at + size);
        undo(argument);
    }
}

TEST_P(ioctl_overrun, NothingBehindAShorterStructureIsWritten)
{
    for (auto size = first_version(); size < whole(); size++) {
        auto argument = next_call();
        std::fill(argument.begin() + static_cast<long>(size), argument.end(),
                  0x5a);
        set_size(argument, static_cast<__u32>(size));
        EXPECT_EQ(issue(argument), 0) << "size " << size;
        EXPECT_FALSE(first_other(argument.data() + size, whole() - size, 0x5a))
            << "size " << size;
        undo(argument);
    }
}

/// The driver writes each byte of its answer, and no other byte. So an answer
/// depends on nothing that was in memory before.
using ioctl_zeroing = call_form;

TEST_P(ioctl_zeroing, AnswersAreWrittenWholeAndNothingElseIs)
{
    std::vector<unsigned char> first;
    for (const int filling : {0x00, 0x5a, 0xff}) {
        auto argument = next_call();
        for (const auto &[at, bytes] : GetParam().answers)
            std::memset(argument.data() + at, filling, bytes);
        const auto given = argument;
        ASSERT_EQ(issue(argument), 0) << filling;
        undo(argument);

        auto outside = argument;
        for (const auto &parts : {GetParam().answers, GetParam().exchanged})
            for (const auto &[at, bytes] : parts)
                std::memcpy(outside.data() + at, given.data() + at, bytes);
        EXPECT_EQ(outside, given) << "written outside of the answer";

        auto answer = argument;
        if (GetParam().request == EMUV_IOC_FREE)
            answer.clear(); // each region has a name of its own
        if (filling == 0)
            first = answer;
        EXPECT_EQ(answer, first) << "not written, filled with " << filling;
    }
}

TEST_P(ioctl_zeroing, AnOlderCallersAnswerBeginsTheNewestOnes)
{
    auto newest = next_call();
    ASSERT_EQ(issue(newest), 0);
    undo(newest);
    for (auto size = first_version(); size < whole(); size++) {
        auto argument = next_call();
        set_size(argument, static_cast<__u32>(size));
        ASSERT_EQ(issue(argument), 0) << "size " << size;
        set_size(argument, static_cast<__u32>(whole()));
        EXPECT_EQ(std::memcmp(argument.data(), newest.data(), size), 0)
            << "size " << size;
        undo(argument);
    }
}

using answering_call_form = call_form;

TEST_P(answering_call_form, AnswerThatCannotBeWrittenUndoesTheCall)
{
    const auto request = GetParam().request;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void *at = mmap(nullptr, page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    const auto argument = in_order();
    std::memcpy(at, argument.data(), argument.size());
    ASSERT_EQ(mprotect(at, page, PROT_READ), 0);

    const auto descriptors = names_in("/proc/self/fd");
    const auto instances = names_in("/sys/class/emuv");
    const auto ledger = query(control, id);
    const auto clients = list_clients(control, id);
    EXPECT_EQ(call(node().get(), request, at), EFAULT);
    EXPECT_EQ(names_in("/proc/self/fd").size(), descriptors.size())
        << "a descriptor nobody knows of";
    EXPECT_EQ(names_in("/sys/class/emuv"), instances);
    const auto now = query(control, id);
    EXPECT_EQ(std::memcmp(&now, &ledger, sizeof now), 0);
    const auto clients_now = list_clients(control, id);
    ASSERT_EQ(clients_now.size(), clients.size());
    for (std::size_t i = 0; i < clients.size(); i++)
        EXPECT_EQ(std::memcmp(&clients_now[i], &clients[i], sizeof clients[i]),
                  0);
    munmap(at, page);
    expect_in_order();
}

TEST_P(call_form, OtherNodesDoNotKnowIt)
{
    auto argument = in_order();
    if (!GetParam().on_control) {
        EXPECT_EQ(call(control.get(), GetParam().request, argument.data()),
                  ENOTTY);
    }
    if (!GetParam().on_node) {
        EXPECT_EQ(call(client.get(), GetParam().request, argument.data()),
                  ENOTTY);
    }
    EXPECT_EQ(call(exported.get(), GetParam().request, argument.data()),
              ENOTTY);
    EXPECT_EQ(call(dmabuf.get(), GetParam().request, argument.data()), ENOTTY);
}

INSTANTIATE_TEST_SUITE_P(, call_form, testing::ValuesIn(forms()),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

INSTANTIATE_TEST_SUITE_P(, ioctl_overrun, testing::ValuesIn(forms()),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

INSTANTIATE_TEST_SUITE_P(, ioctl_zeroing, testing::ValuesIn(forms()),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

std::vector<form> answering_forms()
{
    auto rows = forms();
    std::erase_if(rows, [](const form &row) {
        return row.request == EMUV_IOC_DESTROY ||
               row.request == EMUV_IOC_RESIZE || row.request == EMUV_IOC_FREE ||
               row.request == EMUV_IOC_DISCARD ||
               row.request == EMUV_IOC_REPORT;
    });
    return rows;
}

INSTANTIATE_TEST_SUITE_P(, answering_call_form,
                         testing::ValuesIn(answering_forms()),
                         [](const auto &row) {
                             return std::string(row.param.name);
                         });

TEST_F(abi, UnknownIoctlsAreNotTaken)
{
    std::vector<unsigned long> known;
    for (const auto &row : forms())
        known.push_back(row.request);
    std::vector<unsigned char> argument(4096);
    argument[1] = 1; // size 256
    for (unsigned long number = 0; number < 256; number++) {
        const unsigned long request = _IO(EMUV_IOC_TYPE, number);
        if (std::find(known.begin(), known.end(), request) != known.end())
            continue;
        for (const auto *node : {&control, &client, &exported})
            EXPECT_EQ(call(node->get(), request, argument.data()), ENOTTY)
                << std::hex << request;
    }
    // The number of a call in another type, or with a direction and a size.
    for (const unsigned long request :
         {static_cast<unsigned long>(_IO(0xEA, 0x00)),
          static_cast<unsigned long>(_IOWR(EMUV_IOC_TYPE, 0, emuv_version)),
          static_cast<unsigned long>(_IOR(EMUV_IOC_TYPE, 1, int)),
          EMUV_IOC_VERSION | (1UL << 16), 0x5401UL})
        for (const auto *node : {&control, &client, &exported})
            EXPECT_EQ(call(node->get(), request, argument.data()), ENOTTY)
                << std::hex << request;
}

TEST_F(abi, VersionIsThatOfTheHeaderOnBothNodes)
{
    for (const auto *node : {&control, &client}) {
        auto version = fresh<emuv_version>();
        std::memset(version.module_version, 'x', sizeof version.module_version);
        ASSERT_EQ(call(*node, EMUV_IOC_VERSION, version), 0);
        EXPECT_EQ(version.abi, static_cast<__u32>(EMUV_ABI_VERSION));
        EXPECT_EQ(version.chunk_bytes, EMUV_CHUNK_BYTES);
        EXPECT_NE(std::memchr(version.module_version, 0,
                              sizeof version.module_version),
                  nullptr);
        int major = -1;
        int minor = -1;
        int patch = -1;
        EXPECT_EQ(std::sscanf(version.module_version, "%d.%d.%d", &major,
                              &minor, &patch),
                  3)
            << version.module_version;
    }
}

TEST_F(abi, SizeStaysTheCallers)
{
    auto argument = bytes_of(fresh<emuv_version>());
    argument.resize(256);
    const __u32 size = 256;
    std::memcpy(argument.data(), &size, sizeof size);
    ASSERT_EQ(call(control.get(), EMUV_IOC_VERSION, argument.data()), 0);
    EXPECT_EQ(read_as<emuv_version>(argument).size, size);
}

TEST_F(abi, OutFieldsAreWrittenWhole)
{
    // Bytes behind a name's NUL must not come from the kernel's stack.
    auto instance = fresh<emuv_query_instance>();
    instance.id = id;
    std::memset(instance.gpu_model, 0xee, sizeof instance.gpu_model);
    ASSERT_EQ(call(control, EMUV_IOC_QUERY_INSTANCE, instance), 0);
    const auto *model =
        reinterpret_cast<const unsigned char *>(instance.gpu_model);
    EXPECT_FALSE(first_other(model + std::strlen(instance.gpu_model),
                             sizeof instance.gpu_model -
                                 std::strlen(instance.gpu_model)));
    auto listed = fresh<emuv_query_client>();
    listed.id = id;
    std::memset(listed.comm, 0xee, sizeof listed.comm);
    ASSERT_EQ(call(control, EMUV_IOC_QUERY_CLIENT, listed), 0);
    const auto *comm = reinterpret_cast<const unsigned char *>(listed.comm);
    EXPECT_FALSE(first_other(comm + std::strlen(listed.comm),
                             sizeof listed.comm - std::strlen(listed.comm)));
}

TEST_F(abi, ControlNodeHoldsNoMemory)
{
    char byte = 0;
    EXPECT_LT(read(control.get(), &byte, 1), 0);
    EXPECT_LT(write(control.get(), &byte, 1), 0);
    EXPECT_NE(map_error(control.get(), chunk, 0), 0);
}

TEST_F(abi, SameIn32Bit)
{
    pid_t pid = -1;
    char path[] = EMUV_ABI32;
    char *const arguments[] = {path, nullptr};
    char *const environment[] = {nullptr};
    const int error =
        posix_spawn(&pid, path, nullptr, nullptr, arguments, environment);
    if (error == ENOEXEC)
        GTEST_SKIP() << "this kernel runs no 32-bit programs";
    ASSERT_EQ(error, 0) << std::strerror(error);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0)
        << "the number of the check in abi32_client.c that does not hold";
}

} // namespace
