// SPDX-License-Identifier: GPL-2.0-or-later
// Pickles: plain data is read, and nothing in one is run.
#include "finding.hpp"
#include "pickle.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace emuv::diagnose;
using namespace std::string_literals;
using ::testing::HasSubstr;

namespace {

std::string problem_of(const std::string &data)
{
    pickle file(data);
    EXPECT_FALSE(file.read()) << data;
    EXPECT_FALSE(file.problem().empty());
    return file.problem();
}

TEST(Pickle, PlainDataIsRead)
{
    // {"a": [1, -2, 1 << 40], "b": (True, None, 1.5)}
    const std::string data = "\x80\x02}(X\x01\0\0\0a](K\x01J\xfe\xff\xff\xff"
                             "\x8a\x06\0\0\0\0\0\x01"
                             "eX\x01\0\0\0b\x88NG?\xf8\0\0\0\0\0\0\x87u."s;
    pickle file(data);
    ASSERT_TRUE(file.read()) << file.problem();
    const auto &list = file.items(file.at(file.root(), "a"));
    ASSERT_EQ(list.size(), 3u);
    EXPECT_EQ(file.number(list[0]), 1u);
    EXPECT_EQ(file.number(list[1]), 0u) << "below zero";
    EXPECT_EQ(file.number(list[2]), std::uint64_t{1} << 40);
    const auto &tuple = file.items(file.at(file.root(), "b"));
    ASSERT_EQ(tuple.size(), 3u);
    EXPECT_EQ(tuple[0].is, pickle::kind::boolean);
    EXPECT_EQ(tuple[1].is, pickle::kind::none);
    EXPECT_EQ(file.at(file.root(), "c").is, pickle::kind::none);
}

TEST(Pickle, WhatWouldRunIsRefusedAndNotRun)
{
    const std::string file = testing::TempDir() + "emuv_pickle_ran";
    std::filesystem::remove(file);
    EXPECT_THAT(problem_of("cposix\nsystem\n(S'touch " + file + "'\ntR."),
                HasSubstr("it would load posix.system"));
    EXPECT_THAT(problem_of("\x80\x04\x8c\x05posix\x8c\x06system\x93."s),
                HasSubstr("would make an object"));
    for (const char code : {'R', 'b', 'i', 'o', '\x81', '\x92'})
        EXPECT_THAT(problem_of("\x80\x02)"s + code + "."),
                    HasSubstr("would make an object"));
    EXPECT_FALSE(std::filesystem::exists(file));
    const diagnosis made = diagnose("\x80\x02"
                                    "cposix\nsystem\nX\x02\0\0\0id\x85R."s);
    EXPECT_TRUE(made.findings.empty());
    EXPECT_THAT(made.problem, HasSubstr("nothing in a file is run"));
}

TEST(Pickle, WrongOnesHaveAReason)
{
    for (const std::string &data : {""s,
                                    "."s,
                                    "\x80"s,
                                    "\x80\x09."s,
                                    "K\x01"s,
                                    "K\x01K\x02."s,
                                    "K"s,
                                    "a."s,
                                    "]a."s,
                                    "(a."s,
                                    "e."s,
                                    "]K\x01s."s,
                                    "}(K\x01u."s,
                                    "}K\x01s."s,
                                    "0."s,
                                    "1."s,
                                    "2."s,
                                    "(2."s,
                                    "h\x05."s,
                                    "q\x01."s,
                                    "(q\x01."s,
                                    "\x85."s,
                                    "(\x85."s,
                                    "K\x01\x87."s,
                                    "d."s,
                                    "(K\x01"
                                    "d."s,
                                    "t."s,
                                    "px\n."s,
                                    "g7\n."s,
                                    "I1"s,
                                    "U\xffshort."s,
                                    "((t."s,
                                    "(."s,
                                    "X\xff\xff\xff\xff."s,
                                    "\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s,
                                    "\x8b\xff\xff\xff\x7f."s,
                                    "]]K\x01s."s,
                                    "}K\x01"
                                    "a."s})
        problem_of(data);
}

TEST(Pickle, AClaimedNumberTakesNoMemory)
{
    // Kept under a number of 32 bits.
    const std::string data = "K\x01r\xff\xff\xff\xffj\xff\xff\xff\xff\x86."s;
    pickle file(data);
    ASSERT_TRUE(file.read()) << file.problem();
    EXPECT_EQ(file.number(file.items(file.root()).at(1)), 1u);
}

TEST(Pickle, CirclesAndSharedPartsEnd)
{
    // A list that holds itself, as the snapshot's segments.
    const std::string circle = "\x80\x02}X\x08\0\0\0segments]q\0h\0as."s;
    EXPECT_TRUE(diagnose(circle).findings.empty());
    // A list of 20,000 times the same segment of 20,000 times the same block:
    // more blocks than the file has bytes.
    std::string shared = "\x80\x02}(X\x04\0\0\0sizeK\x01u"
                         "q\0" // the block
                         "0]("s;
    for (int i = 0; i < 20'000; i++)
        shared += "h\0"s;
    shared += "eq\x01"
              "0}(X\x0a\0\0\0total_sizeK\x05X\x06\0\0\0blocksh\x01uq\x02"
              "0}X\x08\0\0\0segments]("s;
    for (int i = 0; i < 20'000; i++)
        shared += "h\x02"s;
    const diagnosis made = diagnose(shared + "es.");
    EXPECT_TRUE(made.findings.empty());
    EXPECT_THAT(made.problem, HasSubstr("contain one another"));
}

TEST(Pickle, APickleOfSomethingElseIsNoSnapshot)
{
    EXPECT_THAT(diagnose("\x80\x02}X\x01\0\0\0aK\x01s."s).problem,
                HasSubstr("no snapshot"));
}

} // namespace
