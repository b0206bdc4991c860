# Part of cmake --install, for the headers in `folder`.
file(GLOB_RECURSE headers ${folder}/*.hpp ${folder}/*.cuh)

# Not for others: what means something else when it is compiled for another processor (a program would have both), and
# what includes it.
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

# Those that are left include each other as "ranvier/<room>/…".
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX REPLACE "#include \"(${any_room})/" "#include \"ranvier/\\1/" prefixed "${text}")
  if(NOT prefixed STREQUAL text)
    file(WRITE ${header} "${prefixed}")
  endif()
endforeach()
