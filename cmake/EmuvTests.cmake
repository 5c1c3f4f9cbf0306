# SPDX-License-Identifier: GPL-2.0-or-later
# How tests are compiled. They run once, so a quick build is worth more than
# quick code, and lines are all that a report needs of the debugger's data.

include(EmuvListTests)

add_compile_options(-g1)
if(EMUV_SANITIZE)
  # A third of the compiler's time went into making these checks fast.
  add_compile_options(-O0)
else()
  add_compile_options(-O1)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # These are wrong about std::string where little is inlined (GCC's bug 105651).
  add_compile_options(-Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
endif()
set_directory_properties(PROPERTIES EMUV_TEST ON)

# emuv_precompile(TARGET...): read GoogleTest's and the standard library's
# headers once for each target. For targets of several files.
function(emuv_precompile)
  foreach(target IN LISTS ARGN)
    emuv_precompile_headers(${target}
      gtest/gtest.h algorithm functional map memory string thread vector)
  endforeach()
endfunction()
