// SPDX-License-Identifier: LGPL-2.1-or-later
// A program says things of its memory: the functions behind <emuv/advice.h>.
#include "hooks/session.hpp"

#include <emuv/advice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

using namespace emuv::cuda;

extern "C" [[gnu::visibility("default")]] const emuv_advice_calls *
emuv_advice_1();

namespace {

static_assert(static_cast<int>(hint::access) == EMUV_HINT_ACCESS &&
              static_cast<int>(hint::prefetch) == EMUV_HINT_PREFETCH &&
              static_cast<int>(hint::promote) == EMUV_HINT_PROMOTE &&
              static_cast<int>(hint::demote) == EMUV_HINT_DEMOTE &&
              static_cast<int>(hint::discard) == EMUV_HINT_DISCARD &&
              static_cast<int>(hint::read_mostly) == EMUV_HINT_READ_MOSTLY &&
              static_cast<int>(hint::pin) == EMUV_HINT_PIN &&
              static_cast<int>(hint::unpin) == EMUV_HINT_UNPIN);
static_assert(advice::lowest == EMUV_PRIORITY_LOWEST &&
              advice::highest == EMUV_PRIORITY_HIGHEST);

// Sizes that a program may give: from the size itself up to more than any
// version will have. Others are of memory that nobody has filled in.
constexpr std::uint32_t least_size = 8;
constexpr std::uint32_t most_size = 4096;

template <typename Structure>
bool is_sized(const Structure *given)
{
    return given != nullptr && given->size >= least_size &&
           given->size <= most_size;
}

int enter(emuv_advice_memory *memory)
{
    const entry ours;
    if (!ours)
        return EMUV_ADVICE_IDLE;
    if (!is_sized(memory) || memory->size < sizeof *memory ||
        memory->flags != 0 || memory->reserved != 0)
        return EMUV_ADVICE_VALUE;
    return ours->advice->add(memory->address, memory->bytes, memory->priority,
                             memory->key);
}

int forget(std::uint64_t key)
{
    const entry ours;
    if (!ours)
        return EMUV_ADVICE_IDLE;
    return ours->advice->forget(key);
}

int tell(const std::uint64_t *keys, std::size_t count, int what,
         std::uint32_t flags)
{
    const entry ours;
    if (!ours)
        return EMUV_ADVICE_IDLE;
    if ((keys == nullptr && count > 0) || what < EMUV_HINT_ACCESS ||
        what > EMUV_HINT_UNPIN || flags != 0)
        return EMUV_ADVICE_VALUE;
    int first = EMUV_ADVICE_OK;
    for (std::size_t i = 0; i < count; i++) {
        const int said = ours->advice->tell(keys[i], static_cast<hint>(what));
        first = first == EMUV_ADVICE_OK ? said : first;
    }
    return first;
}

// The program may have been built with an older or newer header. The part of
// its structure that both know is filled in.
template <typename Answer, typename Call>
int fill_in(Answer *out, Call call)
{
    const entry ours;
    if (!ours)
        return EMUV_ADVICE_IDLE;
    if (!is_sized(out))
        return EMUV_ADVICE_VALUE;
    Answer whole{};
    const int result = call(*ours->advice, whole);
    if (result != EMUV_ADVICE_OK)
        return result;
    whole.size = std::min<std::uint32_t>(out->size, sizeof whole);
    std::memcpy(out, &whole, whole.size);
    return result;
}

int where(std::uint64_t key, emuv_advice_place *out)
{
    return fill_in(out, [=](advised &of, emuv_advice_place &whole) {
        return of.where(key, whole);
    });
}

int stats(std::uint64_t key, emuv_advice_stats *out)
{
    return fill_in(out, [=](advised &of, emuv_advice_stats &whole) {
        return of.stats(key, whole);
    });
}

const char *text(int result)
{
    // By the number of the error.
    static constexpr const char *texts[] = {
        "no error",
        "emuV's library is not loaded",
        "emuV stands aside: cuInit() has not run, no limit is set, or the "
        "process is a fork",
        "nothing is registered under this key",
        "no allocation is known at this address",
        "the bytes are none, or reach past the end of their allocation",
        "the memory of this key has been freed",
        "an argument is out of its range",
        "too many keys are registered",
        "more than three quarters of the share cannot be pinned",
    };
    const auto index = -static_cast<std::int64_t>(result);
    return index >= 0 && index < static_cast<std::int64_t>(std::size(texts))
               ? texts[index]
               : "no result of emuV's";
}

constexpr emuv_advice_calls calls = {
    sizeof(emuv_advice_calls), 0, enter, forget, tell, where, stats, text,
};

} // namespace

const emuv_advice_calls *emuv_advice_1()
{
    return &calls;
}
