// SPDX-License-Identifier: GPL-2.0-or-later
// Trust by proof, of code that nvcc makes: kernels that are proven, kernels
// that take addresses from memory, and kernels that cannot be followed.
#include "idle_driver.hpp"
#include "movement/kernels.hpp"
#include "movement/proofs.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

using namespace emuv::cuda;
using namespace std::string_view_literals;

namespace {

using content = std::vector<unsigned char>;

// The driver's answers.
std::map<CUfunction, std::string> names;

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

constexpr int place_in_this_program = 0;

class Proofs : public ::testing::Test
{
protected:
    void SetUp() override
    {
        std::string made = testing::TempDir() + "emuv-proofs-XXXXXX";
        folder_ = mkdtemp(made.data());
        names.clear();
        calls_ = idle_driver();
        calls_.cuFuncGetParamInfo = parameter_of;
        calls_.cuFuncGetName = name_of;
        start("proven", 90);
    }
    void TearDown() override
    {
        kernels_.reset();
        proofs_.reset();
        std::filesystem::remove_all(folder_);
    }

    // Anew, as another program of the same user. Its look-ups end in time.
    void start(const char *trust, unsigned sm, bool waits = true)
    {
        constexpr std::uint64_t hour_ns = 3600000000000;
        kernels_.reset();
        proofs_.reset();
        proofs_ = std::make_unique<proofs>(sm, folder_.c_str(), waits,
                                           proofs::patience{hour_ns, hour_ns});
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
    for (const char *name :
         {"refused_table", "refused_number", "refused_constants",
          "refused_atomic", "refused_through_shared"})
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

TEST_F(Proofs, TellWhichWordsOfALaunchArePointers)
{
    const CUdeviceptr number = first_ + 2 * 4096;
    work copy = launch(take("proven_copy"), {first_, first_ + 4096, number});
    ASSERT_EQ(copy.count, 3u);
    ASSERT_TRUE(copy.proven);
    EXPECT_TRUE(copy.may_go_by(0));
    EXPECT_TRUE(copy.may_go_by(1));
    EXPECT_FALSE(copy.may_go_by(2));
    EXPECT_FALSE(copy.pointers[2]);

    copy.doubt({first_, false});
    EXPECT_TRUE(copy.may_go_by(2)) << "the proof says nothing of this launch";

    // Any word may be one of a list, and a descriptor has an address in it.
    for (const char *name : {"proven_list", "proven_descriptor"}) {
        const work all = launch(take(name), {first_, number});
        ASSERT_TRUE(all.proven) << name;
        EXPECT_TRUE(all.may_go_by(0)) << name;
        EXPECT_TRUE(all.may_go_by(1)) << name;
    }
    const work refused = launch(take("refused_table"), {first_, number});
    EXPECT_TRUE(refused.may_go_by(1));
    EXPECT_TRUE(refused.pointers[1]) << "a parameter of that size";
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
    EXPECT_FALSE(all.proven) << "nobody looks at its parameters";
}

TEST_F(Proofs, WordAsksForThem)
{
    EXPECT_TRUE(known_kernels::asks_for_proofs("known,proven"));
    EXPECT_FALSE(known_kernels::asks_for_proofs("known,proven*"));
    EXPECT_FALSE(known_kernels::asks_for_proofs("all"));
}

TEST_F(Proofs, KernelWhoseNameTellsOfTablesIsTrustedIfItTakesNone)
{
    EXPECT_TRUE(launch(take("proven_grouped_copy")).proven);
}

TEST_F(Proofs, KernelWhoseNameTellsOfTablesMayNotAddWhatItLoads)
{
    const work out = launch(take("checked_grouped_offset"), {first_, first_});
    EXPECT_FALSE(out.trusted);
    EXPECT_TRUE(launch(take("checked_index"), {first_, first_}).trusted);
}

TEST_F(Proofs, KernelWhoseNameTellsOfOtherDevicesIsNotTrusted)
{
    start("proven,known,cuda_core_test*", 90);
    EXPECT_FALSE(trusts(take("proven_nccl_copy", &place_in_this_program)));
    start("proven,proven_nccl_copy", 90);
    EXPECT_TRUE(trusts(take("proven_nccl_copy"))) << "but by the user";
}

TEST_F(Proofs, ParameterBesideALoadedNumberHasToBeInAKnownAllocation)
{
    const CUfunction kernel = take("checked_index");
    EXPECT_FALSE(launch(kernel, {0, first_}).trusted);
    EXPECT_FALSE(launch(kernel, {4096, first_}).trusted) << "a small number";
    // The mover looks for it, and asks the driver.
    const work some = launch(kernel, {first_ + 64, 0});
    EXPECT_TRUE(some.trusted);
    ASSERT_EQ(some.base_count, 1U);
    EXPECT_EQ(some.bases[0].address, first_ + 64);
    // A loaded address plus a parameter.
    const CUfunction offset = take("checked_offset");
    EXPECT_FALSE(launch(offset, {first_, 8, first_}).trusted);
}

TEST_F(Proofs, EachAddressThatAProofGoesByHasToBeInAKnownAllocation)
{
    const CUfunction kernel = take("proven_optional");
    const work both = launch(kernel, {first_, first_ + 64});
    EXPECT_TRUE(both.trusted);
    ASSERT_EQ(both.base_count, 2U);
    EXPECT_EQ(both.bases[0].address, first_);
    EXPECT_EQ(both.bases[1].address, first_ + 64);
}

TEST_F(Proofs, OtherParametersMayBeNullOrSmall)
{
    const CUfunction kernel = take("proven_optional");
    const work null = launch(kernel, {first_, 0});
    EXPECT_TRUE(null.trusted);
    EXPECT_EQ(null.base_count, 1U);
    const work small = launch(kernel, {first_, 4096});
    EXPECT_TRUE(small.trusted);
    EXPECT_EQ(small.base_count, 1U);
}

TEST_F(Proofs, NamesDecideWhereAnAddressIsUnknownUnlessALoadedOneCouldBeIt)
{
    start("proven,known,cuda_core_test*", 90);
    work named =
        launch(take("proven_copy", &place_in_this_program), {first_, first_});
    EXPECT_TRUE(named.proven);
    named.doubt(named.bases[0]); // as the mover does
    EXPECT_TRUE(named.trusted);
    EXPECT_FALSE(named.proven);
    work loads =
        launch(take("checked_index", &place_in_this_program), {first_ + 64, 0});
    EXPECT_TRUE(loads.trusted);
    loads.doubt(loads.bases[0]);
    EXPECT_FALSE(loads.trusted);
}

// Unused words beside a list of addresses may be any number.
TEST_F(Proofs, NamesDecideWhereALoadedNumberIsAddedToAnotherAddress)
{
    start("proven,known,cuda_core_test*", 90);
    work out =
        launch(take("checked_index", &place_in_this_program), {first_ + 64, 0});
    ASSERT_EQ(out.base_count, 1U);
    EXPECT_TRUE(out.bases[0].is_added_to);
    out.doubt({first_ + 4096, false});
    EXPECT_TRUE(out.trusted);
    EXPECT_FALSE(out.proven);
}

TEST_F(Proofs, KernelThatPicksAParameterByAnIndexReliesOnEachThatMayBeAnAddress)
{
    const work some =
        launch(take("proven_list"), {first_, first_ + 64, 0, 12345});
    EXPECT_TRUE(some.proven);
    ASSERT_EQ(some.base_count, 2U);
    EXPECT_EQ(some.bases[0].address, first_);
    EXPECT_EQ(some.bases[1].address, first_ + 64);
}

TEST_F(Proofs, ParametersOfALaunchSettleWhatTheCodeLeavesOpen)
{
    const CUfunction kernel = take("settled_mode");
    const auto mode = [](std::uint64_t which, std::uint64_t count) {
        return which | count << 32;
    };
    const work one = launch(kernel, {first_, first_, mode(0, 100)});
    EXPECT_TRUE(one.trusted);
    EXPECT_TRUE(one.proven);
    EXPECT_EQ(proofs_->looked_at(), 2U);
    EXPECT_TRUE(launch(kernel, {first_, first_, mode(1, 7)}).proven);
    EXPECT_EQ(proofs_->looked_at(), 2U) << "it goes the same way";
    EXPECT_FALSE(launch(kernel, {first_, first_, mode(3, 100)}).trusted);
    EXPECT_TRUE(launch(kernel, {first_, first_, mode(0, 9)}).proven);
    const std::uint64_t looked = proofs_->looked_at();
    EXPECT_FALSE(launch(kernel, {first_, first_, mode(3, 1)}).trusted);
    EXPECT_EQ(proofs_->looked_at(), looked);
    // The next program has both from the cache.
    start("proven", 90);
    const CUfunction again = take("settled_mode");
    EXPECT_FALSE(launch(again, {first_, first_, mode(3, 5)}).trusted);
    EXPECT_TRUE(launch(again, {first_, first_, mode(0, 5)}).proven);
    EXPECT_EQ(proofs_->looked_at(), 0U);
}

TEST_F(Proofs, LaunchWithoutAnOptionalParameterIsProvenByWhatItLeavesOut)
{
    const CUfunction kernel = take("checked_optional");
    EXPECT_TRUE(launch(kernel, {first_, first_ + 64, first_}).proven);
    EXPECT_EQ(proofs_->looked_at(), 1U);
    const work without = launch(kernel, {first_, 0, first_});
    EXPECT_TRUE(without.trusted);
    EXPECT_TRUE(without.proven);
    EXPECT_EQ(without.base_count, 1U);
    EXPECT_EQ(proofs_->looked_at(), 2U);
    const work with = launch(kernel, {first_, first_ + 64, first_});
    EXPECT_EQ(with.base_count, 3U);
    EXPECT_TRUE(launch(kernel, {first_, 0, first_ + 64}).proven);
    EXPECT_EQ(proofs_->looked_at(), 2U);
    start("proven", 90);
    EXPECT_TRUE(launch(take("checked_optional"), {first_, 0, first_}).proven);
    EXPECT_EQ(proofs_->looked_at(), 0U) << "it was kept";
}

TEST_F(Proofs, TableThatALaunchIsGivenIsUntrustedWhoeverMadeTheKernel)
{
    start("proven,known,cuda_core_test*", 90);
    const CUfunction kernel = take("settled_mode", &place_in_this_program);
    EXPECT_FALSE(launch(kernel, {first_, first_, 3}).trusted);
    EXPECT_TRUE(launch(kernel, {first_, first_, 0}).proven);
}

TEST_F(Proofs, LaunchIsNotLookedAtWhereANameDecides)
{
    for (const char *const trust :
         {"proven,settled_mode", "proven,-settled_mode"}) {
        start(trust, 90);
        const CUfunction kernel = take("settled_mode");
        const bool trusted = trust[7] != '-';
        EXPECT_EQ(launch(kernel, {first_, first_, 3}).trusted, trusted);
        EXPECT_EQ(launch(kernel, {first_, first_, 0}).trusted, trusted);
        EXPECT_LE(proofs_->looked_at(), 1U) << trust << ", for all launches";
    }
}

// A table is refused however long launches without one went other ways.
TEST_F(Proofs, RefusalOfATableStandsAmongLaunchesThatGoManyWays)
{
    start("proven,known,cuda_core_test*", 90);
    const CUfunction kernel = take("settled_table", &place_in_this_program);
    EXPECT_FALSE(launch(kernel, {first_, first_, 5}).trusted);
    for (CUdeviceptr i = 0; i < 300; i++) {
        launch(kernel, {first_, 0, i});
        EXPECT_FALSE(launch(kernel, {first_, first_, 5}).trusted) << i;
    }
}

namespace {

// Keeps a verdict about launches with each of eight numbers as third parameter.
// By one of them, a loaded number is added to the first parameter.
void keep_eight_ways(const char *folder, const proof::kernel_code &of)
{
    using kind = proof::term::kind;
    proof::cache kept(folder);
    for (std::uint32_t way = 0; way < 8; way++) {
        proof::verdict made;
        made.why = proof::obstacle::none;
        made.bases = {{0, way == 0}};
        made.terms = {{.is = kind::word, .number = 16},
                      {.is = kind::number, .number = way},
                      {.is = kind::comparison, .how = 2, .a = 0, .b = 1}};
        made.premises = {{2, true}};
        kept.keep(proof::fingerprint_of(of), made);
    }
    ASSERT_TRUE(kept.save());
}

} // namespace

// The first parameter of such a launch has to be an address, however long
// launches went other ways. A name would trust it.
TEST_F(Proofs, BaseToBeCheckedIsCheckedAmongLaunchesThatGoManyWays)
{
    const auto code = proof::read_cubin(cubin_);
    ASSERT_TRUE(code);
    const auto of = std::find_if(
        code->kernels.begin(), code->kernels.end(),
        [](const auto &each) { return each.name == "settled_mode"; });
    ASSERT_NE(of, code->kernels.end());
    keep_eight_ways(folder_.c_str(), *of);
    start("proven,known,cuda_core_test*", 90);
    const CUfunction kernel = take("settled_mode", &place_in_this_program);
    const auto goes = [&](CUdeviceptr first, CUdeviceptr way) {
        return launch(kernel, {first, first_, way});
    };
    for (CUdeviceptr way = 0; way < 8; way++)
        ASSERT_TRUE(goes(first_, way).proven) << way;
    for (const int missed : {1, 63, 64, 65, 100, 127, 128, 129, 300}) {
        for (int i = 0; i < missed; i++) {
            const work other = goes(first_, 100);
            ASSERT_TRUE(other.trusted && !other.proven) << "by its name";
        }
        EXPECT_FALSE(goes(4096, 0).trusted) << "after " << missed;
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A launch that cannot be looked at, for want of memory, says nothing for a
// kernel that was seen to take addresses from memory.
TEST_F(Proofs, RefusalStandsWhereALaunchCannotBeLookedAt)
{
    start("proven,known,cuda_core_test*", 90);
    const CUfunction kernel = take("refused_table", &place_in_this_program);
    // Nobody asks about a launch whose parameters are not known.
    std::size_t bytes = 1;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &bytes,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const auto out = std::make_unique<work>();
    kernels_->scan(calls_, kernel, nullptr, extra, *out);
    ASSERT_FALSE(out->trusted);
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    rlimit tight = before;
    tight.rlim_cur = pages * 4096 + (std::uint64_t{128} << 20);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
    const bool first = launch(kernel, {first_, 3}).trusted;
    const bool second = launch(kernel, {first_, 3}).trusted;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_FALSE(first);
    EXPECT_FALSE(second);
}
#endif

TEST_F(Proofs, LaunchesThatGoManyWaysAreNotAskedAboutForGood)
{
    const CUfunction kernel = take("settled_table");
    for (CUdeviceptr i = 0; i < 64; i++)
        launch(kernel, {first_, i % 2 != 0 ? first_ : 0, i});
    EXPECT_LE(proofs_->looked_at(), 9U);
}

TEST_F(Proofs, SettledLaunchOfUnknownSizeIsNotProven)
{
    const CUfunction kernel = take("settled_mode");
    CUdeviceptr values[4] = {first_, first_, 0, 0};
    std::size_t bytes = sizeof values;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, values,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    const auto proven = [&] {
        const auto out = std::make_unique<work>();
        kernels_->scan(calls_, kernel, nullptr, extra, *out);
        return out->proven;
    };
    EXPECT_TRUE(proven());
    bytes = 8;
    EXPECT_FALSE(proven()) << "the buffer is too short";
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
    // A refused one is looked at again, with the launch's parameters.
    EXPECT_EQ(proofs_->looked_at(), 3U);
    start("proven", 90);
    EXPECT_TRUE(trusts(take("proven_copy")));
    EXPECT_FALSE(trusts(take("refused_table")));
    EXPECT_EQ(proofs_->looked_at(), 0U);
    EXPECT_TRUE(trusts(take("proven_strides")));
    EXPECT_EQ(proofs_->looked_at(), 1U);
}

TEST_F(Proofs, FirstLaunchIsOfAProvenKernelIfItsVerdictIsKept)
{
    const std::vector<CUdeviceptr> given = {first_, first_,
                                            CUdeviceptr{100} << 32};
    ASSERT_TRUE(launch(take("proven_copy")).proven);
    ASSERT_TRUE(launch(take("settled_mode"), given).proven);
    start("proven", 90, false);
    EXPECT_TRUE(launch(take("proven_copy")).proven);
    EXPECT_TRUE(launch(take("settled_mode"), given).proven)
        << "for this launch's parameters";
    EXPECT_EQ(proofs_->looked_at(), 0U);
}

TEST_F(Proofs, LaunchWaitsForALookUpAndNotForAProof)
{
    ASSERT_TRUE(launch(take("proven_copy")).proven);
    start("proven", 90, false);
    const auto code = proofs_->at(cubin_.data());
    const auto kept = proofs_->ask(code, "proven_copy");
    const auto unheard = proofs_->ask(code, "proven_strides");
    proofs_->await(unheard);
    EXPECT_TRUE(unheard->is_new);
    proofs_->await(kept);
    EXPECT_EQ(kept->is.load(), finding::kind::proven);
    EXPECT_FALSE(kept->is_new);
    proofs_->settle();
    EXPECT_EQ(unheard->is.load(), finding::kind::proven);
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
    EXPECT_EQ(proofs_->looked_at(), 3U);
}

TEST_F(Proofs, WithoutACacheKernelsAreProvenAllTheSame)
{
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
    start("proven", 90);
    EXPECT_TRUE(trusts(take("proven_copy")));
    proofs_->leave();
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/verdicts"))
        << "in a folder that others can write to";
}

TEST_F(Proofs, ModuleThatIsUnloadedProvesNothing)
{
    const CUfunction kernel = take("proven_copy");
    EXPECT_TRUE(trusts(kernel));
    kernels_->unloaded(handle(2 * made_));
    EXPECT_FALSE(trusts(kernel)) << "another kernel of that handle";
    // Code that goes before it was looked at.
    const auto code = proofs_->at(cubin_.data());
    proofs::gone(code);
    const proofs::answer_ref found = proofs_->ask(code, "proven_copy");
    proofs_->await(found);
    EXPECT_EQ(found->is.load(), finding::kind::unread);
}

TEST_F(Proofs, ImageThatTheProgramFreesWasCopied)
{
    auto image = std::make_unique<content>(cubin_);
    const CUfunction kernel = load(image->data(), "proven_copy");
    std::fill(image->begin(), image->end(), 0);
    image.reset();
    EXPECT_TRUE(trusts(kernel));
}

TEST_F(Proofs, OtherCodeInTheSamePlaceProvesNothingOfTheFirst)
{
    static unsigned char place[1 << 20];
    ASSERT_LE(cubin_.size(), sizeof place);
    // The one file has another kernel under the other one's name.
    content other = cubin_;
    const auto swap = [&other](std::string_view from, std::string_view to) {
        const auto is = [](unsigned char a, char b) {
            return a == static_cast<unsigned char>(b);
        };
        for (auto at = other.begin();; at += 1) {
            at = std::search(at, other.end(), from.begin(), from.end(), is);
            if (at == other.end())
                return;
            std::copy(to.begin(), to.end(), at);
        }
    };
    swap("refused_table\0"sv, "unheard_table\0"sv);
    swap(".refused_table\0"sv, ".unheard_table\0"sv);
    std::copy(cubin_.begin(), cubin_.end(), place);
    const CUfunction first = load(place, "unheard_table");
    std::copy(other.begin(), other.end(), place);
    const CUfunction second = load(place, "unheard_table");
    launch(first);
    launch(second);
    EXPECT_STREQ(kernels_->launches_of("unheard_table").why,
                 "an address from memory");
    start("proven", 90);
    std::copy(cubin_.begin(), cubin_.end(), place);
    const CUfunction copy = load(place, "proven_copy");
    std::fill(std::begin(place), std::end(place), 0);
    EXPECT_TRUE(trusts(copy));
}

TEST_F(Proofs, KernelThatIsLookedUpAgainKeepsItsFinding)
{
    start("proven", 90, false);
    const CUfunction kernel = take("proven_copy");
    trusts(kernel);
    proofs_->settle();
    EXPECT_TRUE(trusts(kernel));
    for (int i = 0; i < 100; i++) {
        kernels_->derived(handle(2 * made_), kernel);
        EXPECT_TRUE(trusts(kernel));
    }
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

namespace {

struct packed_code
{
    unsigned sm = 0;
    const content *of = nullptr;
    std::uint64_t flags = 0x11;
    std::uint16_t kind = 2;
};

content fatbin_of(const std::vector<packed_code> &all)
{
    content made(16);
    const auto put = [&made](std::size_t at, auto number) {
        std::memcpy(made.data() + at, &number, sizeof number);
    };
    for (const packed_code &each : all) {
        const std::size_t at = made.size();
        made.resize(at + 64);
        put(at, each.kind);
        put(at + 4, std::uint32_t{64});
        put(at + 8, std::uint64_t{each.of->size()});
        put(at + 28, std::uint32_t{each.sm});
        put(at + 40, each.flags);
        made.insert(made.end(), each.of->begin(), each.of->end());
    }
    put(0, std::uint32_t{0xba55ed50});
    put(4, std::uint16_t{1});
    put(6, std::uint16_t{16});
    put(8, std::uint64_t{made.size() - 16});
    return made;
}

} // namespace

TEST_F(Proofs, CodeThatTheDriverMayChooseIsProvenOrNoneIs)
{
    const content good = file("sm_80.cubin");
    const content bad(64, 'x');
    const auto proves = [&](unsigned sm, const std::vector<packed_code> &all) {
        start("proven", sm);
        return trusts(load(fatbin_of(all).data(), "proven_copy"));
    };
    EXPECT_TRUE(proves(89, {{80, &good}}));
    EXPECT_TRUE(proves(89, {{80, &good}, {86, &good}}));
    EXPECT_TRUE(proves(86, {{80, &bad}, {86, &good}})) << "the card's own";
    EXPECT_FALSE(proves(86, {{80, &good}, {86, &bad}}));
    EXPECT_FALSE(proves(89, {{80, &bad}, {86, &good}})) << "either";
    EXPECT_FALSE(proves(89, {{80, &good}, {86, &bad}})) << "either";
    EXPECT_TRUE(proves(80, {{80, &good}, {86, &bad}})) << "of a later card";
    EXPECT_FALSE(proves(89, {{80, &good, 0x100011}}))
        << "for one architecture alone, as sm_90a is";
    EXPECT_FALSE(proves(80, {{80, &good}, {80, &bad, 0x11, 64}}))
        << "of a kind that is not known";
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

TEST_F(Proofs, CodeThatAToolOrAnOptionMayChangeProvesNothing)
{
    setenv("CUDA_INJECTION64_PATH", "/nowhere/tool.so", 1);
    start("proven", 90);
    unsetenv("CUDA_INJECTION64_PATH");
    EXPECT_FALSE(trusts(take("proven_copy")));
    start("proven", 90);
    EXPECT_TRUE(trusts(take("proven_copy")));
    kernels_->loaded(handle(900), cubin_.data(), nullptr, nullptr, nullptr,
                     false);
    kernels_->derived(handle(900), handle(901));
    names[handle(901)] = "proven_copy";
    EXPECT_FALSE(trusts(handle(901)));
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
