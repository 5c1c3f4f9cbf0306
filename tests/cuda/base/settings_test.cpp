// SPDX-License-Identifier: GPL-2.0-or-later
// Settings: values that are read, and values that are refused.
#include "base/settings.hpp"

#include <map>
#include <string>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

std::map<std::string, std::string> environment;

char *look_up(const char *name)
{
    const auto found = environment.find(name);
    return found != environment.end() ? found->second.data() : nullptr;
}

settings read(std::map<std::string, std::string> variables)
{
    environment = std::move(variables);
    return read_settings(look_up);
}

} // namespace

TEST(Settings, NothingSetMeansNoLimit)
{
    EXPECT_FALSE(read({}).limited());
    EXPECT_FALSE(read({{"EMUV_PHYSICAL", ""}}).limited());
}

TEST(Settings, AnySizeOrInstanceIsALimit)
{
    EXPECT_EQ(read({{"EMUV_PHYSICAL", "12G"}}).physical_bytes, 12ull << 30);
    EXPECT_TRUE(read({{"EMUV_PHYSICAL", "12G"}}).limited());
    EXPECT_TRUE(read({{"EMUV_VIRTUAL", "0"}}).limited());
    EXPECT_TRUE(read({{"EMUV_INSTANCE", "3"}}).limited());
}

TEST(Settings, DisableLiftsEveryLimit)
{
    EXPECT_FALSE(
        read({{"EMUV_DISABLE", "1"}, {"EMUV_PHYSICAL", "1G"}}).limited());
    EXPECT_TRUE(
        read({{"EMUV_DISABLE", "0"}, {"EMUV_PHYSICAL", "1G"}}).limited());
}

TEST(Settings, InstancesGoByDevice)
{
    EXPECT_EQ(read({{"EMUV_INSTANCE", "0,12,3"}}).instances,
              (std::vector{0, 12, 3}));
}

TEST(Settings, TiersAreCardsWithSizesInTheirOrder)
{
    const settings asked =
        read({{"EMUV_PHYSICAL", "1G"}, {"EMUV_TIER", "peer:2=40G,peer:1=3M"}});
    EXPECT_EQ(asked.wrong_name, nullptr);
    const auto &cards = asked.tiers.cards;
    ASSERT_EQ(cards.size(), 2U);
    EXPECT_EQ(cards[0].device, 2);
    EXPECT_EQ(cards[0].bytes, std::uint64_t{40} << 30);
    EXPECT_EQ(cards[1].device, 1);
    EXPECT_EQ(cards[1].bytes, std::uint64_t{2} << 20) << "whole chunks";
    EXPECT_TRUE(read({{"EMUV_PHYSICAL", "1G"}}).tiers.empty());
}

TEST(Settings, TiersThatAreNoneAreRefused)
{
    for (const char *const word : {"peer",
                                   "peer:1",
                                   "peer:=1G",
                                   "peer:1=",
                                   "peer:1=1M",
                                   "peer:1=many",
                                   "peer:64=1G",
                                   "peer:100=1G",
                                   "peer:-1=1G",
                                   "ram",
                                   "ram=",
                                   "ram:1G",
                                   "ram=1M",
                                   "peer:1=1G,",
                                   ",peer:1=1G",
                                   "peer:1=1G,peer:1=2G",
                                   "peer:1=2000T",
                                   "ram=1G,peer:1=1G",
                                   "ram=1G,ram=2G",
                                   "file",
                                   "file:/x",
                                   "file:=1G",
                                   "file:x=1G",
                                   "file:/x=",
                                   "file:/x=1M",
                                   "file:/x,y=1G",
                                   "file:/x=1G,ram=1G",
                                   "file:/x=1G,peer:1=1G",
                                   "file:/x=1G,file:/y=1G"}) {
        const settings asked = read(
            {{"EMUV_PHYSICAL", "1G"}, {"EMUV_TIER", word}, {"EMUV_MOVE", "1"}});
        ASSERT_NE(asked.wrong_name, nullptr) << word;
        EXPECT_STREQ(asked.wrong_name, "EMUV_TIER");
    }
    EXPECT_STREQ(read({{"EMUV_TIER", "peer:1=1G"}}).wrong_name, "EMUV_TIER")
        << "there is no share to go beyond";
    EXPECT_STREQ(read({{"EMUV_PHYSICAL", "1G"},
                       {"EMUV_TIER", "peer:1=1G"},
                       {"EMUV_STORE", "pages"}})
                     .wrong_name,
                 "EMUV_STORE");
}

TEST(Settings, SystemRamAmongTheTiersIsTheShareOfIt)
{
    const settings asked = read({{"EMUV_TIER", "peer:1=1G,ram=3G"}});
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_TRUE(asked.limited());
    EXPECT_EQ(asked.virtual_bytes, std::uint64_t{3} << 30);
    EXPECT_EQ(asked.tiers.cards.size(), 1U);
    EXPECT_FALSE(asked.tiers.has_file());
    for (const char *const other : {"EMUV_VIRTUAL", "EMUV_INSTANCE"})
        EXPECT_STREQ(read({{other, "1"}, {"EMUV_TIER", "ram=3G"}}).wrong_name,
                     "EMUV_TIER")
            << other;
}

TEST(Settings, AFileIsTheLastTier)
{
    const std::map<std::string, std::string> all = {
        {"EMUV_PHYSICAL", "1G"},
        {"EMUV_TIER", "peer:1=1G,ram=3G,file:/a=b/c d=200G"},
        {"EMUV_MOVE", "1"}};
    const settings asked = read(all);
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_EQ(asked.tiers.folder, "/a=b/c d");
    EXPECT_EQ(asked.tiers.file_bytes, std::uint64_t{200} << 30);
    EXPECT_TRUE(asked.tiers.needs_handles());
    EXPECT_FALSE(read({{"EMUV_TIER", "ram=3G"}}).tiers.needs_handles());
}

TEST(Settings, AFileNeedsMovementAndAddressesThatAreMappedNowhere)
{
    constexpr const char *in_vain[][2] = {{"EMUV_MOVE", "0"},
                                          {"EMUV_MOVE", "check"},
                                          {"EMUV_AWAY", "mapped"},
                                          {"EMUV_TRUST", "all"},
                                          {"EMUV_TRUST", "mine"}};
    for (const auto &[name, value] : in_vain) {
        std::map<std::string, std::string> all = {{"EMUV_PHYSICAL", "1G"},
                                                  {"EMUV_TIER", "file:/x=1G"},
                                                  {"EMUV_MOVE", "always"}};
        all[name] = value;
        EXPECT_STREQ(read(all).wrong_name, "EMUV_TIER") << name << value;
        all["EMUV_MOVE"] = "1";
        all["EMUV_AWAY"] = "unmapped";
        EXPECT_EQ(read(all).wrong_name, nullptr) << name << value;
    }
}

TEST(Settings, CodedCopiesAreATierOfSystemRam)
{
    const std::map<std::string, std::string> all = {
        {"EMUV_PHYSICAL", "1G"},
        {"EMUV_TIER", "peer:1=1G,packed=2G,ram=3G,file:/x=4G"},
        {"EMUV_MOVE", "1"}};
    const settings asked = read(all);
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_EQ(asked.tiers.packed_bytes, std::uint64_t{2} << 30);
    EXPECT_EQ(asked.virtual_bytes, std::uint64_t{3} << 30);
    EXPECT_EQ(read({{"EMUV_PHYSICAL", "1G"}}).tiers.packed_bytes, 0U);
    const auto wrong = [](const char *tiers, const char *name,
                          const char *value) {
        std::map<std::string, std::string> given = {{"EMUV_PHYSICAL", "1G"},
                                                    {"EMUV_VIRTUAL", ""},
                                                    {"EMUV_TIER", tiers},
                                                    {"EMUV_MOVE", "1"}};
        given[name] = value;
        return read(given).wrong_name;
    };
    EXPECT_EQ(wrong("packed=1G", "EMUV_VIRTUAL", "2G"), nullptr);
    for (const char *const word :
         {"packed=0", "packed", "packed:1=1G", "ram=1G,packed=1G",
          "packed=1G,packed=1G", "packed=1G,peer:1=1G", "file:/x=1G,packed=1G"})
        EXPECT_STREQ(wrong(word, "EMUV_AWAY", ""), "EMUV_TIER") << word;
    EXPECT_STREQ(wrong("packed=1G", "EMUV_MOVE", "0"), "EMUV_TIER");
    EXPECT_STREQ(wrong("packed=1G", "EMUV_MOVE", "check"), "EMUV_TIER");
    EXPECT_STREQ(wrong("packed=1G", "EMUV_AWAY", "mapped"), "EMUV_TIER");
    EXPECT_STREQ(wrong("packed=1G", "EMUV_TRUST", "mine"), "EMUV_TIER");
    EXPECT_STREQ(wrong("packed=1G", "EMUV_STORE", "pages"), "EMUV_STORE");
    EXPECT_STREQ(read({{"EMUV_PHYSICAL", "1G"},
                       {"EMUV_MOVE", "1"},
                       {"EMUV_TIER_DEFAULT", "packed=1G"}})
                     .wrong_name,
                 "EMUV_TIER_DEFAULT");
}

TEST(Settings, MemoryMovesWhereThatIsAskedFor)
{
    EXPECT_FALSE(read({}).moves());
    EXPECT_FALSE(read({{"EMUV_MOVE", "0"}}).moves());
    for (const char *const word : {"1", "always", "check"})
        EXPECT_TRUE(read({{"EMUV_MOVE", word}}).moves()) << word;
    EXPECT_EQ(read({{"EMUV_MOVE", "1"}}).move, move_kind::on);
    EXPECT_EQ(read({{"EMUV_MOVE", "always"}}).move, move_kind::always);
    EXPECT_EQ(read({{"EMUV_MOVE", "check"}}).move, move_kind::check);
    EXPECT_STREQ(read({}).trust, "proven,known");
    EXPECT_STREQ(read({{"EMUV_TRUST", "all"}}).trust, "all");
    EXPECT_EQ(read({}).record_path, nullptr);
    EXPECT_STREQ(read({{"EMUV_RECORD", "a.tape"}}).record_path, "a.tape");
    EXPECT_STREQ(
        read({{"EMUV_RECORD", "a.tape"}, {"EMUV_PHYSICAL", "1G"}}).wrong_name,
        "EMUV_RECORD");
    EXPECT_EQ(read({}).trace_path, nullptr);
    EXPECT_STREQ(read({{"EMUV_TRACE", "a.json"}}).trace_path, "a.json");
}

TEST(Settings, ADefaultHoldsWhereTheUserSaysNothing)
{
    EXPECT_EQ(read({}).move_by, said_by::nobody);
    settings asked = read({{"EMUV_MOVE_DEFAULT", "1"}});
    EXPECT_EQ(asked.move, move_kind::on);
    EXPECT_EQ(asked.move_by, said_by::defaults);
    // An empty variable is one that is not set.
    EXPECT_TRUE(read({{"EMUV_MOVE", ""}, {"EMUV_MOVE_DEFAULT", "1"}}).moves());
    asked = read({{"EMUV_MOVE", "0"}, {"EMUV_MOVE_DEFAULT", "1"}});
    EXPECT_FALSE(asked.moves());
    EXPECT_EQ(asked.move_by, said_by::user);
    EXPECT_EQ(read({{"EMUV_MOVE", "check"}, {"EMUV_MOVE_DEFAULT", "0"}}).move,
              move_kind::check);
    const char *const tier = "peer:1=1G";
    asked = read({{"EMUV_INSTANCE", "0,1"}, {"EMUV_TIER_DEFAULT", tier}});
    EXPECT_EQ(asked.tiers.cards.size(), 1U);
    EXPECT_EQ(asked.tiers_by, said_by::defaults);
    for (const char *const word : {"peer:2=1G", "none"}) {
        asked = read({{"EMUV_INSTANCE", "0,1"},
                      {"EMUV_TIER", word},
                      {"EMUV_TIER_DEFAULT", tier}});
        EXPECT_EQ(asked.wrong_name, nullptr);
        EXPECT_EQ(asked.tiers_by, said_by::user);
        EXPECT_EQ(asked.tiers.cards.size(),
                  std::string(word) == "none" ? 0U : 1U);
    }
    // It is named as what it is.
    asked = read({{"EMUV_MOVE_DEFAULT", "yes"}});
    EXPECT_STREQ(asked.wrong_name, "EMUV_MOVE_DEFAULT");
    EXPECT_STREQ(asked.wrong_value, "yes");
    EXPECT_STREQ(read({{"EMUV_TIER_DEFAULT", "1G"}}).wrong_name,
                 "EMUV_TIER_DEFAULT");
}

TEST(Settings, ADefaultGivesWayToWhatItDoesNotGoWith)
{
    settings asked =
        read({{"EMUV_MOVE_DEFAULT", "1"}, {"EMUV_STORE", "pages"}});
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_FALSE(asked.moves());
    EXPECT_STREQ(read({{"EMUV_MOVE", "1"}, {"EMUV_STORE", "pages"}}).wrong_name,
                 "EMUV_STORE");
    // Nobody would learn that tiers are not used.
    asked = read({{"EMUV_INSTANCE", "0,1"},
                  {"EMUV_TIER_DEFAULT", "peer:1=1G"},
                  {"EMUV_STORE", "pages"}});
    ASSERT_STREQ(asked.wrong_name, "EMUV_STORE");
    EXPECT_NE(std::string(asked.wrong_why).find("EMUV_TIER=none"),
              std::string::npos);
    // Without a share there is nothing to go beyond.
    asked = read({{"EMUV_TIER_DEFAULT", "peer:1=1G"}});
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_TRUE(asked.tiers.empty());
}

TEST(Settings, AnInstanceThatLendsByDefaultAloneCanBeLeftOut)
{
    const auto with = [](const char *tiers) {
        return read({{"EMUV_INSTANCE", "3,1,7"},
                     {"EMUV_TIER", tiers},
                     {"EMUV_TIER_DEFAULT", "peer:1=1G,peer:2=1G"}});
    };
    settings asked = with("");
    EXPECT_FALSE(asked.leave_out_lender(0)) << "it is the program's own";
    EXPECT_FALSE(asked.leave_out_lender(3)) << "there is none";
    EXPECT_TRUE(asked.leave_out_lender(2));
    EXPECT_EQ(asked.instances, (std::vector{3, 1}));
    ASSERT_EQ(asked.tiers.cards.size(), 1U);
    EXPECT_EQ(asked.tiers.cards[0].device, 1);
    EXPECT_TRUE(asked.leave_out_lender(1));
    EXPECT_EQ(asked.instances, std::vector{3});
    EXPECT_TRUE(asked.tiers.empty());
    // Those behind one go with it.
    asked = with("none");
    EXPECT_TRUE(asked.leave_out_lender(1));
    EXPECT_EQ(asked.instances, std::vector{3});
    asked = with("peer:2=1G");
    EXPECT_FALSE(asked.leave_out_lender(2)) << "the user wants it";
    EXPECT_FALSE(asked.leave_out_lender(1)) << "the user wants one behind it";
    EXPECT_EQ(asked.instances, (std::vector{3, 1, 7}));
    EXPECT_EQ(asked.tiers.cards.size(), 1U);
    asked = read({{"EMUV_INSTANCE", "3,1"}, {"EMUV_TIER", "peer:1=1G"}});
    EXPECT_FALSE(asked.leave_out_lender(1));
    asked = read({{"EMUV_INSTANCE", "3,1"}});
    EXPECT_FALSE(asked.leave_out_lender(1)) << "the program may use that card";
}

TEST(Settings, ALenderThatIsLeftOutTakesNoFileWithIt)
{
    settings asked = read({{"EMUV_INSTANCE", "3,1"},
                           {"EMUV_TIER", "file:/x=2G"},
                           {"EMUV_TIER_DEFAULT", "peer:1=1G"},
                           {"EMUV_MOVE_DEFAULT", "1"}});
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_TRUE(asked.leave_out_lender(1));
    EXPECT_EQ(asked.instances, std::vector{3});
    EXPECT_TRUE(asked.tiers.cards.empty());
    EXPECT_EQ(asked.tiers.folder, "/x");
    EXPECT_EQ(asked.tiers.file_bytes, std::uint64_t{2} << 30);
    asked = read({{"EMUV_INSTANCE", "3,1,2"},
                  {"EMUV_TIER", "peer:1=1G,file:/x=2G"},
                  {"EMUV_TIER_DEFAULT", "peer:1=1G,peer:2=1G"},
                  {"EMUV_MOVE", "1"}});
    EXPECT_FALSE(asked.leave_out_lender(1)) << "the user wants it";
    EXPECT_TRUE(asked.leave_out_lender(2));
    EXPECT_EQ(asked.tiers.cards.size(), 1U);
    EXPECT_TRUE(asked.tiers.has_file());
}

TEST(Settings, ADefaultMayNameCardsAlone)
{
    for (const char *const word :
         {"ram=1G", "file:/x=1G", "peer:1=1G,ram=1G", "peer:1=1G,file:/x=1G"})
        for (const char *const own : {"", "none", "peer:1=1G"}) {
            const settings asked = read({{"EMUV_PHYSICAL", "1G"},
                                         {"EMUV_MOVE", "1"},
                                         {"EMUV_TIER", own},
                                         {"EMUV_TIER_DEFAULT", word}});
            EXPECT_STREQ(asked.wrong_name, "EMUV_TIER_DEFAULT") << word << own;
            EXPECT_STREQ(asked.wrong_value, word);
        }
    // The user's own tiers stand in its place, all of them.
    const settings asked =
        read({{"EMUV_TIER", "ram=1G"}, {"EMUV_TIER_DEFAULT", "peer:1=1G"}});
    EXPECT_EQ(asked.wrong_name, nullptr);
    EXPECT_TRUE(asked.tiers.cards.empty());
    EXPECT_EQ(asked.virtual_bytes, std::uint64_t{1} << 30);
}

TEST(Settings, AFileGoesWithMovementByDefault)
{
    const std::map<std::string, std::string> all = {{"EMUV_PHYSICAL", "1G"},
                                                    {"EMUV_TIER", "file:/x=1G"},
                                                    {"EMUV_MOVE_DEFAULT", "1"}};
    EXPECT_EQ(read(all).wrong_name, nullptr);
    auto other = all;
    other["EMUV_MOVE"] = "0";
    EXPECT_STREQ(read(other).wrong_name, "EMUV_TIER");
    // The store is to blame, not that nothing moves with it.
    other = all;
    other["EMUV_STORE"] = "pages";
    EXPECT_STREQ(read(other).wrong_name, "EMUV_STORE");
}

TEST(Settings, WhatIsNotUnderstoodIsNamed)
{
    const std::pair<const char *, const char *> wrong[] = {
        {"EMUV_PHYSICAL", "12 elephants"},
        {"EMUV_VIRTUAL", "-1"},
        {"EMUV_VIRTUAL", "1025T"},
        {"EMUV_INSTANCE", "0,"},
        {"EMUV_INSTANCE", "1024"},
        {"EMUV_INSTANCE", "emuv0"},
        {"EMUV_REPORT", "all"},
        {"EMUV_STORE", "disk"},
        {"EMUV_DISABLE", "yes"},
        {"EMUV_IPC", "2"},
        {"EMUV_MOVE", "yes"}};
    for (const auto &[name, value] : wrong) {
        const settings asked = read({{name, value}});
        ASSERT_NE(asked.wrong_name, nullptr) << name << "=" << value;
        EXPECT_STREQ(asked.wrong_name, name);
        EXPECT_STREQ(asked.wrong_value, value);
    }
}

TEST(Settings, FlagsAreOneOrNothing)
{
    EXPECT_TRUE(read({{"EMUV_IPC", "1"}}).ipc);
    EXPECT_TRUE(read({{"EMUV_RECLAIM", "1"}}).reclaim);
    EXPECT_FALSE(read({{"EMUV_RECLAIM", "0"}}).reclaim);
    EXPECT_STREQ(read({{"EMUV_RECLAIM", "yes"}}).wrong_name, "EMUV_RECLAIM");
    EXPECT_FALSE(read({{"EMUV_IPC", "0"}}).ipc);
    EXPECT_FALSE(read({{"EMUV_IPC", ""}}).ipc);
}

TEST(Settings, StoreAndReportAreNamed)
{
    EXPECT_EQ(read({{"EMUV_STORE", "pages"}}).store, store_kind::pages);
    EXPECT_EQ(read({{"EMUV_STORE", "auto"}}).store, store_kind::automatic);
    EXPECT_EQ(read({{"EMUV_REPORT", "physical"}}).report,
              report_kind::physical);
    EXPECT_EQ(read({{"EMUV_CHARGE", "allocations"}}).charged,
              charged_kind::allocations);
    EXPECT_EQ(read({{"EMUV_AWAY", "unmapped"}}).away, away_kind::unmapped);
    EXPECT_EQ(read({{"EMUV_AWAY", "mapped"}}).away, away_kind::mapped);
    EXPECT_STREQ(read({{"EMUV_AWAY", "1"}}).wrong_name, "EMUV_AWAY");
    EXPECT_EQ(read({{"EMUV_CHARGE", "all"}}).charged, charged_kind::all);
    EXPECT_EQ(read({{"EMUV_CHARGE", "held"}}).charged, charged_kind::held);
    EXPECT_STREQ(read({{"EMUV_CHARGE", "some"}}).wrong_name, "EMUV_CHARGE");
    EXPECT_EQ(read({{"EMUV_REPORT", "free"}}).report, report_kind::free);
    EXPECT_EQ(read({{"EMUV_REPORT", "total"}}).report, report_kind::total);
    EXPECT_EQ(read({{"EMUV_STORE", "numa"}}).store, store_kind::numa);
}

TEST(Settings, WhatLeavesIsUnmappedUnlessTheUserVouchesForKernels)
{
    EXPECT_TRUE(read({}).unmaps());
    for (const char *const trust :
         {"proven", "known", "none", "proven,known,-mine*", "-a,proven"})
        EXPECT_TRUE(read({{"EMUV_TRUST", trust}}).unmaps()) << trust;
    for (const char *const trust :
         {"all", "*", "proven,known,libmine.so", "mine"})
        EXPECT_FALSE(read({{"EMUV_TRUST", trust}}).unmaps()) << trust;
    EXPECT_TRUE(
        read({{"EMUV_TRUST", "all"}, {"EMUV_AWAY", "unmapped"}}).unmaps());
    EXPECT_FALSE(read({{"EMUV_AWAY", "mapped"}}).unmaps());
}

TEST(Settings, TheFirstOfTheWordsHoldsWhereNoneIsGiven)
{
    const settings asked = read({});
    EXPECT_EQ(asked.report, report_kind::total);
    EXPECT_EQ(asked.store, store_kind::automatic);
    EXPECT_EQ(asked.charged, charged_kind::all);
    EXPECT_EQ(asked.move, move_kind::off);
    EXPECT_EQ(asked.away, away_kind::automatic);
    EXPECT_STREQ(asked.trust, "proven,known");
}

TEST(Settings, WhatDoesNotGoTogetherIsRefusedWithTheReason)
{
    const settings both = read({{"EMUV_MOVE", "1"}, {"EMUV_STORE", "pages"}});
    EXPECT_STREQ(both.wrong_name, "EMUV_STORE");
    EXPECT_STREQ(both.wrong_why,
                 "does not go with EMUV_MOVE: pages do not move");
    EXPECT_EQ(read({{"EMUV_MOVE", "0"}, {"EMUV_STORE", "pages"}}).wrong_name,
              nullptr);
    for (const char *const list : {",", "known,", ",a", "a,,b"}) {
        const settings named = read({{"EMUV_TRUST", list}});
        EXPECT_STREQ(named.wrong_name, "EMUV_TRUST") << list;
        EXPECT_STREQ(named.wrong_why, "has an empty name in it");
    }
    EXPECT_EQ(read({{"EMUV_TRUST", "known,lib*.so"}}).wrong_name, nullptr);
}
