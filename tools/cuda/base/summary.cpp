// SPDX-License-Identifier: LGPL-2.1-or-later
// A device's published figures in words.
#include "base/summary.hpp"

#include "base/size.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace emuv::cuda {

namespace {

// Below so many steps, means may be of the program's start.
constexpr std::uint64_t enough_steps = 4;
// The fraction of a step that is worth a word of advice.
constexpr double large_fraction = 0.1;
constexpr double very_large_fraction = 0.3;
// A forward pass is about a third of a training step.
constexpr double forward_fraction = 1.0 / 3;

// Text as printf makes it, but without its decimal point, which follows the
// program's locale.
[[gnu::format(printf, 1, 2)]] std::string text(const char *format, ...)
{
    char made[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(made, sizeof made, format, arguments);
    va_end(arguments);
    return made;
}

std::uint64_t rounded(double value)
{
    return value < 0.5       ? 0
           : value >= 1.8e19 ? UINT64_MAX
                             : static_cast<std::uint64_t>(value + 0.5);
}

// "41.2", to one decimal.
std::string tenths(double value)
{
    const std::uint64_t all = rounded(value * 10);
    return text("%" PRIu64 ".%u", all / 10, static_cast<unsigned>(all % 10));
}

std::string time_text(double ns)
{
    if (ns >= 1e10)
        return tenths(ns / 1e9) + " s";
    if (ns >= 1e5 || ns == 0)
        return tenths(ns / 1e6) + " ms";
    return tenths(ns / 1e3) + " us";
}

std::string size_of(double bytes)
{
    return show_size(rounded(bytes)).text;
}

std::string fraction_text(double some, double whole)
{
    return text("%3" PRIu64 " %%",
                whole > 0 ? rounded(std::min(some / whole, 1.0) * 100) : 0);
}

// A string of a page, whose end need not be there.
template <std::size_t size>
std::string string_of(const char (&from)[size])
{
    return std::string(from, strnlen(from, size));
}

double times(std::uint64_t value, std::uint64_t count)
{
    return static_cast<double>(value) /
           static_cast<double>(std::max<std::uint64_t>(count, 1));
}

void add_steps(const device_statistics &of, summary &to)
{
    const std::uint64_t kept =
        std::min<std::uint64_t>(of.samples, device_statistics::max_kept);
    double idle = 0;
    double launches = 0;
    for (std::uint64_t i = 0; i < kept; i++) {
        const step_figures &one = of.kept[i];
        if (one.steps == 0)
            continue;
        const double took = static_cast<double>(one.took_ns);
        to.steps += one.steps;
        to.took_ns += took;
        to.link_ns += static_cast<double>(one.link_ns);
        to.mapping_ns += static_cast<double>(one.mapping_ns);
        to.standing_ns += static_cast<double>(one.standing_ns);
        to.program_ns += static_cast<double>(one.program_ns);
        to.untrusted_ns += static_cast<double>(one.untrusted_ns);
        to.fetched_bytes += static_cast<double>(one.fetched_bytes);
        to.evicted_bytes += static_cast<double>(one.evicted_bytes);
        to.from_cards_bytes +=
            static_cast<double>(one.with_cards.fetched_bytes);
        to.to_cards_bytes += static_cast<double>(one.with_cards.evicted_bytes);
        to.missed_bytes += static_cast<double>(one.missed_bytes);
        to.used_bytes += static_cast<double>(one.used_bytes);
        launches += one.launches;
        to.slowest_ns = std::max(to.slowest_ns, took / one.steps);
    }
    if (to.steps == 0)
        return;
    const auto count = static_cast<double>(to.steps);
    for (double *const each :
         {&to.took_ns, &to.link_ns, &to.mapping_ns, &to.standing_ns,
          &to.program_ns, &to.untrusted_ns, &to.fetched_bytes,
          &to.evicted_bytes, &to.from_cards_bytes, &to.to_cards_bytes,
          &to.missed_bytes, &to.used_bytes})
        *each /= count;
    to.launches = launches / count;
    // Waits that began in the step before may count in this one.
    idle = to.link_ns + to.mapping_ns + to.standing_ns + to.program_ns;
    if (idle > to.took_ns)
        for (double *const each :
             {&to.link_ns, &to.mapping_ns, &to.standing_ns, &to.program_ns})
            *each *= to.took_ns / idle;
    to.computing_ns = std::max(to.took_ns - idle, 0.0);
    to.untrusted_ns = std::min(to.untrusted_ns, to.took_ns);
}

void add_tiers(const device_statistics &of, summary &to)
{
    for (unsigned card = 0; card < max_devices; card++)
        if (const lent_bytes &one = of.charged.lent[card]; one.limit > 0)
            to.beyond.push_back({.card = static_cast<int>(card),
                                 .limit_bytes = one.limit,
                                 .charged_bytes = one.now,
                                 .most_bytes = one.most,
                                 .moved = of.with_card[card]});
    to.beyond.push_back({.limit_bytes = of.virtual_bytes,
                         .charged_bytes = of.charged.ram,
                         .most_bytes = of.charged.most_ram,
                         .moved = of.with_ram});
    if (of.charged.file_limit > 0)
        to.beyond.push_back({.card = summary::tier::file,
                             .limit_bytes = of.charged.file_limit,
                             .charged_bytes = of.charged.file,
                             .most_bytes = of.charged.most_file,
                             .moved = of.with_file});
}

void add_lists(const device_statistics &of, summary &to)
{
    const auto count = [](std::uint32_t told) {
        return std::min<std::size_t>(told, device_statistics::max_listed);
    };
    const std::uint64_t steps = std::max<std::uint64_t>(of.listed_steps, 1);
    for (std::size_t i = 0; i < count(of.allocations); i++) {
        summary::allocation one = of.most_crossing[i];
        one.fetched_bytes /= steps;
        one.evicted_bytes /= steps;
        to.allocations.push_back(one);
    }
    for (std::size_t i = 0; i < count(of.kernels); i++) {
        const untrusted_kernel &one = of.most_costly[i];
        to.kernels.push_back({.name = string_of(one.name),
                              .why = string_of(one.why),
                              .launches = times(one.launches, steps),
                              .busy_ns = times(one.busy_ns, steps),
                              .waited_ns = times(one.waited_ns, steps)});
    }
}

// More VRAM would keep all of the program's memory.
std::string more_vram(const summary &of, double bytes)
{
    const std::string size = size_of(bytes);
    const double spare = static_cast<double>(of.card_bytes) -
                         static_cast<double>(of.share_bytes);
    if (of.card_bytes == 0 || bytes <= spare)
        return "raise the share by " + size + ": nothing would cross the link";
    return "the card lacks " + size_of(bytes - std::max(spare, 0.0)) +
           " for all of it. With so much less (a smaller batch) and all of "
           "the card as the share, nothing would cross the link";
}

// True if what counts as computing is also reading over the link. An untrusted
// kernel is not asked what it reads, and all memory is mapped while it runs.
bool reads_in_place(const summary &of)
{
    return of.missed_bytes > 0 ||
           (of.in_ram_bytes > 0 &&
            of.untrusted_ns > large_fraction * of.took_ns);
}

// The advice that figures of memory that does not move allow. It asks for
// nothing that the settings in force rule out.
std::string advise_at_rest(const summary &of, mobility memory)
{
    const bool moves = memory == mobility::moves;
    const double in_ram =
        static_cast<double>(moves ? of.in_ram_bytes : of.charged.beyond());
    if (in_ram == 0)
        return "";
    static constexpr char would_come[] =
        "memory would come to VRAM ahead of its use";
    switch (memory) {
    case mobility::moves:
    case mobility::impossible:
        break;
    case mobility::unasked:
        return "try --move: " + size_of(in_ram) + " lie " +
               (of.charged.on_cards().now > 0 ? "beyond VRAM"
                                              : "in system RAM") +
               ", and each use reads them over the link; or " +
               more_vram(of, in_ram);
    case mobility::off:
        return more_vram(of, in_ram) + ". Without --move=off (EMUV_MOVE=0) " +
               would_come;
    case mobility::pages:
        return more_vram(of, in_ram) +
               ". Pages do not move: without --store pages (EMUV_STORE) " +
               would_come;
    case mobility::checked: // its time is no measure
        return "";
    }
    return more_vram(of, in_ram);
}

// The advice that the figures allow; empty if they allow none.
std::string advise(const summary &of, mobility memory)
{
    if (memory != mobility::moves || of.is == treatment::ended)
        return advise_at_rest(of, memory);
    if (of.steps < enough_steps)
        return "";
    const double in_ram = static_cast<double>(of.in_ram_bytes);
    if (in_ram > 0 && of.is == treatment::moving && !of.kernels.empty() &&
        of.kernels.front().why.starts_with("a graph") &&
        of.untrusted_ns > very_large_fraction * of.took_ns)
        return "graphs that run as a whole cost most, and nothing moves "
               "meanwhile (the first above tells why): try the program without "
               "graphs";
    const double standing = of.standing_ns;
    // While these run, what is needed next does not come.
    const bool stops = !of.kernels.empty() &&
                       of.untrusted_ns > large_fraction * of.took_ns &&
                       of.link_ns > large_fraction * of.took_ns;
    if (!of.kernels.empty() && !of.kernels.front().name.empty() &&
        (standing > large_fraction * of.took_ns || stops) &&
        standing + (stops ? of.untrusted_ns : 0) >= of.mapping_ns)
        return "a kernel that is not trusted costs most (the first above): "
               "--move=check tells if it may be, and --trust then names it";
    if (of.link_ns > large_fraction * of.took_ns &&
        of.link_ns >= of.mapping_ns && in_ram > 0) {
        const double spare = static_cast<double>(of.card_bytes) -
                             static_cast<double>(of.share_bytes);
        const double again = forward_fraction * of.computing_ns;
        // A training step writes activations back, and fetches them again.
        if (of.card_bytes != 0 && in_ram > spare && of.evicted_bytes > 0 &&
            4 * of.evicted_bytes > of.fetched_bytes && of.link_ns > 1.5 * again)
            return "if this trains, checkpointing would be faster than moving "
                   "here: to compute a forward pass again takes about " +
                   time_text(again) + " a step, and the link costs " +
                   time_text(of.link_ns);
        return more_vram(of, in_ram);
    }
    if (of.mapping_ns > large_fraction * of.took_ns)
        return "--away unmapped spares most of the mapping; check the kernels "
               "with --move=check first";
    if (of.program_ns > very_large_fraction * of.took_ns)
        return "the card waits " + time_text(of.program_ns) +
               " a step for the program itself: look at its data loading and "
               "its own thread, not at memory";
    if (of.missed_bytes > 0 && of.link_rate > 0 && in_ram > 0 &&
        of.missed_bytes / static_cast<double>(of.link_rate) * 1e9 >
            very_large_fraction * of.took_ns)
        return more_vram(of, in_ram);
    return "";
}

// Why nothing moves.
const char *said(mobility memory)
{
    switch (memory) {
    case mobility::moves:
    case mobility::unasked:
        break;
    case mobility::off:
        return "--move=off";
    case mobility::pages:
        return "--store pages";
    case mobility::impossible:
        return "no HOST_NUMA memory";
    case mobility::checked:
        return "--move=check";
    }
    return "--move is not set";
}

const char *said(treatment is)
{
    switch (is) {
    case treatment::resident:
        return "all of it that can move is in VRAM";
    case treatment::still:
        return "it stands still: that is faster, or being measured";
    case treatment::moving:
        return "it moves ahead of its use";
    case treatment::arranged:
        return "it stands still, arranged as is fastest";
    case treatment::ended:
        break;
    }
    return "it stays where it is";
}

std::string rate_line(const summary &of, const char *way, double bytes)
{
    std::string line = text("  %-15s %10s a step", way, size_of(bytes).c_str());
    const double seconds = of.took_ns / 1e9;
    if (seconds > 0)
        line += ", " + tenths(bytes / seconds / 1e9) + " GB/s";
    return line;
}

std::string crossing_line(const summary &of, const char *way, double bytes)
{
    std::string line = rate_line(of, way, bytes);
    if (const double share = of.link_share(bytes); share >= 0)
        line += text(": %" PRIu64 " %% of the link", rounded(share * 100));
    return line;
}

void describe_steps(const summary &of, std::vector<std::string> &lines)
{
    if (of.steps == 0) {
        lines.emplace_back("  no step of the program is known yet");
        return;
    }
    lines.push_back(
        text("  a step takes %s, of the last %" PRIu64 " (%s)",
             time_text(of.took_ns).c_str(), of.steps,
             of.round > 0 ? text("%" PRIu64 " launches each", of.round).c_str()
                          : "no rhythm: from pause to pause"));
    const auto row = [&](const char *name, double ns, const char *meaning) {
        std::string line = text("  %-15s %10s %s", name, time_text(ns).c_str(),
                                fraction_text(ns, of.took_ns).c_str());
        if (meaning[0] != '\0')
            line += std::string("  ") + meaning;
        lines.push_back(std::move(line));
    };
    row("computing", of.computing_ns,
        reads_in_place(of) ? "with what it reads over the link" : "");
    row("link", of.link_ns, "work waited for memory on its way");
    row("mapping", of.mapping_ns, "work waited for memory to be mapped");
    row("standing still", of.standing_ns,
        "memory was mapped for untrusted kernels");
    row("program", of.program_ns, "the card was given nothing to do");
    lines.push_back(crossing_line(of, "to VRAM", of.link_to_vram()));
    lines.push_back(crossing_line(of, "to RAM", of.link_to_ram()));
    if (of.is_lent()) {
        lines.push_back(rate_line(of, "from cards", of.from_cards_bytes));
        lines.push_back(rate_line(of, "to cards", of.to_cards_bytes));
    }
    if (of.missed_bytes > 0)
        lines.push_back(text("  %-15s %10s a step were given to work %s",
                             "in place", size_of(of.missed_bytes).c_str(),
                             of.is_lent() ? "beyond VRAM" : "in system RAM"));
    if (of.limit_ns > 0)
        lines.push_back(text("  %-15s %10s %s  is reached: no step can be "
                             "shorter",
                             "limit", time_text(of.limit_ns).c_str(),
                             fraction_text(of.limit_ns, of.took_ns).c_str()));
}

// A line for each tier beyond VRAM.
void describe_tiers(const summary &of, std::vector<std::string> &lines)
{
    lines.push_back(text("  %-12s %10s %10s %10s %12s %12s", "beyond VRAM",
                         "HELD", "OF", "AT MOST", "FETCHED", "EVICTED"));
    for (const summary::tier &each : of.beyond) {
        const std::string name = each.card == summary::tier::file ? "file"
                                 : each.card < 0                  ? "system RAM"
                                                 : text("peer:%d", each.card);
        lines.push_back(text("  %-12s %10s %10s %10s %12s %12s", name.c_str(),
                             show_size(each.charged_bytes).text,
                             show_size(each.limit_bytes).text,
                             show_size(each.most_bytes).text,
                             show_size(each.moved.fetched_bytes).text,
                             show_size(each.moved.evicted_bytes).text));
    }
}

// How much of the program's memory lies where, of all that can move.
void describe_beyond(const summary &of, std::vector<std::string> &lines)
{
    const std::uint64_t on_cards = std::min(of.on_cards_bytes, of.in_ram_bytes);
    const std::uint64_t in_file =
        std::min(of.in_file_bytes, of.in_ram_bytes - on_cards);
    const std::string in_ram =
        show_size(of.in_ram_bytes - on_cards - in_file).text;
    if (in_file > 0)
        lines.push_back(text("  %s of the program's memory lie in the file",
                             show_size(in_file).text));
    lines.push_back(
        on_cards == 0
            ? "  " + in_ram + " of the program's memory lie in system RAM"
            : text("  %s of the program's memory lie on other cards, %s in "
                   "system RAM",
                   show_size(on_cards).text, in_ram.c_str()));
}

// The coded copies, and the bytes that have not crossed the link for them.
void describe_packed(const summary &of, std::vector<std::string> &lines)
{
    const packed_bytes &all = of.packed;
    if (all.raw_bytes > 0)
        lines.push_back(text("  coded: %s in %s (%.2f); %s less crossed the "
                             "link so",
                             show_size(all.raw_bytes).text,
                             show_size(all.coded_bytes).text,
                             static_cast<double>(all.coded_bytes) /
                                 static_cast<double>(all.raw_bytes),
                             show_size(all.saved_bytes).text));
    if (all.refused_bytes > 0)
        lines.push_back(text("  not coded: %s, which would take more than "
                             "four fifths",
                             show_size(all.refused_bytes).text));
}

void describe_lists(const summary &of, std::vector<std::string> &lines)
{
    if (!of.allocations.empty())
        lines.push_back(text("  %-18s %10s %10s %10s %10s", "crosses most",
                             "BYTES", of.is_lent() ? "BEYOND" : "IN RAM",
                             "TO VRAM", of.is_lent() ? "EVICTED" : "TO RAM"));
    for (const auto &each : of.allocations)
        lines.push_back(text("  %#-18" PRIx64 " %10s %10s %10s %10s",
                             each.address, show_size(each.bytes).text,
                             show_size(each.ram_bytes).text,
                             show_size(each.fetched_bytes).text,
                             show_size(each.evicted_bytes).text));
    if (!of.kernels.empty())
        lines.push_back(text("  not trusted: nothing moves for %s of a step, "
                             "in which these run",
                             time_text(of.untrusted_ns).c_str()));
    for (const auto &each : of.kernels) {
        lines.push_back(text("    %s launches, %s, %s before them",
                             tenths(each.launches).c_str(),
                             time_text(each.busy_ns).c_str(),
                             time_text(each.waited_ns).c_str()));
        lines.push_back("      " + (each.name.empty()
                                        ? std::string("graphs and other work")
                                        : each.name.substr(0, 73)));
        if (!each.why.empty())
            lines.push_back("      for: " + each.why.substr(0, 68));
    }
}

} // namespace

double summary::link_share(double bytes) const
{
    if (link_rate == 0 || took_ns <= 0)
        return -1;
    return bytes / (took_ns / 1e9) / static_cast<double>(link_rate);
}

summary summarize(const device_statistics &of, mobility memory)
{
    summary made;
    made.is = of.is;
    made.charged = of.charged;
    made.link_rate = of.link_rate;
    made.card_bytes = of.card_bytes;
    made.share_bytes = of.share_bytes;
    made.virtual_bytes = of.virtual_bytes;
    made.in_ram_bytes = of.in_ram_bytes;
    made.on_cards_bytes = of.on_cards_bytes;
    made.in_file_bytes = of.in_file_bytes;
    made.packed = of.packed;
    made.stopped = string_of(of.stopped);
    made.steps_ever = of.steps;
    made.round = of.round;
    add_tiers(of, made);
    add_steps(of, made);
    add_lists(of, made);
    if (made.steps > 0 && made.link_rate > 0) {
        // The way to another card has a rate of its own.
        const double excess = made.used_bytes -
                              static_cast<double>(made.share_bytes) -
                              static_cast<double>(made.charged.on_cards().now);
        // Reading in place makes computing slower.
        const double least = reads_in_place(made) ? 0 : made.computing_ns;
        made.limit_ns =
            std::max(least, excess / static_cast<double>(made.link_rate) * 1e9);
    }
    made.advice = advise(made, memory);
    return made;
}

std::vector<std::string> describe(const summary &what, mobility memory)
{
    std::vector<std::string> lines;
    lines.push_back(text(
        "  VRAM %s of %s, system RAM %s of %s",
        show_size(what.charged.vram).text, show_size(what.share_bytes).text,
        show_size(what.charged.ram).text, show_size(what.virtual_bytes).text));
    if (what.charged.lends > 0)
        lines.push_back(text("  %s of that VRAM are lent: memory of another "
                             "device lies there",
                             show_size(what.charged.lends).text));
    if (what.is_lent() || what.has_file())
        describe_tiers(what, lines);
    if (what.charged.most_beyond() == 0) {
        lines.emplace_back("  all of its memory is in VRAM: emuV does not make "
                           "it slow");
        return lines;
    }
    if (memory != mobility::moves) {
        lines.push_back(text("  nothing moves (%s): what lies %s is read there",
                             said(memory),
                             what.is_lent() ? "beyond VRAM" : "in system RAM"));
        return lines;
    }
    describe_beyond(what, lines);
    describe_packed(what, lines);
    lines.push_back(std::string("  ") + said(what.is));
    if (!what.stopped.empty())
        lines.push_back("  " + what.stopped.substr(0, 77));
    describe_steps(what, lines);
    describe_lists(what, lines);
    return lines;
}

} // namespace emuv::cuda
