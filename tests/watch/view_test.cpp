// SPDX-License-Identifier: GPL-2.0-or-later
// The screen of `emuvctl top`, by the frames that it draws.
#include "watch/view.hpp"

#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using namespace emuvctl::watch;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::uint64_t gib = 1ULL << 30;

class top : public testing::Test
{
protected:
    static sample at(double time)
    {
        sample now;
        now.at = time;
        for (int id = 0; id < 2; id++) {
            instance_sample one;
            one.info.id = id;
            one.info.uuid = std::to_string(id);
            one.info.gpu_model = "4070";
            one.info.physical_bytes = 8 * gib;
            one.info.virtual_bytes = 8 * gib;
            one.clients.emplace();
            now.instances.push_back(one);
        }
        auto &first = now.instances[0];
        first.info.physical_used_bytes = 4 * gib;
        first.info.virtual_used_bytes = 2 * gib;
        first.info.resident_bytes = gib;
        first.info.clients = 2;
        first.info.moved.hit_bytes = 90;
        first.info.moved.miss_bytes = 10;
        emuv::client_info client;
        client.client = 1;
        client.pid = 4711;
        client.comm = "python";
        client.physical_bytes = 3 * gib;
        first.clients->push_back(client);
        client.client = 2;
        client.pid = 0;
        client.comm = "far";
        client.physical_bytes = gib;
        first.clients->push_back(client);
        return now;
    }

    std::string text(int width = 80, int height = 24)
    {
        const frame drawn = view_.draw(width, height, "12:00:00");
        std::string all;
        for (int y = 0; y < height; y++)
            all += drawn.text(y) + "\n";
        return all;
    }

    std::string last_line(int height = 24)
    {
        return view_.draw(80, height, "").text(height - 1);
    }

    // The line that is marked as chosen.
    std::string chosen()
    {
        const frame drawn = view_.draw(80, 24, "");
        for (int y = 0; y < 24; y++)
            if (drawn.at(y, 79).look == style::selected)
                return drawn.text(y);
        return "none";
    }

    void type(const std::string &what)
    {
        for (const char c : what)
            view_.press(c);
    }

    view view_{{false, 1}};
};

TEST_F(top, shows_instances_and_processes_at_80_by_24)
{
    view_.add(at(1));
    const auto all = text();
    EXPECT_THAT(all, HasSubstr("2 instances, 2 clients"));
    EXPECT_THAT(all, HasSubstr("4G/8G]"));
    EXPECT_THAT(all, HasSubstr("emuv0  hits 90%"));
    EXPECT_THAT(all, HasSubstr("resident 1G of 2G"));
    EXPECT_THAT(all, HasSubstr("emuv0 4070"));
    EXPECT_THAT(all, HasSubstr("  python               4711     3G"));
    EXPECT_THAT(all, HasSubstr("HIT STALL"));
    EXPECT_THAT(last_line(), StartsWith("F1Help F3Search"));
}

TEST_F(top, draws_at_any_size)
{
    for (const bool filled : {false, true}) {
        if (filled)
            view_.add(at(1));
        for (int width = 0; width < 140; width += 7)
            for (int height = 0; height < 60; height += 3) {
                text(width, height);
                view_.press('h');
                text(width, height);
                view_.press('h');
                view_.press('>');
                text(width, height);
                view_.press(keys::escape);
            }
    }
    EXPECT_THAT(text(39, 24), HasSubstr("39x24 is too small"));
    EXPECT_THAT(text(40, 8), HasSubstr("emuv0 4070"));
}

TEST_F(top, says_what_is_missing)
{
    sample none;
    none.loaded = false;
    view_.add(none);
    EXPECT_THAT(text(), HasSubstr("the emuv module is not loaded"));
    none.loaded = true;
    view_.add(none);
    EXPECT_THAT(text(), HasSubstr("there are no instances"));
}

TEST_F(top, forecasts_while_growth_fits_a_line)
{
    for (int i = 0; i < 30; i++) {
        auto next = at(i);
        next.instances[0].info.physical_used_bytes =
            static_cast<std::uint64_t>(i) * gib / 10;
        view_.add(next);
    }
    // 16 - 2 - 2.9 GiB at 0.1 a second.
    EXPECT_THAT(text(), HasSubstr("full in 2 min at this growth"));
    for (int i = 30; i < 60; i++) {
        auto next = at(i);
        next.instances[0].info.physical_used_bytes = 3 * gib;
        view_.add(next);
    }
    EXPECT_THAT(text(), Not(HasSubstr("at this growth")));
}

TEST_F(top, stays_at_the_chosen_line_as_lines_move)
{
    view_.add(at(1));
    EXPECT_THAT(chosen(), StartsWith("emuv0"));
    view_.press(keys::down);
    EXPECT_THAT(chosen(), HasSubstr("python"));
    auto next = at(2);
    (*next.instances[0].clients)[1].physical_bytes = 7 * gib; // now the first
    view_.add(next);
    EXPECT_THAT(chosen(), HasSubstr("python"));
    next = at(3);
    next.instances[0].clients->clear();
    view_.add(next);
    EXPECT_THAT(chosen(), StartsWith("emuv0")) << "its process has gone";
    view_.press(keys::end);
    view_.press(keys::page_down);
    EXPECT_THAT(chosen(), StartsWith("emuv1"));
    view_.press(keys::home);
    EXPECT_THAT(chosen(), StartsWith("emuv0"));
}

TEST_F(top, shows_figures_of_the_chosen_instance)
{
    view_.add(at(1));
    view_.press(keys::end);
    EXPECT_THAT(text(), HasSubstr("emuv1  hits -"));
}

TEST_F(top, scrolls_through_more_lines_than_fit)
{
    auto many = at(1);
    for (int i = 0; i < 100; i++) {
        auto client = (*many.instances[0].clients)[0];
        client.client = 10 + static_cast<std::uint64_t>(i);
        client.comm = "p" + std::to_string(i);
        client.physical_bytes = static_cast<std::uint64_t>(100 - i);
        many.instances[0].clients->push_back(client);
    }
    view_.add(many);
    for (int i = 0; i < 102; i++) {
        view_.press(keys::down);
        EXPECT_NE(chosen(), "none") << i;
    }
    EXPECT_THAT(chosen(), HasSubstr("p99"));
    view_.press(keys::home);
    EXPECT_THAT(chosen(), StartsWith("emuv0"));
}

TEST_F(top, sorts_by_keys_and_by_menu)
{
    view_.add(at(1));
    view_.press('N');
    EXPECT_THAT(text(), HasSubstr("*PID"));
    view_.press(keys::f0 + 6);
    EXPECT_THAT(text(), HasSubstr("RESIDENT"));
    view_.press(keys::up);
    view_.press(keys::enter);
    EXPECT_THAT(text(), HasSubstr("*NAME"));
    view_.press('.');
    view_.press(keys::down);
    view_.press(keys::escape);
    EXPECT_THAT(text(), HasSubstr("*NAME")) << "as before";
}

TEST_F(top, filters_as_one_types)
{
    view_.add(at(1));
    view_.press(keys::f0 + 4);
    type("PYx");
    EXPECT_THAT(text(), HasSubstr("the filter leaves nothing"));
    view_.press(keys::backspace);
    EXPECT_THAT(text(), AllOf(HasSubstr("python"), Not(HasSubstr("  far")),
                              Not(HasSubstr("emuv1"))));
    view_.press(keys::enter);
    EXPECT_THAT(last_line(), HasSubstr("[PY]"));
    view_.press('\\');
    view_.press(keys::escape);
    EXPECT_THAT(text(), HasSubstr("  far"));
}

TEST_F(top, searches_from_line_to_line)
{
    view_.add(at(1));
    view_.press('/');
    type("emuv");
    EXPECT_THAT(chosen(), StartsWith("emuv0"));
    view_.press(keys::f0 + 3);
    EXPECT_THAT(chosen(), StartsWith("emuv1"));
    view_.press(keys::enter);
    view_.press('n');
    EXPECT_THAT(chosen(), StartsWith("emuv0"));
    view_.press('/');
    type("zz");
    EXPECT_THAT(last_line(), HasSubstr("nothing with 'zz'"));
    view_.press(keys::escape);
    EXPECT_THAT(chosen(), StartsWith("emuv0"));
}

TEST_F(top, lists_processes_without_the_tree)
{
    view_.add(at(1));
    view_.press(keys::f0 + 5);
    EXPECT_THAT(text(), HasSubstr("python emuv0"));
    EXPECT_THAT(chosen(), HasSubstr("python"));
    view_.press('t');
    EXPECT_THAT(text(), HasSubstr("emuv1 4070"));
}

TEST_F(top, kills_only_after_a_question)
{
    view_.add(at(1));
    EXPECT_EQ(view_.press('k').what, action::type::nothing);
    EXPECT_THAT(last_line(), HasSubstr("choose a process"));
    view_.press(keys::down);
    // 'k': as of a key that is held down.
    for (const int other : {static_cast<int>('y'), static_cast<int>('k'),
                            keys::enter, keys::escape}) {
        view_.press(keys::f0 + 9);
        EXPECT_THAT(last_line(), HasSubstr("end 4711 python?"));
        EXPECT_EQ(view_.press(other).what, action::type::nothing);
        EXPECT_THAT(last_line(), StartsWith("F1Help"));
    }
    view_.press('k');
    // The question is about the line that it named, whatever comes meanwhile.
    auto next = at(2);
    (*next.instances[0].clients)[0].physical_bytes = 0;
    view_.add(next);
    const auto mild = view_.press('t');
    EXPECT_EQ(mild.what, action::type::kill);
    EXPECT_EQ(mild.pid, 4711);
    EXPECT_EQ(mild.who, (holder{0, 1}));
    EXPECT_EQ(mild.signal, SIGTERM);
    view_.press('k');
    EXPECT_EQ(view_.press('9').signal, SIGKILL);
    view_.press(keys::up);
    view_.press('k');
    EXPECT_THAT(last_line(), HasSubstr("cannot be seen from here"));
}

TEST_F(top, pauses_and_quits)
{
    view_.add(at(1));
    view_.press('Z');
    EXPECT_TRUE(view_.paused());
    EXPECT_THAT(text(), HasSubstr("PAUSED"));
    view_.press('p');
    EXPECT_FALSE(view_.paused());
    EXPECT_EQ(view_.press('q').what, action::type::quit);
    EXPECT_EQ(view_.press(keys::f0 + 10).what, action::type::quit);
    view_.press(keys::f0 + 1);
    EXPECT_THAT(text(), HasSubstr("Keys, as in htop and nvtop"));
    EXPECT_EQ(view_.press('q').what, action::type::nothing) << "closes help";
}

} // namespace
