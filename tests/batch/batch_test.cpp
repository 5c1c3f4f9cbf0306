// SPDX-License-Identifier: GPL-2.0-or-later
// The parts of a batch: items, their queue, the journal, words on their way.
#include "batch/items.hpp"
#include "batch/journal.hpp"
#include "batch/queue.hpp"
#include "batch/relay.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace {

using namespace emuvctl::batch;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<bool> none_done(std::size_t items)
{
    return std::vector<bool>(items);
}

class files : public testing::Test
{
protected:
    files()
    {
        std::string name = testing::TempDir() + "batch-XXXXXX";
        folder_ = ::mkdtemp(name.data());
    }
    ~files() override { std::filesystem::remove_all(folder_); }

    std::string path(const std::string &name) const
    {
        return (folder_ / name).string();
    }
    void write(const std::string &name, const std::string &text) const
    {
        std::ofstream(path(name), std::ios::binary) << text;
    }
    std::string read(const std::string &name) const
    {
        std::ifstream stream(path(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

    std::filesystem::path folder_;
};

// Items

TEST(items, of_a_list_are_its_lines_each_once_and_in_order)
{
    const auto found = split_items("b\na c\n\nb\nd", '\n');
    EXPECT_THAT(found.list, ElementsAre("b", "a c", "d"));
    EXPECT_EQ(found.repeated, 1U);
    EXPECT_THAT(split_items(std::string_view("a\nb\0c\0", 6), '\0').list,
                ElementsAre("a\nb", "c"));
    EXPECT_THAT(split_items("", '\n').list, IsEmpty());
    // A program would be given "a" alone.
    EXPECT_THROW(split_items(std::string_view("a\0b\0", 4), '\n'),
                 std::invalid_argument);
}

TEST(items, that_no_journal_can_hold_are_found)
{
    for (const char *const bad : {"\xff", "\xc0\x80", "\xed\xa0\x80",
                                  "\xf4\x90\x80\x80", "a\xe2\x82", "\x80"}) {
        const auto found = split_items(std::string("x\nx\n") + bad, '\n');
        EXPECT_EQ(found.not_utf8, 3U) << bad;
        EXPECT_THAT(found.list, ElementsAre("x", bad));
    }
    const auto good =
        split_items("\xe2\x82\xac \xf0\x9f\x8e\x89 \xc3\xa9", '\n');
    EXPECT_EQ(good.not_utf8, 0U);
    EXPECT_THAT(good.list,
                ElementsAre("\xe2\x82\xac \xf0\x9f\x8e\x89 \xc3\xa9"));
}

TEST_F(files, of_a_folder_are_items_by_name_and_hidden_ones_are_not)
{
    for (const char *const name : {"b.jpg", "a.jpg", ".hidden"})
        write(name, "");
    std::filesystem::create_directory(path("below"));
    EXPECT_THAT(read_items(folder_.string(), '\n').list,
                ElementsAre(path("a.jpg"), path("b.jpg")));
    EXPECT_THROW(read_items(path("none"), '\n'), std::system_error);
}

TEST(command, has_the_item_in_each_place_or_at_its_end)
{
    EXPECT_THAT(command_for({"a", "{}.in", "--o={}={}"}, "x y"),
                ElementsAre("a", "x y.in", "--o=x y=x y"));
    EXPECT_THAT(command_for({"a", "b"}, "{}"), ElementsAre("a", "b", "{}"));
    EXPECT_THAT(command_for({"{}"}, "a{}"), ElementsAre("a{}"));
}

// The queue

TEST(queue, hands_each_item_out_once)
{
    queue line(none_done(3), {{8}, {8}}, 3);
    const auto a = line.next(0);
    const auto b = line.next(1);
    const auto c = line.next(0);
    ASSERT_TRUE(a && b && c);
    EXPECT_EQ(a->item, 0U);
    EXPECT_EQ(b->item, 1U);
    EXPECT_EQ(c->item, 2U);
    EXPECT_FALSE(line.next(1));
    EXPECT_FALSE(line.over());
    for (const auto &each : {*a, *b, *c})
        EXPECT_FALSE(line.ended(each, ending::done));
    EXPECT_TRUE(line.over());
}

TEST(queue, leaves_out_what_is_done)
{
    queue line({true, false, true}, {{8}}, 3);
    EXPECT_EQ(line.next(0)->item, 1U);
    EXPECT_FALSE(line.next(0));
}

TEST(queue, gives_an_item_that_lacked_memory_to_a_larger_share_alone)
{
    queue line(none_done(2), {{8}, {16}, {4}}, 3);
    const auto first = line.next(0);
    EXPECT_TRUE(line.ended(*first, ending::no_memory));
    EXPECT_EQ(line.next(2)->item, 1U) << "the smaller one goes on";
    EXPECT_FALSE(line.next(0)) << "it would fail there again";
    const auto again = line.next(1);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->item, first->item);
    EXPECT_EQ(again->share_bytes, 16U);
    EXPECT_FALSE(line.ended(*again, ending::no_memory)) << "nobody has more";
}

TEST(queue, raises_the_share_of_a_worker_step_by_step)
{
    queue line(none_done(1), {{4, 8, 16}}, 3);
    for (const std::uint64_t bytes : {4, 8, 16}) {
        const auto turn = line.next(0);
        ASSERT_TRUE(turn);
        EXPECT_EQ(turn->share_bytes, bytes);
        EXPECT_EQ(line.ended(*turn, ending::no_memory), bytes < 16);
    }
    EXPECT_TRUE(line.over());
}

TEST(queue, begins_a_lost_item_so_often_and_no_more)
{
    queue line(none_done(1), {{0}}, 3);
    for (int i = 1; i <= 3; i++)
        EXPECT_EQ(line.ended(*line.next(0), ending::lost), i < 3);
    EXPECT_TRUE(line.over());
}

TEST(queue, does_not_repeat_what_failed_by_itself)
{
    queue line(none_done(1), {{8}, {16}}, 3);
    EXPECT_FALSE(line.ended(*line.next(0), ending::failed));
    EXPECT_TRUE(line.over());
}

// The journal

TEST_F(files, journal_knows_what_is_done_and_nothing_else)
{
    const std::vector<std::string> command = {"sh", "{}"};
    {
        const journal book(path("j"));
        EXPECT_THAT(book.resume(command), IsEmpty());
        book.append({"a", ending::done, 0, "emuv0", 8, 1.5});
        book.append({"b", ending::failed, 3, "", 0, 0});
        book.append({"c\n\"", ending::done, 0, "", 0, 0});
        book.append({"d", ending::lost, 137, "", 0, 0});
        book.append({"e", ending::no_memory, 1, "", 0, 0});
    }
    EXPECT_THAT(journal(path("j")).resume(command),
                UnorderedElementsAre("a", "c\n\""));
}

TEST_F(files, journal_goes_on_behind_a_line_that_was_cut)
{
    const std::vector<std::string> command = {"sh"};
    journal(path("j")).resume(command);
    journal(path("j")).append({"a", ending::done, 0, "", 0, 0});
    write("j", read("j") + R"({"item":"b","ending":"do)");
    const journal book(path("j"));
    EXPECT_THAT(book.resume(command), UnorderedElementsAre("a"));
    book.append({"b", ending::done, 0, "", 0, 0});
    EXPECT_THAT(book.resume(command), UnorderedElementsAre("a", "b"));
}

TEST_F(files, journal_goes_on_behind_a_line_that_a_full_disk_has_cut)
{
    const std::vector<std::string> command = {"sh"};
    const journal book(path("j"));
    book.resume(command);
    // Another worker's, while this batch is at work.
    write("j", read("j") + R"({"item":"a","ending":"do)");
    book.append({"b", ending::done, 0, "", 0, 0});
    book.append({"c", ending::done, 0, "", 0, 0});
    EXPECT_THAT(book.resume(command), UnorderedElementsAre("b", "c"));
    EXPECT_THAT(read("j"), testing::Not(testing::HasSubstr("\n\n")));
}

TEST_F(files, journal_begins_anew_where_a_crash_has_cut_its_first_line)
{
    const std::vector<std::string> command = {"sh", "x"};
    journal(path("j")).resume(command);
    const std::string first = read("j");
    for (std::size_t kept = 0; kept < first.size(); kept++)
        for (const std::size_t zeros : {std::size_t{0}, first.size() - kept}) {
            write("j", first.substr(0, kept) + std::string(zeros, '\0'));
            const journal book(path("j"));
            EXPECT_THAT(book.resume(command), IsEmpty()) << kept;
            book.append({"a", ending::done, 0, "", 0, 0});
            EXPECT_THAT(journal(path("j")).resume(command), ElementsAre("a"));
        }
}

TEST_F(files, journal_takes_no_other_file_for_a_cut_one)
{
    for (const std::string &text : std::vector<std::string>{
             R"({"emuvctl_batch":2)", "{}", "a", "\n", std::string("\0a", 2),
             std::string(4096, '\0')}) {
        write("j", text);
        EXPECT_THROW(journal(path("j")).resume({"sh", "x"}),
                     std::runtime_error);
        EXPECT_EQ(read("j"), text);
    }
}

TEST_F(files, journal_can_be_asked_about_one_item)
{
    const journal book(path("j"));
    book.resume({"sh"});
    book.append({"a", ending::lost, 137, "", 0, 0});
    EXPECT_FALSE(book.has_done("a"));
    book.append({"a", ending::done, 0, "", 0, 0});
    EXPECT_TRUE(book.has_done("a"));
    EXPECT_FALSE(book.has_done("b"));
    EXPECT_FALSE(journal().has_done("a"));
}

TEST_F(files, journal_knows_a_command_whose_words_are_no_utf8)
{
    const std::vector<std::string> command = {"sh", "caf\xe9"};
    journal(path("j")).resume(command);
    EXPECT_THAT(journal(path("j")).resume(command), IsEmpty());
    EXPECT_THROW(journal(path("j")).resume({"sh", "caf"}), std::runtime_error);
}

TEST_F(files, journal_of_another_command_is_refused)
{
    journal(path("j")).resume({"sh", "a"});
    EXPECT_THROW(journal(path("j")).resume({"sh", "b"}), std::runtime_error);
    write("no", "text\n");
    EXPECT_THROW(journal(path("no")).resume({"sh"}), std::runtime_error);
    EXPECT_EQ(read("no"), "text\n");
}

TEST_F(files, journal_is_one_batch_s_at_a_time)
{
    {
        const journal one(path("j"));
        EXPECT_TRUE(one.lock());
        EXPECT_FALSE(journal(path("j")).lock());
    }
    EXPECT_TRUE(journal(path("j")).lock());
}

// Words on their way

class pipes : public testing::Test
{
protected:
    pipes() { EXPECT_EQ(::pipe(ends_), 0); }
    ~pipes() override
    {
        ::close(ends_[0]);
        if (ends_[1] >= 0)
            ::close(ends_[1]);
    }
    static std::string all_of(int fd)
    {
        std::string text;
        char block[4096];
        for (ssize_t got = 0; (got = ::read(fd, block, 4096)) > 0;)
            text.append(block, static_cast<std::size_t>(got));
        return text;
    }
    std::string all()
    {
        ::close(ends_[1]);
        ends_[1] = -1;
        return all_of(ends_[0]);
    }
    int ends_[2] = {-1, -1};
};

TEST_F(pipes, pass_whole_lines_on_and_end_the_last_one)
{
    relay words(ends_[1], ">");
    for (const char *const part : {"on", "e\ntwo\nth", "ree"})
        words.add(part);
    words.end();
    EXPECT_EQ(all(), ">one\n>two\n>three\n");
}

TEST_F(pipes, keep_all_words_where_the_reader_is_slow)
{
    ASSERT_EQ(::fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
    const std::string line = std::string(4095, 'x') + "\n";
    std::string sent;
    std::string read;
    std::thread reader([&] { read = all_of(ends_[0]); });
    relay words(ends_[1]);
    for (int i = 0; i < 1000; i++) { // more than a pipe holds
        words.add(line);
        sent += line;
    }
    ::close(ends_[1]);
    ends_[1] = -1;
    reader.join();
    EXPECT_TRUE(read == sent) << read.size() << " of " << sent.size();
}

TEST_F(pipes, find_the_library_s_refusal_however_it_comes)
{
    relay words(ends_[1]);
    words.add("a line with emuV: refused in it\n");
    EXPECT_FALSE(words.refused());
    words.add("emuV: ref");
    words.add("used 24 MiB: in use are\n");
    EXPECT_TRUE(words.refused());
}

} // namespace
