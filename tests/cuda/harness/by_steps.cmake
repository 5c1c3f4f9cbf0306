# SPDX-License-Identifier: GPL-2.0-or-later
# Runs a test of the harness's, TEST, in which graphs add to buffers. Fails
# unless so many launches, LAUNCHES, were followed on their own, as the library
# tells in STATS.
cmake_minimum_required(VERSION 3.20)
file(REMOVE "${STATS}")
execute_process(
  COMMAND "${HARNESS}" "--gtest_filter=${TEST}"
  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "ended with ${status}\n${said}")
endif()
file(READ "${STATS}" stats)
if(NOT stats MATCHES "\n0\t${LAUNCHES}\t0\t-\tadd\n")
  message(FATAL_ERROR "not ${LAUNCHES} launches of add, each trusted:\n${stats}")
endif()
