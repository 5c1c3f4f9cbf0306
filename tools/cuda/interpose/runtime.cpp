// SPDX-License-Identifier: LGPL-2.1-or-later
// Stands in for parts of libstdc++ that the C++ headers need. Its own
// allocation and errors bring in exceptions, an unwinder, and symbols of glibc
// that older systems do not have. Everything here stays inside the library.
#include <cstdlib>
#include <new>

// Only a bug gets here, or a host without memory: hooks cannot throw.
#define EMUV_NEVER(declaration)                                                \
    declaration                                                                \
    {                                                                          \
        std::abort();                                                          \
    }

namespace std {
EMUV_NEVER(void __throw_length_error(const char *))
EMUV_NEVER(void __throw_logic_error(const char *))
EMUV_NEVER(void __throw_bad_function_call())
EMUV_NEVER(void __throw_out_of_range_fmt(const char *, ...))
EMUV_NEVER(void __throw_system_error(int))
EMUV_NEVER(void __throw_bad_alloc())
EMUV_NEVER(void __throw_bad_array_new_length())
EMUV_NEVER(void __throw_bad_optional_access())
#ifdef _GLIBCXX_ASSERTIONS
EMUV_NEVER(void __glibcxx_assert_fail(const char *, int, const char *,
                                      const char *) noexcept)
#endif
} // namespace std

extern "C" EMUV_NEVER(void __cxa_pure_virtual())

    void *
    operator new(std::size_t bytes)
{
    void *memory = std::malloc(bytes != 0 ? bytes : 1);
    if (memory == nullptr)
        std::abort();
    return memory;
}

void operator delete(void *memory) noexcept
{
    std::free(memory);
}

void operator delete(void *memory, std::size_t) noexcept
{
    std::free(memory);
}
