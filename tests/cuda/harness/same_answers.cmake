# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the table of answers on a driver, and on the same with the library in
# front and each of its stores. Fails if they differ. DRIVER is the
# simulated one; without it, the machine's own. Each table is left in WORK.
cmake_minimum_required(VERSION 3.20)

set(answers_environment "")
set(library_environment "LD_PRELOAD=${LIBRARY}" EMUV_PHYSICAL=12M
  EMUV_VIRTUAL=64M EMUV_CHARGE=allocations)
if(DRIVER)
  get_filename_component(directory "${DRIVER}" DIRECTORY)
  list(APPEND answers_environment "LD_LIBRARY_PATH=${directory}")
  list(APPEND library_environment "EMUV_LIBCUDA=${DRIVER}")
endif()

set(failures "")
foreach(who IN ITEMS alone numa pages)
  set(environment ${answers_environment})
  if(NOT who STREQUAL "alone")
    list(APPEND environment ${library_environment} "EMUV_STORE=${who}")
  endif()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env ${environment} "${ANSWERS}"
    OUTPUT_FILE "${WORK}/answers.${who}" ERROR_VARIABLE said
    RESULT_VARIABLE status)
  file(STRINGS "${WORK}/answers.${who}" ${who})
  if(NOT status EQUAL 0 OR NOT ${who})
    message(FATAL_ERROR "${who}: ended with ${status}\n${said}")
  endif()
  if(NOT who STREQUAL "alone")
    list(LENGTH alone count)
    list(LENGTH ${who} count_behind)
    if(NOT count EQUAL count_behind)
      message(FATAL_ERROR "${count} answers alone, ${count_behind} (${who})")
    endif()
    foreach(one other IN ZIP_LISTS alone ${who})
      if(NOT one STREQUAL other)
        string(APPEND failures "  ${one}\n    with the library, ${who}: ${other}\n")
      endif()
    endforeach()
  endif()
endforeach()

# A driver may crash on a question. A simulation that does is unfinished, and a
# scene that cannot be set up has asked nothing.
foreach(line IN LISTS alone)
  if(line MATCHES ": ended with" OR (DRIVER AND line MATCHES ": killed"))
    string(APPEND failures "  ${line}\n")
  endif()
endforeach()

# Every call that the library has a function of its own for is asked about.
file(STRINGS "${TABLE}" hooked REGEX "^hooked")
foreach(line IN LISTS hooked)
  string(REGEX REPLACE "^hooked +[^ ]+ +([^ ]+).*" "\\1" name "${line}")
  if(NOT "${alone}" MATCHES "(^|;)${name}(_v2)? ")
    string(APPEND failures "  ${name}: is hooked, and nothing is asked of it\n")
  endif()
endforeach()

if(failures)
  message(FATAL_ERROR "Not the driver's own answers:\n${failures}")
endif()
set(crashes ${alone})
list(FILTER crashes INCLUDE REGEX ": killed")
list(LENGTH crashes crashed)
message(STATUS "${count} answers are the same, ${crashed} of them crashes")
