// SPDX-License-Identifier: LGPL-2.1-or-later
// The figures that a mover publishes of itself: where the time goes, step by
// step, and what crosses the link.
#pragma once

#include "account/ledger.hpp"
#include "base/statistics.hpp"
#include "base/thread.hpp"
#include "movement/block.hpp"
#include "movement/flights.hpp"
#include "policy/idle_time.hpp"
#include "policy/rhythm.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// One device's figures. The mover's lock guards them, and only its own thread
/// writes the page.
class figures
{
public:
    using cause = idle_time::cause;

    /// @param page  where they are published; null: nowhere. Outlives this
    ///   object
    explicit figures(device_statistics *page) : page_(page) {}
    figures(const figures &) = delete;
    figures &operator=(const figures &) = delete;

    // ---- From the threads that launch

    /// A unit is about to be used.
    /// @param last_step  the step of the schedule at its last use before
    void uses(std::uint64_t last_step, std::uint64_t bytes)
    {
        if (last_step <= began_after_)
            used_bytes_ += bytes;
    }

    /// A launch has waited.
    void waited(cause why, std::uint64_t start, std::uint64_t end)
    {
        idle_.waits(why, start, end);
    }

    /// Work is about to be handed to the device.
    void begins()
    {
        handing_over_.fetch_add(1);
        if (idle_.is_idle())
            idle_.begins(now_ns());
    }

    /// That work is among what has departed, or will not run. Without the lock.
    void handed_over() { handing_over_.fetch_sub(1); }

    /// True while work is being handed to the device, which may run already.
    /// To be asked before it is asked what has departed.
    bool is_handing_over() const { return handing_over_.load() != 0; }

    /// The device itself waited at the barrier of an untrusted kernel.
    /// @param kernel, why  strings that stay; or null
    void stood(const char *kernel, const char *why, std::uint64_t ns);

    // ---- From the mover's thread

    /// Work has ended.
    /// @param step  of the schedule, at this moment
    void landed(const flights::landing &which, std::uint64_t step,
                std::uint64_t now);
    /// Nothing is in flight any more, or being handed over.
    void empties(std::uint64_t step, std::uint64_t now);
    /// Bytes were copied between VRAM and a tier beyond it.
    /// @param card  that lends the tier; -1: system RAM
    void moved(const moved_bytes &more, int card);
    /// Bytes were copied between system RAM and the file.
    void filed(const moved_bytes &more) { filed_ += more; }
    /// A unit has got a coded copy of so many bytes.
    void coded(std::uint64_t raw, std::uint64_t coded)
    {
        packed_.raw_bytes += raw;
        packed_.coded_bytes += coded;
    }
    /// One is not worth it.
    void refused_to_code(std::uint64_t raw) { packed_.refused_bytes += raw; }
    /// A unit has come from its coded copy.
    void decoded(std::uint64_t raw, std::uint64_t coded)
    {
        packed_.fetched_bytes += coded;
        packed_.saved_bytes += raw - coded;
    }
    /// Work was given some beyond VRAM.
    void missed(std::uint64_t bytes) { missed_bytes_ += bytes; }

    /// The state of movement at this moment.
    struct state
    {
        treatment is = treatment::still;
        std::uint64_t in_ram_bytes = 0;
        std::uint64_t on_cards_bytes = 0; ///< of those
        std::uint64_t in_file_bytes = 0;  ///< of those
        const std::vector<block_ref> &large;
    };

    /// True if there is news, or the last are publish_ns old.
    bool is_due(std::uint64_t now) const
    {
        return page_ != nullptr &&
               (has_news_ || now - published_ns_ >= publish_ns);
    }
    void publish(const state &now_is, std::uint64_t now);

    /// Movement has ended for good.
    void stop(const char *why);

    static constexpr std::uint64_t publish_ns = 100'000'000;

private:
    // Short steps share a sample on the page, which is as long at least.
    static constexpr std::uint64_t shortest_sample_ns = 20'000'000;
    // The lists are of as long at least, and of so many steps; or of so long.
    static constexpr std::uint64_t list_ns = 1'000'000'000;
    static constexpr std::uint64_t list_steps = 8;
    static constexpr std::uint64_t longest_list_ns = 30'000'000'000;
    // Kernels that are told apart.
    static constexpr std::size_t max_kernels = 64;

    // The cost of untrusted kernels of a name since the last list.
    struct cost
    {
        const char *name = nullptr; // null: no kernel
        const char *why = nullptr;
        std::uint64_t launches = 0;
        std::uint64_t busy_ns = 0;
        std::uint64_t waited_ns = 0;
    };

    cost &cost_of(const char *kernel, const char *why);
    void step_ended(std::uint64_t step, std::uint64_t now);
    void begin_sample(std::uint64_t now);
    void put_sample(std::uint64_t now);
    void list(const std::vector<block_ref> &large, std::uint64_t now);

    device_statistics *const page_;
    idle_time idle_;
    std::atomic<unsigned> handing_over_{0};
    rhythm rhythm_;
    std::uint64_t round_ = 0;       // of the samples so far
    std::uint64_t steps_ = 0;       // of the program, ever
    std::uint64_t began_after_ = 0; // this step of the schedule
    step_figures sample_;           // under way
    idle_time::sums idle_before_;   // at its start
    std::uint64_t sample_ns_ = 0;   // its start; 0: none yet
    std::uint64_t used_bytes_ = 0;
    moved_bytes moved_; // since the sample's start
    moved_bytes moved_with_cards_;
    std::vector<moved_bytes> ever_; // by the card, behind system RAM
    moved_bytes filed_;             // ever
    packed_bytes packed_;           // ever
    std::uint64_t missed_bytes_ = 0;
    std::vector<step_figures> ready_; // not published yet
    std::vector<cost> costs_;
    std::uint64_t listed_ns_ = 0;
    std::uint64_t listed_steps_ = 0; // steps_ as the list was made
    std::uint64_t published_ns_ = 0;
    bool has_news_ = false;
};

} // namespace emuv::cuda
