// SPDX-License-Identifier: GPL-2.0-or-later
// The choice between two stores.
#include "fake_driver.hpp"
#include "store/store_choice.hpp"

#include <memory>
#include <thread>

#include <gtest/gtest.h>

using namespace emuv::cuda;

namespace {

constexpr std::uint64_t MiB = 1ull << 20;

// A store whose copies take so long.
class TimedStore final : public store
{
public:
    TimedStore(FakeDriver &card, bool by_handle, float milliseconds)
        : card_(card), by_handle_(by_handle), milliseconds_(milliseconds)
    {}

    const char *name() const override { return by_handle_ ? "one" : "other"; }
    bool by_handle() const override { return by_handle_; }
    bool can_create() const override { return by_handle_; }
    CUresult map(CUdeviceptr at, std::uint64_t bytes, std::uint64_t, int, int,
                 std::uint64_t, std::vector<unit> &units) override
    {
        maps++;
        if (refuses)
            return CUDA_ERROR_OUT_OF_MEMORY;
        card_.elapsed_milliseconds = milliseconds_;
        units.push_back({at, bytes, 0});
        mapped++;
        return CUDA_SUCCESS;
    }
    CUresult unmap(const unit &) override
    {
        mapped--;
        return CUDA_SUCCESS;
    }

    bool refuses = false;
    unsigned maps = 0;
    unsigned mapped = 0;

private:
    FakeDriver &card_;
    const bool by_handle_;
    const float milliseconds_;
};

class StoreChoice : public ::testing::Test
{
protected:
    StoreChoice() { EXPECT_EQ(rows_.open(nullptr), 0); }

    void expect_nothing_left()
    {
        EXPECT_TRUE(card_.empty());
        EXPECT_EQ(limits_.read().physical_used_bytes, 0u);
        EXPECT_EQ(limits_.read().virtual_used_bytes, 0u);
    }

    FakeDriver card_;
    ledger_file rows_;
    file_ledger limits_{rows_, 0, 64 * MiB, 128 * MiB};
    budget shares_{{.calls = card_.calls, .ledgers = {&limits_}}};
};

} // namespace

TEST_F(StoreChoice, PagesAreTakenWhereTheyAreFasterByMoreThanNoise)
{
    const struct
    {
        float handles;
        float pages;
        const char *chosen;
    } cases[] = {{2.0F, 1.0F, "other"},
                 {1.0F, 1.0F, "one"},
                 {1.05F, 1.0F, "one"},
                 {1.0F, 2.0F, "one"}};
    for (const auto &each : cases) {
        TimedStore handles(card_, true, each.handles);
        TimedStore pages(card_, false, each.pages);
        store_choice choice(card_.calls, handles, pages);
        EXPECT_EQ(choice.trial(), nullptr);
        choice.choose(0, shares_);
        EXPECT_STREQ(choice.name(), each.chosen);
        EXPECT_EQ(choice.by_handle(), choice.name() == handles.name());
        EXPECT_TRUE(choice.can_create()) << "whatever backs allocations";
        ASSERT_NE(choice.trial(), nullptr);
        const auto rate = [](float milliseconds) {
            return static_cast<double>(64 * MiB) * 1000.0 /
                   static_cast<double>(milliseconds);
        };
        const bool first = choice.by_handle();
        EXPECT_DOUBLE_EQ(choice.trial()->rate,
                         rate(first ? each.handles : each.pages));
        EXPECT_DOUBLE_EQ(choice.trial()->other_rate,
                         rate(first ? each.pages : each.handles));
        EXPECT_STREQ(choice.trial()->other, first ? "other" : "one");
        EXPECT_EQ(handles.mapped + pages.mapped, 0u);
        expect_nothing_left();
    }
}

TEST_F(StoreChoice, IsMadeOnceWhoeverAsks)
{
    TimedStore handles(card_, true, 1.0F);
    TimedStore pages(card_, false, 1.0F);
    store_choice choice(card_.calls, handles, pages);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] { choice.choose(0, shares_); });
    for (std::thread &each : threads)
        each.join();
    EXPECT_EQ(handles.maps, 1u);
    EXPECT_EQ(pages.maps, 1u);
    expect_nothing_left();
}

TEST_F(StoreChoice, WhatCannotBeTriedIsHandles)
{
    TimedStore handles(card_, true, 9.0F);
    TimedStore pages(card_, false, 1.0F);
    {
        pages.refuses = true;
        store_choice choice(card_.calls, handles, pages);
        choice.choose(0, shares_);
        EXPECT_TRUE(choice.by_handle());
        EXPECT_EQ(choice.trial(), nullptr);
    }
    pages.refuses = false;
    {
        file_ledger small(rows_, 0, 64 * MiB, 16 * MiB);
        store_choice choice(card_.calls, handles, pages);
        budget shares({.calls = card_.calls, .ledgers = {&small}});
        choice.choose(0, shares);
        EXPECT_TRUE(choice.by_handle());
        EXPECT_EQ(choice.trial(), nullptr);
    }
    {
        card_.card_bytes = 0; // no VRAM to copy to
        store_choice choice(card_.calls, handles, pages);
        choice.choose(0, shares_);
        EXPECT_TRUE(choice.by_handle());
    }
    EXPECT_EQ(handles.mapped + pages.mapped, 0u);
    expect_nothing_left();
}
