// SPDX-License-Identifier: GPL-2.0-or-later
// Which function stands for a name and a version that a program asks for.
#include "hooks/fixture.hpp"

#include <string>

using namespace emuv::cuda;

namespace {

// The driver's own answer, whatever is asked for.
void own_of_the_driver() {}

class Procedures : public Hooks
{
protected:
    static void *ask(const char *name, int version, bool per_thread = false)
    {
        return own_procedure(name, version, per_thread, theirs());
    }
    static void *theirs()
    {
        return reinterpret_cast<void *>(own_of_the_driver);
    }
    template <typename Function>
    static void *ours(Function *function)
    {
        return reinterpret_cast<void *>(function);
    }
};

} // namespace

TEST_F(Procedures, AreTheNewestThatTheProgramKnows)
{
    EXPECT_EQ(ask("cuMemAlloc", CUDA_VERSION), ours(cuMemAlloc_v2));
    EXPECT_EQ(ask("cuMemAlloc", 3020), ours(cuMemAlloc_v2));
    EXPECT_EQ(ask("cuGetProcAddress", 11030), ours(cuGetProcAddress));
    EXPECT_EQ(ask("cuGetProcAddress", 12000), ours(cuGetProcAddress_v2));
    EXPECT_NE(ask("cuMemAlloc", 2000), ours(cuMemAlloc_v2));
    EXPECT_NE(ask("cuMemAlloc", 2000), theirs()) << "that one is refused";
    EXPECT_EQ(ask("cuMemAllocAsync", 11010), theirs()) << "it came later";
}

TEST_F(Procedures, ArePerThreadWhereThatIsAskedFor)
{
    EXPECT_EQ(ask("cuMemAllocAsync", 12000), ours(cuMemAllocAsync));
    EXPECT_EQ(ask("cuMemAllocAsync", 12000, true), ours(cuMemAllocAsync_ptsz));
    EXPECT_EQ(ask("cuMemAlloc", 12000, true), ours(cuMemAlloc_v2))
        << "it has no other";
}

TEST_F(Procedures, ThatNobodyHooksAreTheDrivers)
{
    EXPECT_EQ(ask("cuDeviceGetCount", CUDA_VERSION), theirs());
}

TEST_F(Procedures, ThatAreUnknownAreStubsUnlessTheyAreHarmless)
{
    for (const char *harmless :
         {"cuDeviceGetPokesOfTomorrow", "cuCtxGetPokes", "cuOccupancyPokes",
          "cuEventElapsedTimeOfTomorrow"})
        EXPECT_EQ(ask(harmless, 99000) == theirs(),
                  std::string(harmless) != "cuEventElapsedTimeOfTomorrow")
            << harmless;
    for (const char *name : {"cuMemPokeOfTomorrow", "cuMemAllocOfTomorrow",
                             "cuGraphAddPokeOfTomorrow"})
        EXPECT_NE(ask(name, 99000), theirs()) << name;
}

TEST_F(Procedures, OfANewerVersionAreOursIfTheDriverHasNoNewerOne)
{
    // It answers for our version as for the newer one.
    EMUV_ANSWER(cuGetProcAddress_v2,
                [](const char *, void **out, int, cuuint64_t,
                   CUdriverProcAddressQueryResult *) {
                    *out = reinterpret_cast<void *>(own_of_the_driver);
                    return CUDA_SUCCESS;
                });
    EXPECT_EQ(ask("cuMemAlloc", 99000), ours(cuMemAlloc_v2));
    EMUV_ANSWER(cuGetProcAddress_v2,
                [](const char *, void **out, int, cuuint64_t,
                   CUdriverProcAddressQueryResult *) {
                    *out = nullptr;
                    return CUDA_SUCCESS;
                });
    EXPECT_NE(ask("cuMemAlloc", 99000), ours(cuMemAlloc_v2));
    EXPECT_NE(ask("cuMemAlloc", 99000), theirs()) << "a stub tells of it";
}
