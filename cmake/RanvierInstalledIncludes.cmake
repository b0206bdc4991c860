# Part of cmake --install: headers in `folder` include those of `any_room` as "ranvier/<room>/…".
file(GLOB_RECURSE headers ${folder}/*.hpp ${folder}/*.cuh)
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX REPLACE "#include \"(${any_room})/" "#include \"ranvier/\\1/" prefixed "${text}")
  if(NOT prefixed STREQUAL text)
    file(WRITE ${header} "${prefixed}")
  endif()
endforeach()
