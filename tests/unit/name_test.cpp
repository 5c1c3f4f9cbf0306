// SPDX-License-Identifier: GPL-2.0-or-later
// Tests of the names that instances may have.
#include <emuv/name.hpp>

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error(const std::string &text)
{
    try {
        emuv::check_name(text);
    } catch (const std::invalid_argument &problem) {
        return problem.what();
    }
    return "";
}

TEST(name, is_a_letter_and_letters_digits_and_signs)
{
    for (const std::string text :
         {"a", "team-a", "A_1.b", "emuv", "emuv1a", "emuvs"}) {
        EXPECT_TRUE(emuv::is_name(text)) << text;
        EXPECT_EQ(error(text), "");
    }
    EXPECT_TRUE(emuv::is_name(std::string(48, 'x')));
}

TEST(name, is_nothing_else)
{
    for (const std::string text : {"", "1", "1a", "-a", ".a", "a b", "a/b",
                                   "a=b", "/dev/emuv1", "\xc3\xa4"}) {
        EXPECT_FALSE(emuv::is_name(text)) << text;
        EXPECT_THAT(error(text), HasSubstr("is no name; one has 1 to 48"));
    }
    EXPECT_FALSE(emuv::is_name(std::string(49, 'x')));
    EXPECT_THAT(error("a\x1b[m"),
                AllOf(HasSubstr("'a?[m' is no name"), Not(HasSubstr("\x1b"))));
}

TEST(name, is_no_number_not_even_one_that_no_instance_has)
{
    for (const std::string text : {"emuv0", "emuv12", "emuv01", "emuv99999"}) {
        EXPECT_FALSE(emuv::is_name(text)) << text;
        EXPECT_EQ(error(text), "'" + text + "' is the number of an instance");
    }
}

} // namespace
