// SPDX-License-Identifier: LGPL-2.1-or-later
// The user's settings, read once from the environment.
#include "base/settings.hpp"

#include "base/size.hpp"
#include "base/words.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace emuv::cuda {

namespace {

// As for an instance (EMUV_MAX_BYTES): sums of two cannot wrap.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 50;

// An empty variable is one that is not set: that is how a shell's wrapper
// turns a setting off.
std::string_view value(const char *text)
{
    return text != nullptr ? std::string_view(text) : std::string_view();
}

// "0", "0,1,2": instance ids below EMUV_MAX_INSTANCES.
bool read_instances(std::string_view text, std::vector<int> &instances)
{
    int id = -1;
    for (const char c : text) {
        if (c == ',') {
            if (id < 0)
                return false;
            instances.push_back(id);
            id = -1;
            continue;
        }
        if (c < '0' || c > '9')
            return false;
        id = (id < 0 ? 0 : id) * 10 + (c - '0');
        if (id >= 1024)
            return false;
    }
    if (id < 0)
        return false;
    instances.push_back(id);
    return true;
}

// Of "a,b": a comma with nothing before it or behind it.
bool has_empty_name(std::string_view list)
{
    return !list.empty() && (list.front() == ',' || list.back() == ',' ||
                             list.find(",,") != std::string_view::npos);
}

// Reads one setting after the other, and remembers the first that is wrong.
class reader
{
public:
    explicit reader(char *(*get)(const char *name)) : get_(get) {}

    settings read;

    void flag(const char *name, bool &set)
    {
        const char *const given = get_(name);
        if (value(given) == "1")
            set = true;
        else if (!value(given).empty() && value(given) != "0")
            wrong(name, given);
    }

    void size(const char *name, std::optional<std::uint64_t> &bytes)
    {
        const char *const given = get_(name);
        if (value(given).empty())
            return;
        const size_reading size = read_size(value(given));
        if (size.problem == size_problem::none && size.bytes <= max_bytes)
            bytes = size.bytes;
        else
            wrong(name, given);
    }

    /// @param words  by the numbers of Kind
    template <typename Kind, std::size_t Count>
    void choice(const char *name, const char *const (&words)[Count],
                Kind &chosen)
    {
        const char *const given = get_(name);
        if (value(given).empty())
            return;
        const auto *const found =
            std::find(std::begin(words), std::end(words), value(given));
        if (found != std::end(words))
            chosen = static_cast<Kind>(found - std::begin(words));
        else
            wrong(name, given);
    }

    void instances(const char *name, std::vector<int> &ids)
    {
        const char *const given = get_(name);
        if (!value(given).empty() && !read_instances(value(given), ids))
            wrong(name, given);
    }

    void tiers(const char *name, places &all)
    {
        const char *const given = get_(name);
        if (value(given).empty() || value(given) == "none")
            return;
        if (const char *const why = places_reader::read(value(given), all);
            why != nullptr)
            wrong(name, given, why);
    }

    // A default may offer other cards. System RAM and disks are the user's to
    // spend.
    void default_tiers(const char *name, places &all)
    {
        tiers(name, all);
        if (all.packed_bytes > 0 || all.ram_bytes || all.has_file())
            wrong(name, get_(name),
                  "has more than other cards' VRAM: a default may name cards "
                  "alone");
    }

    // System RAM among the tiers is the share of it.
    void share_ram(const char *name)
    {
        if (!read.tiers.ram_bytes)
            return;
        if (!read.instances.empty())
            wrong(name, get_(name),
                  "has system RAM, of which an instance has a share of its "
                  "own");
        else if (read.virtual_bytes)
            wrong(name, get_(name), "has system RAM, and so has EMUV_VIRTUAL");
        read.virtual_bytes = read.tiers.ram_bytes;
    }

    // Memory of these tiers has to move, and is mapped nowhere meanwhile.
    void check_tiers(const char *name)
    {
        if (read.tiers.has_file())
            check_tier(name,
                       "has a file, from which memory has to move: EMUV_MOVE=1 "
                       "is missing",
                       "has a file, and what is there is mapped nowhere: "
                       "EMUV_AWAY=unmapped is missing");
        if (read.tiers.packed_bytes > 0)
            check_tier(name,
                       "has coded copies, of memory that moves: EMUV_MOVE=1 is "
                       "missing",
                       "has coded copies, of memory that is mapped nowhere: "
                       "EMUV_AWAY=unmapped is missing");
    }
    void check_tier(const char *name, const char *stands, const char *is_mapped)
    {
        if (read.move != move_kind::on && read.move != move_kind::always)
            wrong(name, get_(name), stands);
        else if (!read.unmaps())
            wrong(name, get_(name), is_mapped);
    }

    void path(const char *name, const char *&set)
    {
        const char *const given = get_(name);
        if (!value(given).empty())
            set = given;
    }

    void names(const char *name, const char *otherwise, const char *&set)
    {
        set = otherwise;
        path(name, set);
        if (has_empty_name(set))
            wrong(name, set, "has an empty name in it");
    }

    /// The variable to read for a setting that can have a default.
    const char *name_of(const char *name, const char *of_default,
                        said_by &by) const
    {
        by = !value(get_(name)).empty()         ? said_by::user
             : !value(get_(of_default)).empty() ? said_by::defaults
                                                : said_by::nobody;
        return by == said_by::defaults ? of_default : name;
    }

    void wrong(const char *name, const char *text,
               const char *why = "is not understood")
    {
        if (read.wrong_name == nullptr) {
            read.wrong_name = name;
            read.wrong_value = text;
            read.wrong_why = why;
        }
    }

private:
    char *(*get_)(const char *name);
};

// A default gives way where it does not go with what the user asks for. Tiers
// do not: nobody would learn that they are not used.
void check_together(reader &from, char *(*get)(const char *name))
{
    settings &read = from.read;
    const bool pages = read.store == store_kind::pages;
    if (pages && read.move_by == said_by::defaults)
        read.move = move_kind::off;
    if (!read.limited() && read.tiers_by == said_by::defaults)
        read.tiers = {};
    if (read.moves() && pages)
        from.wrong("EMUV_STORE", get("EMUV_STORE"),
                   "does not go with EMUV_MOVE: pages do not move");
    if (!read.tiers.empty() && pages)
        from.wrong("EMUV_STORE", get("EMUV_STORE"),
                   read.tiers_by == said_by::user
                       ? "does not go with EMUV_TIER: pages are system RAM"
                       : "does not go with the instance's tiers, which "
                         "EMUV_TIER=none leaves out: pages are system RAM");
    if (!read.tiers.empty() && !read.limited())
        from.wrong("EMUV_TIER", get("EMUV_TIER"),
                   "has no share to go beyond: EMUV_PHYSICAL or EMUV_INSTANCE "
                   "is missing");
    if (read.record_path != nullptr && read.limited())
        from.wrong("EMUV_RECORD", read.record_path,
                   "does not go with a limit: a tape is of a program by "
                   "itself");
}

} // namespace

// EMUV_READ_KIND(member, variable, words...): reads one.
#define EMUV_READ_CHOICE(member, variable, ...)                                \
    {                                                                          \
        static constexpr const char *words[] = {__VA_ARGS__};                  \
        from.choice(variable, words, from.read.member);                        \
    }
#define EMUV_READ_NAME(member, variable)                                       \
    from.name_of(variable, variable "_DEFAULT", from.read.member##_by)
#define EMUV_READ_SWITCH(member, variable, ...)                                \
    {                                                                          \
        const char *const name = EMUV_READ_NAME(member, variable);             \
        EMUV_READ_CHOICE(member, name, __VA_ARGS__)                            \
    }
#define EMUV_READ_NAMES(member, variable, ...)                                 \
    {                                                                          \
        static constexpr const char *words[] = {__VA_ARGS__};                  \
        from.names(variable, words[0], from.read.member);                      \
    }
#define EMUV_READ_INSTANCES(member, variable, ...)                             \
    from.instances(variable, from.read.member);
#define EMUV_READ_SIZE(member, variable, ...)                                  \
    from.size(variable, from.read.member);
#define EMUV_READ_TIERS(member, variable, ...)                                 \
    EMUV_READ_NAME(member, variable);                                          \
    from.default_tiers(variable "_DEFAULT", from.read.default_##member);       \
    from.tiers(variable, from.read.member);                                    \
    if (from.read.member##_by == said_by::defaults)                            \
        from.read.member = from.read.default_##member;
#define EMUV_READ_FLAG(member, variable, ...)                                  \
    from.flag(variable, from.read.member);
#define EMUV_READ_LEDGER(member, variable, ...)                                \
    from.path(variable, from.read.member);
#define EMUV_READ_OUTPUT EMUV_READ_LEDGER
#define EMUV_READ_LIBRARY(...)

settings read_settings(char *(*get)(const char *name))
{
    reader from(get);
#define EMUV_VALUE(name, word, help, text) word,
#define EMUV_SETTING(kind, member, variable, option, type, needs, help,        \
                     values, text)                                             \
    EMUV_READ_##kind(member, variable, values)
#include "base/settings.def"
    from.share_ram("EMUV_TIER");
    check_together(from, get);
    from.check_tiers("EMUV_TIER");
    return from.read;
}

bool settings::leave_out_lender(int device)
{
    const auto is_of = [device](const tier &each) {
        return each.device == device;
    };
    const auto goes = [device](const tier &each) {
        return each.device >= device;
    };
    if (device < 1 || static_cast<std::size_t>(device) >= instances.size() ||
        std::none_of(default_tiers.cards.begin(), default_tiers.cards.end(),
                     is_of) ||
        (tiers_by == said_by::user &&
         std::any_of(tiers.cards.begin(), tiers.cards.end(), goes)))
        return false;
    instances.resize(static_cast<std::size_t>(device));
    std::erase_if(tiers.cards, goes);
    return true;
}

bool settings::unmaps() const
{
    if (away != away_kind::automatic)
        return away == away_kind::unmapped;
    return trust == nullptr || !any_word(trust, [](const char *word) {
               const std::string_view text = word;
               return text != "proven" && text != "known" && text != "none" &&
                      text.front() != '-';
           });
}

} // namespace emuv::cuda
