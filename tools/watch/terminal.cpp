// SPDX-License-Identifier: GPL-2.0-or-later
// The terminal that frames are shown on, through ncurses.
#include "terminal.hpp"

#include "view.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include <langinfo.h>
#include <ncurses.h>
#include <poll.h>
#include <term.h>
#include <unistd.h>

namespace emuvctl::watch {

namespace {

struct looks_of_style
{
    style look;
    int colour;
    attr_t plain;   // with colour
    attr_t instead; // without
};

// A style's pair of colours has its number; 0 is the terminal's own.
constexpr looks_of_style all_looks[] = {
    {style::plain, -1, A_NORMAL, A_NORMAL},
    {style::soft, COLOR_CYAN, A_NORMAL, A_DIM},
    {style::title, COLOR_CYAN, A_REVERSE, A_REVERSE},
    {style::heading, COLOR_GREEN, A_BOLD, A_BOLD},
    {style::selected, COLOR_WHITE, A_REVERSE, A_REVERSE},
    {style::vram, COLOR_GREEN, A_NORMAL, A_NORMAL},
    {style::ram, COLOR_YELLOW, A_NORMAL, A_NORMAL},
    {style::in, COLOR_BLUE, A_BOLD, A_NORMAL},
    {style::out, COLOR_MAGENTA, A_NORMAL, A_NORMAL},
    {style::warning, COLOR_RED, A_BOLD, A_BOLD},
};

int translate(int key)
{
    switch (key) {
    case ERR:
    case KEY_RESIZE:
        return keys::none;
    case KEY_UP:
        return keys::up;
    case KEY_DOWN:
        return keys::down;
    case KEY_PPAGE:
        return keys::page_up;
    case KEY_NPAGE:
        return keys::page_down;
    case KEY_HOME:
        return keys::home;
    case KEY_END:
        return keys::end;
    case KEY_ENTER:
    case '\r':
        return keys::enter;
    case KEY_BACKSPACE:
    case 127:
        return keys::backspace;
    default:
        break;
    }
    if (key > KEY_F0 && key <= KEY_F(12))
        return keys::f0 + (key - KEY_F0);
    return key < 0x100 ? key : keys::none;
}

} // namespace

struct terminal::screen
{
    SCREEN *curses = nullptr;
    bool colour = false;
};

terminal::terminal(bool colour) : screen_(std::make_unique<screen>())
{
    const char *const name = std::getenv("TERM");
    const std::string shown = name != nullptr ? name : "";
    int answer = 0;
    if (setupterm(nullptr, STDOUT_FILENO, &answer) != OK)
        throw std::runtime_error("the terminal '" + shown +
                                 "' is not known; is TERM right?");
    if (tigetstr("cup") == nullptr || tigetstr("clear") == nullptr)
        throw std::runtime_error("the terminal '" + shown +
                                 "' cannot be drawn on");
    screen_->curses = newterm(nullptr, stdout, stdin);
    if (screen_->curses == nullptr)
        throw std::runtime_error("the terminal '" + shown +
                                 "' cannot be drawn on");
    set_escdelay(25); // milliseconds; Esc is a key of its own here
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    curs_set(0);
    if (colour && has_colors() && start_color() == OK &&
        use_default_colors() == OK) {
        screen_->colour = true;
        for (const auto &one : all_looks)
            if (one.look != style::plain)
                init_pair(static_cast<short>(one.look),
                          static_cast<short>(one.colour), -1);
    }
}

terminal::~terminal()
{
    endwin();
    delscreen(screen_->curses);
}

int terminal::width() const
{
    return getmaxx(stdscr);
}

int terminal::height() const
{
    return getmaxy(stdscr);
}

bool terminal::unicode()
{
    return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
}

void terminal::show(const frame &what)
{
    erase();
    for (int y = 0; y < what.height(); y++) {
        for (int x = 0; x < what.width();) {
            const style look = what.at(y, x).look;
            std::string text;
            const int start = x;
            for (; x < what.width() && what.at(y, x).look == look; x++)
                text += to_utf8(what.at(y, x).glyph);
            const auto &as = all_looks[static_cast<std::size_t>(look)];
            if (screen_->colour)
                attr_set(as.plain, static_cast<short>(look), nullptr);
            else
                attr_set(as.instead, 0, nullptr);
            mvaddstr(y, start, text.c_str());
        }
    }
    attr_set(A_NORMAL, 0, nullptr);
    refresh();
}

int terminal::read_key(int milliseconds)
{
    timeout(milliseconds);
    return translate(getch());
}

bool terminal::gone()
{
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) == 1 &&
           (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

} // namespace emuvctl::watch
