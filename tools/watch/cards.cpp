// SPDX-License-Identifier: GPL-2.0-or-later
// The NVIDIA cards of this machine, as their driver lists them in /proc.
#include "cards.hpp"

#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>

namespace emuvctl::watch {

namespace {

// A driver's file is short; this bounds one that is not the driver's.
constexpr int most_lines = 64;

std::string read_uuid(const std::filesystem::path &information)
{
    constexpr std::string_view key = "GPU UUID:";
    std::ifstream stream(information);
    std::string line;
    for (int i = 0; i < most_lines && std::getline(stream, line); i++) {
        if (!line.starts_with(key))
            continue;
        const auto start = line.find_first_not_of(" \t", key.size());
        if (start == std::string::npos)
            return {};
        std::string uuid = line.substr(start);
        uuid.erase(uuid.find_last_not_of(" \t\r") + 1);
        // Until its first use a card's UUID reads as question marks.
        const bool known = uuid.starts_with("GPU-") &&
                           uuid.find_first_not_of("0123456789abcdefABCDEF-",
                                                  4) == std::string::npos;
        return known ? uuid : std::string();
    }
    return {};
}

std::uint16_t read_device_id(const std::filesystem::path &file)
{
    std::ifstream stream(file);
    std::string text;
    std::uint16_t id = 0;
    if (std::getline(stream, text) && text.starts_with("0x"))
        std::from_chars(text.data() + 2, text.data() + text.size(), id, 16);
    return id;
}

} // namespace

std::vector<card> read_cards(const std::filesystem::path &proc,
                             const std::filesystem::path &sys)
{
    std::vector<card> cards;
    std::error_code ignored;
    for (const auto &entry : std::filesystem::directory_iterator(
             proc / "driver/nvidia/gpus", ignored)) {
        card one;
        one.uuid = read_uuid(entry.path() / "information");
        one.pci_device_id = read_device_id(sys / "bus/pci/devices" /
                                           entry.path().filename() / "device");
        cards.push_back(std::move(one));
    }
    return cards;
}

std::string uuid_of_card(const std::vector<card> &cards,
                         std::uint16_t pci_device_id)
{
    const card *found = nullptr;
    for (const auto &one : cards) {
        if (pci_device_id != 0 && one.pci_device_id != pci_device_id)
            continue;
        if (found != nullptr)
            return {};
        found = &one;
    }
    return found != nullptr ? found->uuid : std::string();
}

} // namespace emuvctl::watch
