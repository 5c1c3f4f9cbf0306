# SPDX-License-Identifier: GPL-2.0-or-later
# Headers that a target reads once. The CUDA library has this on its own, too.

# emuv_precompile_headers(TARGET HEADER...): read these headers once for the
# target. Worth its while from about ten files on.
function(emuv_precompile_headers target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Or ccache cannot see the headers.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
  list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>"
    OUTPUT_VARIABLE headers)
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()
