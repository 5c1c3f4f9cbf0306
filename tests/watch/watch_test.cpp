// SPDX-License-Identifier: GPL-2.0-or-later
// The parts of tools/watch that need no machine: metrics, requests, history,
// forecasts, lines, frames.
#include "watch/forecast.hpp"
#include "watch/frame.hpp"
#include "watch/history.hpp"
#include "watch/http.hpp"
#include "watch/metrics.hpp"
#include "watch/server.hpp"
#include "watch/table.hpp"

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using namespace emuvctl::watch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Optional;

constexpr std::uint64_t gib = 1ULL << 30;

emuv::client_info client(std::uint64_t number, int pid, const std::string &comm,
                         std::uint64_t vram)
{
    emuv::client_info one;
    one.client = number;
    one.pid = pid;
    one.comm = comm;
    one.physical_bytes = vram;
    return one;
}

instance_sample instance(int id, std::uint64_t vram,
                         std::vector<emuv::client_info> clients = {})
{
    instance_sample one;
    one.info.id = id;
    one.info.uuid = "uuid-" + std::to_string(id);
    one.info.gpu_model = "4070";
    one.info.physical_bytes = 8 * gib;
    one.info.virtual_bytes = 8 * gib;
    one.info.physical_used_bytes = vram;
    one.info.clients = static_cast<std::uint32_t>(clients.size());
    one.clients = std::move(clients);
    return one;
}

sample at(double time, std::vector<instance_sample> instances)
{
    sample one;
    one.at = time;
    one.instances = std::move(instances);
    return one;
}

std::vector<std::string> names(const std::vector<line> &lines)
{
    std::vector<std::string> result;
    for (const auto &one : lines)
        result.push_back(one.name);
    return result;
}

// metrics

TEST(metrics, escape_what_a_process_may_be_called)
{
    EXPECT_EQ(escape_label("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    EXPECT_EQ(escape_label("\x1b[31m\x7f\t"), "?[31m??");
    EXPECT_EQ(escape_label("\xc2\x9b\x31m\xc2\xa0"), "?1m\xc2\xa0");
    EXPECT_EQ(escape_label("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
              "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    const std::string no = "\xef\xbf\xbd";
    // Cut short, overlong, a surrogate, above U+10FFFF, and a lone byte.
    EXPECT_EQ(escape_label("\xe2\x82"), no + no);
    EXPECT_EQ(escape_label("\xc0\xaf"), no + no);
    EXPECT_EQ(escape_label("\xed\xa0\x80"), no + no + no);
    EXPECT_EQ(escape_label("\xf4\x90\x80\x80"), no + no + no + no);
    EXPECT_EQ(escape_label("a\xff"), "a" + no);
}

TEST(metrics, tell_a_client_by_its_number_and_process)
{
    auto one = instance(3, gib, {client(7, 0, "a\"b", gib)});
    one.card_uuid = "GPU-1";
    const auto text = metrics_text(at(0, {one}));
    EXPECT_THAT(text, HasSubstr("emuv_client_vram_used_bytes{vgpu=\"emuv3\","
                                "UUID=\"GPU-1\",client=\"7\",command=\"a\\\"b\""
                                "} 1073741824\n"));
    EXPECT_THAT(text, HasSubstr("emuv_instance_vram_used_bytes{vgpu=\"emuv3\","
                                "UUID=\"GPU-1\"} 1073741824\n"));
}

TEST(metrics, leave_out_what_an_instance_does_not_have)
{
    auto one = instance(0, 0);
    EXPECT_THAT(metrics_text(at(0, {one})),
                AllOf(Not(HasSubstr("swapped")), Not(HasSubstr("reserve"))));
    one.info.swaps = true;
    one.info.guaranteed = true;
    EXPECT_THAT(metrics_text(at(0, {one})), AllOf(HasSubstr("swapped_bytes{"),
                                                  HasSubstr("reserve_bytes{")));
}

// http

TEST(request, is_read_byte_by_byte)
{
    const std::string text = "GET /metrics?a=b HTTP/1.1\r\nHOST:  [::1]:80 "
                             "\r\nx: y\r\n\r\n";
    for (std::size_t i = 0; i < text.size(); i++) {
        const auto part = read_request(text.substr(0, i));
        EXPECT_FALSE(part.request || part.refusal) << i;
    }
    const auto whole = read_request(text);
    ASSERT_TRUE(whole.request);
    EXPECT_EQ(whole.request->path, "/metrics");
    EXPECT_EQ(whole.request->host, "[::1]");
    EXPECT_FALSE(whole.request->head);
}

TEST(request, keeps_a_host_whose_bracket_is_not_closed)
{
    const auto result =
        read_request("GET / HTTP/1.1\r\nHost: [evil.example\r\n\r\n");
    ASSERT_TRUE(result.request);
    EXPECT_FALSE(is_local_host(result.request->host));
}

TEST(request, of_any_bytes_is_refused_or_bounded)
{
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        std::string text = round % 2 == 0 ? "GET / HTTP/1.1\r\n" : "";
        while (text.size() < most_request_bytes) {
            seed = seed * 1664525U + 1013904223U;
            text += static_cast<char>(seed >> 24U);
            if (seed % 19 == 0)
                text += "\r\n";
        }
        const auto result = read_request(text);
        EXPECT_TRUE(result.request || result.refusal);
    }
}

TEST(host, is_local_unless_it_is_a_domain)
{
    for (const auto *host :
         {"", "localhost", "LocalHost", "127.0.0.1", "[::1]", "10.0.0.1"})
        EXPECT_TRUE(is_local_host(host)) << host;
    for (const auto *host : {"evil.example", "localhost.evil.example", "[x]"})
        EXPECT_FALSE(is_local_host(host)) << host;
}

TEST(endpoint, is_loopback_unless_an_address_is_named)
{
    EXPECT_EQ(parse_endpoint("9745").text(), "127.0.0.1:9745");
    EXPECT_EQ(parse_endpoint(":9745").text(), "127.0.0.1:9745");
    EXPECT_EQ(parse_endpoint("localhost:1").text(), "127.0.0.1:1");
    EXPECT_TRUE(parse_endpoint("[::1]:1").loopback());
    EXPECT_TRUE(parse_endpoint("[0:0:0:0:0:0:0:1]:1").loopback());
    EXPECT_FALSE(parse_endpoint("0.0.0.0:1").loopback());
    EXPECT_FALSE(parse_endpoint("[::]:1").loopback());
    for (const auto *text : {"", ":", "a:1", "::1", "1.2.3.4", "1.2.3.4:-1",
                             "1.2.3.4:65536", "[1.2.3.4]:1", "[::1]1"})
        EXPECT_THROW(parse_endpoint(text), std::invalid_argument) << text;
}

// history

TEST(history, has_rates_from_the_second_sample_on)
{
    history all;
    auto one = instance(0, gib, {client(1, 10, "a", gib)});
    one.info.moved.fetched_bytes = 100;
    all.add(at(1, {one}));
    EXPECT_FALSE(all.rates_of({0, 0}));
    one.info.moved.fetched_bytes = 300;
    one.info.moved.stalled_ns = 1000000000;
    (*one.clients)[0].moved.evicted_bytes = 40;
    all.add(at(3, {one}));
    EXPECT_DOUBLE_EQ(all.rates_of({0, 0})->fetched, 100);
    EXPECT_DOUBLE_EQ(all.rates_of({0, 0})->stalled, 0.5);
    EXPECT_DOUBLE_EQ(all.rates_of({0, 1})->evicted, 20);
    EXPECT_EQ(all.points_of(0).size(), 2U);
    EXPECT_DOUBLE_EQ(all.points_of(0).back().fetched, 100);
}

TEST(history, starts_again_for_an_instance_made_anew)
{
    history all;
    auto one = instance(0, gib, {client(1, 10, "a", gib)});
    one.info.moved.fetched_bytes = 100;
    all.add(at(1, {one}));
    one.info.uuid = "another";
    one.info.moved.fetched_bytes = 5000;
    all.add(at(2, {one}));
    EXPECT_FALSE(all.rates_of({0, 0}));
    EXPECT_FALSE(all.rates_of({0, 1}));
    EXPECT_EQ(all.points_of(0).size(), 1U);
}

TEST(history, forgets_who_has_gone)
{
    history all;
    all.add(
        at(1, {instance(0, gib, {client(1, 10, "a", gib)}), instance(1, 0)}));
    all.add(at(2, {instance(0, gib)}));
    all.add(at(3, {instance(0, gib, {client(1, 10, "a", gib)})}));
    EXPECT_FALSE(all.rates_of({0, 1})) << "there was a gap";
    EXPECT_TRUE(all.points_of(1).empty());
    EXPECT_EQ(all.points_of(0).size(), 3U);
}

TEST(history, keeps_no_more_points_than_it_shows)
{
    history all;
    for (int i = 0; i < 2000; i++)
        all.add(at(i, {instance(0, gib)}));
    EXPECT_EQ(all.points_of(0).size(), history::most_points);
    EXPECT_DOUBLE_EQ(all.points_of(0).back().at, 1999);
}

TEST(history, tells_hits_of_late_or_else_of_all)
{
    history all;
    auto one = instance(0, gib);
    all.add(at(1, {one}));
    EXPECT_FALSE(all.hits_of({0, 0})) << "not known";
    one.info.moved.hit_bytes = 90;
    one.info.moved.miss_bytes = 10;
    all.add(at(2, {one}));
    EXPECT_THAT(all.hits_of({0, 0}), Optional(0.9));
    one.info.moved.miss_bytes = 110;
    all.add(at(3, {one}));
    EXPECT_THAT(all.hits_of({0, 0}), Optional(0.0));
    all.add(at(4, {one}));
    EXPECT_THAT(all.hits_of({0, 0}), Optional(0.45));
}

// forecast

std::vector<growth_point> growing(int count, double (*value)(double))
{
    std::vector<growth_point> points;
    for (int i = 0; i < count; i++)
        points.push_back({1e9 + i, value(i)});
    return points;
}

TEST(forecast, is_exact_for_a_line)
{
    const auto points = growing(20, [](double t) { return 10 + 2 * t; });
    // 48 at the end, 52 to go.
    ASSERT_TRUE(seconds_until(points, 100));
    EXPECT_NEAR(*seconds_until(points, 100), 26, 1e-6);
}

TEST(forecast, bears_noise_and_small_steps)
{
    const auto noisy =
        growing(60, [](double t) { return 100 * t + 80 * std::sin(9 * t); });
    EXPECT_NEAR(seconds_until(noisy, 9000).value_or(0), 30, 3);
    const auto steps =
        growing(100, [](double t) { return 100 * std::floor(t / 5); });
    EXPECT_NEAR(seconds_until(steps, 3900).value_or(0), 100, 10);
}

TEST(forecast, is_none_where_nothing_fits)
{
    const auto none = [](int count, double (*value)(double), double limit) {
        return !seconds_until(growing(count, value), limit);
    };
    EXPECT_TRUE(none(
        0, [](double t) { return t; }, 100));
    EXPECT_TRUE(none(
        11, [](double t) { return t; }, 100))
        << "too few";
    EXPECT_TRUE(none(
        50, [](double) { return 5.0; }, 100))
        << "flat";
    EXPECT_TRUE(none(
        50, [](double t) { return 100 - t; }, 100))
        << "falls";
    EXPECT_TRUE(none(
        50, [](double t) { return t < 25 ? 0.0 : 50.0; }, 100))
        << "one step";
    EXPECT_TRUE(none(
        50, [](double t) { return 50 + 40 * std::sin(t / 3); }, 100))
        << "up and down";
    EXPECT_TRUE(none(
        60, [](double t) { return t < 40 ? t : 40.0; }, 100))
        << "growth that has ended";
    EXPECT_TRUE(none(
        50, [](double t) { return 60 + t; }, 100))
        << "full";
    EXPECT_TRUE(none(
        50, [](double t) { return t / 1000; }, 1000))
        << "in eleven days";
}

TEST(forecast, looks_at_the_last_window_alone)
{
    auto points = growing(
        400, [](double t) { return t < 280 ? 1000 - t : 720 + 2 * (t - 280); });
    EXPECT_NEAR(seconds_until(points, 1058).value_or(0), 50, 1e-6);
}

TEST(forecast, needs_a_clock_that_moves)
{
    std::vector<growth_point> points;
    for (int i = 0; i < 20; i++)
        points.push_back({5, static_cast<double>(i)});
    EXPECT_FALSE(seconds_until(points, 100));
}

// lines

history three_processes()
{
    history all;
    all.add(at(1, {instance(0, 3 * gib,
                            {client(1, 300, "python", gib),
                             client(2, 200, "Train", 2 * gib)}),
                   instance(10, 5 * gib, {client(1, 100, "serve", 5 * gib)}),
                   instance(2, 0)}));
    return all;
}

TEST(lines, are_a_tree_sorted_at_each_level)
{
    const auto all = three_processes();
    EXPECT_THAT(names(arrange(all, {})),
                ElementsAre("emuv10 4070", "serve", "emuv0 4070", "Train",
                            "python", "emuv2 4070"));
    EXPECT_THAT(names(arrange(all, {order::name, true})),
                ElementsAre("emuv0 4070", "Train", "python", "emuv2 4070",
                            "emuv10 4070", "serve"));
}

TEST(lines, are_all_processes_without_the_tree)
{
    const auto all = three_processes();
    EXPECT_THAT(names(arrange(all, {order::pid, true, false})),
                ElementsAre("serve", "Train", "python"));
    EXPECT_THAT(names(arrange(all, {order::vram, false, false})),
                ElementsAre("serve", "Train", "python"));
    EXPECT_THAT(names(arrange(all, {order::vram, true, false})),
                ElementsAre("python", "Train", "serve"));
}

TEST(lines, are_filtered_by_name_pid_and_instance)
{
    const auto all = three_processes();
    const auto filtered = [&all](const std::string &text, bool tree) {
        return names(arrange(all, {order::vram, false, tree, text}));
    };
    EXPECT_THAT(filtered("TRAIN", true), ElementsAre("emuv0 4070", "Train"));
    EXPECT_THAT(filtered("300", false), ElementsAre("python"));
    EXPECT_THAT(filtered("emuv0", true),
                ElementsAre("emuv0 4070", "Train", "python"));
    EXPECT_THAT(filtered("emuv0", false), ElementsAre("Train", "python"));
    EXPECT_THAT(filtered("nobody", true), IsEmpty());
}

TEST(lines, without_a_figure_come_last_either_way)
{
    history all;
    auto known = instance(1, 0);
    known.info.moved.hit_bytes = 1;
    all.add(at(1, {instance(0, 0), known, instance(2, 0)}));
    for (const bool rising : {true, false})
        EXPECT_EQ(arrange(all, {order::hits, rising}).front().name,
                  "emuv1 4070");
}

// frames

TEST(frame, draws_nothing_outside_itself)
{
    frame to(4, 2);
    to.put(0, -2, "abcdefghij");
    to.put(-1, 0, "x");
    to.put(2, 0, "x");
    EXPECT_EQ(to.text(0), "cdef");
    EXPECT_EQ(to.text(1), "");
    const std::array<double, 3> values = {2.0, -1.0, NAN};
    draw_graph(to, {0, 0, 10, 9}, values, style::vram, true);
    draw_bar(to, {0, 3, 90}, {}, "text");
}

TEST(frame, shows_nothing_that_steers_a_terminal)
{
    frame to(10, 1);
    to.put(0, 0, "a\x1b[2J\xc3\xa9");
    EXPECT_EQ(to.text(0), "a?[2J??");
}

TEST(frame, draws_a_bar_with_its_parts)
{
    frame to(22, 1);
    const std::array<bar_part, 2> parts = {
        {{0.25, '|', style::ram}, {0.5, ':', style::ram}}};
    draw_bar(to, {0, 0, 22}, parts, "1G/2G");
    EXPECT_EQ(to.text(0), "[|||||:::::     1G/2G]");
}

TEST(frame, draws_a_graph_from_the_right)
{
    frame to(5, 2);
    const std::array<double, 4> values = {0, 0.001, 0.5, 1};
    draw_graph(to, {0, 0, 5, 2}, values, style::vram, false);
    EXPECT_EQ(to.text(0), "    #");
    EXPECT_EQ(to.text(1), "  .##");
    frame blocks(5, 2);
    draw_graph(blocks, {0, 0, 5, 2}, values, style::vram, true);
    EXPECT_EQ(blocks.text(1), "  \xe2\x96\x81\xe2\x96\x88\xe2\x96\x88");
}

} // namespace
