// SPDX-License-Identifier: GPL-2.0-or-later
// The screen of `emuvctl top`: its state, what keys do to it, and how it is
// drawn. No terminal and no machine.
#pragma once

#include "frame.hpp"
#include "history.hpp"
#include "table.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace emuvctl::watch {

/// Keys that are no characters. Characters are themselves.
namespace keys {
inline constexpr int none = -1;
inline constexpr int enter = '\n';
inline constexpr int escape = 27;
inline constexpr int backspace = 8;
inline constexpr int up = 0x1000;
inline constexpr int down = 0x1001;
inline constexpr int page_up = 0x1002;
inline constexpr int page_down = 0x1003;
inline constexpr int home = 0x1004;
inline constexpr int end = 0x1005;
inline constexpr int f0 = 0x1010; ///< f0 + 1 is F1
} // namespace keys

/// The thing to do after a key.
struct action
{
    enum class type
    {
        nothing,
        quit,
        kill
    };

    type what = type::nothing;
    holder who = {}; ///< kill: the client
    int pid = 0;     ///< kill: its process, as it was listed
    int signal = 0;  ///< kill
};

/// How it is shown.
struct looks
{
    bool unicode = false; ///< graphs of block characters
    double interval = 1;  ///< seconds between samples, for the title
};

/// The screen.
class view
{
public:
    explicit view(const looks &how) : looks_(how) {}

    /// Takes the next sample.
    void add(sample next);
    /// No samples are wanted now.
    [[nodiscard]] bool paused() const { return paused_; }
    /// Takes a key.
    action press(int key);
    /// Shows a message until the next key.
    void say(std::string message) { message_ = std::move(message); }
    /// Draws all of it. @param clock  the time of day, for the title
    frame draw(int width, int height, std::string_view clock);

private:
    enum class mode
    {
        list,
        help,
        sorting,
        filtering,
        searching,
        killing
    };

    void settle();
    void move(int by);
    action press_in_list(int key);
    void press_in_sorting(int key);
    void press_in_text(int key);
    action press_in_killing(int key);
    void sort_by(order by);
    void find_next(bool from_here);
    void ask_to_kill();
    [[nodiscard]] const line *chosen() const;
    [[nodiscard]] const instance_sample *chosen_instance() const;
    void draw_title(frame &to, std::string_view clock) const;
    int draw_instance(frame &to, const instance_sample &one) const;
    void draw_graphs(frame &to, const instance_sample &one, int y,
                     int height) const;
    void draw_list(frame &to, int y);
    void draw_line(frame &to, int y, const line &one, bool selected) const;
    void draw_sorting(frame &to, int y) const;
    void draw_foot(frame &to) const;
    static void draw_help(frame &to);

    looks looks_;
    history history_;
    arrangement how_;
    std::vector<line> lines_;
    std::size_t index_ = 0; // of the chosen line
    std::size_t top_ = 0;   // the first line shown
    std::size_t page_ = 1;  // lines shown
    mode mode_ = mode::list;
    std::size_t sorting_ = 0; // the entry of the menu
    std::string search_;
    std::string message_;
    bool paused_ = false;
    line victim_; // the line that `killing` asks about
};

} // namespace emuvctl::watch
