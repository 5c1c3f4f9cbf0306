# SPDX-License-Identifier: GPL-2.0-or-later
include(GoogleTest)

# emuv_list_tests(TARGET [OPTION]...): gtest_discover_tests with its options. A
# busy machine may take minutes to list them, where CMake's limit is 5 s. With
# the label `threads` the program is one of the target `threads`.
function(emuv_list_tests target)
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 600 ${ARGN})
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" PROPERTIES)
  if("threads" IN_LIST arg_PROPERTIES)
    emuv_has_threads(${target})
  endif()
endfunction()

# emuv_has_threads(TARGET): it has tests with the label `threads`, which run
# under ThreadSanitizer, too.
function(emuv_has_threads target)
  set_property(GLOBAL APPEND PROPERTY EMUV_THREADS ${target})
endfunction()
