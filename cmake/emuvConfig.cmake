# SPDX-License-Identifier: LGPL-2.1-or-later
# find_package(emuv): the target emuv::emuv. It is a static library, so its
# users link the libraries that it calls, too.
include(CMakeFindDependencyMacro)
find_dependency(PkgConfig)
if(PkgConfig_FOUND)
  if(NOT TARGET PkgConfig::KMOD)
    pkg_check_modules(KMOD QUIET IMPORTED_TARGET libkmod)
  endif()
  if(NOT TARGET PkgConfig::INIH)
    pkg_check_modules(INIH QUIET IMPORTED_TARGET inih)
  endif()
endif()
if(TARGET PkgConfig::KMOD AND TARGET PkgConfig::INIH)
  include("${CMAKE_CURRENT_LIST_DIR}/emuvTargets.cmake")
else()
  set(emuv_FOUND FALSE)
  set(emuv_NOT_FOUND_MESSAGE
    "libemuv needs the headers of libkmod and inih (libkmod-dev, libinih-dev)")
endif()
