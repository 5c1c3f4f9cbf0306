# SPDX-License-Identifier: GPL-2.0-or-later
# Installation of what belongs to no single target.
#
# Each component is a package: emuv (the tool and all that goes with it),
# libemuv-cuda, libemuv-dev, libemuv-kernels0, libemuv-kernels-dev, emuv-slurm,
# and emuv-dkms, the module's sources. `cmake --install` without --component
# takes all but the last.

include(CMakePackageConfigHelpers)

install(FILES include/uapi/linux/emuv.h
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/linux" COMPONENT libemuv-dev)
install(DIRECTORY include/emuv DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT libemuv-dev FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")

# The Python package goes with the library that it speaks to.
set(EMUV_PYTHON_DIR "lib/python3/dist-packages" CACHE STRING
  "Where the Python package is installed; below the prefix, or absolute")
if(TARGET emuv_cuda)
  install(DIRECTORY python/emuv DESTINATION "${EMUV_PYTHON_DIR}"
    COMPONENT libemuv-cuda FILES_MATCHING PATTERN "*.py"
    PATTERN "__pycache__" EXCLUDE)
endif()

# Pages of the manual: docs/man/NAME.SECTION goes to manSECTION.
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.[1-8])
foreach(page IN LISTS pages)
  string(REGEX REPLACE ".*\\.([1-8])$" "\\1" section "${page}")
  set(component emuv)
  if(section EQUAL 3) # of the headers
    set(component libemuv-dev)
  endif()
  install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}"
    COMPONENT ${component})
endforeach()

# udev looks below /usr/lib, /usr/local/lib and /etc/udev/rules.d; never in a
# folder of the machine's architecture. Neither do systemd, kmod and dkms.
set(EMUV_UDEV_DIR "lib/udev/rules.d" CACHE STRING
  "Where udev's rules are installed; below the prefix, or absolute")
set(EMUV_SYSTEMD_DIR "lib/systemd/system" CACHE STRING
  "Where systemd's units are installed; below the prefix, or absolute")
option(EMUV_DEBIAN_DOCS
  "Leave licences and changelog to Debian's tools: copyright, changelog.gz" OFF)

cmake_path(ABSOLUTE_PATH EMUV_UDEV_DIR BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}"
  OUTPUT_VARIABLE udev)
install(FILES packaging/udev/70-emuv.rules DESTINATION "${EMUV_UDEV_DIR}"
  COMPONENT emuv)
if(TARGET emuv_slurm)
  install(FILES packaging/udev/71-emuv-slurm.rules
    DESTINATION "${EMUV_UDEV_DIR}" COMPONENT emuv-slurm)
endif()
# The unit names the tool by its path, which --prefix may change yet.
install(CODE "
  set(EMUV_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
  cmake_path(ABSOLUTE_PATH EMUV_BINDIR BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\")
  configure_file(
    \"${CMAKE_CURRENT_SOURCE_DIR}/packaging/systemd/emuv-restore.service.in\"
    \"${CMAKE_CURRENT_BINARY_DIR}/emuv-restore.service\" @ONLY)"
  COMPONENT emuv)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/emuv-restore.service"
  DESTINATION "${EMUV_SYSTEMD_DIR}" COMPONENT emuv)
# A sample, not a configuration: nothing is made until its user writes one.
install(FILES packaging/vgpu-profiles.conf packaging/compose.yaml
  DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples" COMPONENT emuv)
get_cmake_property(components COMPONENTS) # of all that is named above
if(NOT EMUV_DEBIAN_DOCS)
  foreach(component IN LISTS components)
    set(folder "${CMAKE_INSTALL_DATADIR}/doc/${component}")
    if(component STREQUAL "emuv")
      set(folder "${CMAKE_INSTALL_DOCDIR}")
    endif()
    install(FILES LICENSE DESTINATION "${folder}" COMPONENT ${component})
    install(DIRECTORY LICENSES DESTINATION "${folder}" COMPONENT ${component})
  endforeach()
endif()

# The documents, with links that lead to what is installed.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  set(documents "${CMAKE_CURRENT_BINARY_DIR}/documents")
  set(places
    "packaging/vgpu-profiles.conf:${CMAKE_INSTALL_FULL_DOCDIR}/examples/vgpu-profiles.conf"
    "packaging/compose.yaml:${CMAKE_INSTALL_FULL_DOCDIR}/examples/compose.yaml"
    "packaging/udev/70-emuv.rules:${udev}/70-emuv.rules"
    "include/uapi/linux/emuv.h:${CMAKE_INSTALL_FULL_INCLUDEDIR}/linux/emuv.h"
    "include/emuv:${CMAKE_INSTALL_FULL_INCLUDEDIR}/emuv")
  if("libemuv-kernels-dev" IN_LIST components)
    list(APPEND places
      "tools/kernels/include/emuv/kernels.h:${CMAKE_INSTALL_FULL_INCLUDEDIR}/emuv/kernels.h")
  endif()
  if(EMUV_DEBIAN_DOCS)
    list(APPEND places "LICENSE:${CMAKE_INSTALL_FULL_DOCDIR}/copyright"
      "LICENSES:${CMAKE_INSTALL_FULL_DOCDIR}/copyright"
      "CHANGELOG.md:${CMAKE_INSTALL_FULL_DOCDIR}/changelog.gz")
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS docs/*.md docs/*.svg)
  add_custom_command(OUTPUT "${documents}.stamp"
    COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/cmake/documents.py"
      --out "${documents}" --docs "${CMAKE_INSTALL_FULL_DOCDIR}" ${places}
    COMMAND "${CMAKE_COMMAND}" -E touch "${documents}.stamp"
    DEPENDS cmake/documents.py README.md CHANGELOG.md SECURITY.md DESIGN.md
      ${sources}
    COMMENT "Making the documents to install"
    VERBATIM)
  add_custom_target(emuv_documents ALL DEPENDS "${documents}.stamp")
  install(DIRECTORY "${documents}/" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT emuv)
else()
  message(STATUS "documents: left out, they need Python 3")
endif()

# find_package(emuv). Without the library there is nothing to find.
if(TARGET emuv)
  set(config "${CMAKE_INSTALL_LIBDIR}/cmake/emuv")
  install(EXPORT emuv NAMESPACE emuv:: FILE emuvTargets.cmake
    DESTINATION "${config}" COMPONENT libemuv-dev)
  write_basic_package_version_file(
    "${CMAKE_CURRENT_BINARY_DIR}/emuvConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES cmake/emuvConfig.cmake
      "${CMAKE_CURRENT_BINARY_DIR}/emuvConfigVersion.cmake"
    DESTINATION "${config}" COMPONENT libemuv-dev)
endif()

# The module's sources, as dkms wants them. They are not for `cmake --install`
# alone: there people build the module from the tree.
set(module "src/emuv-${PROJECT_VERSION}")
configure_file(packaging/dkms/dkms.conf.in dkms.conf @ONLY)
install(FILES Kbuild VERSION "${CMAKE_CURRENT_BINARY_DIR}/dkms.conf"
  DESTINATION "${module}" COMPONENT emuv-dkms EXCLUDE_FROM_ALL)
install(DIRECTORY kernel DESTINATION "${module}"
  COMPONENT emuv-dkms EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.[ch]" PATTERN "*_kunit.c" EXCLUDE
    PATTERN "*.mod.c" EXCLUDE)
install(FILES include/uapi/linux/emuv.h
  DESTINATION "${module}/include/uapi/linux"
  COMPONENT emuv-dkms EXCLUDE_FROM_ALL)
install(FILES packaging/modules-load.d/emuv.conf
  DESTINATION lib/modules-load.d COMPONENT emuv-dkms EXCLUDE_FROM_ALL)
install(FILES packaging/modprobe.d/emuv.conf
  DESTINATION /etc/modprobe.d COMPONENT emuv-dkms EXCLUDE_FROM_ALL)
