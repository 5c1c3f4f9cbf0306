// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that others made, and this program opened.
#pragma once

#include "account/budget.hpp"
#include "base/counted.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace emuv::cuda {

/// Charges VRAM of other processes while the program holds it open. Its maker
/// may end before that: then nobody else is charged.
/// Every call may come from any thread.
class foreign
{
public:
    /// Identifies such memory. The driver may give the same number to other
    /// memory once the program lets go of this one.
    struct key
    {
        enum class kind : std::uint8_t
        {
            handle,  ///< cuMemImportFromShareableHandle
            address, ///< cuIpcOpenMemHandle
        };
        kind is = kind::handle;
        std::uint64_t number = 0;

        auto operator<=>(const key &) const = default;
    };

    /// @param shares  outlives this object
    /// @param counts  false: nothing is charged
    foreign(budget &shares, bool counts) : budget_(shares), counts_(counts) {}
    foreign(const foreign &) = delete;
    foreign &operator=(const foreign &) = delete;

    /// True if such memory is charged.
    [[nodiscard]] bool counts() const { return counts_; }

    /// The way that memory is opened.
    struct opening
    {
        int device = 0;
        CUcontext context = nullptr; ///< with which it goes; or null
        std::uint64_t serial = 0;    ///< from before the driver was asked
    };
    /// Charges memory that the program opens. It may be opened several times.
    /// Nothing is charged if its context has gone meanwhile.
    /// @param bytes  as far as that is known; 0 for nothing yet
    /// @return false if there is no room. Then it is not open.
    bool open(const key &which, const opening &where, std::uint64_t bytes);
    /// A handle of memory that is mapped at an address was retained. Nothing
    /// happens if that memory is no other's.
    void open_again(const key &which, CUdeviceptr at);
    /// Charges memory that turns out to be so large, if it is open.
    /// @return false if there is no room for it
    bool grow(const key &which, std::uint64_t bytes);
    /// Lets go of it once, by a call that @p from_driver makes.
    template <typename Call>
    CUresult close(const key &which, Call from_driver)
    {
        opened_ref taken = take(which);
        const CUresult result = from_driver();
        if (taken && result == CUDA_SUCCESS)
            let_go(*taken);
        else if (taken)
            put_back(which, taken);
        return result;
    }

    /// A handle of such memory was mapped. It stays open until it is unmapped.
    void mapped(CUdeviceptr at, std::uint64_t bytes, const key &which);
    /// cuMemUnmap, which @p from_driver makes.
    template <typename Call>
    CUresult unmap(CUdeviceptr at, std::uint64_t bytes, Call from_driver)
    {
        mappings taken = take(at, bytes);
        const CUresult result = from_driver();
        settle(std::move(taken), result == CUDA_SUCCESS);
        return result;
    }

    /// A context is about to go. Other memory may get the addresses of what was
    /// opened in it as soon as the driver has taken them back.
    void context_ends(CUcontext context);
    /// It did not go.
    void context_stays(CUcontext context);
    /// It has gone, with the memory that was opened in it under a serial number
    /// below @p before.
    void context_gone(CUcontext context, std::uint64_t before);

private:
    // Guarded by the lock.
    struct opened_memory : counted
    {
        opening where;
        std::uint64_t bytes = 0;
        unsigned opened = 0; // times, under its key
        unsigned uses = 0;   // times it was opened, or is mapped
    };
    using opened_ref = counted_ref<opened_memory>;
    struct mapping
    {
        std::uint64_t bytes = 0;
        opened_ref of;
    };
    using mappings = std::map<CUdeviceptr, mapping>;
    using table = std::multimap<key, opened_ref>; // the newest comes last

    opened_ref take(const key &which);
    void put_back(const key &which, const opened_ref &taken);
    void let_go(opened_memory &of);
    void let_go_locked(opened_memory &of);
    void let_go_of_all_locked(opened_memory &of);
    bool has_gone_locked(const opening &where) const;
    static table::iterator find_in(table &all, const key &which);
    static bool is_in(const opened_memory &of, CUcontext context);
    mappings take(CUdeviceptr at, std::uint64_t bytes);
    void settle(mappings taken, bool unmapped);
    bool charge(int device, std::uint64_t bytes);
    void uncharge(int device, std::uint64_t bytes);

    budget &budget_;
    const bool counts_;
    std::mutex lock_; // guards all below
    table open_;      // one of a key
    // Of contexts that are about to go. Their addresses may be others' already.
    table going_;
    std::map<CUcontext, std::uint64_t> gone_; // the serial number before that
    mappings mappings_;
};

} // namespace emuv::cuda
