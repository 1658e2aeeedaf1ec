# SPDX-License-Identifier: Apache-2.0
# Box2D 2.3, the engine of Gymnasium's environments, from the C++ sources of box2d-py 2.3.8 on the
# package index: nobody else ships them. pip takes the archive once, into build/box2d; its digest is
# in box2d_requirement.txt, and nothing of it is in this repository.
set(ROLLOUTS_BOX2D AUTO CACHE STRING
  "ON: with Box2D, or no build. OFF: without its environments. AUTO: without it where its sources cannot be had.")
set_property(CACHE ROLLOUTS_BOX2D PROPERTY STRINGS AUTO ON OFF)
get_filename_component(BOX2D_FOLDER "${CMAKE_CURRENT_SOURCE_DIR}/../build/box2d" ABSOLUTE)
set(BOX2D_ARCHIVE "${BOX2D_FOLDER}/box2d-py-2.3.8.tar.gz")
set(BOX2D_REQUIREMENT "${CMAKE_CURRENT_SOURCE_DIR}/box2d_requirement.txt")

# Sets BOX2D_MISSING to why the archive is not at BOX2D_ARCHIVE, or to nothing.
function(rollouts_fetch_box2d)
  file(READ "${BOX2D_REQUIREMENT}" requirement)
  string(REGEX MATCH "sha256:([0-9a-f]+)" found "${requirement}")
  set(digest "${CMAKE_MATCH_1}")
  if(NOT EXISTS "${BOX2D_ARCHIVE}")
    # a build that must have it does not give up at a connection that breaks once
    set(attempts 1)
    if(NOT ROLLOUTS_BOX2D STREQUAL "AUTO")
      set(attempts 3)
    endif()
    foreach(attempt RANGE 1 ${attempts})
      # its setup.py is run for its name alone, by a setuptools that pip brings; PYTHONPATH, by which
      # `make wheels` shows other interpreters its tools, would bring another
      execute_process(
        COMMAND "${CMAKE_COMMAND}" -E env --unset=PYTHONPATH
          "${Python_EXECUTABLE}" -m pip --disable-pip-version-check download --quiet --retries 1 --no-deps
          --no-binary box2d-py --require-hashes --dest "${BOX2D_FOLDER}" -r "${BOX2D_REQUIREMENT}"
        RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 120)
      if(result EQUAL 0)
        break()
      endif()
    endforeach()
    if(NOT result EQUAL 0)
      # the lines that say what kept it, or all
      string(STRIP "${said}" said)
      string(REGEX MATCHALL "(error|ERROR): [^\n]+" errors "${said}")
      if(errors)
        list(JOIN errors " " said)
      endif()
      set(BOX2D_MISSING "pip could not download the sources of box2d-py 2.3.8 (${said})" PARENT_SCOPE)
      return()
    endif()
  endif()
  file(SHA256 "${BOX2D_ARCHIVE}" is)
  if(NOT is STREQUAL digest)
    set(BOX2D_MISSING "${BOX2D_ARCHIVE} has SHA-256 ${is}, expected ${digest}" PARENT_SCOPE)
    return()
  endif()
  set(BOX2D_MISSING "" PARENT_SCOPE)
endfunction()

# Unpacks the archive to SOURCES. Counters for Box2D's own developers are made the threads' own:
# worlds of several threads would write them at once. Where velocities of an island are solved,
# together.cpp is asked first.
function(rollouts_unpack_box2d SOURCES)
  set(unpacked "${CMAKE_CURRENT_BINARY_DIR}/box2d")
  if(NOT EXISTS "${unpacked}/altered-3")
    file(REMOVE_RECURSE "${unpacked}")
    file(ARCHIVE_EXTRACT INPUT "${BOX2D_ARCHIVE}" DESTINATION "${unpacked}")
    set(sources "${unpacked}/box2d-py-2.3.8/Box2D")
    foreach(name b2Distance b2TimeOfImpact)
      set(path "${sources}/Collision/${name}.cpp")
      file(READ "${path}" text)
      string(REGEX REPLACE "\n((float32|int32) b2_(gjk|toi)[^;\n]*;)" "\nstatic thread_local \\1" text "${text}")
      file(WRITE "${path}" "// Altered for rollouts: counters are static and thread_local.\n${text}")
    endforeach()
    set(path "${sources}/Dynamics/b2Island.cpp")
    file(READ "${path}" text)
    foreach(step step subStep)
      set(loop "\tfor (int32 i = 0; i < ${step}.velocityIterations; ++i)\n")
      string(FIND "${text}" "${loop}" found)
      if(found EQUAL -1)
        message(FATAL_ERROR "${path} has no loop over ${step}.velocityIterations")
      endif()
      string(REPLACE "${loop}"
        "\tif (!RolloutsSolveVelocities(*this, contactSolver, {${step}, m_positions, m_velocities}))\n${loop}"
        text "${text}")
    endforeach()
    file(WRITE "${path}" "// Altered for rollouts: others may solve velocities.\n"
      "class b2Island;\nclass b2ContactSolver;\nstruct b2SolverData;\n"
      "bool RolloutsSolveVelocities(b2Island&, b2ContactSolver&, const b2SolverData&);\n${text}")
    file(TOUCH "${unpacked}/altered-3")
  endif()
  set(${SOURCES} "${unpacked}/box2d-py-2.3.8" PARENT_SCOPE)
endfunction()

# Gives TARGET engines/planar_world.h: over Box2D, or as it is where there is none.
function(rollouts_add_box2d TARGET)
  set(absent src/engines/box2d_absent.cpp)
  set(present src/engines/box2d/island.cpp src/engines/box2d/memory.cpp src/engines/box2d/together.cpp
    src/engines/box2d/world.cpp)
  set(kernels src/engines/box2d/island_avx2.cpp src/engines/box2d/island_avx512.cpp
    src/engines/box2d/island_baseline.cpp)
  if(ROLLOUTS_BOX2D)
    rollouts_fetch_box2d()
    if(BOX2D_MISSING)
      set(advice "Build it where pip reaches a package index, or put box2d-py-2.3.8.tar.gz of one at ${BOX2D_ARCHIVE}")
      if(NOT ROLLOUTS_BOX2D STREQUAL "AUTO")
        message(FATAL_ERROR "No Box2D: ${BOX2D_MISSING}. ${advice}, or do without its environments: -C cmake.define.ROLLOUTS_BOX2D=OFF")
      endif()
      message(WARNING "This build has no Box2D environments: ${BOX2D_MISSING}. ${advice}.")
    endif()
  endif()
  if(NOT ROLLOUTS_BOX2D OR BOX2D_MISSING)
    target_sources(${TARGET} PRIVATE ${absent})
    return()
  endif()

  rollouts_unpack_box2d(folder)
  file(GLOB_RECURSE sources "${folder}/Box2D/*.cpp")
  # memory.cpp defines what these do, as they ask to be replaced
  list(FILTER sources EXCLUDE REGEX "b2(Settings|Timer)\\.cpp$")
  # before Python's own headers: a Python.h of ours
  set(includes "${CMAKE_CURRENT_SOURCE_DIR}/src/engines/box2d")
  add_library(rollouts_box2d STATIC ${sources})
  target_include_directories(rollouts_box2d PRIVATE "${includes}" "${folder}")
  # hidden: the binding for Python may be in the same process, with symbols of the same names
  set_target_properties(rollouts_box2d PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON UNITY_BUILD OFF)
  target_compile_options(rollouts_box2d PRIVATE -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -w)
  target_sources(${TARGET} PRIVATE ${present} ${kernels})
  set_source_files_properties(${kernels} PROPERTIES
    COMPILE_OPTIONS "-fno-trapping-math;-fno-math-errno" SKIP_UNITY_BUILD_INCLUSION ON)
  set_source_files_properties(${present} PROPERTIES
    INCLUDE_DIRECTORIES "${includes}" COMPILE_OPTIONS "-isystem;${folder}" SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${TARGET} PRIVATE rollouts_box2d)
  install(FILES "${folder}/LICENSE" DESTINATION rollouts/licenses RENAME Box2D.txt)
endfunction()
