// SPDX-License-Identifier: GPL-2.0-or-later
// Executable graphs: which may run step by step, and how their launches follow
// each other. The harness runs their steps.
#include "hooks/made_graphs.hpp"
#include "hooks/unrolled.hpp"

#include <string>
#include <vector>

using namespace emuv::cuda;

namespace {

class Unrolled : public MadeGraphs
{
protected:
    Unrolled()
    {
        active = 1;
        waits.clear();
        records = 0;
        destroyed = 0;
        ours_.calls.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned *flags,
                                                    int *alive) {
            *flags = 0;
            *alive = active;
            return CUDA_SUCCESS;
        };
        EMUV_ANSWER(cuDevicePrimaryCtxRetain, [](CUcontext *out, CUdevice) {
            *out = number<CUcontext>(0x10);
            return CUDA_SUCCESS;
        });
        EMUV_ANSWER(cuDevicePrimaryCtxRelease_v2,
                    [](CUdevice) { return CUDA_SUCCESS; });
        EMUV_ANSWER(cuStreamWaitEvent, [](CUstream, CUevent event, unsigned) {
            waits.push_back(event);
            return CUDA_SUCCESS;
        });
        ours_.calls.cuEventRecord = [](CUevent, CUstream) {
            records++;
            return CUDA_SUCCESS;
        };
        ours_.calls.cuEventDestroy_v2 = [](CUevent) {
            destroyed++;
            return CUDA_SUCCESS;
        };
        add_fill(graph(1), 11, 1);
    }

    std::string why(CUgraphExec which)
    {
        const char *const text = ours_.unrolled.why_whole(which);
        return text != nullptr ? text : "";
    }
    // Launches it, while nothing moves.
    CUresult launch(CUgraphExec which)
    {
        return ours_.unrolled.launch(which, CU_STREAM_LEGACY, nullptr, [this] {
            wholes_++;
            return CUDA_SUCCESS;
        });
    }

    static constexpr const char *for_now =
        "a graph that runs as a whole for now";
    const CUgraphExec exec = number<CUgraphExec>(0x60);
    unsigned wholes_ = 0;     // launches
    static inline int active; // primary contexts
    static inline std::vector<CUevent> waits;
    static inline unsigned records;
    static inline unsigned destroyed;
};

} // namespace

TEST_F(Unrolled, AGraphOfFillsRunsAsAWholeOnlyForNow)
{
    EXPECT_EQ(why(exec), "") << "nobody knows it";
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(why(exec), for_now);
}

TEST_F(Unrolled, AGraphThatTheDeviceLaunchesIsOneWhole)
{
    ours_.unrolled.instantiated(exec, graph(1),
                                CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    EXPECT_EQ(why(exec), "a graph that the device launches");
}

TEST_F(Unrolled, AGraphBesideASecondContextIsOneWhole)
{
    active = 0; // so the current one is the program's own
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(why(exec), "a graph that is made beside a second context");
}

TEST_F(Unrolled, AGraphToWhichObjectsAreTiedIsOneWhole)
{
    ours_.unrolled.ties_objects();
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(why(exec), "a graph in a program that ties objects to graphs");
}

TEST_F(Unrolled, AGraphWithAHostsFunctionSaysSo)
{
    add(graph(1), 12, CU_GRAPH_NODE_TYPE_HOST);
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(why(exec), "a graph that calls a function of the host");
}

TEST_F(Unrolled, AGraphThatTakesOverAnotherIsAsThatOneIs)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    add_fill(graph(2), 21, 1);
    ours_.unrolled.updated(exec, graph(2));
    EXPECT_EQ(why(exec), for_now);
    add(graph(2), 22, CU_GRAPH_NODE_TYPE_HOST);
    ours_.unrolled.updated(exec, graph(2));
    EXPECT_EQ(why(exec), "a graph that calls a function of the host");
}

TEST_F(Unrolled, AGraphThatWasChangedInAnotherWayIsOneWhole)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    ours_.unrolled.is_whole(exec);
    EXPECT_EQ(why(exec), "a graph with a node that was changed");
}

TEST_F(Unrolled, AKernelThatIsNoneOfItsStepsMakesItOneWhole)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    ours_.unrolled.changed(exec, node(11), CUDA_KERNEL_NODE_PARAMS{});
    EXPECT_EQ(why(exec), "a graph with a node that was changed");
}

TEST_F(Unrolled, AGraphInItIsTakenOverByAsManySteps)
{
    add_child(graph(1), 12, graph(2));
    add_fill(graph(2), 21, 1);
    ours_.unrolled.instantiated(exec, graph(1), 0);
    add_fill(graph(3), 31, 5);
    ours_.unrolled.changed(exec, node(12), graph(3));
    EXPECT_EQ(why(exec), for_now);
    add_fill(graph(3), 32, 5);
    ours_.unrolled.changed(exec, node(12), graph(3));
    EXPECT_EQ(why(exec), "a graph with a node that was changed");
}

TEST_F(Unrolled, ALaunchWaitsForTheOneBefore)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_TRUE(waits.empty());
    EXPECT_EQ(records, 1U);
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_EQ(waits.size(), 1U);
    EXPECT_EQ(records, 2U);
    EXPECT_EQ(wholes_, 2U);
}

TEST_F(Unrolled, ALaunchInACaptureIsTheDriversAlone)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    card_.capturing = true;
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_EQ(wholes_, 1U);
    EXPECT_EQ(records, 0U);
}

TEST_F(Unrolled, AGraphWhoseEndCannotBeNotedIsOneWhole)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    ours_.calls.cuEventRecord = [](CUevent, CUstream) {
        return CUDA_ERROR_UNKNOWN;
    };
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_EQ(why(exec), "a graph whose end could not be noted");
}

TEST_F(Unrolled, AGraphThatGoesIsForgottenWithItsEvent)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    ours_.unrolled.goes(exec);
    EXPECT_EQ(destroyed, 1U);
    EXPECT_EQ(why(exec), "");
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_EQ(records, 1U) << "it is the driver's alone";
}

TEST_F(Unrolled, AnEventThatWentWithItsContextIsNotUsedAgain)
{
    ours_.unrolled.instantiated(exec, graph(1), 0);
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    ours_.unrolled.gone(number<CUcontext>(0x10));
    EXPECT_EQ(launch(exec), CUDA_SUCCESS);
    EXPECT_TRUE(waits.empty());
    ours_.unrolled.goes(exec);
    EXPECT_EQ(destroyed, 1U) << "the one of the second launch";
}
