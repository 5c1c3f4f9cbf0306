// SPDX-License-Identifier: GPL-2.0-or-later
// Trust in a program's kernels, and the parameters that they may leave in
// memory.
#include "idle_driver.hpp"
#include "movement/kernels.hpp"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

using namespace emuv::cuda;

namespace {

// A driver that knows kernels by their handles.
struct kernel
{
    std::string name;
    std::vector<std::size_t> parameters; // bytes of each
};
std::map<CUfunction, kernel> there;

CUresult parameter_of(CUfunction function, std::size_t index,
                      std::size_t *offset, std::size_t *bytes)
{
    const auto found = there.find(function);
    if (found == there.end())
        return CUDA_ERROR_INVALID_HANDLE;
    if (index >= found->second.parameters.size())
        return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 8;
    *bytes = found->second.parameters[index];
    return CUDA_SUCCESS;
}

CUresult name_of(const char **name, CUfunction function)
{
    const auto found = there.find(function);
    if (found == there.end())
        return CUDA_ERROR_INVALID_HANDLE;
    *name = found->second.name.c_str();
    return CUDA_SUCCESS;
}

// An image in this very program, whose file is trusted.
constexpr char image = 0;

class Kernels : public ::testing::Test
{
protected:
    void SetUp() override
    {
        there.clear();
        calls_ = idle_driver();
        calls_.cuFuncGetParamInfo = parameter_of;
        calls_.cuFuncGetName = name_of;
    }

    static CUfunction handle(std::uintptr_t number)
    {
        return reinterpret_cast<CUfunction>(number << 8);
    }
    static CUcontext context(std::uintptr_t number)
    {
        return reinterpret_cast<CUcontext>(number << 16);
    }

    // A kernel of that name, in a module that nobody knows.
    bool is_trusted(const char *trust, const char *name)
    {
        known_kernels all(trust, record_);
        there[handle(1)] = {name, {8}};
        return launch(all, handle(1)).trusted;
    }

    work launch(known_kernels &all, CUfunction which)
    {
        CUdeviceptr words[2] = {first_, second_};
        void *parameters[] = {&words[0], &words[1]};
        const auto out = std::make_unique<work>();
        all.scan(calls_, which, parameters, nullptr, *out);
        return *out;
    }

    // Loads a module out of the trusted file, with its one kernel.
    void load(known_kernels &all, std::uintptr_t module,
              std::uintptr_t function)
    {
        all.loaded(handle(module), &image, nullptr, nullptr, context(1));
        all.derived(handle(module), handle(function));
        there[handle(function)] = {"theirs", {8}};
    }

    trace record_;
    driver calls_{};
    const CUdeviceptr first_ = CUdeviceptr{0x2100} << 32;
    const CUdeviceptr second_ = CUdeviceptr{0x2200} << 32;
};

} // namespace

TEST_F(Kernels, ThoseThatACompilerNamesAreKnownAndThoseOfUsersAreNot)
{
    EXPECT_TRUE(is_trusted("known", "triton_poi_fused_add_0"));
    EXPECT_TRUE(is_trusted("known", "triton_tem_fused_mm_3"));
    for (const char *of_a_user :
         {"triton_mm", "triton_mm_grouped", "triton_mmha", "triton_bmm_ptrs"})
        EXPECT_FALSE(is_trusted("known", of_a_user)) << of_a_user;
    EXPECT_FALSE(is_trusted("none", "triton_poi_fused_add_0"));
}

TEST_F(Kernels, ThoseThatReadTablesAreNotVouchedForWhoeverNamesThem)
{
    EXPECT_FALSE(is_trusted("known", "triton_tem_fused__grouped_mm_0"));
    EXPECT_FALSE(is_trusted("known", "triton_poi_fused_pointerArray_0"));
    EXPECT_TRUE(
        is_trusted("known,triton_tem_*", "triton_tem_fused__grouped_mm"))
        << "but for the user";
    EXPECT_TRUE(is_trusted("all", "triton_tem_fused__grouped_mm_0"));
    EXPECT_FALSE(is_trusted("all,-*_mm_0", "triton_tem_fused__grouped_mm_0"));
}

TEST_F(Kernels, ThoseThatAFaultWasSeenWithAreNotTrustedWhateverTheSettingSays)
{
    remembered::path_buffer path;
    const std::string file = testing::TempDir() + "kernels_test.untrusted." +
                             std::to_string(getpid());
    file.copy(path.text, sizeof path.text - 1);
    ASSERT_TRUE(remembered(path).add({"seen"}));
    const remembered kept(path);
    known_kernels all("all,seen", record_, &kept);
    there[handle(1)] = {"seen", {8}};
    there[handle(2)] = {"another", {8}};
    EXPECT_FALSE(launch(all, handle(1)).trusted);
    EXPECT_TRUE(launch(all, handle(2)).trusted);
    std::remove(file.c_str());
}

TEST_F(Kernels, TheNameOfOneOutlivesItsModule)
{
    known_kernels all("all", record_);
    load(all, 1, 2);
    const work launched = launch(all, handle(2));
    all.unloaded(handle(1));
    there.clear();
    EXPECT_STREQ(launched.kernel, "theirs");
}

TEST_F(Kernels, WhatWritesATableLeavesAllThatItIsGiven)
{
    known_kernels all("none", record_);
    std::uintptr_t next = 1;
    for (const char *writer :
         {"k_compute_batched_ptrs", "cupy_mat_ptrs__uint64_uint64",
          "_Z25magma_dset_pointer_kernelPPd", "zdisplace_pointers_kernel"}) {
        const CUfunction function = handle(next++);
        there[function] = {writer, {8, 8}};
        EXPECT_EQ(launch(all, function).left, 2U) << writer;
    }
    const CUfunction function = handle(next);
    there[function] = {"axpy", {8, 8}};
    EXPECT_EQ(launch(all, function).left, 0U);
}

TEST_F(Kernels, AHandleOfAModuleThatIsUnloadedSaysNothingOfTheNext)
{
    known_kernels all("cuda_core_test*", record_);
    load(all, 1, 2);
    EXPECT_TRUE(launch(all, handle(2)).trusted);
    EXPECT_EQ(launch(all, handle(2)).count, 1U);
    all.unloaded(handle(1));
    // The kernel came by a way that nobody follows, in an unknown module.
    there[handle(2)] = {"others", {8, 8}};
    const work next = launch(all, handle(2));
    EXPECT_FALSE(next.trusted);
    EXPECT_EQ(next.count, 2U) << "as it is laid out now";
}

TEST_F(Kernels, ALibraryGoesWithAllThatCameOutOfIt)
{
    known_kernels all("cuda_core_test*", record_);
    all.loaded(handle(1), &image, nullptr, nullptr, nullptr);
    all.derived(handle(1), handle(2));             // a kernel
    all.derived(handle(2), handle(3), context(1)); // a function
    all.derived(handle(1), handle(4), context(1)); // a module
    all.derived(handle(4), handle(5));             // and its function
    load(all, 6, 7);
    for (const std::uintptr_t each : {2, 3, 5, 7}) {
        there[handle(each)] = {"theirs", {8}};
        EXPECT_TRUE(launch(all, handle(each)).trusted) << each;
    }
    all.unloaded(handle(1));
    for (const std::uintptr_t each : {2, 3, 5})
        EXPECT_FALSE(launch(all, handle(each)).trusted) << each;
    EXPECT_TRUE(launch(all, handle(7)).trusted) << "another's";
}

TEST_F(Kernels, WithAContextGoItsModulesAndNoOthers)
{
    known_kernels all("cuda_core_test*", record_);
    load(all, 1, 2);
    all.loaded(handle(3), &image, nullptr, nullptr, context(2));
    all.derived(handle(3), handle(4));
    all.loaded(handle(5), &image, nullptr, nullptr, nullptr);
    all.derived(handle(5), handle(6));             // a library's kernel
    all.derived(handle(6), handle(7), context(1)); // as a function
    for (const std::uintptr_t each : {2, 4, 6, 7}) {
        there[handle(each)] = {"theirs", {8}};
        EXPECT_TRUE(launch(all, handle(each)).trusted) << each;
    }
    all.gone(context(1));
    EXPECT_FALSE(launch(all, handle(2)).trusted);
    EXPECT_TRUE(launch(all, handle(4)).trusted);
    EXPECT_TRUE(launch(all, handle(6)).trusted);
    EXPECT_FALSE(launch(all, handle(7)).trusted);
}
