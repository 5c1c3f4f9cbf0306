# SPDX-License-Identifier: GPL-2.0-or-later
include(GoogleTest)

# emuv_list_tests(TARGET [OPTION]...): gtest_discover_tests with its options. A
# busy machine may take minutes to list them, where CMake's limit is 5 s.
function(emuv_list_tests target)
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 600 ${ARGN})
endfunction()
