// SPDX-License-Identifier: LGPL-2.1-or-later
// Files of machine code for one architecture.
#include "proof/cubin.hpp"

#include "proof/elf.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace emuv::cuda::proof {

namespace {

constexpr std::uint8_t cuda_abi_old = 0x33;
constexpr std::uint8_t cuda_abi = 0x41;
constexpr std::uint32_t symbol_table = 2;
constexpr std::uint32_t with_addends = 4;
constexpr std::uint32_t without_addends = 9;
constexpr std::uint64_t symbol_bytes = 24;
constexpr unsigned is_object = 1;
constexpr unsigned is_function = 2;
constexpr unsigned is_entry_point = 0x10; // in the symbol's other flags

// Attributes of a kernel.
constexpr std::uint8_t of_value = 4; // with bytes of their own
constexpr std::uint8_t parameter_bank_attribute = 0x0a;
constexpr std::uint8_t branch_targets = 0x34;

struct symbol
{
    std::string_view name;
    unsigned type = 0;
    unsigned other = 0;
    std::uint32_t section = 0;
    std::uint64_t value = 0;
};

unsigned sm_of(const elf &file)
{
    // The offset of the number changed.
    return file.abi == cuda_abi ? file.flags >> 8 & 0xff : file.flags & 0xff;
}

symbol symbol_at(const elf &file, const section &table, std::uint64_t number)
{
    symbol made;
    const bytes one =
        subspan_of(table.content, number * symbol_bytes, symbol_bytes);
    if (one.empty())
        return made;
    if (table.link < file.sections.size())
        made.name = text_at(file.sections[table.link].content,
                            number_or_zero<std::uint32_t>(one, 0));
    made.type = number_or_zero<std::uint8_t>(one, 4) & 15U;
    made.other = number_or_zero<std::uint8_t>(one, 5);
    made.section = number_or_zero<std::uint16_t>(one, 6);
    made.value = number_or_zero<std::uint64_t>(one, 8);
    return made;
}

// Calls @p take with the offset and the symbol of each relocation.
template <typename Take>
void each_relocation(const elf &file, const section &table,
                     const section &symbols, Take take)
{
    const std::uint64_t each = table.type == with_addends ? 24 : 16;
    for (std::uint64_t at = 0; at + each <= table.content.size(); at += each) {
        const auto offset = number_or_zero<std::uint64_t>(table.content, at);
        const auto info = number_or_zero<std::uint64_t>(table.content, at + 8);
        const auto addend =
            each == 24 ? number_or_zero<std::uint64_t>(table.content, at + 16)
                       : 0;
        take(offset, symbol_at(file, symbols, info >> 32), addend);
    }
}

// @return whether they make sense
bool read_attributes(bytes from, kernel_code &out)
{
    bool has_bank = false;
    std::uint64_t at = 0;
    while (at + 4 <= from.size()) {
        const auto form = number_or_zero<std::uint8_t>(from, at);
        const auto which = number_or_zero<std::uint8_t>(from, at + 1);
        const auto size = number_or_zero<std::uint16_t>(from, at + 2);
        at += 4;
        if (form != of_value)
            continue;
        const bytes content = subspan_of(from, at, size);
        if (content.size() != size)
            return false;
        at += size;
        if (which == parameter_bank_attribute) {
            if (has_bank || size != 8)
                return false;
            has_bank = true;
            out.parameters = number_or_zero<std::uint16_t>(content, 4);
            out.parameter_bytes = number_or_zero<std::uint16_t>(content, 6);
        } else if (which == branch_targets) {
            std::uint64_t next = 0;
            while (next + 12 <= content.size()) {
                const auto branch =
                    number_or_zero<std::uint32_t>(content, next);
                const auto count =
                    number_or_zero<std::uint32_t>(content, next + 8);
                next += 12;
                if (count > (content.size() - next) / 4)
                    return false;
                auto &targets = out.targets[branch];
                for (std::uint32_t i = 0; i < count; i++, next += 4)
                    targets.push_back(
                        number_or_zero<std::uint32_t>(content, next));
            }
        }
    }
    return true;
}

bool begins_with(std::string_view text, std::string_view with)
{
    return text.substr(0, with.size()) == with;
}

// Addresses that are put into constants, by their offsets there: each with its
// function's name, or none for memory of the file's own.
using constants = std::map<std::uint32_t, std::string_view>;

// A file's sections, and all that is found by way of them.
class reader
{
public:
    explicit reader(const elf &file) : file_(file)
    {
        for (const section &each : file.sections) {
            if (begins_with(each.name, attributes_of))
                attributes_.emplace(each.name.substr(attributes_of.size()),
                                    &each);
            if (each.type == symbol_table)
                symbols_ = &each;
            if (each.type == with_addends || each.type == without_addends)
                changes_[each.info].push_back(&each);
        }
        if (has_symbols())
            read_constants();
    }

    bool has_symbols() const { return symbols_ != nullptr; }

    std::vector<kernel_code> kernels() const
    {
        std::vector<kernel_code> out;
        const std::uint64_t count = symbols_->content.size() / symbol_bytes;
        for (std::uint64_t i = 0; i < count; i++) {
            const symbol of = symbol_at(file_, *symbols_, i);
            if (of.type == is_function && (of.other & is_entry_point) != 0 &&
                of.section != 0 && of.section < file_.sections.size())
                out.push_back(kernel(of));
        }
        return out;
    }

private:
    static constexpr std::string_view attributes_of = ".nv.info.";

    // Addresses may be put into constants of all kernels, or of one.
    void read_constants()
    {
        constexpr std::string_view addresses = ".nv.constant4";
        for (const section &each : file_.sections) {
            if (!begins_with(each.name, addresses))
                continue;
            const std::string_view rest = each.name.substr(addresses.size());
            constants &into = rest.empty() ? shared_ : own_[rest.substr(1)];
            const auto changed = changes_.find(
                static_cast<std::uint32_t>(&each - file_.sections.data()));
            if (changed == changes_.end())
                continue;
            for (const section *const table : changed->second)
                each_relocation(file_, *table, *symbols_,
                                [&](std::uint64_t offset, const symbol &of,
                                    std::uint64_t) { put(into, offset, of); });
        }
    }

    static void put(constants &into, std::uint64_t offset, const symbol &of)
    {
        if (offset % 8 != 0 || offset >= 1U << 16)
            return;
        const auto key = static_cast<std::uint32_t>(offset);
        // A function of this file is as good as any address.
        if (of.type == is_function)
            into[key] = of.section == 0 && !of.name.empty()
                            ? of.name
                            : std::string_view("?");
        else if (of.type == is_object && of.section != 0)
            into.emplace(key, std::string_view());
        else
            into[key] = "?";
    }

    kernel_code kernel(const symbol &of) const
    {
        const section &code = file_.sections[of.section];
        kernel_code one;
        one.name = of.name;
        one.sm = sm_of(file_);
        one.code = code.content;
        one.entry_point = of.value < code.content.size()
                              ? static_cast<std::uint32_t>(of.value)
                              : 0xffffffff;
        one.relocated = is_relocated(of.section);
        const auto about = attributes_.find(of.name);
        if (about == attributes_.end() ||
            !read_attributes(about->second->content, one))
            one.entry_point = 0xffffffff; // makes no sense
        one.addresses = shared_;
        const auto special = own_.find(of.name);
        if (special != own_.end())
            for (const auto &[offset, to] : special->second)
                one.addresses[offset] = to;
        return one;
    }

    bool is_relocated(std::uint32_t number) const
    {
        const auto changed = changes_.find(number);
        return changed != changes_.end() &&
               std::any_of(
                   changed->second.begin(), changed->second.end(),
                   [](const section *each) { return !each->content.empty(); });
    }

    const elf &file_;
    const section *symbols_ = nullptr;
    // The kernels' attributes, by their names.
    std::unordered_map<std::string_view, const section *> attributes_;
    // The linker's changes, by the section.
    std::unordered_map<std::uint32_t, std::vector<const section *>> changes_;
    constants shared_;
    std::unordered_map<std::string_view, constants> own_;
};

} // namespace

std::optional<cubin> read_cubin(bytes image)
{
    const auto file = read_elf(image);
    if (!file || file->machine != machine_cuda ||
        (file->abi != cuda_abi && file->abi != cuda_abi_old))
        return std::nullopt;
    const reader all(*file);
    if (!all.has_symbols())
        return std::nullopt;
    return cubin{sm_of(*file), all.kernels()};
}

} // namespace emuv::cuda::proof
