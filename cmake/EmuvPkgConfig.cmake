# SPDX-License-Identifier: GPL-2.0-or-later

# emuv_install_pkg_config(NAME COMPONENT): makes NAME.pc from NAME.pc.in, and
# installs it. It finds its prefix from its own folder, so that the tree can be
# installed under any.
function(emuv_install_pkg_config name component)
  file(RELATIVE_PATH EMUV_PC_TO_PREFIX
    "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file("${name}.pc.in" "${name}.pc" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT ${component})
endfunction()
