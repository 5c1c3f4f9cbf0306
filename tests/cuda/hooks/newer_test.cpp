// SPDX-License-Identifier: GPL-2.0-or-later
// Stubs for functions of a driver that is newer than the library.
#include "hooks/fixture.hpp"

#include <cstdlib>
#include <string>
#include <vector>

using namespace emuv::cuda;

namespace {

class Newer : public Hooks
{
protected:
    Newer() { called = 0; }

    using function = int (*)(int, double);
    template <int added>
    static int real(int number, double more)
    {
        called++;
        return number + static_cast<int>(more) + added;
    }
    template <int added>
    static void *address()
    {
        return reinterpret_cast<void *>(real<added>);
    }
    static int call(void *stub)
    {
        return reinterpret_cast<function>(stub)(40, 2.0);
    }

    static inline unsigned called;
};

} // namespace

TEST_F(Newer, AStubGoesOnToItsFunctionWithAllArguments)
{
    // A stub tells of its first call alone.
    in_own_process([] {
        void *const stub =
            newer_function("cuWorkOfTomorrow", address<100>(), {.work = true});
        EXPECT_NE(stub, address<100>());
        EXPECT_TRUE(stand_in::unseen.empty()) << "it was only asked for";
        EXPECT_EQ(call(stub), 142);
        EXPECT_EQ(call(stub), 142);
        EXPECT_EQ(called, 2U);
        EXPECT_EQ(stand_in::unseen,
                  std::vector<std::string>{"cuWorkOfTomorrow"})
            << "at the first call";
    });
}

TEST_F(Newer, AFunctionThatIsAskedForAgainHasTheSameStub)
{
    void *const one =
        newer_function("cuOneOfTomorrow", address<200>(), {.work = true});
    void *const other =
        newer_function("cuOtherOfTomorrow", address<300>(), {.work = true});
    EXPECT_NE(one, other);
    EXPECT_EQ(newer_function("cuOneOfTomorrow", address<200>(), {.work = true}),
              one);
    EXPECT_EQ(call(one), 242);
    EXPECT_EQ(call(other), 342);
}

TEST_F(Newer, WithoutStubsLeftAFunctionsEffectsAreToldAtOnce)
{
    // In a process of its own: no stub is given back.
    EXPECT_EXIT(
        {
            char functions[1000];
            bool was_told = false;
            bool is_right = true;
            for (char &each : functions) {
                void *const stub =
                    newer_function("cuWorkOfTomorrow", &each, {.work = true});
                was_told = was_told || stub == &each;
                is_right = is_right && was_told == !stand_in::unseen.empty();
            }
            // Nobody sees its calls, so a wait is as bad as work.
            stand_in::unseen.clear();
            newer_function("cuWaitOfTomorrow", functions, {.wait = true});
            is_right = is_right &&
                       (newer_function("cuWaitOfTomorrow", &is_right,
                                       {.wait = true}) == &is_right) &&
                       stand_in::unseen.size() == 1;
            std::_Exit(was_told && is_right ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "");
}
