// SPDX-License-Identifier: LGPL-2.1-or-later
// Places for memory beyond a share: other cards, system RAM, a file.
#pragma once

#include "account/file_room.hpp"
#include "account/ledger.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace emuv::cuda {

/// VRAM of another card, lent for memory beyond the share.
struct peer_tier
{
    int device = 0;           ///< its ordinal
    std::uint64_t bytes = 0;  ///< at most
    ledger *limits = nullptr; ///< that card's, which is charged too
};

/// The ledger of a device that may use other cards, or a file. Virtual memory
/// is charged to the first card that has room, by its own ledger, too; then to
/// system RAM. The file is charged for what has room nowhere else. All else is
/// the device's own ledger's.
class tiered_ledger final : public ledger
{
public:
    /// @param own, peers, file  outlive this object. Null: there is no file
    tiered_ledger(ledger &own, const std::vector<peer_tier> &peers,
                  file_room *file = nullptr);

    usage read() const override;
    void report(const counters &since_last_report) const override
    {
        own_.report(since_last_report);
    }
    int region_fd() const override { return own_.region_fd(); }
    bool can_wait() const override { return own_.can_wait(); }
    void call_off_waits() override { own_.call_off_waits(); }
    bool avoid(std::uint64_t token) override;
    void show_in(charged_bytes &where) override;

private:
    struct lent
    {
        peer_tier of;
        std::atomic<std::uint64_t> used{0};
        std::atomic<std::uint64_t> refused_ns{0}; // 0: never
    };

    bool take_physical(std::uint64_t bytes) override
    {
        return own_.charge_physical(bytes);
    }
    bool take_physical_within(std::uint64_t bytes, std::uint64_t ns) override
    {
        return own_.charge_physical_within(bytes, ns);
    }
    void give_physical(std::uint64_t bytes) override
    {
        own_.uncharge_physical(bytes);
    }
    bool take_virtual(std::uint64_t bytes, std::uint64_t &token) override;
    bool take_ram(std::uint64_t bytes, std::uint64_t &token) override
    {
        return own_.charge_virtual(bytes, token);
    }
    void give_virtual(std::uint64_t bytes, std::uint64_t token) override;
    bool has_file() const override { return file_ != nullptr; }
    bool take_file(std::uint64_t bytes, bool is_new) override
    {
        return file_ != nullptr && file_->charge(bytes, is_new);
    }
    void give_file(std::uint64_t bytes) override { file_->uncharge(bytes); }
    static bool take(lent &from, std::uint64_t bytes);
    [[nodiscard]] lent *lender_of(std::uint64_t token) const;

    ledger &own_;
    std::vector<std::unique_ptr<lent>> peers_; // in order
    file_room *const file_;
};

} // namespace emuv::cuda
