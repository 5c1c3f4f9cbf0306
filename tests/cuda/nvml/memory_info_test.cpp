// SPDX-License-Identifier: GPL-2.0-or-later
// NVML's answer about memory, as the limits have it, before an NVML of the
// tests' own: cards of 48 MiB, 40 of them in use.
#include "account/ledger.hpp"
#include "interpose/forward.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

// As NVML declares them. They are no header's of the library: with that one, a
// field in the wrong place there would be in the same place here.
extern "C" {
struct nvmlDevice_st;
using nvmlDevice_t = nvmlDevice_st *;
struct nvmlMemory_t
{
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
struct nvmlMemory_v2_t
{
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);

// The table of the driver's functions, which the library fills.
void *emuv_table[static_cast<unsigned>(emuv::cuda::symbol::count)];
}

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

class NvmlMemory : public testing::Test
{
protected:
    NvmlMemory()
    {
        result = 0;
        char path[] = "/tmp/emuv-nvml-XXXXXX";
        const int made = mkstemp(path);
        EXPECT_GE(made, 0);
        close(made);
        ledger_path_ = path;
        for (const char *name :
             {"EMUV_PHYSICAL", "EMUV_VIRTUAL", "EMUV_LEDGER", "EMUV_REPORT",
              "EMUV_INSTANCE", "EMUV_TIER", "EMUV_DISABLE"})
            unsetenv(name);
        fill(
            symbol::nvmlDeviceGetIndex,
            +[](nvmlDevice_t device, unsigned *index) {
                *index = static_cast<unsigned>(
                    reinterpret_cast<std::uintptr_t>(device) - 1);
                return 0;
            });
        fill(
            symbol::nvmlDeviceGetMemoryInfo,
            +[](nvmlDevice_t, nvmlMemory_t *memory) {
                if (memory != nullptr)
                    *memory = {48 * MiB, 8 * MiB, 40 * MiB};
                return result;
            });
        fill(
            symbol::nvmlDeviceGetMemoryInfo_v2,
            +[](nvmlDevice_t, nvmlMemory_v2_t *memory) {
                *memory = {2, 48 * MiB, 20 * MiB, 8 * MiB, 40 * MiB};
                return result;
            });
    }
    ~NvmlMemory() override { std::filesystem::remove(ledger_path_); }

    template <typename Function>
    static void fill(symbol which, Function *function)
    {
        emuv_table[static_cast<unsigned>(which)] =
            reinterpret_cast<void *>(function);
    }

    static void set(const char *name, const std::string &value)
    {
        setenv(name, value.c_str(), 1);
    }
    // A share of 24 MiB of VRAM and 64 of system RAM, of which another process
    // uses 16 and 8.
    void share()
    {
        set("EMUV_PHYSICAL", "24M");
        set("EMUV_VIRTUAL", "64M");
        set("EMUV_LEDGER", ledger_path_);
        ASSERT_EQ(rows_.open(ledger_path_.c_str()), 0);
        std::uint64_t token = 0;
        ASSERT_TRUE(limits_.charge_physical(16 * MiB));
        ASSERT_TRUE(limits_.charge_virtual(8 * MiB, token));
    }

    static nvmlDevice_t device(std::uintptr_t ordinal)
    {
        return reinterpret_cast<nvmlDevice_t>(ordinal + 1);
    }
    // The use and the limit of a card, in MiB.
    static std::string say(std::uintptr_t ordinal = 0)
    {
        nvmlMemory_t memory{};
        EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(ordinal), &memory), 0);
        EXPECT_EQ(memory.free, memory.total - memory.used);
        return std::to_string(memory.used / MiB) + " of " +
               std::to_string(memory.total / MiB);
    }

    static constexpr auto as_it_is = "40 of 48";
    std::string ledger_path_;
    ledger_file rows_;
    file_ledger limits_{rows_, 0, 24 * MiB, 64 * MiB};
    static inline int result; // of the real NVML
};

} // namespace

TEST_F(NvmlMemory, OfACardWithoutALimitIsTheCards)
{
    EXPECT_EQ(say(), as_it_is);
}

TEST_F(NvmlMemory, IsOfTheShareAsTheReportIsAskedFor)
{
    ASSERT_NO_FATAL_FAILURE(share());
    EXPECT_EQ(say(), "24 of 88") << "both, by default";
    set("EMUV_REPORT", "total");
    EXPECT_EQ(say(), "24 of 88");
    set("EMUV_REPORT", "physical");
    EXPECT_EQ(say(), "16 of 24");
    set("EMUV_REPORT", "free");
    EXPECT_EQ(say(), "24 of 48");
}

TEST_F(NvmlMemory, OfACardIsOfItsOwnShare)
{
    ASSERT_NO_FATAL_FAILURE(share());
    set("EMUV_REPORT", "physical");
    EXPECT_EQ(say(1), "0 of 24");
    set("EMUV_TIER", "peer:1=20M");
    EXPECT_EQ(say(0), "16 of 24");
    EXPECT_EQ(say(1), "0 of 20") << "it lends so much";
}

TEST_F(NvmlMemory, InUseIsAtMostAllOfIt)
{
    ASSERT_NO_FATAL_FAILURE(share());
    set("EMUV_REPORT", "physical");
    set("EMUV_PHYSICAL", "10M");
    EXPECT_EQ(say(), "10 of 10");
}

TEST_F(NvmlMemory, OfALimitThatIsAProcessesOwnIsTheCards)
{
    ASSERT_NO_FATAL_FAILURE(share());
    unsetenv("EMUV_LEDGER");
    EXPECT_EQ(say(), as_it_is);
    set("EMUV_LEDGER", "/nonexistent/ledger");
    EXPECT_EQ(say(), as_it_is);
}

TEST_F(NvmlMemory, IsTheCardsWhereNoLimitHolds)
{
    ASSERT_NO_FATAL_FAILURE(share());
    set("EMUV_DISABLE", "1");
    EXPECT_EQ(say(), as_it_is);
    unsetenv("EMUV_DISABLE");
    set("EMUV_VIRTUAL", "lots");
    EXPECT_EQ(say(), as_it_is) << "cuInit() fails, too";
    set("EMUV_VIRTUAL", "64M");
    set("EMUV_INSTANCE", "1023");
    EXPECT_EQ(say(), as_it_is) << "there is none of that number";
    unsetenv("EMUV_INSTANCE");
    EXPECT_EQ(say(), "24 of 88");
    EXPECT_EQ(say(max_devices), as_it_is);
}

TEST_F(NvmlMemory, ThatIsRefusedIsLeftAlone)
{
    ASSERT_NO_FATAL_FAILURE(share());
    nvmlMemory_t memory{};
    result = 999;
    EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(0), &memory), 999);
    EXPECT_EQ(memory.total, 48 * MiB);
    result = 0;
    EXPECT_EQ(nvmlDeviceGetMemoryInfo(device(0), nullptr), 0);
    fill(
        symbol::nvmlDeviceGetIndex,
        +[](nvmlDevice_t, unsigned *) { return 999; });
    EXPECT_EQ(say(), as_it_is) << "nobody knows which card it is";
}

TEST_F(NvmlMemory, OfTheSecondVersionReservesNoMoreThanThereIs)
{
    ASSERT_NO_FATAL_FAILURE(share());
    set("EMUV_REPORT", "physical");
    nvmlMemory_v2_t memory{};
    EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(device(0), &memory), 0);
    EXPECT_EQ(memory.total, 24 * MiB);
    EXPECT_EQ(memory.used, 16 * MiB);
    EXPECT_EQ(memory.free, 8 * MiB);
    EXPECT_EQ(memory.reserved, 20 * MiB);
    set("EMUV_PHYSICAL", "18M");
    EXPECT_EQ(nvmlDeviceGetMemoryInfo_v2(device(0), &memory), 0);
    EXPECT_EQ(memory.total, 18 * MiB);
    EXPECT_EQ(memory.reserved, 0U);
}
