// SPDX-License-Identifier: GPL-2.0-or-later
// Calls in which one thing fails: each allocation of objects and pages, and
// each copy from and to the caller, one at a time. This needs a kernel that
// injects faults: see scripts/debug-kernel.
#include "support.hpp"
#include "vgem.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

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

private:
    descriptor file_;
    bool usable_;
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
};

/// State that a failed call must not change.
struct state
{
    u64 physical_used;
    u64 virtual_used;
    u64 unowned;
    u64 resident;
    u64 spills;
    std::size_t clients;
    std::size_t instances;
    std::size_t descriptors;

    bool operator==(const state &) const = default;
};

std::ostream &operator<<(std::ostream &out, const state &of)
{
    return out << "physical " << of.physical_used << ", virtual "
               << of.virtual_used << ", unowned " << of.unowned << ", resident "
               << of.resident << ", spills " << of.spills << ", clients "
               << of.clients << ", instances " << of.instances
               << ", descriptors " << of.descriptors;
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
        return {of.physical_used_bytes,
                of.virtual_used_bytes,
                of.unowned_bytes,
                of.resident_bytes,
                of.spills - reported,
                clients.size(),
                names_in("/sys/class/emuv").size(),
                names_in("/proc/self/fd").size()};
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
        unsigned refused = 0;
        for (unsigned nth = 1;; nth++) {
            SCOPED_TRACE("failing number " + std::to_string(nth));
            ASSERT_LT(nth, 2000U) << "there seems to be no end of it";
            inject.arm(nth);
            const int error = of.call();
            const bool struck = inject.disarm();
            if (error) {
                EXPECT_TRUE(struck) << std::strerror(error);
                EXPECT_TRUE(std::ranges::count(of.errors, error))
                    << std::strerror(error);
                refused++;
            } else {
                of.undo();
            }
            of.settle();
            ASSERT_EQ(now(), before);
            ASSERT_EQ(of.call(), 0) << "not even when nothing fails any more";
            of.undo();
            of.settle();
            ASSERT_EQ(now(), before);
            if (!struck)
                break;
        }
        EXPECT_TRUE(refused || !of.refuses) << "nothing in this call can fail";
    }

    /// Calls only ioctl(), so that nothing else can fail; 0 or the errno.
    template <class T>
    static int ask(const descriptor &on, unsigned long request, T &argument)
    {
        return error_of(ioctl(on.get(), request, &argument));
    }

    static constexpr u64 region_bytes = 4 * chunk;
    injector inject;
    int id = -1;
    descriptor client;
    region got;
    /// Spills that were reported with success: counters never go back.
    u64 reported = 0;
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
    load_stock_module("brd rd_nr=1 rd_size=8192");
    const descriptor file(open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC));
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

TEST_F(failure, InReportLeavesTheCountersAsTheyWere)
{
    auto argument = fresh<emuv_report>();
    argument.spills = 1;
    sweep({.call = [&] { return ask(client, EMUV_IOC_REPORT, argument); },
           .undo = [&] { reported++; }});
}

TEST_F(failure, InAllocLeavesNoRegion)
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
             .undo = [&] { ASSERT_EQ(release(client, argument.offset), 0); }});
    }
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
           .refuses = !has_symbol("_copy_mc_to_iter")});
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

TEST_F(failure, InAReturnFromTheSwapFileLosesNoByte)
{
    load_stock_module("brd rd_nr=1 rd_size=8192");
    const descriptor file(open("/dev/ram0", O_RDWR | O_DIRECT | O_CLOEXEC));
    if (!file)
        GTEST_SKIP() << "no RAM disk here";
    auto argument = creation(mib, chunk, EMUV_ANY, EMUV_CREATE_SWAP);
    argument.swap_fd = file.get();
    const int swapping = create(control, argument);
    {
        const auto user = open_client(swapping);
        const auto its = allocate(user, chunk);
        const mapping map(user.get(), chunk, its.offset);
        fill_pattern(map.data(), chunk, 1);
        const auto leave = [&] {
            ASSERT_TRUE(wait_until([&] {
                write_text("/proc/sys/vm/drop_caches", "2");
                return query(control, swapping).swapped_bytes == chunk;
            }));
        };
        leave();
        std::array<char, 64> data{};
        sweep({.call =
                   [&] {
                       return error_of(pread(user.get(), data.data(),
                                             data.size(),
                                             static_cast<off_t>(its.offset)));
                   },
               .settle = leave,
               .errors = {ENOMEM, EFAULT, EIO}});
        sweep({.call = [&] { return signal_of_read(map.data()) ? ENOMEM : 0; },
               .settle = leave,
               .refuses = false});
        EXPECT_FALSE(first_pattern_error(map.data(), chunk, 1));
    }
    EXPECT_EQ(destroy_eventually(control, swapping), 0);
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
