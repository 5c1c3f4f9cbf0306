// SPDX-License-Identifier: LGPL-2.1-or-later
// The driver and its instances as /sys shows them.
#include "entries.hpp"

#include <emuv/error.hpp>
#include <emuv/sysfs.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace emuv {

namespace {

// One page is all that a sysfs attribute can hold.
constexpr std::size_t attribute_max = 4096;

// The content of an attribute, or the errno that kept it away.
std::pair<std::string, int> read_attribute(const std::filesystem::path &path)
{
    const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        return {{}, errno};
    std::string text(attribute_max, '\0');
    std::size_t length = 0;
    while (length < text.size()) {
        const ssize_t got =
            ::read(file.get(), text.data() + length, text.size() - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return {{}, errno};
        if (got == 0)
            break;
        length += static_cast<std::size_t>(got);
    }
    text.resize(length);
    return {std::move(text), 0};
}

void chomp(std::string &text)
{
    if (!text.empty() && text.back() == '\n')
        text.pop_back();
}

// The attributes of one instance. A missing file is an error of the tree, or
// the sign that the instance went away while it was read: the caller looks.
class attributes
{
public:
    explicit attributes(std::filesystem::path directory)
        : directory_(std::move(directory))
    {}

    bool has(const char *name) const
    {
        std::error_code ignored;
        return std::filesystem::exists(directory_ / name, ignored);
    }

    std::string text(const char *name) const
    {
        auto [value, errnum] = read_attribute(directory_ / name);
        if (errnum != 0)
            throw error(errnum, (directory_ / name).string(), "read");
        chomp(value);
        return std::move(value);
    }

    template <typename T = std::uint64_t>
    T number(const char *name, int base = 10) const
    {
        const std::string value = text(name);
        const char *begin = value.data();
        const char *const end = begin + value.size();
        if (base == 16 && value.starts_with("0x"))
            begin += 2;
        T result{};
        const auto [stop, problem] = std::from_chars(begin, end, result, base);
        if (problem != std::errc() || stop != end || begin == end)
            throw error(EPROTO, (directory_ / name).string(), "read");
        return result;
    }

private:
    std::filesystem::path directory_;
};

} // namespace

std::optional<std::string> read_line_file(const std::filesystem::path &path)
{
    auto [text, errnum] = read_attribute(path);
    if (errnum != 0)
        return std::nullopt;
    chomp(text);
    return std::move(text);
}

std::optional<int> parse_instance(std::string_view text)
{
    if (const auto slash = text.rfind('/'); slash != std::string_view::npos)
        text.remove_prefix(slash + 1);
    if (text.starts_with("emuv"))
        text.remove_prefix(4);
    int id = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, id);
    // No sign, and no leading zero: emuv01 is not the name of any node.
    if (problem != std::errc() || stop != end || text.front() == '-' ||
        (text.front() == '0' && text.size() > 1))
        return std::nullopt;
    return id;
}

sysfs::sysfs(std::filesystem::path root) : root_(std::move(root)) {}

std::filesystem::path sysfs::default_root()
{
    const char *const root = std::getenv("EMUV_SYSFS_ROOT");
    return root != nullptr && *root != '\0' ? root : "/sys";
}

std::filesystem::path sysfs::directory(int id) const
{
    return root_ / "class/emuv" / instance_name(id);
}

bool sysfs::loaded() const
{
    std::error_code ignored;
    return std::filesystem::is_directory(root_ / "module/emuv", ignored);
}

std::optional<std::string> sysfs::module_version() const
{
    return read_line_file(root_ / "module/emuv/version");
}

std::optional<std::string> sysfs::parameter(std::string_view name) const
{
    return read_line_file(root_ / "module/emuv/parameters" / name);
}

std::vector<int> sysfs::ids() const
{
    std::vector<int> all;
    for (const auto &entry : entries(root_ / "class/emuv")) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("emuv"))
            continue;
        if (const auto id = parse_instance(name))
            all.push_back(*id);
    }
    std::sort(all.begin(), all.end());
    return all;
}

std::optional<instance_info> sysfs::instance(int id) const
{
    const attributes of(directory(id));
    instance_info info;
    try {
        info.id = id;
        info.gpu_model = of.text("gpu_model");
        info.physical_bytes = of.number("physical_bytes");
        info.virtual_bytes = of.number("virtual_bytes");
        info.physical_used_bytes = of.number("physical_used_bytes");
        info.virtual_used_bytes = of.number("virtual_used_bytes");
        info.unowned_bytes = of.number("unowned_bytes");
        info.resident_bytes = of.number("resident_bytes");
        // An older module of this ABI has no such attributes.
        if (of.has("guaranteed")) {
            info.reserve_bytes = of.number("reserve_bytes");
            info.guaranteed = of.number<int>("guaranteed") != 0;
        }
        info.client_virtual_bytes = of.has("client_virtual_bytes")
                                        ? of.number("client_virtual_bytes")
                                        : info.virtual_bytes;
        if (of.has("swap")) {
            info.swapped_bytes = of.number("swapped_bytes");
            info.swaps = of.number<int>("swap") != 0;
        }
        info.chunk_bytes = of.number("chunk_bytes");
        info.clients = of.number<std::uint32_t>("clients");
        info.numa_node = of.number<int>("numa_node");
        if (of.has("numa_bind"))
            info.numa_bind = of.number<int>("numa_bind") != 0;
        info.pci_device_id = of.number<std::uint16_t>("pci_device_id", 16);
        info.uuid = of.text("uuid");
        info.moved.fetched_bytes = of.number("fetched_bytes");
        info.moved.evicted_bytes = of.number("evicted_bytes");
        info.moved.spills = of.number("spills");
        info.moved.faults = of.number("faults");
        info.moved.hit_bytes = of.number("hit_bytes");
        info.moved.miss_bytes = of.number("miss_bytes");
        info.moved.stalled_ns = of.number("stalled_ns");
    } catch (const error &) {
        // Destroyed while it was being read, or never there: no error.
        std::error_code ignored;
        if (!std::filesystem::exists(directory(id), ignored))
            return std::nullopt;
        throw;
    }
    return info;
}

std::vector<instance_info> sysfs::instances() const
{
    std::vector<instance_info> all;
    for (const int id : ids())
        if (auto info = instance(id))
            all.push_back(std::move(*info));
    return all;
}

std::map<int, std::string> sysfs::uuids() const
{
    std::map<int, std::string> all;
    for (const int id : ids()) {
        try {
            all.emplace(id, attributes(directory(id)).text("uuid"));
        } catch (const error &) {
            std::error_code ignored;
            if (std::filesystem::exists(directory(id), ignored))
                throw;
        }
    }
    return all;
}

std::optional<std::string> sysfs::vram_info(int id) const
{
    auto [text, errnum] = read_attribute(directory(id) / "vram_info");
    if (errnum != 0)
        return std::nullopt;
    return std::move(text);
}

} // namespace emuv
