// SPDX-License-Identifier: GPL-2.0-or-later
// Kernels that are remembered from one run to the next, in a file.
#include "movement/remembered.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

using emuv::cuda::remembered;

namespace {

remembered::path_buffer buffer_of(const std::string &path)
{
    remembered::path_buffer out;
    path.copy(out.text, sizeof out.text - 1);
    return out;
}

class Remembered : public ::testing::Test
{
protected:
    void SetUp() override
    {
        std::string made = testing::TempDir() + "remembered.XXXXXX";
        ASSERT_NE(mkdtemp(made.data()), nullptr);
        folder_ = made;
        path_ = folder_ + "/cache/emuv/untrusted";
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void write(const std::string &text)
    {
        std::filesystem::create_directories(folder_ + "/cache/emuv");
        std::ofstream(path_, std::ios::binary) << text;
        ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
    }
    std::string text() const
    {
        std::ifstream in(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    std::string folder_;
    std::string path_;
};

} // namespace

TEST_F(Remembered, WhatIsAddedIsThereInTheNextRun)
{
    const remembered first(buffer_of(path_));
    EXPECT_FALSE(first.has("one"));
    EXPECT_TRUE(first.add({"one", "_Z3twoPf"}));
    EXPECT_FALSE(first.has("one")) << "in the same run";
    const remembered next(buffer_of(path_));
    EXPECT_TRUE(next.has("one"));
    EXPECT_TRUE(next.has("_Z3twoPf"));
    EXPECT_FALSE(next.has("three"));
    EXPECT_TRUE(next.add({"three"}));
    const remembered last(buffer_of(path_));
    EXPECT_TRUE(last.has("one"));
    EXPECT_TRUE(last.has("three"));
}

TEST_F(Remembered, NobodyElseCanReadOrWriteIt)
{
    ASSERT_TRUE(remembered(buffer_of(path_)).add({"one"}));
    struct stat is = {};
    ASSERT_EQ(stat(path_.c_str(), &is), 0);
    EXPECT_EQ(is.st_mode & 0777, 0600U);
    ASSERT_EQ(stat((folder_ + "/cache/emuv").c_str(), &is), 0);
    EXPECT_EQ(is.st_mode & 0777, 0700U);
}

TEST_F(Remembered, NothingIsAddedTwice)
{
    const remembered kept(buffer_of(path_));
    ASSERT_TRUE(kept.add({"one"}));
    const std::string before = text();
    EXPECT_TRUE(kept.add({"one"}));
    EXPECT_EQ(text(), before);
}

TEST_F(Remembered, AFileThatOthersCanWriteDoesNotCount)
{
    write("one\n");
    ASSERT_EQ(chmod(path_.c_str(), 0622), 0);
    const remembered kept(buffer_of(path_));
    EXPECT_FALSE(kept.has("one"));
    EXPECT_FALSE(kept.add({"two"}));
    EXPECT_EQ(text(), "one\n");
}

TEST_F(Remembered, ALinkOrAPipeDoesNotCount)
{
    write("one\n");
    const std::string link = folder_ + "/link";
    ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
    EXPECT_FALSE(remembered(buffer_of(link)).has("one"));
    EXPECT_FALSE(remembered(buffer_of(link)).add({"two"}));
    const std::string pipe = folder_ + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_FALSE(remembered(buffer_of(pipe)).has("one"));
    EXPECT_FALSE(remembered(buffer_of(pipe)).add({"two"}));
}

TEST_F(Remembered, OfADamagedFileWholeNamesCount)
{
    write(std::string("one\n\x01\x02\xff\n\n#two\nthr ee\n", 21) +
          std::string(70000, 'x') + "\nfour\nfiv");
    const remembered kept(buffer_of(path_));
    EXPECT_TRUE(kept.has("one"));
    EXPECT_TRUE(kept.has("four"));
    EXPECT_FALSE(kept.has("#two"));
    EXPECT_FALSE(kept.has("thr ee"));
    EXPECT_FALSE(kept.has("fiv")) << "its end is missing";
    EXPECT_TRUE(kept.add({"six"}));
    EXPECT_TRUE(remembered(buffer_of(path_)).has("six"));
}

TEST_F(Remembered, OfALargeFileTheFirstPartCountsAndNothingIsAdded)
{
    write("one\n" + std::string(remembered::max_file_bytes, 'x'));
    EXPECT_TRUE(remembered(buffer_of(path_)).has("one"));
    EXPECT_FALSE(remembered(buffer_of(path_)).add({"two"}));
}

TEST_F(Remembered, LongNamesAreKeptAndWhatIsNotKeptIsTold)
{
    const std::string name(10000, 'x');
    ASSERT_TRUE(remembered(buffer_of(path_)).add({name.c_str()}));
    EXPECT_TRUE(remembered(buffer_of(path_)).has(name));
    const std::string longer(remembered::max_name_bytes + 1, 'y');
    EXPECT_FALSE(remembered(buffer_of(path_)).add({longer.c_str(), "two"}));
    EXPECT_TRUE(remembered(buffer_of(path_)).has("two"));
}

TEST_F(Remembered, ALineMayEndAsOtherSystemsHaveIt)
{
    write("one\r\ntwo\n");
    EXPECT_TRUE(remembered(buffer_of(path_)).has("one"));
    EXPECT_TRUE(remembered(buffer_of(path_)).has("two"));
}

TEST_F(Remembered, WhereThereIsNoFileNothingIs)
{
    EXPECT_FALSE(remembered(buffer_of("")).has("one"));
    EXPECT_FALSE(remembered(buffer_of("")).add({"one"}));
    EXPECT_FALSE(
        remembered(buffer_of(folder_ + "/none/such/there/file")).add({"one"}));
}

TEST_F(Remembered, ItIsInTheUsersCache)
{
    const auto with = [](const char *cache, const char *home) {
        cache != nullptr ? setenv("XDG_CACHE_HOME", cache, 1)
                         : unsetenv("XDG_CACHE_HOME");
        home != nullptr ? setenv("HOME", home, 1) : unsetenv("HOME");
        return std::string(remembered::usual_file().text);
    };
    EXPECT_EQ(with("/c", "/h"), "/c/emuv/untrusted");
    EXPECT_EQ(with(nullptr, "/h"), "/h/.cache/emuv/untrusted");
    EXPECT_EQ(with("c", "/h"), "/h/.cache/emuv/untrusted");
    EXPECT_EQ(with(nullptr, nullptr), "");
    EXPECT_EQ(with(nullptr, "h"), "");
}
