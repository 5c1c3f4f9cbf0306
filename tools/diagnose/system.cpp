// SPDX-License-Identifier: GPL-2.0-or-later
// Messages of the system about programs that it killed, and of emuV.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// One of a process's kinds of memory: "anon-rss:1234kB".
std::uint64_t part(std::string_view line, std::string_view key)
{
    const auto found = figure_after(line, key);
    return found ? found->bytes : 0;
}

bool is_word(std::string_view text, std::size_t at, std::size_t length)
{
    const auto is_letter = [&](std::size_t i) {
        return i < text.size() &&
               ((text[i] >= 'a' && text[i] <= 'z') ||
                (text[i] >= 'A' && text[i] <= 'Z') ||
                (text[i] >= '0' && text[i] <= '9') || text[i] == '_');
    };
    return (at == 0 || !is_letter(at - 1)) && !is_letter(at + length);
}

} // namespace

std::optional<finding> find_emuv(std::string_view text)
{
    const std::size_t at = last(text, "emuV: refused ");
    if (at == none)
        return {};
    const std::string line = unbroken(text, at, 600);
    finding made;
    made.from = source::emuv;
    made.memory = memory_kind::vram;
    made.line = line_of(text, at);
    made.times = count(text, "emuV: refused ");
    made.asked = figure_after(line, "emuV: refused ");
    made.held = figure_after(line, "in use are ");
    made.limit = figure_before(line, " VRAM (");
    const auto ram_used = figure_after(line, "by this process) and ");
    const auto ram = figure_before(line, " system RAM.");
    if (!made.asked || !made.held || !made.limit || !ram_used || !ram)
        return {};
    made.process_total = figure_before(line, " by this process)");
    made.granted = ram;
    made.only_vram = line.find("It can only be in VRAM") != none;
    made.free = figure{minus(made.limit->bytes, made.held->bytes),
                       plus(made.limit->slack, made.held->slack)};
    made.notes.push_back(fmt::format("Of the granted system RAM {} of {} are "
                                     "in use.",
                                     size(ram_used->bytes), size(ram->bytes)));
    made.emuv_can_help = line.find("The limits have room") == none;
    if (!made.emuv_can_help)
        made.causes.push_back({cause_kind::others,
                               "emuV's limits have room: the card or the "
                               "machine itself has no memory left."});
    else if (made.only_vram)
        made.causes.push_back({cause_kind::limit,
                               "This memory cannot be in system RAM (a CUDA "
                               "array, for one), and emuV's limit on VRAM "
                               "leaves no room."});
    else
        made.causes.push_back(
            {cause_kind::limit,
             ram->bytes == 0
                 ? std::string("emuV's limit on VRAM is reached, and no system "
                               "RAM is granted to spill to.")
                 : fmt::format("Both of emuV's limits are reached: {} of VRAM "
                               "and {} of system RAM.",
                               size(made.limit->bytes), size(ram->bytes))});
    made.same_size = tensors_of(*made.asked);
    return made;
}

double link_rate_of(std::string_view text)
{
    constexpr std::string_view key = "the link moves ";
    const std::size_t at = last(text, key);
    if (at == none)
        return 0;
    // Rates have units of 10^9 bytes.
    const std::string_view rest = text.substr(at + key.size(), 24);
    const auto rate = figure_after(rest, "");
    if (!rate || rest.find(" GB/s") == none)
        return 0;
    const double made = static_cast<double>(rate->bytes) / (1 << 30) * 1e9;
    return made >= 1e8 && made <= 1e13 ? made : 0;
}

std::optional<finding> find_oom_killer(std::string_view text)
{
    finding made;
    made.from = source::oom_killer;
    made.memory = memory_kind::ram;
    std::size_t at = none;
    for (const std::string_view key :
         {"Killed process ", "Kill process ", "oom-kill:constraint="}) {
        at = last(text, key);
        if (at != none)
            break;
    }
    if (at == none)
        return {};
    // The lines that the kernel says together come within a few hundred.
    const std::size_t from = at > 60'000 ? at - 60'000 : 0;
    const std::string_view around = text.substr(from, at - from + 1000);
    const std::string_view line =
        text.substr(at, std::min<std::size_t>(text.find('\n', at) - at, 600));
    if (around.find("ut of memory") == none && around.find("oom-kill") == none)
        return {};
    made.line = line_of(text, at);
    made.times = std::max<std::size_t>(count(text, "Killed process "), 1);
    const auto pid = number_after(line, "process ");
    const std::string name = word_after(line, "(", ")\n", 40);
    if (pid)
        made.process = fmt::format("{} ({})", name, *pid);
    const std::uint64_t held =
        plus(plus(part(line, "anon-rss:"), part(line, "file-rss:")),
             part(line, "shmem-rss:"));
    if (held > 0)
        made.held = figure{held, 0};
    // Of this process alone: another may have reached a limit before.
    std::string_view own = text.substr(from, at - from);
    const std::size_t earlier = own.rfind("illed process ");
    if (earlier != none)
        own = own.substr(earlier);
    const bool in_group = own.find("CONSTRAINT_MEMCG") != none ||
                          own.find("emory cgroup out of memory") != none ||
                          line.find("CONSTRAINT_MEMCG") != none;
    std::string group = word_after(own, "oom_memcg=", ",\n", 120);
    if (group.empty())
        group = word_after(line, "oom_memcg=", ",\n", 120);
    const std::size_t usage = own.rfind("memory: usage ");
    if (in_group && usage != none)
        made.limit = figure_after(own.substr(usage), "limit ");
    made.causes.push_back(
        {in_group ? cause_kind::limit : cause_kind::too_small,
         in_group
             ? fmt::format("The memory cgroup{} reached its limit. The machine "
                           "itself may have RAM left.",
                           group.empty() ? "" : " " + group)
             : std::string("The machine ran out of RAM, and the kernel killed "
                           "the process that held most.")});
    if (held > 0 && part(line, "shmem-rss:") > held / 2)
        made.notes.push_back("Most of it was shared memory: /dev/shm, or files "
                             "in tmpfs.");
    return made;
}

std::optional<finding> find_container(std::string_view text)
{
    finding made;
    made.from = source::container;
    std::size_t at = last(text, "OOMKilled");
    if (at != none && (text.substr(at, 20).find("false") != none))
        return {}; // "OOMKilled": false
    if (at != none) {
        made.memory = memory_kind::ram;
        const std::size_t limits = text.find("Limits:");
        if (limits != none)
            made.limit = figure_after(text.substr(limits, 400), "memory: ");
        const auto bytes = figure_after(text, "\"Memory\": ");
        if (!made.limit && bytes && bytes->bytes > 0)
            made.limit = bytes;
        made.causes.push_back({cause_kind::limit,
                               "The container reached its limit of RAM. That "
                               "is no limit on VRAM."});
    } else {
        for (const std::string_view key :
             {"exit code 137", "Exit Code:    137", "exited with code 137",
              "ExitCode\": 137", "exit status 137", "Exited (137)"}) {
            at = last(text, key);
            if (at != none)
                break;
        }
        if (at == none)
            return {};
        made.memory = memory_kind::unknown;
        made.causes.push_back(
            {cause_kind::unknown,
             "137 says that SIGKILL ended the program. The kernel sends it "
             "when "
             "RAM runs out, and `docker kill` and others do as well."});
    }
    made.line = line_of(text, at);
    return made;
}

std::optional<finding> find_shell(std::string_view text)
{
    for (auto at = text.rfind("Killed"); at != none && at < text.size();
         at = at == 0 ? none : text.rfind("Killed", at - 1)) {
        // A shell's line is short. A long one is not read to its ends: it may
        // have the word all over.
        constexpr std::size_t most = 200;
        const std::string_view before =
            text.substr(at - std::min(at, most), std::min(at, most));
        const std::size_t begin = before.rfind('\n');
        if (!is_word(text, at, 6) || (begin == none && at > most))
            continue;
        const std::string_view head =
            begin == none ? before : before.substr(begin + 1);
        std::string_view tail = text.substr(at + 6, most);
        tail = tail.substr(0, tail.find('\n'));
        // Alone, or behind a job's number and process: "[1]+  Killed   python".
        const bool alone = head.find_first_not_of(' ') == none &&
                           tail.find_first_not_of(' ') == none;
        const std::size_t digits_end = head.find_first_not_of("0123456789", 1);
        const bool job =
            (head.starts_with("[") && digits_end != none && digits_end > 1 &&
             head[digits_end] == ']' && head.size() < 40) ||
            (head.find(": line ") != none && head.size() < 120);
        if (!alone && !job)
            continue;
        finding made;
        made.from = source::shell;
        made.memory = memory_kind::unknown;
        made.line = line_of(text, at);
        made.causes.push_back(
            {cause_kind::unknown,
             "The shell says that SIGKILL ended the program. The kernel sends "
             "it when RAM runs out, but it is not alone in that; this line "
             "does not tell."});
        return made;
    }
    return {};
}

} // namespace emuv::diagnose
