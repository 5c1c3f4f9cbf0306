// SPDX-License-Identifier: LGPL-2.1-or-later
// Decoded instructions as text, for tests.
#include "proof/sass_text.hpp"

#include <cstdio>
#include <utility>

namespace emuv::cuda::proof {

std::string describe(const instruction &what)
{
    if (what.of == nullptr)
        return "?";
    std::string made = what.of->name;
    char text[48];
    if (what.when.value < condition::somehow) {
        std::snprintf(text, sizeof text, " @%s%sP%u",
                      (what.when.value & 16U) != 0 ? "!" : "",
                      (what.when.value & 8U) != 0 ? "U" : "",
                      what.when.value & 7U);
        made += text;
    }
    const auto show_register = [&](std::uint16_t reg) {
        if (reg == no_register)
            std::snprintf(text, sizeof text, "Z");
        else
            std::snprintf(text, sizeof text, "%s%u",
                          reg >= first_uniform ? "UR" : "R",
                          reg % first_uniform);
        made += text;
    };
    made += " to=";
    show_register(what.to);
    for (const auto &[name, of] :
         {std::pair{'a', &what.a}, {'b', &what.b}, {'c', &what.c}}) {
        if (of->is == operand::kind::none)
            continue;
        made += ' ';
        made += name;
        made += '=';
        if (of->negative)
            made += '-';
        switch (of->is) {
        case operand::kind::none:
            break;
        case operand::kind::reg:
            show_register(of->reg);
            break;
        case operand::kind::immediate:
            std::snprintf(text, sizeof text, "0x%x", of->value);
            made += text;
            break;
        case operand::kind::constant:
            std::snprintf(text, sizeof text, "c[0x%x][0x%x]", of->bank,
                          of->value);
            made += text;
            break;
        case operand::kind::elsewhere:
            made += "cx";
            break;
        }
    }
    return made;
}

} // namespace emuv::cuda::proof
