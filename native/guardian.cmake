# SPDX-License-Identifier: Apache-2.0
# The program between a process of ours and a game's (guardian/game_guardian.cpp). Linked statically
# where the C library allows it, so that it runs on systems older than the one that builds it.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LINK_OPTIONS -static)
  check_cxx_source_compiles("int main() { return 0; }" ROLLOUTS_CAN_LINK_STATICALLY)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  add_executable(game_guardian guardian/game_guardian.cpp)
  target_compile_options(game_guardian PRIVATE -Wall -Wextra -Os -fno-exceptions -fno-rtti)
  if(ROLLOUTS_CAN_LINK_STATICALLY)
    target_link_options(game_guardian PRIVATE -static -s)
  endif()
  install(TARGETS game_guardian RUNTIME DESTINATION rollouts)
endif()
