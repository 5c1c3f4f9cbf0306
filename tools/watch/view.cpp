// SPDX-License-Identifier: GPL-2.0-or-later
// The screen of `emuvctl top`: its state, and what keys do to it.
#include "view.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

namespace emuvctl::watch {

void view::add(sample next)
{
    history_.add(std::move(next));
    settle();
}

const line *view::chosen() const
{
    return index_ < lines_.size() ? &lines_[index_] : nullptr;
}

const instance_sample *view::chosen_instance() const
{
    const sample *const last = history_.last();
    if (last == nullptr || last->instances.empty())
        return nullptr;
    const line *const at = chosen();
    for (const auto &one : last->instances)
        if (at != nullptr && one.info.id == at->who.instance)
            return &one;
    return at == nullptr ? &last->instances.front() : nullptr;
}

// Lists anew, and stays at the line that was chosen.
void view::settle()
{
    const line *const before = chosen();
    const auto who =
        before != nullptr ? std::optional(before->who) : std::nullopt;
    lines_ = arrange(history_, how_);
    const auto choose = [this](const holder &wanted) {
        for (std::size_t i = 0; i < lines_.size(); i++)
            if (lines_[i].who == wanted) {
                index_ = i;
                return true;
            }
        return false;
    };
    // A process that has gone leaves its instance.
    if (who && !choose(*who))
        choose({who->instance, 0});
    index_ = lines_.empty() ? 0 : std::min(index_, lines_.size() - 1);
}

void view::move(int by)
{
    if (lines_.empty())
        return;
    const auto last = static_cast<long>(lines_.size()) - 1;
    index_ = static_cast<std::size_t>(
        std::clamp(static_cast<long>(index_) + by, 0L, last));
}

void view::sort_by(order by)
{
    how_.by = by;
    how_.rising = by == order::name || by == order::pid;
    settle();
}

// The next line with the searched text, from the chosen one on.
void view::find_next(bool from_here)
{
    if (search_.empty() || lines_.empty())
        return;
    for (std::size_t i = from_here ? 0 : 1; i <= lines_.size(); i++) {
        const std::size_t at = (index_ + i) % lines_.size();
        if (contains_text(lines_[at].name, search_) ||
            contains_text(std::to_string(lines_[at].pid), search_)) {
            index_ = at;
            return;
        }
    }
    message_ = fmt::format("nothing with '{}'", search_);
}

void view::ask_to_kill()
{
    const line *const at = chosen();
    if (at == nullptr)
        return;
    if (at->is_instance())
        message_ = "choose a process below the instance";
    else if (at->pid == 0)
        message_ = "its process cannot be seen from here";
    else {
        victim_ = *at;
        mode_ = mode::killing;
    }
}

action view::press_in_killing(int key)
{
    mode_ = mode::list;
    // Not 'k': a key that is held down would end process after process.
    const int signal = key == 't' || key == 'T' ? SIGTERM
                       : key == '9'             ? SIGKILL
                                                : 0;
    if (signal == 0)
        return {};
    return {action::type::kill, victim_.who, victim_.pid, signal};
}

void view::press_in_sorting(int key)
{
    switch (key) {
    case keys::up:
        sorting_ = sorting_ == 0 ? 0 : sorting_ - 1;
        return;
    case keys::down:
        sorting_ = std::min(sorting_ + 1, orders.size() - 1);
        return;
    case keys::enter:
    case ' ':
        sort_by(orders[sorting_].first);
        break;
    default:
        break;
    }
    mode_ = mode::list;
}

void view::press_in_text(int key)
{
    constexpr std::size_t longest = 40;
    const bool filtering = mode_ == mode::filtering;
    std::string &text = filtering ? how_.filter : search_;
    if (key == keys::escape)
        text.clear();
    if (key == keys::escape || key == keys::enter) {
        mode_ = mode::list;
    } else if (key == keys::f0 + 3 && !filtering) {
        find_next(false);
        return;
    } else if (key == keys::backspace) {
        if (!text.empty())
            text.pop_back();
    } else if (key >= 0x20 && key < 0x7f && text.size() < longest) {
        text += static_cast<char>(key);
    }
    if (filtering)
        settle();
    else if (key != keys::enter)
        find_next(true);
}

action view::press_in_list(int key)
{
    switch (key) {
    case 'q':
    case keys::f0 + 10:
        return {action::type::quit};
    case 'h':
    case '?':
    case keys::f0 + 1:
        mode_ = mode::help;
        break;
    case '/':
    case keys::f0 + 3:
        search_.clear();
        mode_ = mode::searching;
        break;
    case 'n':
        find_next(false);
        break;
    case '\\':
    case keys::f0 + 4:
        mode_ = mode::filtering;
        break;
    case 't':
    case keys::f0 + 5:
        how_.tree = !how_.tree;
        settle();
        break;
    case '>':
    case '.':
    case keys::f0 + 6:
        mode_ = mode::sorting;
        for (std::size_t i = 0; i < orders.size(); i++)
            if (orders[i].first == how_.by)
                sorting_ = i;
        break;
    case 'k':
    case keys::f0 + 9:
        ask_to_kill();
        break;
    case 'Z':
    case 'p':
        paused_ = !paused_;
        break;
    case 'I':
        how_.rising = !how_.rising;
        settle();
        break;
    case '+':
    case '-':
        how_.rising = key == '+';
        settle();
        break;
    case 'M':
        sort_by(order::vram);
        break;
    case 'R':
        sort_by(order::ram);
        break;
    case 'L':
        sort_by(order::fetched);
        break;
    case 'S':
        sort_by(order::stalled);
        break;
    case 'N':
        sort_by(order::pid);
        break;
    case keys::up:
        move(-1);
        break;
    case keys::down:
        move(1);
        break;
    case keys::page_up:
        move(-static_cast<int>(page_));
        break;
    case keys::page_down:
        move(static_cast<int>(page_));
        break;
    case keys::home:
        index_ = 0;
        break;
    case keys::end:
        index_ = lines_.empty() ? 0 : lines_.size() - 1;
        break;
    default:
        break;
    }
    return {};
}

action view::press(int key)
{
    if (key == keys::none)
        return {};
    message_.clear();
    switch (mode_) {
    case mode::list:
        return press_in_list(key);
    case mode::help:
        mode_ = mode::list;
        return {};
    case mode::sorting:
        press_in_sorting(key);
        return {};
    case mode::filtering:
    case mode::searching:
        press_in_text(key);
        return {};
    case mode::killing:
        return press_in_killing(key);
    }
    return {};
}

} // namespace emuvctl::watch
