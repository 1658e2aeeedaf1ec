# SPDX-License-Identifier: Apache-2.0
# For wheels that run on systems older than the one that builds them (manylinux_2_28: glibc 2.28,
# libstdc++ of GCC 8); `make wheels` switches it on. The module is linked against stand-ins of the
# system's libraries that have the old symbols alone (portable/old_libraries.py). What libstdc++ got
# later comes from its static library and is not seen outside the module; what glibc got later
# is in portable/stand_ins.cpp. libstdc++ itself stays shared: exceptions of ALE pass through it.
option(ROLLOUTS_PORTABLE "Link the module so that it runs on glibc 2.28" OFF)

function(rollouts_make_portable TARGET)
  set(script "${CMAKE_CURRENT_SOURCE_DIR}/portable/old_libraries.py")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/old_libraries")
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(loader ld-linux-aarch64.so.1)
  else()
    set(loader ld-linux-x86-64.so.2)
  endif()
  # libpthread and libdl are empty in new systems; in old ones half of the C library is there
  set(names libstdc++.so.6 libm.so.6 libpthread.so.0 libdl.so.2 libc.so.6)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${script}" --readelf "${CMAKE_READELF}"
      --compiler "${CMAKE_CXX_COMPILER}" --folder "${folder}" ${names} ${loader}
    COMMAND_ERROR_IS_FATAL ANY)
  # what is linked statically into every module anyway, then what libstdc++ got later
  foreach(archive libc_nonshared.a libstdc++.a)
    execute_process(
      COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=${archive}
      OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    list(APPEND archives "${path}")
  endforeach()
  list(GET archives 0 nonshared)
  list(TRANSFORM names PREPEND "${folder}/")
  target_sources(${TARGET} PRIVATE portable/stand_ins.cpp)
  set_target_properties(${TARGET} PROPERTIES SKIP_BUILD_RPATH ON)
  # -nodefaultlibs: nothing newer comes in behind the stand-ins
  target_link_options(${TARGET} PRIVATE -nodefaultlibs -Wl,--exclude-libs,ALL)
  target_link_libraries(${TARGET} PRIVATE "${nonshared}" -Wl,--no-as-needed ${names}
    -Wl,--as-needed ${archives} ${names} "${folder}/${loader}" gcc_s gcc)
  add_custom_command(TARGET ${TARGET} POST_BUILD
    COMMAND "${Python_EXECUTABLE}" "${script}" --readelf "${CMAKE_READELF}"
      --check "$<TARGET_FILE:${TARGET}>" VERBATIM)
endfunction()
