// SPDX-License-Identifier: GPL-2.0-or-later
// Trust by proof, of code that nvcc makes: kernels that are proven, kernels
// that take addresses from memory, and kernels that cannot be followed.
#include "idle_driver.hpp"
#include "movement/kernels.hpp"
#include "movement/proofs.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

using content = std::vector<unsigned char>;

// The driver's answers.
std::map<CUfunction, std::string> names;
std::set<CUdeviceptr> allocated;

CUresult parameter_of(CUfunction function, std::size_t index,
                      std::size_t *offset, std::size_t *bytes)
{
    if (names.count(function) == 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (index >= 4)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 8;
    *bytes = 8;
    return CUDA_SUCCESS;
}

CUresult name_of(const char **name, CUfunction function)
{
    const auto found = names.find(function);
    if (found == names.end())
        return CUDA_ERROR_INVALID_HANDLE;
    *name = found->second.c_str();
    return CUDA_SUCCESS;
}

CUresult attribute_of(void *out, CUpointer_attribute, CUdeviceptr at)
{
    if (allocated.count(at) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    *static_cast<unsigned *>(out) = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
}

constexpr int place_in_this_program = 0;

class Proofs : public ::testing::Test
{
protected:
    void SetUp() override
    {
        std::string made = testing::TempDir() + "emuv-proofs-XXXXXX";
        folder_ = mkdtemp(made.data());
        names.clear();
        allocated.clear();
        calls_ = idle_driver();
        calls_.cuFuncGetParamInfo = parameter_of;
        calls_.cuFuncGetName = name_of;
        calls_.cuPointerGetAttribute = attribute_of;
        start("proven", 90);
    }
    void TearDown() override
    {
        kernels_.reset();
        proofs_.reset();
        std::filesystem::remove_all(folder_);
    }

    // Anew, as another program of the same user.
    void start(const char *trust, unsigned sm, bool waits = true)
    {
        kernels_.reset();
        proofs_.reset();
        proofs_ = std::make_unique<proofs>(sm, folder_.c_str(), waits);
        kernels_ = std::make_unique<known_kernels>(trust, off_, nullptr,
                                                   proofs_.get());
    }

    static content file(const std::string &name)
    {
        std::ifstream from(PROOF_FOLDER "/kernels." + name, std::ios::binary);
        EXPECT_TRUE(from) << name;
        return {std::istreambuf_iterator<char>(from), {}};
    }
    static CUfunction handle(std::uintptr_t number)
    {
        return reinterpret_cast<CUfunction>(number << 8);
    }

    // Loads a module, and takes a kernel out of it.
    CUfunction load(const void *image, const char *name,
                    const char *path = nullptr, const void *caller = nullptr)
    {
        const std::uintptr_t number = 2 * ++made_;
        kernels_->loaded(handle(number), image, path, caller,
                         reinterpret_cast<CUcontext>(0x10));
        kernels_->derived(handle(number), handle(number + 1));
        names[handle(number + 1)] = name;
        return handle(number + 1);
    }
    // The same, out of the usual file.
    CUfunction take(const char *name, const void *caller = nullptr)
    {
        return load(cubin_.data(), name, nullptr, caller);
    }

    work launch(CUfunction which, std::vector<CUdeviceptr> given = {})
    {
        given.resize(4, 0);
        void *parameters[] = {&given[0], &given[1], &given[2], &given[3]};
        const auto out = std::make_unique<work>();
        kernels_->scan(calls_, which, parameters, nullptr, *out);
        return *out;
    }
    bool trusts(CUfunction which) { return launch(which).trusted; }

    const content cubin_ = file("sm_90.cubin");
    std::string folder_;
    driver calls_{};
    trace off_;
    std::uintptr_t made_ = 0;
    std::unique_ptr<proofs> proofs_;
    std::unique_ptr<known_kernels> kernels_;
    const CUdeviceptr first_ = CUdeviceptr{0x2100} << 32;
};

} // namespace

TEST_F(Proofs, KernelIsTrustedIfItsCodeProvesItAndNotOtherwise)
{
    const work proven = launch(take("proven_copy"));
    EXPECT_TRUE(proven.trusted);
    EXPECT_TRUE(proven.proven);
    EXPECT_FALSE(trusts(take("refused_table")));
    EXPECT_FALSE(trusts(take("refused_function")));
    EXPECT_FALSE(trusts(take("not_in_that_file")));
    EXPECT_FALSE(trusts(load(nullptr, "proven_copy"))) << "no code to read";
}

TEST_F(Proofs, KernelThatTakesAddressesFromMemoryIsUntrustedWhoeverMadeIt)
{
    start("proven,known,cuda_core_test*", 90);
    const void *const theirs = &place_in_this_program;
    for (const char *name : {"refused_table", "refused_number",
                             "refused_constants", "refused_atomic"})
        EXPECT_FALSE(trusts(take(name, theirs))) << name;
    // The same library, without proofs.
    known_kernels by_name("known,cuda_core_test*", off_);
    by_name.loaded(handle(900), cubin_.data(), nullptr, theirs, nullptr);
    by_name.derived(handle(900), handle(901));
    names[handle(901)] = "refused_table";
    work out;
    by_name.scan(calls_, handle(901), nullptr, nullptr, out);
    EXPECT_TRUE(out.trusted);
    EXPECT_FALSE(out.proven);
}

TEST_F(Proofs, KernelThatCannotBeFollowedIsTrustedByItsLibrary)
{
    start("proven,known,cuda_core_test*", 90);
    const work by_name =
        launch(take("refused_function", &place_in_this_program));
    EXPECT_TRUE(by_name.trusted);
    EXPECT_FALSE(by_name.proven);
    EXPECT_FALSE(trusts(take("refused_function"))) << "of nobody's library";
    EXPECT_TRUE(trusts(load(nullptr, "any", nullptr, &place_in_this_program)));
}

TEST_F(Proofs, UsersOwnNamesComeBeforeProofs)
{
    start("proven,refused_table,-proven_copy", 90);
    EXPECT_TRUE(trusts(take("refused_table")));
    EXPECT_FALSE(trusts(take("proven_copy")));
    EXPECT_TRUE(trusts(take("proven_optional")));
    start("proven,all", 90);
    const work all = launch(take("proven_copy"));
    EXPECT_TRUE(all.trusted);
    EXPECT_TRUE(all.proven);
}

TEST_F(Proofs, WordAsksForThem)
{
    EXPECT_TRUE(known_kernels::asks_for_proofs("known,proven"));
    EXPECT_FALSE(known_kernels::asks_for_proofs("known,proven*"));
    EXPECT_FALSE(known_kernels::asks_for_proofs("all"));
}

TEST_F(Proofs, KernelWhoseNameTellsOfTablesIsNotTrusted)
{
    EXPECT_FALSE(trusts(take("proven_grouped_copy")));
    start("proven,proven_grouped_copy", 90);
    EXPECT_TRUE(trusts(take("proven_grouped_copy"))) << "but by the user";
}

TEST_F(Proofs, ParameterBesideALoadedNumberHasToBeInAKnownAllocation)
{
    const CUfunction kernel = take("checked_index");
    EXPECT_FALSE(launch(kernel, {0, first_}).trusted);
    EXPECT_FALSE(launch(kernel, {4096, first_}).trusted) << "a small number";
    allocated.insert(first_);
    const work known = launch(kernel, {first_, 0});
    EXPECT_TRUE(known.trusted);
    EXPECT_EQ(known.base_count, 0U);
    // The mover looks for what the driver does not know.
    const work unknown = launch(kernel, {first_ + 64, first_});
    EXPECT_TRUE(unknown.trusted);
    ASSERT_EQ(unknown.base_count, 1U);
    EXPECT_EQ(unknown.bases[0], first_ + 64);
    // A loaded address plus a parameter.
    const CUfunction offset = take("checked_offset");
    EXPECT_FALSE(launch(offset, {first_, 8, first_}).trusted);
}

TEST_F(Proofs, OtherParametersMayBeAnyNumber)
{
    const CUfunction kernel = take("proven_optional");
    EXPECT_TRUE(launch(kernel, {first_, 0}).trusted);
    EXPECT_EQ(launch(kernel, {first_, first_ + 64}).base_count, 0U);
}

TEST_F(Proofs, ValueInABufferOfParametersIsFound)
{
    const CUfunction kernel = take("checked_index");
    CUdeviceptr values[4] = {};
    std::size_t bytes = sizeof values;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, values,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const auto trusted = [&] {
        const auto out = std::make_unique<work>();
        kernels_->scan(calls_, kernel, nullptr, extra, *out);
        return out->trusted;
    };
    EXPECT_FALSE(trusted());
    values[0] = first_;
    EXPECT_TRUE(trusted());
    bytes = 4; // the kernel gets more than there is
    EXPECT_FALSE(trusted());
}

TEST_F(Proofs, LaunchesDoNotWaitForAVerdictAndSeeItOnceItIsThere)
{
    start("proven", 90, false);
    const CUfunction proven = take("proven_copy");
    const CUfunction refused = take("refused_table");
    trusts(proven);
    EXPECT_FALSE(trusts(refused));
    proofs_->settle();
    EXPECT_TRUE(trusts(proven));
    EXPECT_FALSE(trusts(refused));
}

TEST_F(Proofs, VerdictIsReachedOnceAndThenComesFromTheCache)
{
    EXPECT_TRUE(trusts(take("proven_copy")));
    EXPECT_FALSE(trusts(take("refused_table")));
    EXPECT_EQ(proofs_->looked_at(), 2U);
    start("proven", 90);
    EXPECT_TRUE(trusts(take("proven_copy")));
    EXPECT_FALSE(trusts(take("refused_table")));
    EXPECT_EQ(proofs_->looked_at(), 0U);
    EXPECT_TRUE(trusts(take("proven_strides")));
    EXPECT_EQ(proofs_->looked_at(), 1U);
}

TEST_F(Proofs, DamagedCacheIsIgnored)
{
    EXPECT_TRUE(trusts(take("proven_copy")));
    EXPECT_FALSE(trusts(take("refused_table")));
    proofs_->leave();
    const std::string path = folder_ + "/verdicts";
    std::fstream cache(path, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(cache);
    cache.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path)) /
                2);
    cache.put('x');
    cache.close();
    start("proven", 90);
    EXPECT_TRUE(trusts(take("proven_copy")));
    EXPECT_FALSE(trusts(take("refused_table")));
    EXPECT_EQ(proofs_->looked_at(), 2U);
}

TEST_F(Proofs, WithoutACacheKernelsAreProvenAllTheSame)
{
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
    start("proven", 90);
    EXPECT_TRUE(trusts(take("proven_copy")));
    proofs_->leave();
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/verdicts"))
        << "in a folder that others can enter";
}

TEST_F(Proofs, ModuleThatIsUnloadedProvesNothing)
{
    const CUfunction kernel = take("proven_copy");
    EXPECT_TRUE(trusts(kernel));
    kernels_->unloaded(handle(2 * made_));
    EXPECT_FALSE(trusts(kernel)) << "another kernel of that handle";
    // Code that goes before it was looked at.
    const auto code = proofs::at(cubin_.data());
    proofs::gone(code);
    EXPECT_EQ(proofs_->ask(code, "proven_copy")->is.load(),
              finding::kind::unread);
}

TEST_F(Proofs, ImageThatTheProgramFreesWasCopied)
{
    auto image = std::make_unique<content>(cubin_);
    const CUfunction kernel = load(image->data(), "proven_copy");
    std::fill(image->begin(), image->end(), 0);
    image.reset();
    EXPECT_TRUE(trusts(kernel));
}

TEST_F(Proofs, FileIsRead)
{
    const std::string path = PROOF_FOLDER "/kernels.sm_90.cubin";
    EXPECT_TRUE(trusts(load(nullptr, "proven_copy", path.c_str())));
    EXPECT_FALSE(trusts(load(nullptr, "proven_copy", "/nowhere")));
}

TEST_F(Proofs, CodeOfAFatbinIsThatOfTheCard)
{
    for (const char *packed : {"none.fatbin", "speed.fatbin"})
        for (const auto &[sm, proven] : {std::pair{80U, true},
                                         {89U, true}, // of 80
                                         {90U, true},
                                         {75U, false},
                                         {100U, false}}) {
            start("proven", sm);
            EXPECT_EQ(trusts(load(file(packed).data(), "proven_copy")), proven)
                << packed << ", " << sm;
            EXPECT_FALSE(trusts(load(file(packed).data(), "refused_table")));
        }
}

TEST_F(Proofs, WrapperOfAFatbinIsFollowed)
{
    const content fatbin = file("none.fatbin");
    struct
    {
        int magic = 0x466243b1;
        int version = 1;
        const void *data = nullptr;
        void *unused = nullptr;
    } wrapper;
    wrapper.data = fatbin.data();
    EXPECT_TRUE(trusts(load(&wrapper, "proven_copy")));
}

TEST_F(Proofs, CodeThatTheDriverCompilesProvesNothing)
{
    const char *const text = ".version 8.0\n.target sm_90\n";
    EXPECT_FALSE(trusts(load(static_cast<const void *>(text), "proven_copy")));
    const content fatbin = file("none.fatbin");
    setenv("CUDA_FORCE_PTX_JIT", "1", 1);
    EXPECT_FALSE(trusts(load(fatbin.data(), "proven_copy")));
    EXPECT_TRUE(trusts(take("proven_copy"))) << "there is nothing to compile";
    unsetenv("CUDA_FORCE_PTX_JIT");
    EXPECT_TRUE(trusts(load(fatbin.data(), "proven_copy")));
}

TEST_F(Proofs, CodeForAnotherCardProvesNothing)
{
    start("proven", 80);
    EXPECT_FALSE(trusts(take("proven_copy")));
    start("proven", 0); // cards of several kinds
    EXPECT_FALSE(trusts(take("proven_copy")));
}

TEST_F(Proofs, LaunchesAreCountedByWhyTheyAreTrusted)
{
    start("proven,known,cuda_core_test*", 90);
    const void *const theirs = &place_in_this_program;
    const CUfunction proven = take("proven_copy");
    launch(proven).count_launch();
    launch(proven).count_launch();
    launch(take("refused_function", theirs)).count_launch();
    launch(take("refused_table", theirs)).count_launch();
    EXPECT_EQ(kernels_->launches_of("proven_copy").proven, 2U);
    EXPECT_STREQ(kernels_->launches_of("proven_copy").why, "");
    EXPECT_EQ(kernels_->launches_of("refused_function").named, 1U);
    EXPECT_STRNE(kernels_->launches_of("refused_function").why, "");
    EXPECT_EQ(kernels_->launches_of("refused_table").untrusted, 1U);
    EXPECT_STREQ(kernels_->launches_of("refused_table").why,
                 "an address from memory");
    EXPECT_EQ(kernels_->launches_of("of nobody").untrusted, 0U);
    std::size_t kernels = 0;
    kernels_->each_launched(
        [&](const char *, const known_kernels::launches &) { kernels++; });
    EXPECT_EQ(kernels, 3U);
}
