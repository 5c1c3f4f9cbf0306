// SPDX-License-Identifier: GPL-2.0-or-later
// Modules as files, as far as that goes without loading one.
#include "fake_kernel.hpp"

#include <emuv/error.hpp>
#include <emuv/module.hpp>

#include <cerrno>

#include <gmock/gmock.h>

namespace {

template <typename Call>
int errno_of(Call &&call)
{
    try {
        call();
        return 0;
    } catch (const emuv::error &problem) {
        return problem.number();
    }
}

TEST(module, that_has_no_file_is_none)
{
    auto &modules = emuv::module_api::system();
    EXPECT_EQ(modules.info("/no/such/emuv.ko").has_value(), false);
    EXPECT_EQ(modules.info("emuv_no_such_module").has_value(), false);
    EXPECT_EQ(errno_of([&] { modules.load("/no/such/emuv.ko", ""); }), ENOENT);
    EXPECT_EQ(errno_of([&] { modules.load("emuv_no_such_module", ""); }),
              ENOENT);
}

TEST(module, that_is_no_module_is_refused)
{
    const emuv_test::temporary_folder folder;
    const auto file = folder.path() / "emuv.ko";
    emuv_test::write_file(file, "not an ELF file, but long enough to be read "
                                "as if it were one, header and all\n");
    auto &modules = emuv::module_api::system();
    EXPECT_NE(errno_of([&] { (void)modules.info(file.string()); }), 0);
    EXPECT_NE(errno_of([&] { modules.load(file.string(), ""); }), 0);
}

} // namespace
