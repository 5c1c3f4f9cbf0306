# SPDX-License-Identifier: GPL-2.0-or-later
# GoogleTest: the system's, or built from its sources, which GTEST_SOURCE
# names where they are not where Debian puts them.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  set(GTEST_SOURCE "$ENV{GTEST_SOURCE}" CACHE PATH "GoogleTest's sources")
  find_path(EMUV_GTEST_SOURCE googletest/src/gtest-all.cc
    PATHS "${GTEST_SOURCE}" /usr/src/googletest NO_DEFAULT_PATH)
  if(NOT EMUV_GTEST_SOURCE)
    message(FATAL_ERROR "GoogleTest is not installed, and GTEST_SOURCE names "
      "no sources of it")
  endif()
  set(BUILD_GMOCK OFF)
  set(INSTALL_GTEST OFF)
  add_subdirectory("${EMUV_GTEST_SOURCE}" "${CMAKE_BINARY_DIR}/googletest"
    EXCLUDE_FROM_ALL)
endif()
