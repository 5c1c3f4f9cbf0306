// SPDX-License-Identifier: GPL-2.0-or-later
// The hooks before a driver of the tests' own functions, and the session behind
// the hooks.
#pragma once

#include "fake_driver.hpp"
#include "hooks/session.hpp"
#include "idle_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Has the driver answer calls of a name by a function, until the test ends.
#define EMUV_ANSWER(name, ...)                                                 \
    answer(                                                                    \
        emuv::cuda::symbol::name,                                              \
        reinterpret_cast<void *>(static_cast<decltype(&::name)>(__VA_ARGS__)))

/// Stands for what the library does at its start, and for the real libraries.
/// Most of it is what the hooks have told.
struct stand_in
{
    struct table
    {
        const void *words;
        std::size_t bytes;
    };

    /// Null: the hooks only forward.
    static inline emuv::cuda::state *session = nullptr;
    /// The handle of the library that is opened beside the driver, or null.
    static inline void *library = nullptr;
    static inline std::vector<table> noted;        ///< by note_table()
    static inline std::vector<std::string> unseen; ///< by work_unseen()
};

/// A process with a share of 64 MiB of VRAM and 128 MiB of system RAM. Nothing
/// moves. The driver's tables answer for the calls that they know. All others
/// are not supported.
class Hooks : public testing::Test
{
protected:
    static constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
    static constexpr std::uint64_t vram_bytes = 64 * MiB;

    Hooks() : limits_(make_limits())
    {
        using namespace emuv::cuda;
        succeed_otherwise(card_.calls);
        ours_.calls = card_.calls;
        ours_.shares = &shares_;
        ours_.table = &table_;
        ours_.kernels = &kernels_;
        ours_.devices = 1;
        stand_in::session = &ours_;
        stand_in::noted.clear();
        stand_in::unseen.clear();
#define EMUV_FORWARD(name)                                                     \
    answer(symbol::name, reinterpret_cast<void *>(card_.calls.name));
        EMUV_DRIVER_CALLS(EMUV_FORWARD)
#undef EMUV_FORWARD
    }
    ~Hooks() override
    {
        stand_in::session = nullptr;
        for (const auto &[which, was] : answers_)
            emuv_table[which] = was;
    }

    void answer(emuv::cuda::symbol which, void *function)
    {
        void *&now = emuv_table[static_cast<unsigned>(which)];
        answers_.emplace(static_cast<unsigned>(which), now);
        now = function;
    }

    /// @return memory of which the first 64 MiB are VRAM, and 32 are not
    CUdeviceptr allocate_across()
    {
        CUdeviceptr at = 0;
        EXPECT_EQ(table_.allocate(&at, vram_bytes + 32 * MiB), CUDA_SUCCESS);
        EXPECT_EQ(limits_.read().virtual_used_bytes, 32 * MiB);
        return at;
    }

    /// A handle of a number.
    template <typename Handle>
    static Handle number(std::uintptr_t is)
    {
        return reinterpret_cast<Handle>(is);
    }

    /// Checks what a process sees once: it must not have seen it before, in
    /// this test or in one that is repeated.
    template <typename Check>
    static void in_own_process(Check check)
    {
        const auto end = [&check] {
            check();
            std::fflush(stdout); // it has the failures
            std::_Exit(HasFailure() ? 1 : 0);
        };
        EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
    }

    FakeDriver card_;
    emuv::cuda::ledger_file rows_;
    emuv::cuda::file_ledger limits_;
    emuv::cuda::budget shares_{{.calls = card_.calls, .ledgers = {&limits_}}};
    emuv::cuda::numa_store host_{card_.calls};
    emuv::cuda::memory table_{
        {.calls = card_.calls, .host = host_, .shares = shares_}};
    emuv::cuda::trace record_;
    emuv::cuda::known_kernels kernels_{nullptr, record_};
    emuv::cuda::state ours_;

private:
    emuv::cuda::file_ledger make_limits()
    {
        EXPECT_EQ(rows_.open(nullptr), 0);
        return {rows_, 0, vram_bytes, 128 * MiB};
    }

    std::map<unsigned, void *> answers_; // the ones before, by symbol
};
