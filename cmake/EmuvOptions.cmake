# SPDX-License-Identifier: GPL-2.0-or-later
# The options that every target of this project is compiled with: emuv::options.

include(EmuvPrecompile)

add_library(emuv_options INTERFACE)
add_library(emuv::options ALIAS emuv_options)

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_EXTENSIONS ON) # asm/ioctl.h and friends want GNU C
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Compile through ccache where it is installed: the builds of the presets, and of
# each checkout, share what is the same in them.
find_program(EMUV_CCACHE ccache)
if(EMUV_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The slack is for precompiled headers, as ccache's manual asks for it.
  set(launcher "${CMAKE_COMMAND}" -E env
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "${EMUV_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# For developers and CI, whose presets turn it on: another compiler warns of
# other things, and a release has to build there all the same.
option(EMUV_WERROR "Treat the compiler's warnings as errors" OFF)

target_compile_features(emuv_options INTERFACE cxx_std_20 c_std_11)
target_compile_options(emuv_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # Part of -Wconversion in clang, and in gcc for C alone.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-sign-conversion>
  $<$<BOOL:${EMUV_WERROR}>:-Werror>
  -fvisibility=hidden
  $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>)
target_include_directories(emuv_options INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/uapi>"
  "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>")
# A program carries only the libraries it calls into.
target_link_options(emuv_options INTERFACE LINKER:--as-needed)

# Of a folder's targets: tests, and what only tests use.
define_property(TARGET PROPERTY EMUV_TEST INHERITED)
set(EMUV_SANITIZE "" CACHE STRING
  "Sanitizers to build everything with, as -fsanitize= takes them")
if(EMUV_SANITIZE)
  target_compile_options(emuv_options INTERFACE
    "-fsanitize=${EMUV_SANITIZE}" -fno-omit-frame-pointer
    -fno-sanitize-recover=all
    # A null pointer ends a program without a check, and AddressSanitizer knows
    # the ends of objects. Both are a tenth of the compiler's time.
    -fno-sanitize=null,object-size
    # In tests' own code these checks are two fifths of the compiler's time.
    $<$<BOOL:$<TARGET_PROPERTY:EMUV_TEST>>:-fno-sanitize=undefined>)
  target_link_options(emuv_options INTERFACE "-fsanitize=${EMUV_SANITIZE}")
endif()
