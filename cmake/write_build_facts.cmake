# Writes OUTPUT if its content has changed. RanvierBuildFacts.cmake runs it in every build.
cmake_minimum_required(VERSION 3.25)

set(COMMIT "unknown")
if(GIT)
  # Ignores the commit if the source is a subfolder of another repository.
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix
                  OUTPUT_VARIABLE inside RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND inside STREQUAL "")
    execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0
                            ${GIT} -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12
                    OUTPUT_VARIABLE described RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed AND NOT described STREQUAL "")
      set(COMMIT "${described}")
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "apps/program/build_info.hpp"

namespace ranvier::apps {

const BuildInfo build_info{.version = "@VERSION@",
                             .commit = "@COMMIT@",
                             .devices = "@DEVICES@",
                             .libraries = "@LIBRARIES@"};

}  // namespace ranvier::apps
]])
