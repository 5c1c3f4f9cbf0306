// SPDX-License-Identifier: LGPL-2.1-or-later
// Reading and writing profile files.
//
// inih takes a line apart; this file decides about its contents. inih cuts long
// lines and section names in silence. It takes an indented line for the
// continuation of a value, and tells the line of the first error only. So the
// reader here hands it one line at a time, without its indentation, and refuses
// lines that it would cut.
#include "quoted.hpp"

#include <emuv/error.hpp>
#include <emuv/profile.hpp>
#include <emuv/size.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <ini.h>
#include <unistd.h>

namespace emuv {

namespace {

constexpr std::size_t line_max = 190;     // inih's buffer holds 200
constexpr std::size_t section_max = 48;   // inih's holds 50
constexpr std::size_t file_max = 1 << 20; // no profile file is larger
constexpr std::size_t errors_max = 20;    // per run; nobody reads more
constexpr int numa_node_max = 1023;
constexpr unsigned gib_shift = 30;
constexpr unsigned mib_shift = 20;

constexpr std::array<std::string_view, 15> known_keys = {"gpu_model",
                                                         "physical_vram_gb",
                                                         "physical_vram_mb",
                                                         "virtual_vram_gb",
                                                         "virtual_vram_mb",
                                                         "pci_device_id",
                                                         "instance_id",
                                                         "numa_node",
                                                         "count",
                                                         "overcommit",
                                                         "guaranteed",
                                                         "client_virtual_mb",
                                                         "numa_bind",
                                                         "swap",
                                                         "tier"};

bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

std::string_view trim(std::string_view text)
{
    while (!text.empty() && is_blank(text.front()))
        text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back()))
        text.remove_suffix(1);
    return text;
}

bool is_comment(std::string_view trimmed)
{
    return trimmed.starts_with('#') || trimmed.starts_with(';');
}

std::string list_keys()
{
    std::string list;
    for (const auto key : known_keys)
        list.append(list.empty() ? "" : ", ").append(key);
    return list;
}

std::string at_line(const std::string &file, int line)
{
    return file + ":" + std::to_string(line);
}

// The file may be read in any folder.
std::string parse_path(std::string_view text)
{
    if (text.front() != '/')
        throw std::invalid_argument(quoted(text) +
                                    " does not begin with a slash");
    return std::string(text);
}

bool parse_bool(std::string_view text)
{
    for (const std::string_view yes : {"1", "yes", "true", "on"})
        if (text == yes)
            return true;
    for (const std::string_view no : {"0", "no", "false", "off"})
        if (text == no)
            return false;
    throw std::invalid_argument(quoted(text) + " is neither yes nor no");
}

// A whole file, or why it cannot be read.
std::pair<std::string, std::optional<std::string>>
read_file(const std::filesystem::path &path)
{
    const bool standard_input = path == "-";
    unique_fd file(standard_input ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                  : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        return {{}, errno_text(errno)};
    std::string text;
    std::array<char, 16384> block;
    for (;;) {
        const ssize_t got = ::read(file.get(), block.data(), block.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return {{}, errno_text(errno)};
        if (got == 0)
            return {std::move(text), std::nullopt};
        text.append(block.data(), static_cast<std::size_t>(got));
        if (text.size() > file_max)
            return {{}, "is larger than 1 MiB; that is no profile file"};
    }
}

} // namespace

std::vector<instance_spec> profile::instances() const
{
    std::vector<instance_spec> all(count, spec);
    if (spec.id != any)
        for (unsigned i = 0; i < count; i++)
            all[i].id = spec.id + static_cast<int>(i);
    return all;
}

profile_error::profile_error(std::vector<std::string> messages)
    : std::runtime_error(messages.empty() ? "" : messages.front()),
      messages_(std::move(messages))
{}

long long parse_integer(std::string_view text, long long low, long long high)
{
    long long value = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value);
    if (problem == std::errc::invalid_argument || stop != end)
        throw std::invalid_argument(quoted(text) + " is not a whole number");
    if (problem != std::errc() || value < low || value > high)
        throw std::invalid_argument(quoted(text) + " is not between " +
                                    std::to_string(low) + " and " +
                                    std::to_string(high));
    return value;
}

std::uint16_t parse_pci_device_id(std::string_view text)
{
    std::string_view digits = text;
    unsigned value = 0;
    const bool prefix = digits.starts_with("0x") || digits.starts_with("0X");
    digits.remove_prefix(prefix ? 2 : 0);
    const char *const end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, value, 16);
    if (!prefix || problem != std::errc() || stop != end || value < 1 ||
        value > std::numeric_limits<std::uint16_t>::max())
        throw std::invalid_argument(
            quoted(text) +
            " is not a PCI device id; one is written as 0x2684, from 0x1 to "
            "0xffff");
    return static_cast<std::uint16_t>(value);
}

void check_gpu_model_label(std::string_view label)
{
    if (label.empty())
        throw std::invalid_argument("the name is empty");
    if (label.size() >= EMUV_MODEL_LEN)
        throw std::invalid_argument(
            quoted(label) + " has " + std::to_string(label.size()) +
            " characters; at most " + std::to_string(EMUV_MODEL_LEN - 1) +
            " are allowed");
    if (!std::all_of(label.begin(), label.end(),
                     [](char c) { return c >= 0x20 && c < 0x7f; }))
        throw std::invalid_argument(quoted(label) + " is not printable ASCII");
    // A profile file could not hold these: it takes them for its own.
    if (trim(label) != label || label.find('"') != std::string_view::npos ||
        label.find(" ;") != std::string_view::npos ||
        label.find(" #") != std::string_view::npos || is_comment(label))
        throw std::invalid_argument(
            quoted(label) +
            " has a blank at an end, a quote, or a comment sign in it");
}

void check_instance_sizes(std::uint64_t physical_bytes,
                          std::uint64_t virtual_bytes)
{
    if (virtual_bytes % EMUV_CHUNK_BYTES != 0)
        throw std::invalid_argument(
            "virtual VRAM of " + format_size_exact(virtual_bytes) +
            " is not a multiple of " + format_size_exact(EMUV_CHUNK_BYTES));
    if (physical_bytes == 0 && virtual_bytes == 0)
        throw std::invalid_argument(
            "physical and virtual VRAM must not both be 0");
    if (physical_bytes > EMUV_MAX_BYTES ||
        virtual_bytes > EMUV_MAX_BYTES - physical_bytes)
        throw std::invalid_argument(
            "physical and virtual VRAM are " +
            format_size_exact(physical_bytes) + " and " +
            format_size_exact(virtual_bytes) + "; at most " +
            format_size_exact(EMUV_MAX_BYTES) + " together are allowed");
}

std::uint64_t parse_client_size(std::string_view text, unsigned shift)
{
    const std::uint64_t bytes = parse_size(text, shift);
    if (bytes % EMUV_CHUNK_BYTES != 0 || bytes > EMUV_MAX_BYTES)
        throw std::invalid_argument(
            "a client's part of " + format_size_exact(bytes) +
            " is not a multiple of " + format_size_exact(EMUV_CHUNK_BYTES) +
            " up to " + format_size_exact(EMUV_MAX_BYTES));
    return bytes;
}

// Feeds inih with a text line by line and takes its pairs, knowing the line.
class profile_parser::file_reader
{
public:
    file_reader(profile_parser &parser, std::string_view text,
                const std::string &file)
        : parser_(parser), rest_(text), file_(file)
    {
        if (rest_.starts_with("\xef\xbb\xbf"))
            rest_.remove_prefix(3);
    }

    void run()
    {
        ini_parse_stream(&file_reader::next_line, this, &file_reader::pair,
                         this);
        finish_line();
    }

private:
    // inih's reader: one line into buffer, or null at the end.
    static char *next_line(char *buffer, int size, void *self)
    {
        auto &reader = *static_cast<file_reader *>(self);
        reader.finish_line();
        std::string_view line;
        if (!reader.take_line(line))
            return nullptr;
        if (line.size() + 2 > static_cast<std::size_t>(size))
            line = {}; // take_line() is stricter
        std::copy(line.begin(), line.end(), buffer);
        buffer[line.size()] = '\n';
        buffer[line.size() + 1] = '\0';
        return buffer;
    }

    // inih's handler of "name = value".
    static int pair(void *self, const char * /*section*/, const char *name,
                    const char *value)
    {
        auto &reader = *static_cast<file_reader *>(self);
        reader.pending_ = false;
        reader.take_pair(name, value);
        return 1;
    }

    void error(const std::string &message)
    {
        parser_.error(file_, line_, message);
    }

    // The next line as inih should see it: empty if it should see nothing.
    bool take_line(std::string_view &line)
    {
        if (rest_.empty())
            return false;
        const auto newline = rest_.find('\n');
        line = rest_.substr(0, newline);
        rest_.remove_prefix(newline == std::string_view::npos ? rest_.size()
                                                              : newline + 1);
        line_++;
        line = trim(line);
        if (line.find('\0') != std::string_view::npos) {
            error("the line holds a NUL byte; this is no text file");
            line = {};
        } else if (line.empty() || is_comment(line))
            line = {};
        else if (line.size() > line_max) {
            error("the line has " + std::to_string(line.size()) +
                  " characters; at most " + std::to_string(line_max) +
                  " are allowed");
            line = {};
        } else if (line.starts_with('['))
            take_section(line);
        else
            pending_ = true;
        return true;
    }

    // A pair that inih did not recognise as one.
    void finish_line()
    {
        if (std::exchange(pending_, false))
            error("neither a [profile] nor KEY=VALUE nor a comment");
    }

    // A line that begins with '['; it is emptied if inih is not to see it.
    void take_section(std::string_view &line)
    {
        section_ = section::broken;
        const auto end = line.find(']');
        const std::string_view name =
            line.substr(1, end == std::string_view::npos ? end : end - 1);
        const std::string_view behind =
            end == std::string_view::npos ? "" : trim(line.substr(end + 1));
        line = {};
        if (end == std::string_view::npos)
            return error("the profile's name lacks its ']'");
        if (!behind.empty() && !is_comment(behind))
            return error("unexpected " + quoted(behind) + " behind [" +
                         std::string(name) + "]");
        if (name.empty() || trim(name) != name)
            return error("a profile's name must not be empty nor begin or "
                         "end with a blank");
        if (name.size() > section_max)
            return error("the profile's name has " +
                         std::to_string(name.size()) + " characters; at most " +
                         std::to_string(section_max) + " are allowed");
        if (std::any_of(name.begin(), name.end(), [](char c) {
                return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
            }))
            return error("the profile's name holds a control character");
        for (const auto &other : parser_.drafts_)
            if (other.result.name == name)
                return error("duplicate profile [" + std::string(name) +
                             "], first at " +
                             at_line(other.result.file, other.result.line));
        section_ = section::open;
        draft fresh;
        fresh.result.name = name;
        fresh.result.file = file_;
        fresh.result.line = line_;
        fresh.result.model_given = false;
        fresh.result.physical_given = false;
        parser_.drafts_.push_back(std::move(fresh));
    }

    void take_pair(std::string_view name, std::string_view value)
    {
        // inih ends a value at " ;"; people write " #" as well.
        for (std::size_t i = 0; i < value.size(); i++)
            if (value[i] == '#' && (i == 0 || is_blank(value[i - 1])))
                value = trim(value.substr(0, i));
        switch (section_) {
        case section::none:
            error(quoted(name) + " stands before the first [profile]");
            break;
        case section::broken: // its keys belong to nothing
            break;
        case section::open:
            parser_.set(parser_.drafts_.back(), name, value, file_, line_);
            break;
        }
    }

    enum class section
    {
        none,
        broken,
        open
    };

    profile_parser &parser_;
    std::string_view rest_;
    std::string file_;
    int line_ = 0;
    bool pending_ = false; // a pair was handed to inih
    section section_ = section::none;
};

void profile_parser::add(std::string_view text, const std::string &file)
{
    file_reader(*this, text, file).run();
}

void profile_parser::fail(const std::string &file, const std::string &why)
{
    errors_.push_back(file + ": " + why);
}

void profile_parser::error(const std::string &file, int line,
                           const std::string &message)
{
    errors_.push_back(at_line(file, line) + ": " + message);
}

void profile_parser::set(draft &target, std::string_view key,
                         std::string_view value, const std::string &file,
                         int line)
{
    const auto fail_here = [&](const std::string &message) {
        error(file, line, message);
    };

    if (std::find(known_keys.begin(), known_keys.end(), key) ==
        known_keys.end())
        return fail_here("unknown key " + quoted(key) + "; known are " +
                         list_keys());
    if (const auto first = target.lines.find(key); first != target.lines.end())
        return fail_here("duplicate key " + quoted(key) + ", first at line " +
                         std::to_string(first->second));
    target.lines.emplace(key, line);
    target.result.model_given |= key == "gpu_model";
    target.result.physical_given |= key.starts_with("physical_vram");

    // A size can be given in either of two units.
    std::string twin(key);
    if (key.ends_with("_gb") || key.ends_with("_mb")) {
        twin.replace(twin.size() - 2, 2, key.ends_with("_gb") ? "mb" : "gb");
        if (const auto other = target.lines.find(twin);
            other != target.lines.end())
            return fail_here(std::string(key) + " and " + twin + " (line " +
                             std::to_string(other->second) +
                             ") exclude each other; give one of them");
    }

    if (value.empty())
        return fail_here(std::string(key) + ": the value is missing");
    instance_spec &spec = target.result.spec;
    const unsigned shift = key.ends_with("_gb") ? gib_shift : mib_shift;
    try {
        if (key == "gpu_model") {
            if (value.size() > 1 && value.starts_with('"') &&
                value.ends_with('"'))
                value = value.substr(1, value.size() - 2);
            check_gpu_model_label(value);
            spec.gpu_model = value;
        } else if (key.starts_with("physical_vram"))
            spec.physical_bytes = parse_size(value, shift);
        else if (key.starts_with("virtual_vram"))
            spec.virtual_bytes = parse_size(value, shift);
        else if (key == "pci_device_id")
            spec.pci_device_id = parse_pci_device_id(value);
        else if (key == "instance_id")
            spec.id = static_cast<int>(
                parse_integer(value, 0, EMUV_MAX_INSTANCES - 1));
        else if (key == "numa_node")
            spec.numa_node =
                static_cast<int>(parse_integer(value, -1, numa_node_max));
        else if (key == "count")
            target.result.count = static_cast<unsigned>(
                parse_integer(value, 1, EMUV_MAX_INSTANCES));
        else if (key == "client_virtual_mb")
            spec.client_virtual_bytes = parse_client_size(value, shift);
        else if (key == "overcommit")
            spec.overcommit = parse_bool(value);
        else if (key == "numa_bind")
            spec.numa_bind = parse_bool(value);
        else if (key == "swap")
            spec.swap = parse_path(value);
        else if (key == "tier")
            target.result.tiers = parse_tiers(value);
        else
            spec.guaranteed = parse_bool(value);
    } catch (const std::invalid_argument &problem) {
        fail_here(std::string(key) + ": " + problem.what());
    }
}

void profile_parser::check(const draft &complete)
{
    const profile &what = complete.result;
    const auto has = [&](std::string_view key) {
        return complete.lines.contains(key);
    };
    const std::string name = "[" + what.name + "] ";
    const bool memory = has("virtual_vram_gb") || has("virtual_vram_mb");
    if (!memory)
        error(what.file, what.line,
              name + "lacks virtual_vram_gb or virtual_vram_mb");
    if (what.physical_given && memory) {
        try {
            check_instance_sizes(what.spec.physical_bytes,
                                 what.spec.virtual_bytes);
        } catch (const std::invalid_argument &problem) {
            error(what.file, what.line, name + problem.what());
        }
    }
    if (what.spec.overcommit && what.spec.guaranteed)
        error(what.file, what.line,
              name + "is both guaranteed and overcommit; it can be one of "
                     "them");
    if (what.spec.guaranteed && !what.spec.swap.empty())
        error(what.file, what.line,
              name + "is guaranteed and has swap; memory that is reserved "
                     "never leaves RAM");
    if (what.spec.numa_bind && what.spec.numa_node == any)
        error(what.file, what.line, name + "has numa_bind but no numa_node");
    if (what.spec.id != any &&
        what.spec.id + static_cast<int>(what.count) > EMUV_MAX_INSTANCES)
        error(what.file, what.line,
              name + "counts up to instance " +
                  std::to_string(what.spec.id + static_cast<int>(what.count) -
                                 1) +
                  "; the last one is " +
                  std::to_string(EMUV_MAX_INSTANCES - 1));
}

std::vector<profile> profile_parser::finish()
{
    // Look for missing keys and for conflicts of sections only when each line
    // in itself is right.
    if (errors_.empty())
        for (const auto &one : drafts_)
            check(one);
    std::map<int, const profile *> ids;
    std::size_t total = 0;
    for (const auto &one : drafts_) {
        const profile &what = one.result;
        total += what.count;
        if (!errors_.empty() || what.spec.id == any)
            continue;
        for (const auto &spec : what.instances()) {
            const auto [owner, fresh] = ids.emplace(spec.id, &what);
            if (fresh)
                continue;
            error(what.file, what.line,
                  "[" + what.name + "] wants instance " +
                      std::to_string(spec.id) + ", as [" + owner->second->name +
                      "] at " +
                      at_line(owner->second->file, owner->second->line) +
                      " does");
            break;
        }
    }
    if (errors_.empty() && total > EMUV_MAX_INSTANCES)
        errors_.push_back(drafts_.back().result.file +
                          ": all profiles "
                          "together are " +
                          std::to_string(total) + " instances; at most " +
                          std::to_string(EMUV_MAX_INSTANCES) + " are possible");
    if (errors_.size() > errors_max) {
        const std::size_t more = errors_.size() - errors_max;
        errors_.resize(errors_max);
        errors_.push_back("... and " + std::to_string(more) + " more errors");
    }
    if (!errors_.empty())
        throw profile_error(std::move(errors_));
    std::vector<profile> all;
    all.reserve(drafts_.size());
    for (auto &one : drafts_)
        all.push_back(std::move(one.result));
    drafts_.clear();
    return all;
}

std::vector<profile> parse_profiles(std::string_view text,
                                    const std::string &file)
{
    profile_parser parser;
    parser.add(text, file);
    return parser.finish();
}

std::vector<profile> load_profiles(const std::filesystem::path &file)
{
    std::vector<std::filesystem::path> files{file};
    std::error_code problem;
    if (file != "-") {
        std::filesystem::path folder = file;
        folder += ".d";
        std::filesystem::directory_iterator entry(folder, problem);
        for (; !problem && entry != std::filesystem::directory_iterator();
             entry.increment(problem))
            if (entry->path().extension() == ".conf" &&
                !entry->path().filename().string().starts_with('.'))
                files.push_back(entry->path());
        std::sort(files.begin() + 1, files.end());
    }

    profile_parser parser;
    if (problem && problem != std::errc::no_such_file_or_directory)
        parser.fail(file.string() + ".d", errno_text(problem.value()));
    for (const auto &path : files) {
        std::error_code ignored;
        const bool optional = &path == &files.front() && files.size() > 1 &&
                              !std::filesystem::exists(path, ignored);
        if (optional)
            continue;
        const std::string name = path == "-" ? "<stdin>" : path.string();
        const auto [text, why] = read_file(path);
        if (why)
            parser.fail(name, *why);
        else
            parser.add(text, name);
    }
    return parser.finish();
}

std::filesystem::path default_profile_file()
{
    const char *const file = std::getenv("EMUV_CONFIG");
    return file != nullptr && *file != '\0' ? file
                                            : "/etc/emuv/vgpu-profiles.conf";
}

std::string format_profile(const profile &what)
{
    const instance_spec &spec = what.spec;
    const auto size = [](const char *key, std::uint64_t bytes) {
        const bool gib = bytes % (1ULL << gib_shift) == 0;
        return std::string(key) + (gib ? "_gb=" : "_mb=") +
               format_decimal(bytes, gib ? gib_shift : mib_shift) + "\n";
    };
    std::string text = "[" + what.name + "]\n";
    if (what.model_given)
        text += "gpu_model=" + spec.gpu_model + "\n";
    if (what.physical_given)
        text += size("physical_vram", spec.physical_bytes);
    text += size("virtual_vram", spec.virtual_bytes);
    if (spec.client_virtual_bytes != 0)
        text += "client_virtual_mb=" +
                format_decimal(spec.client_virtual_bytes, mib_shift) + "\n";
    if (spec.pci_device_id != 0) {
        static constexpr std::string_view digits = "0123456789abcdef";
        text += "pci_device_id=0x";
        for (int shift = 12; shift >= 0; shift -= 4)
            text +=
                digits[(spec.pci_device_id >> static_cast<unsigned>(shift)) &
                       15U];
        text += "\n";
    }
    if (spec.id != any)
        text += "instance_id=" + std::to_string(spec.id) + "\n";
    if (spec.numa_node != any)
        text += "numa_node=" + std::to_string(spec.numa_node) + "\n";
    if (spec.numa_bind)
        text += "numa_bind=yes\n";
    if (what.count != 1)
        text += "count=" + std::to_string(what.count) + "\n";
    if (spec.overcommit)
        text += "overcommit=yes\n";
    if (spec.guaranteed)
        text += "guaranteed=yes\n";
    if (!spec.swap.empty())
        text += "swap=" + spec.swap + "\n";
    if (!what.tiers.empty())
        text += "tier=" + format_tiers(what.tiers) + "\n";
    return text;
}

} // namespace emuv
