# SPDX-License-Identifier: GPL-2.0-or-later
# Writes a weak definition of every symbol of the CUDA driver, for those that
# the simulation does not define itself.
execute_process(COMMAND "${NM}" -D --defined-only "${STUB}"
  OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "cu[A-Z][A-Za-z0-9_]*" names "${listing}")
list(REMOVE_DUPLICATES names)
set(text "/* Generated. 801 is CUDA_ERROR_NOT_SUPPORTED. */\n")
foreach(name IN LISTS names)
  string(APPEND text
    "__attribute__((weak, visibility(\"default\"))) int ${name}(void);\n"
    "int ${name}(void)\n{\n\treturn 801;\n}\n")
endforeach()
file(WRITE "${OUT}" "${text}")
