// SPDX-License-Identifier: GPL-2.0-or-later
// The VRAM that a process holds, by an NVML of the tests' own.
#include "hooks/fixture.hpp"
#include "hooks/process_vram.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

namespace {

struct nvml_process
{
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
};
std::vector<nvml_process> all;
unsigned lists;
unsigned more_each_time; // processes that come between two calls
std::vector<std::string> asked_for;
int answer_of_list;

} // namespace

extern "C" {
[[gnu::visibility("default")]] int nvmlInit_v2();
int nvmlInit_v2()
{
    return 0;
}

// Knows no whole card but the first, and a part of the second.
[[gnu::visibility("default")]] int nvmlDeviceGetHandleByUUID(const char *uuid,
                                                             void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    asked_for.emplace_back(uuid);
    const std::string text = uuid;
    if (text == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
        *device = reinterpret_cast<void *>(1);
    else if (text == "MIG-01010203-0405-0607-0809-0a0b0c0d0e0f")
        *device = reinterpret_cast<void *>(2);
    else
        return 6; // NVML_ERROR_NOT_FOUND
    return 0;
}

[[gnu::visibility("default")]] int
nvmlDeviceGetComputeRunningProcesses_v2(void *, unsigned *count,
                                        nvml_process *out);
int nvmlDeviceGetComputeRunningProcesses_v2(void *, unsigned *count,
                                            nvml_process *out)
{
    lists++;
    if (answer_of_list != 0)
        return answer_of_list;
    const unsigned room = *count;
    *count = static_cast<unsigned>(all.size());
    if (room < all.size()) {
        for (unsigned i = 0; i < more_each_time; i++)
            all.push_back({1, 1, 0, 0});
        return 7; // NVML_ERROR_INSUFFICIENT_SIZE
    }
    std::memcpy(out, all.data(), all.size() * sizeof all[0]);
    return 0;
}
}

using namespace emuv::cuda;

namespace {

class ProcessVram : public Hooks
{
protected:
    ProcessVram()
    {
        all.clear();
        lists = 0;
        asked_for.clear();
        more_each_time = 0;
        answer_of_list = 0;
        // The number of a device is its first byte.
        EMUV_ANSWER(cuDeviceGetUuid_v2, [](CUuuid *out, CUdevice device) {
            for (int i = 0; i < 16; i++)
                out->bytes[i] = static_cast<char>(i == 0 ? device : i);
            return CUDA_SUCCESS;
        });
        stand_in::library = dlopen(nullptr, RTLD_NOW);
        open_process_vram();
    }
    ~ProcessVram() override { stand_in::library = nullptr; }

    static void add(unsigned pid, unsigned long long bytes)
    {
        all.push_back({pid, bytes, ~0U, ~0U});
    }
    static unsigned own() { return static_cast<unsigned>(getpid()); }
};

} // namespace

TEST_F(ProcessVram, IsTheSumOfWhatIsThisProcessesOwn)
{
    EXPECT_EQ(process_vram(0), 0U);
    add(own(), 100);
    add(own() + 1, 1000);
    add(own(), 20);
    add(own(), ~0ULL); // not available
    EXPECT_EQ(process_vram(0), 120U);
}

TEST_F(ProcessVram, OfAPartOfACardIsFoundByItsOwnName)
{
    // A card is looked for once.
    in_own_process([] {
        add(own(), 100);
        EXPECT_EQ(process_vram(1), 100U);
        // The whole card's name was tried before.
        EXPECT_EQ(asked_for, (std::vector<std::string>{
                                 "GPU-01010203-0405-0607-0809-0a0b0c0d0e0f",
                                 "MIG-01010203-0405-0607-0809-0a0b0c0d0e0f"}));
    });
}

TEST_F(ProcessVram, OfNoCardIsNothing)
{
    add(own(), 100);
    EXPECT_EQ(process_vram(2), 0U);
    EXPECT_EQ(process_vram(-1), 0U);
    EXPECT_EQ(process_vram(static_cast<int>(max_devices)), 0U);
}

TEST_F(ProcessVram, IsAskedForWithMoreRoomWhereProcessesCame)
{
    for (unsigned i = 0; i < 50; i++)
        add(own(), 1);
    more_each_time = 10;
    EXPECT_EQ(process_vram(0), 50U);
    EXPECT_EQ(lists, 2U);
}

TEST_F(ProcessVram, ThatTheDriverRefusesToTellIsNothing)
{
    add(own(), 100);
    answer_of_list = 999;
    EXPECT_EQ(process_vram(0), 0U);
    EXPECT_EQ(lists, 1U);
}
