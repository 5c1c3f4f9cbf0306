// SPDX-License-Identifier: LGPL-2.1-or-later
// Places for memory beyond a share: other cards, system RAM, a file.
#include "account/tiers.hpp"

#include "base/thread.hpp"

namespace emuv::cuda {

namespace {

// A card that had no memory is not asked again so soon.
constexpr std::uint64_t ask_again_ns = 1000000000;

} // namespace

tiered_ledger::tiered_ledger(ledger &own, const std::vector<peer_tier> &peers,
                             file_room *file)
    : own_(own), file_(file)
{
    for (const peer_tier &each : peers) {
        peers_.push_back(std::make_unique<lent>());
        peers_.back()->of = each;
    }
}

// The peers' part of the sums is what is lent, or what their ledgers leave of
// it.
usage tiered_ledger::read() const
{
    usage now = own_.read();
    for (const auto &each : peers_) {
        const std::uint64_t used = each->used.load();
        const std::uint64_t left = each->of.bytes - used;
        const usage peer = each->of.limits->read();
        const std::uint64_t lendable =
            used +
            (peer.spoken_for ? 0 : std::min(left, peer.physical_free_bytes()));
        now.virtual_used_bytes += used;
        now.virtual_bytes += lendable;
        now.lent_bytes += lendable;
    }
    if (file_ != nullptr) {
        now.file_bytes = file_->new_bytes();
        now.file_used_bytes = file_->used_bytes();
        now.virtual_bytes += now.file_bytes;
        now.virtual_used_bytes += now.file_used_bytes;
    }
    return now;
}

bool tiered_ledger::take(lent &from, std::uint64_t bytes)
{
    const std::uint64_t refused = from.refused_ns.load();
    if (refused != 0 && now_ns() - refused <= ask_again_ns)
        return false;
    std::uint64_t used = from.used.load();
    do {
        if (bytes > from.of.bytes - used)
            return false;
    } while (!from.used.compare_exchange_weak(used, used + bytes));
    if (from.of.limits->charge_lent(bytes))
        return true;
    from.used -= bytes;
    return false;
}

bool tiered_ledger::take_virtual(std::uint64_t bytes, std::uint64_t &token)
{
    for (const auto &each : peers_)
        if (take(*each, bytes)) {
            token = lent_mark | static_cast<std::uint64_t>(each->of.device);
            return true;
        }
    return own_.charge_virtual(bytes, token);
}

// Null for system RAM.
tiered_ledger::lent *tiered_ledger::lender_of(std::uint64_t token) const
{
    for (const auto &each : peers_)
        if (each->of.device == peer_of(token))
            return each.get();
    return nullptr;
}

void tiered_ledger::give_virtual(std::uint64_t bytes, std::uint64_t token)
{
    lent *const from = lender_of(token);
    if (from == nullptr) {
        own_.uncharge_virtual(bytes, token);
        return;
    }
    from->of.limits->uncharge_lent(bytes);
    from->used -= bytes;
}

void tiered_ledger::show_in(charged_bytes &where)
{
    ledger::show_in(where);
    for (const auto &each : peers_)
        where.lent[static_cast<unsigned>(each->of.device) % max_devices].limit =
            each->of.bytes;
    if (file_ != nullptr)
        where.file_limit = file_->new_bytes();
}

bool tiered_ledger::avoid(std::uint64_t token)
{
    lent *const from = lender_of(token);
    if (from == nullptr)
        return own_.avoid(token);
    from->refused_ns.store(now_ns());
    return true;
}

} // namespace emuv::cuda
