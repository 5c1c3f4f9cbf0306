// SPDX-License-Identifier: GPL-2.0-or-later
// The signals that this program takes for itself.
#include "signals.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace emuvctl {

namespace {

constexpr std::array caught = {SIGINT, SIGTERM};
// A reader that goes away is seen as EPIPE, a file that may not grow as EFBIG.
constexpr std::array ignored = {SIGPIPE, SIGXFSZ};

volatile std::sig_atomic_t end_asked = 0; // the last one's number

void on_signal(int number)
{
    end_asked = number;
}

struct taken
{
    int number = 0;
    struct sigaction before = {};
};

// Of take_signals(); without a call, nothing is taken.
std::array<taken, caught.size() + ignored.size()> all_taken;

} // namespace

void take_signals()
{
    struct sigaction action = {};
    std::size_t count = 0;
    const auto take = [&](int number) {
        taken &one = all_taken[count++];
        one.number = number;
        ::sigaction(number, &action, &one.before);
    };
    action.sa_handler = on_signal;
    std::for_each(caught.begin(), caught.end(), take);
    action.sa_handler = SIG_IGN;
    std::for_each(ignored.begin(), ignored.end(), take);
}

bool asked_to_end()
{
    return end_asked != 0;
}

struct sigaction inherited_action(int number)
{
    for (const auto &one : all_taken)
        if (one.number == number)
            return one.before;
    struct sigaction now = {};
    ::sigaction(number, nullptr, &now);
    return now;
}

void give_signals_back()
{
    for (const auto &one : all_taken)
        if (one.number != 0)
            ::sigaction(one.number, &one.before, nullptr);
    if (end_asked != 0)
        std::raise(end_asked);
}

} // namespace emuvctl
