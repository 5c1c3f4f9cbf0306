# SPDX-License-Identifier: GPL-2.0-or-later
# Installation of what belongs to no single target.

install(FILES include/uapi/linux/emuv.h
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/linux")
install(DIRECTORY include/emuv DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp")

# Pages of the manual: docs/man/NAME.SECTION goes to manSECTION.
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.[1-8])
foreach(page IN LISTS pages)
  string(REGEX REPLACE ".*\\.([1-8])$" "\\1" section "${page}")
  install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}")
endforeach()

install(FILES docs/reference/settings.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")

function(emuv_install_if_exists file destination)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${file}")
    install(FILES "${file}" DESTINATION "${destination}" ${ARGN})
  endif()
endfunction()

# udev looks below /usr/lib, /usr/local/lib and /etc/udev/rules.d; never in a
# folder of the machine's architecture.
set(EMUV_UDEV_DIR "lib/udev/rules.d" CACHE STRING
  "Where udev's rules are installed; below the prefix, or absolute")
emuv_install_if_exists(packaging/udev/60-emuv.rules "${EMUV_UDEV_DIR}")
# A sample, not a configuration: nothing is made until its user writes one.
emuv_install_if_exists(packaging/vgpu-profiles.conf
  "${CMAKE_INSTALL_DOCDIR}/examples")
