// SPDX-License-Identifier: GPL-2.0-or-later
// Tells what a file is that was taken for the kernel module.
#include "module_file.hpp"

#include "output.hpp"

#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace {

// A file of which only what is asked for is read.
class file
{
public:
    explicit file(const std::filesystem::path &path)
        : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))
    {
        struct stat about = {};
        if (fd_ && ::fstat(fd_.get(), &about) == 0) {
            mode_ = about.st_mode;
            size_ = static_cast<std::uint64_t>(about.st_size);
        }
    }

    [[nodiscard]] mode_t mode() const { return mode_; } // 0: not to be read
    [[nodiscard]] std::uint64_t size() const { return size_; }

    // That many bytes from a place on, or none if they are not all there.
    [[nodiscard]] std::optional<std::string> at(std::uint64_t offset,
                                                std::uint64_t bytes) const
    {
        constexpr std::uint64_t most = 64 << 20;
        if (offset > size_ || bytes > size_ - offset || bytes > most)
            return std::nullopt;
        std::string text(bytes, '\0');
        for (std::size_t done = 0; done < text.size();) {
            const ssize_t got =
                ::pread(fd_.get(), text.data() + done, text.size() - done,
                        static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return std::nullopt;
            done += static_cast<std::size_t>(got);
        }
        return text;
    }

    template <typename Type>
    [[nodiscard]] std::optional<Type> read(std::uint64_t offset) const
    {
        const auto text = at(offset, sizeof(Type));
        if (!text)
            return std::nullopt;
        Type value;
        std::memcpy(&value, text->data(), sizeof(value));
        return value;
    }

private:
    emuv::unique_fd fd_;
    mode_t mode_ = 0;
    std::uint64_t size_ = 0;
};

std::string of_machine(unsigned machine)
{
    switch (machine) {
    case EM_X86_64:
        return "x86-64";
    case EM_386:
        return "32-bit x86";
    case EM_AARCH64:
        return "arm64";
    case EM_RISCV:
        return "RISC-V";
    default:
        return fmt::format("ELF machine {}", machine);
    }
}

std::string kind_of(const Elf64_Ehdr &head)
{
    switch (head.e_type) {
    case ET_EXEC:
        return "a program";
    case ET_DYN:
        return "a program or shared library";
    case ET_CORE:
        return "a core dump";
    default:
        return fmt::format("an ELF file of type {}", head.e_type);
    }
}

// The value of a key in a module's section .modinfo; empty if it has none.
std::string_view key(std::string_view info, std::string_view name)
{
    while (!info.empty()) {
        const auto one = info.substr(0, info.find('\0'));
        if (one.size() > name.size() && one.starts_with(name) &&
            one[name.size()] == '=')
            return one.substr(name.size() + 1);
        info.remove_prefix(std::min(info.size(), one.size() + 1));
    }
    return {};
}

std::string cut_off(std::uint64_t has, std::uint64_t needed)
{
    return fmt::format("an ELF file that is cut off: it has {} of at least {} "
                       "bytes",
                       has, needed);
}

std::string judge(const file &from, const Elf64_Ehdr &head,
                  std::string_view release)
{
    if (head.e_type != ET_REL)
        return fmt::format("{} of {}, not a kernel module", kind_of(head),
                           of_machine(head.e_machine));
    const std::uint64_t end =
        head.e_shoff + std::uint64_t{head.e_shnum} * sizeof(Elf64_Shdr);
    if (end > from.size())
        return cut_off(from.size(), end);
    std::vector<Elf64_Shdr> sections;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        const auto one =
            from.read<Elf64_Shdr>(head.e_shoff + i * sizeof(Elf64_Shdr));
        if (!one)
            return {};
        if (one->sh_type != SHT_NOBITS &&
            one->sh_offset + one->sh_size > from.size())
            return cut_off(from.size(), one->sh_offset + one->sh_size);
        sections.push_back(*one);
    }
    std::optional<std::string> names;
    if (head.e_shstrndx < sections.size())
        names = from.at(sections[head.e_shstrndx].sh_offset,
                        sections[head.e_shstrndx].sh_size);
    std::optional<std::string> info;
    for (const auto &one : sections)
        if (names && one.sh_name < names->size() &&
            std::string_view(names->c_str() + one.sh_name) == ".modinfo")
            info = from.at(one.sh_offset, one.sh_size);
    if (!info)
        return "an object file, not a kernel module: it has no .modinfo";
    const auto name = key(*info, "name");
    if (!name.empty() && name != "emuv")
        return fmt::format("the kernel module {}, not emuV's", printable(name));
    if (head.e_machine != EM_X86_64)
        return "a kernel module for " + of_machine(head.e_machine);
    const auto magic = key(*info, "vermagic");
    const auto built_for = magic.substr(0, magic.find(' '));
    if (!release.empty() && built_for != release)
        return fmt::format("emuV's module for {}, and {} is running",
                           built_for.empty() ? "no kernel that it names"
                                             : printable(built_for),
                           release);
    return {};
}

} // namespace

std::string why_no_module(const std::filesystem::path &path,
                          std::string_view release)
{
    const file from(path);
    if (from.mode() == 0)
        return {};
    if (S_ISDIR(from.mode()))
        return "a folder, not a kernel module";
    if (!S_ISREG(from.mode()))
        return "no regular file, so not a kernel module";
    if (from.size() == 0)
        return "an empty file";
    const auto start = from.at(0, std::min<std::uint64_t>(from.size(), 6));
    if (!start)
        return {};
    using namespace std::literals;
    for (const auto packed : {"\x1f\x8b"sv,
                              "\xfd"
                              "7zXZ"sv,
                              "\x28\xb5\x2f\xfd"sv})
        if (start->starts_with(packed))
            return {};
    if (!start->starts_with(ELFMAG))
        return start->starts_with("#!") ? "a script, not a kernel module"
                                        : "no ELF file, so not a kernel module";
    const auto head = from.read<Elf64_Ehdr>(0);
    if (!head)
        return cut_off(from.size(), sizeof(Elf64_Ehdr));
    if (head->e_ident[EI_CLASS] != ELFCLASS64 ||
        head->e_ident[EI_DATA] != ELFDATA2LSB)
        return "an ELF file of another kind of machine, not a module for this "
               "kernel";
    return judge(from, *head, release);
}

} // namespace emuvctl
