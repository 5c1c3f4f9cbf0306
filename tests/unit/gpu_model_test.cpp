// SPDX-License-Identifier: GPL-2.0-or-later
// The table of GPU models and how names are looked up in it.
#include <emuv/gpu_model.hpp>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>

namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t gib = 1ULL << 30;

std::vector<std::string> names(std::string_view asked)
{
    std::vector<std::string> all;
    for (const auto *card : emuv::find_gpu_models(asked))
        all.push_back(card->full_name());
    return all;
}

TEST(gpu_model, is_found_by_its_number_its_name_and_its_full_name)
{
    for (const char *const asked :
         {"4070", "RTX 4070", "rtx4070", "GeForce RTX 4070", "geforce 4070",
          "NVIDIA GeForce RTX 4070", "nvidia-geforce-rtx-4070", " 4070 "})
        EXPECT_THAT(names(asked), ElementsAre("NVIDIA GeForce RTX 4070"))
            << asked;
}

TEST(gpu_model, is_not_found_by_a_part_of_its_number_or_a_foreign_brand)
{
    for (const char *const asked :
         {"", " ", "407", "40700", "4070 foo", "GTX 4070", "Radeon 4070", "RTX",
          "NVIDIA", "Ti", "-", "12GB"})
        EXPECT_THAT(names(asked), IsEmpty()) << asked;
}

TEST(gpu_model, tells_ti_and_super_apart)
{
    EXPECT_THAT(names("4070 ti"), ElementsAre("NVIDIA GeForce RTX 4070 Ti"));
    EXPECT_THAT(names("4070Ti Super"),
                ElementsAre("NVIDIA GeForce RTX 4070 Ti SUPER"));
    EXPECT_THAT(names("4070SUPER"),
                ElementsAre("NVIDIA GeForce RTX 4070 SUPER"));
    EXPECT_THAT(names("4070 mobile"),
                ElementsAre("NVIDIA GeForce RTX 4070 Laptop GPU"));
    EXPECT_THAT(names("4090D"), ElementsAre("NVIDIA GeForce RTX 4090 D"));
}

TEST(gpu_model, that_comes_in_several_sizes_is_ambiguous_until_one_is_named)
{
    EXPECT_THAT(names("3080"), ElementsAre("NVIDIA GeForce RTX 3080 10GB",
                                           "NVIDIA GeForce RTX 3080 12GB"));
    for (const char *const asked : {"3080 12GB", "3080 12G", "3080-12gb"})
        EXPECT_THAT(names(asked), ElementsAre("NVIDIA GeForce RTX 3080 12GB"))
            << asked;
    EXPECT_EQ(names("A100").size(), 4U);
    EXPECT_EQ(names("A100 40GB").size(), 2U);
    EXPECT_THAT(names("A100-SXM4-80GB"), ElementsAre("NVIDIA A100 SXM4 80GB"));
    EXPECT_THAT(names("NVIDIA A100 80GB PCIe"),
                ElementsAre("NVIDIA A100 PCIe 80GB"));
    EXPECT_EQ(names("RTX 6000").size(), 2U); // Quadro and Ada
    EXPECT_THAT(names("RTX 6000 Ada"),
                ElementsAre("NVIDIA RTX 6000 Ada Generation"));
}

TEST(gpu_model, has_the_figures_of_its_data_sheet)
{
    const auto cards = emuv::find_gpu_models("4070");
    ASSERT_EQ(cards.size(), 1U);
    EXPECT_EQ(cards.front()->vram_bytes, 12 * gib);
    EXPECT_EQ(cards.front()->bandwidth_gb_s, 504U);
    EXPECT_EQ(cards.front()->pcie_generation, 4U);
    EXPECT_EQ(cards.front()->pcie_width, 16U);
    EXPECT_THAT(cards.front()->pci_device_ids, ElementsAre(0x2786));
}

TEST(gpu_model, table_has_sane_figures_and_no_name_twice)
{
    ASSERT_GT(emuv::gpu_models().size(), 50U);
    std::set<std::string> seen;
    for (const auto &card : emuv::gpu_models()) {
        const auto name = card.full_name();
        EXPECT_TRUE(seen.insert(name).second) << name;
        EXPECT_EQ(card.vram_bytes % gib, 0U) << name;
        EXPECT_GE(card.vram_bytes, 4 * gib) << name;
        EXPECT_LE(card.vram_bytes, 512 * gib) << name;
        EXPECT_GE(card.bandwidth_gb_s, 100U) << name;
        EXPECT_LE(card.bandwidth_gb_s, 10000U) << name;
        EXPECT_GE(card.pcie_generation, 3U) << name;
        EXPECT_LE(card.pcie_generation, 6U) << name;
        EXPECT_TRUE(card.pcie_width == 8 || card.pcie_width == 16) << name;
        // Its own full name leads to it alone.
        EXPECT_THAT(names(name), ElementsAre(name));
    }
}

TEST(gpu_model, names_are_the_same_if_they_mean_the_same)
{
    EXPECT_TRUE(emuv::same_gpu_model("4070", "NVIDIA GeForce RTX 4070"));
    EXPECT_TRUE(emuv::same_gpu_model("3080", "RTX 3080"));
    EXPECT_TRUE(emuv::same_gpu_model("my own", "my own"));
    EXPECT_FALSE(emuv::same_gpu_model("my own", "My own"));
    EXPECT_FALSE(emuv::same_gpu_model("3080", "3080 12GB"));
    EXPECT_FALSE(emuv::same_gpu_model("4070", "4070 Ti"));
}

TEST(gpu_model, label_is_shown_as_the_card_it_names)
{
    EXPECT_EQ(emuv::gpu_display_name("4070"), "NVIDIA GeForce RTX 4070");
    EXPECT_EQ(emuv::gpu_display_name("3080"), "NVIDIA GeForce RTX 3080");
    EXPECT_EQ(emuv::gpu_display_name("RTX 6000"), "RTX 6000");
    EXPECT_EQ(emuv::gpu_display_name("my own"), "my own");
}

// The words of a name as the PCI ID database may write them.
std::string squeeze(const std::string &text)
{
    std::string result;
    for (const char c : text)
        if (std::isalnum(static_cast<unsigned char>(c)) != 0)
            result +=
                static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

TEST(gpu_model, pci_ids_are_those_of_the_pci_id_database)
{
    std::ifstream file("/usr/share/misc/pci.ids");
    if (!file)
        GTEST_SKIP() << "the package pci.ids is not installed";
    std::map<unsigned, std::string> known;
    bool nvidia = false;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#')
            continue;
        if (line[0] != '\t')
            nvidia = line.starts_with("10de ");
        else if (nvidia && line[1] != '\t')
            known[static_cast<unsigned>(
                std::stoul(line.substr(1, 4), nullptr, 16))] = line.substr(5);
    }
    ASSERT_GT(known.size(), 1000U);

    int checked = 0;
    for (const auto &card : emuv::gpu_models())
        for (const auto id : card.pci_device_ids) {
            const auto found = known.find(id);
            // Cards younger than the installed database are not in it.
            if (found == known.end() ||
                found->second.find('[') == std::string::npos)
                continue;
            std::string model(card.name);
            for (const char *const word :
                 {"NVIDIA ", " Laptop GPU", " Generation", " Ada", "Tesla ",
                  "Quadro "})
                if (const auto at = model.find(word); at != std::string::npos)
                    model.erase(at, std::string(word).size());
            // One entry may stand for two cards: "Quadro RTX 6000/8000".
            if (model == "RTX 8000")
                model = "8000";
            EXPECT_THAT(squeeze(found->second),
                        testing::HasSubstr(squeeze(model)))
                << card.full_name();
            checked++;
        }
    EXPECT_GT(checked, 50);
}

} // namespace
