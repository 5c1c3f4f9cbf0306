// SPDX-License-Identifier: GPL-2.0-or-later
// Which library a call comes from. The libraries are the tests' own, of the
// names that matter.
#include "hooks/callers.hpp"
#include "hooks/fixture.hpp"

#include <memory>
#include <string>

#include <dlfcn.h>

using namespace emuv::cuda;

namespace {

class Callers : public Hooks
{
protected:
    Callers() { prepare_callers(); }

    static void *open(const char *library, const char *name)
    {
        void *const handle = dlopen(library, RTLD_NOW);
        EXPECT_NE(handle, nullptr) << dlerror();
        return handle != nullptr ? dlsym(handle, name) : nullptr;
    }

    static inline bool came_from_there;
};

} // namespace

TEST_F(Callers, AnAddressInAPrivateWorkerNamesItsLibrary)
{
    void *const there = open(EMUV_TABLE_TAKER, "take");
    ASSERT_NE(there, nullptr);
    const char *const found = private_worker_at(there);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(std::string(found), "libnvoptix.so.1");
}

TEST_F(Callers, AnyOtherAddressNamesNone)
{
    const auto heap = std::make_unique<int>(0);
    EXPECT_EQ(private_worker_at(reinterpret_cast<void *>(&open)), nullptr);
    EXPECT_EQ(private_worker_at(reinterpret_cast<void *>(&std::free)), nullptr);
    EXPECT_EQ(private_worker_at(heap.get()), nullptr);
    EXPECT_EQ(private_worker_at(nullptr), nullptr);
}

TEST_F(Callers, TheCachingAllocatorIsFoundBehindTheHookThatItCalls)
{
    stand_in::session = nullptr; // cuMemAlloc goes on to the driver
    EMUV_ANSWER(cuMemAlloc_v2, [](CUdeviceptr *, std::size_t) {
        came_from_there = is_caching_allocator();
        return CUDA_SUCCESS;
    });
    CUdeviceptr at = 0;
    came_from_there = true;
    ASSERT_EQ(cuMemAlloc_v2(&at, 1), CUDA_SUCCESS);
    EXPECT_FALSE(came_from_there) << "it is not even loaded";
    void *const there = open(EMUV_CACHING_ALLOCATOR, "ask");
    ASSERT_NE(there, nullptr);
    using call = int (*)(unsigned long long *, std::size_t);
    unsigned long long pointer = 0;
    ASSERT_EQ(reinterpret_cast<call>(there)(&pointer, 1), 0);
    EXPECT_TRUE(came_from_there);
    ASSERT_EQ(cuMemAlloc_v2(&at, 1), CUDA_SUCCESS);
    EXPECT_FALSE(came_from_there) << "it is loaded, and does not call";
}
