// SPDX-License-Identifier: GPL-2.0-or-later
// Tapes are read as they were made, wrong ones are refused, and the oracle
// finds what can be found by hand.
#include "costs.hpp"
#include "made_tapes.hpp"
#include "oracle.hpp"
#include "score.hpp"
#include "tape.hpp"
#include "thread_time.hpp"

#include <random>

#include <gtest/gtest.h>

namespace {

namespace tape = emuv::tape;
using bench::tape_maker;
using tape::code;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

tape::tape read(const tape_maker::bytes &content)
{
    tape::tape out;
    tape::wrong error;
    EXPECT_TRUE(tape::read(content, out, error)) << error.why;
    return out;
}

std::string why_not(const tape_maker::bytes &content)
{
    tape::tape out;
    tape::wrong error;
    EXPECT_FALSE(tape::read(content, out, error));
    return error.why;
}

// A byte takes a nanosecond, in each direction.
bench::card_costs plain()
{
    bench::card_costs out;
    out.link_in_alone = out.link_in_beside = out.link_out_alone =
        out.link_out_beside = out.in_place = 1000;
    return out;
}

bench::oracle_result best(const tape_maker::bytes &content, std::uint64_t share,
                          bench::written how = bench::written::made)
{
    return bench::run_oracle(bench::make_score(read(content), how), share,
                             plain());
}

TEST(Tape, IsReadAsItWasMade)
{
    tape_maker made;
    made.begin(code::about).text("card").text("a card");
    const auto first = made.allocate(5 * MiB);
    const auto second = made.allocate(MiB, tape::memory_kind::pinned);
    made.launch("k", {{first, 4096}, {second}}, 7000, 12);
    made.copy(tape::copy_kind::to_device, 100, true, first);
    made.free(first);
    made.wait();
    made.mark();
    const tape::tape is = read(made.end());
    EXPECT_EQ(is.said("card"), "a card");
    EXPECT_TRUE(is.ended);
    EXPECT_FALSE(is.cut);
    ASSERT_EQ(is.steps.size(), 7u);
    ASSERT_EQ(is.allocations.size(), 2u);
    EXPECT_EQ(is.allocations[0].bytes, 5 * MiB);
    EXPECT_EQ(is.allocations[0].gone, 4u);
    EXPECT_EQ(is.allocations[1].kind, tape::memory_kind::pinned);
    const tape::step &launch = is.steps[2];
    EXPECT_EQ(launch.what, code::launch);
    EXPECT_EQ(launch.gap, 12u);
    EXPECT_EQ(launch.ns, 7000u);
    ASSERT_EQ(is.names_of(launch).size(), 2u);
    EXPECT_EQ(is.names_of(launch)[0], (tape::place{0, 4096}));
    EXPECT_EQ(is.kernels.at(is.shapes[launch.which].kernel), "k");
    EXPECT_EQ(is.steps[3].to, (tape::place{0, 0}));
    EXPECT_EQ(is.steps[3].from.allocation, tape::none);
}

TEST(Tape, OfAProgramThatWasKilledHoldsAllWholeRecords)
{
    tape_maker made;
    const auto at = made.allocate(MiB);
    made.launch("k", {{at}}, 1000);
    const std::size_t whole = made.so_far().size();
    made.launch("k", {{at}}, 1000);
    auto content = made.so_far();
    const tape::tape all = read(content);
    EXPECT_FALSE(all.ended);
    EXPECT_FALSE(all.cut);
    EXPECT_EQ(all.steps.size(), 3u);
    content.resize(whole + 3);
    const tape::tape part = read(content);
    EXPECT_TRUE(part.cut);
    EXPECT_EQ(part.steps.size(), 2u);
    EXPECT_EQ(part.names.size(), 1u);
}

TEST(Tape, IsRefusedIfItNamesWhatThereIsNot)
{
    EXPECT_NE(why_not({}), "");
    EXPECT_NE(why_not({'e', 'm', 'u', 'v', 't', 'a', 'p', 'e', 9}), "");
    {
        tape_maker made;
        made.allocate(MiB);
        made.launch("k", {{1}}, 1);
        EXPECT_NE(why_not(made.end()).find("allocation 1 of 1"),
                  std::string::npos);
    }
    {
        tape_maker made;
        made.allocate(MiB);
        made.launch("k", {{0, MiB}}, 1);
        EXPECT_NE(why_not(made.end()).find("beyond"), std::string::npos);
    }
    {
        tape_maker made;
        made.allocate(MiB);
        made.free(0);
        made.free(0);
        EXPECT_NE(why_not(made.end()).find("twice"), std::string::npos);
    }
    {
        tape_maker made;
        made.begin(static_cast<code>(0x7f));
        EXPECT_NE(why_not(made.end()).find("0x7f"), std::string::npos);
    }
    {
        tape_maker made;
        made.timed(code::graph_launch).number(0).number(0);
        EXPECT_NE(why_not(made.end()).find("graph"), std::string::npos);
    }
}

TEST(Tape, OfAnyBytesIsReadOrRefused)
{
    const auto good = bench::make_tape(bench::forth_and_back{});
    std::minstd_rand any(1);
    for (int i = 0; i < 3000; i++) {
        auto content = good;
        content.resize(any() % content.size());
        for (int j = 0; j < 4 && content.size() > 9; j++)
            content[9 + any() % (content.size() - 9)] =
                static_cast<unsigned char>(any());
        tape::tape out;
        tape::wrong error;
        if (!tape::read(content, out, error)) {
            EXPECT_NE(error.why, "");
        }
    }
}

TEST(Tape, HasTheMedianTimeOfAShapeLessTheCostOfTiming)
{
    tape_maker made;
    const auto at = made.allocate(MiB);
    for (const std::uint64_t ns : {9000, 12000, 10000})
        made.launch("k", {{at}}, ns);
    made.begin(code::overhead).number(1500);
    const tape::tape is = read(made.end());
    EXPECT_EQ(is.overhead_ns, 1500u);
    EXPECT_EQ(is.shapes[0].ns, 8500u);
    EXPECT_EQ(is.timed, 3u);
}

TEST(Tape, GraphsLaunchesHaveTheNodesOfTheirMoment)
{
    tape_maker made;
    const auto one = made.allocate(MiB);
    const auto other = made.allocate(MiB);
    made.launch("k", {{one}}, 3000);
    made.timed(code::graph).number(2);
    for (const auto at : {one, other})
        made.number(1).number(0).number(at).number(0);
    made.timed(code::graph_launch).number(0).number(0);
    made.begin(code::duration).number(1).number(8000);
    made.timed(code::node_changed).number(0).number(0).number(0);
    made.number(other).number(64);
    made.timed(code::graph_launch).number(0).number(0);
    const tape::tape is = read(made.end());
    ASSERT_EQ(is.graphs.size(), 2u);
    EXPECT_EQ(is.graphs[0].nodes[0].names[0], (tape::place{0, 0}));
    EXPECT_EQ(tape::nodes_of(is, 1)[0]->names[0], (tape::place{1, 64}));
    EXPECT_EQ(tape::nodes_of(is, 1)[1]->names[0], (tape::place{1, 0}));
    EXPECT_EQ(is.steps[4].which, 0u);
    EXPECT_EQ(is.steps.back().which, 1u);
    // The launch's time, divided.
    EXPECT_EQ(tape::times_of(is, is.steps.back()),
              (std::vector<std::uint64_t>{4000, 4000}));
}

// A graph of so many nodes, of which one changes for each launch.
tape_maker::bytes decoding(std::uint64_t nodes, std::uint64_t launches)
{
    tape_maker made;
    const auto at = made.allocate(64 * MiB);
    made.launch("k", {{at}}, 1000);
    made.timed(code::graph).number(nodes);
    for (std::uint64_t i = 0; i < nodes; i++)
        made.number(1).number(0).number(at).number(i);
    for (std::uint64_t i = 0; i < launches; i++) {
        made.timed(code::graph_launch).number(0).number(0);
        made.timed(code::node_changed).number(0).number(i % nodes).number(0);
        made.number(at).number(nodes + i);
    }
    return made.end();
}

TEST(Tape, OfAGraphThatChangesForEachLaunchIsReadHoweverLong)
{
    const tape::tape is = read(decoding(1000, 5000));
    std::uint64_t launches = 0;
    std::size_t kept = 0;
    for (const tape::graph &each : is.graphs)
        kept += each.nodes.size() + each.changes.size();
    EXPECT_LE(kept, 3u * (1000 + 5000));
    for (const tape::step &each : is.steps) {
        if (each.what != code::graph_launch)
            continue;
        const auto nodes = tape::nodes_of(is, each.which);
        ASSERT_EQ(nodes.size(), 1000u);
        // The node that changed last has its new address, the next its old one.
        if (launches > 0) {
            EXPECT_EQ(nodes[(launches - 1) % 1000]->names[0].offset,
                      1000 + launches - 1);
        }
        const std::uint64_t next = launches % 1000;
        EXPECT_EQ(nodes[next]->names[0].offset,
                  launches < 1000 ? next : launches);
        launches++;
    }
    EXPECT_EQ(launches, 5000u);
}

TEST(Tape, MemoryOfAGraphEndsWithIt)
{
    tape_maker made;
    for (std::uint64_t i = 0; i < 3; i++) {
        made.timed(code::graph).number(1);
        made.number(static_cast<std::uint64_t>(tape::node_kind::allocate))
            .number(8 * MiB);
        made.timed(code::graph_gone).number(i);
    }
    const tape::tape is = read(made.end());
    EXPECT_EQ(tape::summarize(is).peak_bytes, 8 * MiB);
    EXPECT_EQ(bench::make_score(is).peak_bytes, 8 * MiB);
}

TEST(Tape, PartsLieInAnAllocationAndTakeNoMemory)
{
    tape_maker made;
    const auto around = made.allocate(8 * MiB);
    const auto first = made.hand_out(2 * MiB, around, 0);
    const auto second = made.hand_out(3 * MiB, around, 5 * MiB);
    made.launch("k", {{first}, {second, 4096}}, 1000);
    made.free(first);
    made.free(second);
    const tape::tape is = read(made.end());
    EXPECT_EQ(is.allocations[1].of, (tape::place{0, 0}));
    EXPECT_EQ(is.allocations[2].of, (tape::place{0, 5 * MiB}));
    EXPECT_EQ(is.allocations[2].gone, 5u);
    EXPECT_EQ(tape::summarize(is).peak_bytes, 8 * MiB);
}

TEST(Tape, PartsThatLieInNoAllocationAreRefused)
{
    const auto refused = [](std::uint64_t bytes, auto of, auto offset) {
        tape_maker made;
        made.allocate(8 * MiB);
        made.allocate(8 * MiB, tape::memory_kind::pinned);
        made.hand_out(MiB, 0, 0);
        made.allocate(8 * MiB);
        made.free(3);
        made.hand_out(bytes, of, offset);
        return why_not(made.end());
    };
    const std::string in_none = "a part that lies in no allocation";
    EXPECT_NE(refused(2 * MiB, 0, 7 * MiB).find(in_none), std::string::npos);
    EXPECT_NE(refused(MiB, 1, 0).find(in_none), std::string::npos)
        << "the host";
    EXPECT_NE(refused(MiB, 2, 0).find(in_none), std::string::npos) << "a part";
    EXPECT_NE(refused(MiB, 3, 0).find(in_none), std::string::npos) << "gone";
    EXPECT_NE(refused(MiB, 4, 0).find(in_none), std::string::npos) << "itself";
    EXPECT_NE(refused(MiB, 0, 8 * MiB).find("beyond"), std::string::npos);
}

TEST(Tape, OfTheFirstVersionIsReadAndHasNoParts)
{
    tape_maker made;
    const auto at = made.allocate(8 * MiB);
    made.launch("k", {{at}}, 1000);
    const std::size_t version_at = tape::magic.size();
    auto content = made.so_far();
    content[version_at] = 1;
    EXPECT_EQ(read(content).steps.size(), 2u);
    made.hand_out(MiB, at, 0);
    content = made.end();
    content[version_at] = 1;
    EXPECT_NE(why_not(content).find("memory"), std::string::npos);
    content[version_at] = tape::version + 1;
    EXPECT_NE(why_not(content).find("version 3"), std::string::npos);
}

TEST(Score, HasPartsInsteadOfWhatTheyAreOf)
{
    tape_maker made;
    const auto around = made.allocate(64 * MiB);
    made.allocate(4 * MiB); // whole
    const auto first = made.hand_out(8 * MiB, around, 0);
    made.hand_out(16 * MiB, around, 32 * MiB);
    made.launch("k", {{first, 4096}}, 1000);
    made.launch("k", {{first}, {around, 8 * MiB}}, 1000); // its end
    made.free(first);
    made.hand_out(4 * MiB, around, 0);
    const auto of = bench::make_score(read(made.end()));
    EXPECT_EQ(of.peak_bytes, (4 + 8 + 16) * MiB);
    ASSERT_EQ(of.pieces.size(), 4u);
    EXPECT_EQ(of.items[4].uses, 1u);
    EXPECT_EQ(of.pieces[of.uses_of(of.items[4])[0].piece].bytes, 8 * MiB);
    EXPECT_EQ(of.items[5].uses, 1u);
    EXPECT_EQ(of.items[5].names, 2u);
}

TEST(Score, HasAWholeAllocationWhereWhatIsFreeOfItIsUsed)
{
    const auto made_by = [](auto use) {
        tape_maker made;
        const auto around = made.allocate(64 * MiB);
        const auto first = made.hand_out(8 * MiB, around, 0);
        const auto second = made.hand_out(8 * MiB, around, 16 * MiB);
        made.launch("k", {{first}, {second, 4096}}, 1000);
        made.free(second);
        use(made, around, second);
        return bench::make_score(read(made.end()));
    };
    const auto launched = made_by([](tape_maker &to, auto around, auto) {
        to.launch("k", {{around, 24 * MiB}}, 1000);
    });
    const auto in_graph = made_by([](tape_maker &to, auto, auto second) {
        to.timed(code::graph)
            .number(1)
            .number(static_cast<std::uint64_t>(tape::node_kind::fill));
        to.number(MiB).number(second + 1).number(0);
        to.timed(code::graph_launch).number(0).number(0);
    });
    for (const auto &of : {launched, in_graph}) {
        EXPECT_EQ(of.peak_bytes, 64 * MiB);
        for (const auto &each : of.pieces)
            EXPECT_EQ(each.allocation, 0u);
        ASSERT_EQ(of.items.size(), 3u);
        EXPECT_EQ(of.names_of(of.items[1])[1],
                  (tape::place{0, 16 * MiB + 4096}));
        EXPECT_GT(of.items[2].uses, 0u);
    }
}

TEST(Tape, MayEndBehindAnEmptyText)
{
    tape_maker made;
    made.begin(code::kernel).text("");
    EXPECT_EQ(read(made.so_far()).kernels.size(), 1u);
}

TEST(Score, IsRefusedIfItIsMoreThanARunCanHold)
{
    tape_maker made;
    for (int i = 0; i < 128; i++)
        made.allocate(std::uint64_t{1} << 50);
    EXPECT_NE(bench::make_score(read(made.end())).problem, "");
}

TEST(Score, DividesAnAllocationWhereItIsNamed)
{
    tape_maker made;
    const auto at = made.allocate(80 * MiB);
    made.launch("one", {{at}}, 1000);
    made.launch("two", {{at, 8 * MiB}}, 1000);
    made.launch("two", {{at, 8 * MiB + 512}}, 1000); // too near to matter
    const auto of = bench::make_score(read(made.end()));
    ASSERT_EQ(of.pieces.size(), 4u); // 8, then 72 MiB in three
    EXPECT_EQ(of.pieces[0].bytes, 8 * MiB);
    EXPECT_EQ(of.items[1].uses, 1u);
    EXPECT_EQ(of.items[2].uses, 3u); // the next name is in its first row
    EXPECT_EQ(of.items[3].uses, 3u);
    EXPECT_TRUE(of.uses_of(of.items[1])[0].fresh);
    EXPECT_FALSE(of.uses_of(of.items[3])[0].fresh);
    EXPECT_EQ(of.peak_bytes, 80 * MiB);
}

TEST(Score, AViewThatBeginsInTheFirstRowEndsNothing)
{
    tape_maker made;
    const auto at = made.allocate(64 * MiB);
    made.launch("view", {{at, MiB}}, 1);
    made.launch("whole", {{at}}, 1);
    const auto of = bench::make_score(read(made.end()));
    std::uint64_t bytes = 0;
    for (const bench::use &each : of.uses_of(of.items.back()))
        bytes += of.pieces[each.piece].bytes;
    EXPECT_EQ(bytes, 64 * MiB);
}

// ---- The oracle

TEST(Oracle, TakesTheNativeTimeWhereEverythingFits)
{
    const auto made = bench::make_tape(bench::circle{4, 4 * MiB, 1000, 3});
    const auto is = best(made, 16 * MiB);
    EXPECT_EQ(is.in_bytes + is.out_bytes + is.in_place_bytes, 0u);
    ASSERT_EQ(is.steps.size(), 3u);
    for (const auto each : is.steps)
        EXPECT_EQ(each, 4000u);
}

TEST(Oracle, BoundOfACircleIsWhatDoesNotFitInEachRound)
{
    // 5 of 1 MiB in 3: two miss in each round but the first.
    const auto made = bench::make_tape(bench::circle{5, MiB, 1000, 4});
    const auto bound =
        bench::bound_oracle(bench::make_score(read(made)), 3 * MiB, plain());
    EXPECT_EQ(bound.in_bytes, 3 * 2 * MiB);
    EXPECT_EQ(bound.native_ns, 4u * 5 * 1000);
    EXPECT_EQ(bound.ns, 3 * 2 * MiB);
}

TEST(Oracle, FetchesBehindKernelsThatTakeLonger)
{
    // Each kernel takes four times as long as a piece's way.
    const auto made = bench::make_tape(bench::circle{5, MiB, 4 * MiB, 6});
    const auto is = best(made, 3 * MiB);
    ASSERT_EQ(is.steps.size(), 6u);
    EXPECT_EQ(is.steps.back(), 5 * 4 * MiB);
    EXPECT_GT(is.in_bytes + is.in_place_bytes, 0u);
}

TEST(Oracle, IsBoundByTheLinkWhereKernelsAreBrief)
{
    // One of two, and the other in no time: a piece has to come for each use.
    const auto made = bench::make_tape(bench::circle{2, 8 * MiB, 1000, 8});
    const auto is = best(made, 8 * MiB);
    // One stays, and the other is read where it is.
    EXPECT_GE(is.settled_ns(), 8 * MiB);
    EXPECT_LE(is.settled_ns(), 8 * MiB + 2000);
}

TEST(Oracle, ReadsInPlaceWhatCannotFit)
{
    // A kernel that uses all of 6 MiB, in 4.
    tape_maker made;
    std::vector<tape_maker::name> all;
    for (int i = 0; i < 6; i++)
        all.push_back({made.allocate(MiB)});
    for (int round = 0; round < 3; round++) {
        made.mark();
        made.launch("all", all, 1000);
        made.wait();
    }
    made.mark();
    const auto is = best(made.end(), 4 * MiB);
    ASSERT_EQ(is.steps.size(), 3u);
    EXPECT_EQ(is.steps.back(), 2 * MiB);
    EXPECT_EQ(is.in_bytes, 0u);
}

TEST(Oracle, CopiesBackNoMoreThanWhatIsNeededAgain)
{
    // Each activation is written, leaves, returns and is freed.
    const bench::forth_and_back shape{4, MiB, 4 * MiB, 16 * MiB, 3};
    const auto made = bench::make_tape(shape);
    const auto all = read(made);
    // Natively 4 + 16 MiB. In 12: two of four leave and return in each step.
    const auto is = best(made, 12 * MiB);
    EXPECT_GT(is.out_bytes, 0u);
    EXPECT_LE(is.out_bytes, 3u * 3 * 4 * MiB);
    EXPECT_LE(is.out_bytes, is.in_bytes + is.in_place_bytes);
    // There is time for all of it.
    EXPECT_EQ(is.settled_ns(), 4u * 3 * 16 * MiB);
}

// Only who knew the future could lose it. An engine may not.
TEST(Oracle, CopiesBackWhatIsNeverUsedAgainUntilItIsFreed)
{
    for (const bool frees : {false, true}) {
        tape_maker made;
        const auto first = made.allocate(8 * MiB);
        made.launch("k", {{first}}, 1000);
        if (frees)
            made.free(first);
        const auto second = made.allocate(8 * MiB);
        made.launch("k", {{second}}, 1000);
        EXPECT_EQ(best(made.end(), 8 * MiB).out_bytes, frees ? 0 : 8 * MiB);
    }
}

TEST(Oracle, GivesUpWhatIsFreedBeforeWhatIsNot)
{
    tape_maker made;
    const auto first = made.allocate(8 * MiB);
    made.launch("k", {{first}}, 1000);
    const auto second = made.allocate(8 * MiB);
    made.launch("k", {{second}}, 1000);
    made.free(first);
    const auto third = made.allocate(8 * MiB);
    made.launch("k", {{third}}, 1000);
    EXPECT_EQ(best(made.end(), 16 * MiB).out_bytes, 0u);
}

TEST(Oracle, GivesUpAtOnceWhatIsNotUsedAgainAndLiesInSystemRam)
{
    tape_maker made;
    const auto first = made.allocate(8 * MiB);
    const auto live = made.allocate(8 * MiB);
    const auto other = made.allocate(8 * MiB);
    // The first leaves for the other, and is back unchanged.
    for (const auto each : {first, live, other, live})
        made.launch("k", {{each}}, MiB);
    made.free(other);
    made.launch("k", {{first}}, MiB);
    // It is in the way, and its end is before the next use of the other one.
    const auto last = made.allocate(8 * MiB);
    made.launch("k", {{last}}, MiB);
    made.free(first);
    for (const auto each : {last, live})
        made.launch("k", {{each}}, MiB);
    EXPECT_EQ(best(made.end(), 16 * MiB).in_bytes, 8 * MiB);
}

TEST(Oracle, RunsTheProgramAheadAsFarAsTheDriverLetsIt)
{
    tape_maker made;
    const auto at = made.allocate(MiB);
    for (int step = 0; step < 5; step++) {
        made.mark();
        for (std::size_t i = 0; i < bench::most_queued; i++)
            made.launch("k", {{at}}, 1000);
    }
    made.mark();
    const auto is = best(made.end(), 4 * MiB);
    ASSERT_EQ(is.steps.size(), 5u);
    EXPECT_EQ(is.steps.front(), 0u) << "all of it is handed over at once";
    EXPECT_EQ(is.steps.back(), bench::most_queued * 1000);
}

TEST(Oracle, IsOfTheStepsThatAreAskedFor)
{
    bench::oracle_result is;
    is.steps = {40, 10, 30, 20};
    EXPECT_EQ(is.settled_ns(), 30u);
    EXPECT_EQ(is.settled_ns(2), 30u) << "no step is left out";
    EXPECT_EQ(is.settled_ns(8), 20u) << "the last one comes again";
    EXPECT_EQ(bench::oracle_result{}.settled_ns(8), 0u);
}

TEST(Oracle, OfWhatIsWrittenWritesAllBack)
{
    const auto made = bench::make_tape(bench::circle{4, MiB, 8 * MiB, 5});
    EXPECT_LE(best(made, 2 * MiB).out_bytes, 4 * MiB);
    EXPECT_GT(best(made, 2 * MiB, bench::written::all).out_bytes, 8 * MiB);
}

TEST(Oracle, IsNeverBelowItsBound)
{
    for (const bench::card_costs &costs : {plain(), bench::card_costs()})
        for (const auto &made : {bench::make_tape(bench::circle{}),
                                 bench::make_tape(bench::forth_and_back{}),
                                 bench::make_tape(bench::decode{})}) {
            const auto of = bench::make_score(read(made));
            std::uint64_t before = UINT64_MAX;
            for (const std::uint64_t part : {4, 5, 6, 8, 12}) {
                const std::uint64_t share = of.peak_bytes * part / 12;
                const auto bound = bench::bound_oracle(of, share, costs);
                const auto is = bench::run_oracle(of, share, costs);
                EXPECT_GE(is.whole_ns, bound.ns) << part;
                EXPECT_GE(is.in_bytes + is.in_place_bytes, bound.in_bytes)
                    << part;
                EXPECT_LE(bound.ns, before) << "more room is never worse";
                before = bound.ns;
            }
        }
}

TEST(Oracle, LetsACopyOutWaitForTheLink)
{
    // The first result leaves for the second, which is copied out behind it.
    tape_maker made;
    const auto first = made.allocate(8 * MiB);
    const auto second = made.allocate(8 * MiB);
    made.mark();
    made.launch("k", {{first}}, 1000);
    made.launch("k", {{second}}, 1000);
    made.copy(tape::copy_kind::to_host, MiB, true, second);
    made.mark();
    made.launch("k", {{first}}, 1000);
    const auto is = best(made.end(), 8 * MiB);
    ASSERT_EQ(is.steps.size(), 1u);
    EXPECT_GE(is.steps[0], (8 + 1) * MiB);
}

TEST(Oracle, CountsTheTimeOfAWaitingCopyOnce)
{
    tape_maker made;
    const auto at = made.allocate(MiB);
    made.mark();
    made.launch("k", {{at}}, 10 * MiB);
    // The call took as long as the kernel and the copy.
    made.timed(code::copy, 0, 11 * MiB)
        .number(static_cast<std::uint64_t>(tape::copy_kind::to_host))
        .number(tape::flag_waits)
        .number(0)
        .number(MiB)
        .number(0)
        .number(at + 1)
        .number(0);
    made.mark();
    EXPECT_EQ(best(made.end(), 2 * MiB).steps.at(0), 11 * MiB);
}

// ---- The program's thread

TEST(ThreadTime, HasEachWaitOnce)
{
    bench::thread_time is;
    is.at = 1000;
    is.calls(1000);
    is.waits(1000);
    is.goes_on(100000); // the device took so long
    is.returns(100000, 0);
    EXPECT_EQ(is.at, 100000u);
}

TEST(ThreadTime, HasTheEnginesTimeOnTopOfTheDrivers)
{
    bench::thread_time is;
    is.at = 1000;
    is.calls(1000);
    is.returns(1300, 5000);
    EXPECT_EQ(is.at, 1000u + 300 + 5000);
    // A call that is followed by a wait of its own.
    is.calls(6300);
    is.waits(6400);
    is.goes_on(9000);
    is.returns(9010, 0);
    EXPECT_EQ(is.at, 9010u);
}

TEST(Costs, AreReadFromTheFileThatIsInTheTree)
{
    bench::card_costs costs;
    costs.link_in_alone = 1;
    std::string error;
    ASSERT_TRUE(bench::read_costs(EMUV_BENCH_CARD, costs, error)) << error;
    const bench::card_costs usual;
    EXPECT_EQ(costs.link_in_alone, usual.link_in_alone);
    EXPECT_EQ(costs.unmap_ram.both, usual.unmap_ram.both);
    EXPECT_FALSE(bench::read_costs("/nonexistent", costs, error));
}

} // namespace
