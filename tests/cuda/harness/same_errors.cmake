# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the table of errors on a driver and on the same with the library in
# front, and fails on the first difference.
foreach(who IN ITEMS alone behind)
  set(table "${WORK}/errors.${who}")
  file(REMOVE "${table}")
  set(extra "")
  if(who STREQUAL "behind")
    set(extra "LD_PRELOAD=${LIBRARY}" "EMUV_LIBCUDA=${DRIVER}"
      "EMUV_PHYSICAL=64M" "EMUV_VIRTUAL=64M")
  endif()
  get_filename_component(directory "${DRIVER}" DIRECTORY)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env "LD_LIBRARY_PATH=${directory}"
      "EMUV_TEST_ERRORS=${table}" ${extra}
      "${HARNESS}" --gtest_filter=Errors.*
    OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT EXISTS "${table}")
    message(FATAL_ERROR "The harness ended with ${status}\n${said}")
  endif()
  file(STRINGS "${table}" ${who})
endforeach()
set(different "")
foreach(one other IN ZIP_LISTS alone behind)
  if(NOT one STREQUAL other)
    string(APPEND different "  ${one}\n    behind the library: ${other}\n")
  endif()
endforeach()
list(LENGTH alone count)
if(different)
  message(FATAL_ERROR "Not the driver's own answer:\n${different}")
endif()
message(STATUS "${count} answers are the same")
