# Part of cmake --install, for the headers in `folder`.
file(GLOB_RECURSE headers ${folder}/*.hpp ${folder}/*.cuh)

# Removes headers whose code depends on the processor's instructions, and headers that include them: a program that is
# compiled for another processor would contain both versions.
set(patterns "__AVX|__ARM|__F16C|__AMX")
while(patterns)
  list(POP_FRONT patterns pattern)
  foreach(header IN LISTS headers)
    file(STRINGS ${header} lines REGEX "${pattern}")
    if(lines)
      file(REMOVE ${header})
      list(REMOVE_ITEM headers ${header})
      file(RELATIVE_PATH name ${folder} ${header})
      list(APPEND patterns "#include \"${name}\"|#include \"ranvier/${name}\"")
    endif()
  endforeach()
endwhile()

# The remaining headers include each other as "ranvier/<folder>/…".
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX REPLACE "#include \"(${any_room})/" "#include \"ranvier/\\1/" prefixed "${text}")
  if(NOT prefixed STREQUAL text)
    file(WRITE ${header} "${prefixed}")
  endif()
endforeach()
