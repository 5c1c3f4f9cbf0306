// SPDX-License-Identifier: GPL-2.0-or-later
// Charts as SVG within HTML.
#include "report/chart.hpp"

#include "report/words.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <pugixml.hpp>

namespace emuv::report {

namespace {

constexpr double wide = 1000;
constexpr double high = 200;
constexpr std::size_t slices = 60; // that tell their values

std::string say(double value, unit in)
{
    switch (in) {
    case unit::bytes:
        return say_bytes(value);
    case unit::rate:
        return say_rate(value);
    case unit::share:
        return fmt::format("{:.0f} %", 100 * value);
    }
    return {};
}

// The end of an axis: a round figure that is no less.
double round_up(double value, unit in)
{
    if (in == unit::share)
        return 1;
    if (!(value > 0))
        return in == unit::rate ? 1e9 : 1 << 20;
    const double base = in == unit::bytes ? 1024 : 1000;
    double power = 1;
    while (power * base <= value)
        power *= base;
    constexpr std::array<double, 22> round = {
        1,  1.5, 2,  3,  4,  5,  6,   8,   10,  12,  16,
        20, 24,  32, 48, 64, 96, 128, 200, 256, 500, 768};
    for (const double each : round)
        if (each * power >= value)
            return each * power;
    return base * power;
}

double at(const track &of, std::size_t part)
{
    return part < of.values.size() ? of.values[part] : 0;
}

std::size_t parts_of(const chart &of)
{
    std::size_t most = 0;
    for (const track &each : of.tracks)
        most = std::max(most, each.values.size());
    return most;
}

class picture
{
public:
    picture(pugi::xml_node svg, const chart &what)
        : svg_(svg), what_(what), count_(parts_of(what)),
          step_(what.seconds > 0 ? wide * what.part_seconds / what.seconds
                                 : wide / static_cast<double>(count_)),
          top_(round_up(what.most, what.in))
    {}

    void draw()
    {
        if (what_.as == shape::mirrored)
            draw_mirrored();
        else
            draw_stacked();
        add_values();
    }

private:
    [[nodiscard]] double x(std::size_t part) const
    {
        return std::min(static_cast<double>(part) * step_, wide);
    }
    // Of a share of the height, from the top.
    static std::string number(double value)
    {
        return fmt::format("{:.1f}", std::clamp(value, 0.0, wide));
    }

    // The area between two lines of steps.
    void area(const std::vector<double> &upper,
              const std::vector<double> &lower, std::size_t color)
    {
        if (upper.empty())
            return;
        std::string path = fmt::format("M0 {}", number(upper[0]));
        for (std::size_t i = 0; i < upper.size(); i++) {
            if (i > 0 && upper[i] != upper[i - 1])
                path += "V" + number(upper[i]);
            if (i + 1 == upper.size() || upper[i + 1] != upper[i])
                path += "H" + number(x(i + 1));
        }
        for (std::size_t i = lower.size(); i-- > 0;) {
            if (i + 1 == lower.size() || lower[i + 1] != lower[i])
                path += "V" + number(lower[i]);
            if (i == 0 || lower[i - 1] != lower[i])
                path += "H" + number(x(i));
        }
        pugi::xml_node made = svg_.append_child("path");
        made.append_attribute("class") =
            fmt::format("k{}", what_.color + color).c_str();
        made.append_attribute("d") = (path + "Z").c_str();
    }

    void draw_stacked()
    {
        std::vector<double> below(count_, high);
        for (std::size_t k = 0; k < what_.tracks.size(); k++) {
            std::vector<double> above = below;
            for (std::size_t i = 0; i < count_; i++)
                above[i] = std::max(
                    0.0, below[i] - high * at(what_.tracks[k], i) / top_);
            area(above, below, k);
            below = std::move(above);
        }
    }

    void draw_mirrored()
    {
        const std::vector<double> middle(count_, high / 2);
        for (std::size_t k = 0; k < what_.tracks.size(); k++) {
            std::vector<double> line(count_);
            for (std::size_t i = 0; i < count_; i++) {
                const double part = high / 2 * at(what_.tracks[k], i) / top_;
                line[i] = std::clamp(k == 0 ? high / 2 - part : high / 2 + part,
                                     0.0, high);
            }
            if (k == 0)
                area(line, middle, k);
            else
                area(middle, line, k);
        }
        pugi::xml_node line = svg_.append_child("path");
        line.append_attribute("class") = "axis";
        line.append_attribute("d") =
            fmt::format("M0 {}H{}", number(high / 2), number(wide)).c_str();
    }

    // Slices of time that tell their values where a pointer rests.
    void add_values()
    {
        const std::size_t group = (count_ + slices - 1) / slices;
        for (std::size_t first = 0; first < count_; first += group) {
            const std::size_t end = std::min(first + group, count_);
            std::string text =
                "from " +
                say_seconds(static_cast<double>(first) * what_.part_seconds);
            for (const track &each : what_.tracks) {
                double most = 0;
                for (std::size_t i = first; i < end; i++)
                    most = std::max(most, at(each, i));
                text += fmt::format(", {}: {}", each.name, say(most, what_.in));
            }
            pugi::xml_node slice = svg_.append_child("rect");
            slice.append_attribute("class") = "slice";
            slice.append_attribute("x") = number(x(first)).c_str();
            slice.append_attribute("y") = "0";
            slice.append_attribute("width") = number(x(end) - x(first)).c_str();
            slice.append_attribute("height") = number(high).c_str();
            slice.append_child("title").text() = text.c_str();
        }
    }

    pugi::xml_node svg_;
    const chart &what_;
    std::size_t count_;
    double step_;
    double top_;
};

pugi::xml_node add(pugi::xml_node into, const char *name, const char *of,
                   const std::string &text = {})
{
    pugi::xml_node made = into.append_child(name);
    made.append_attribute("class") = of;
    if (!text.empty())
        made.text() = text.c_str();
    return made;
}

} // namespace

double most_of(const chart &of)
{
    double most = 0;
    for (std::size_t i = 0; i < parts_of(of); i++) {
        double sum = 0;
        for (const track &each : of.tracks)
            sum = of.as == shape::stacked ? sum + at(each, i)
                                          : std::max(sum, at(each, i));
        most = std::max(most, sum);
    }
    return most;
}

void draw(pugi::xml_node into, const chart &what)
{
    pugi::xml_node figure = into.append_child("figure");
    pugi::xml_node caption = figure.append_child("figcaption");
    add(caption, "span", "title", what.title);
    for (std::size_t k = 0; k < what.tracks.size(); k++) {
        pugi::xml_node key = add(caption, "span", "key");
        pugi::xml_node mark = key.append_child("svg");
        mark.append_attribute("class") = "mark";
        mark.append_attribute("viewBox") = "0 0 10 10";
        mark.append_attribute("aria-hidden") = "true";
        pugi::xml_node box = mark.append_child("rect");
        box.append_attribute("class") =
            fmt::format("k{}", what.color + k).c_str();
        box.append_attribute("width") = "10";
        box.append_attribute("height") = "10";
        key.append_child(pugi::node_pcdata)
            .set_value((" " + what.tracks[k].name).c_str());
    }
    const double top = round_up(what.most, what.in);
    pugi::xml_node plot = add(figure, "div", "plot");
    pugi::xml_node values = add(plot, "div", "values");
    const bool mirrored = what.as == shape::mirrored;
    add(values, "span", "v", say(top, what.in));
    add(values, "span", "v", mirrored ? "0" : say(top / 2, what.in));
    add(values, "span", "v", mirrored ? say(top, what.in) : "0");
    pugi::xml_node svg = plot.append_child("svg");
    svg.append_attribute("class") = "chart";
    svg.append_attribute("viewBox") =
        fmt::format("0 0 {:.0f} {:.0f}", wide, high).c_str();
    svg.append_attribute("preserveAspectRatio") = "none";
    svg.append_attribute("role") = "img";
    svg.append_attribute("aria-label") =
        fmt::format("{} over {}, at most {}", what.title,
                    say_seconds(what.seconds), say(what.most, what.in))
            .c_str();
    picture(svg, what).draw();
    pugi::xml_node times = add(plot, "div", "times");
    for (int i = 0; i <= 4; i++)
        add(times, "span", i == 1 || i == 3 ? "t odd" : "t",
            say_seconds(what.seconds * i / 4));
}

} // namespace emuv::report
