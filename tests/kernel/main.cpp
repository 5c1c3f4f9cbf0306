// SPDX-License-Identifier: GPL-2.0-or-later
// The main() of every test program that loads the module.
#include "support.hpp"

#include <cstdio>

#include <gtest/gtest.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    testing::InitGoogleTest(&argc, argv);
    if (testing::GTEST_FLAG(list_tests))
        return RUN_ALL_TESTS();
    if (geteuid() != 0 || guest::module_file().empty()) {
        std::fputs("these tests load the module: run them as root in a guest, "
                   "with EMUV_KO naming emuv.ko\n",
                   stderr);
        return 2;
    }
    return RUN_ALL_TESTS();
}
