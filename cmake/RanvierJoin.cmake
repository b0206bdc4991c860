# Unity builds (RANVIER_JOIN): compiles up to a dozen sources of a target together, which halves the compile time. A
# source is never joined with one that uses a name which it declares locally. Sources that compute training's numbers
# (*_cpu.cpp, and sources with their own compiler options) are compiled separately, so that results are bit-identical to
# other builds. So are sources that include vendors' headers.

# Names that a source declares locally (in anonymous namespaces; constants and macros anywhere), and names that it may
# use: local ones, imports, unqualified function calls, and types.
function(ranvier_read_names source declared uses)
  file(READ ${source} text)
  string(REGEX REPLACE "//[^\n]*|\"[^\"\n]*\"" "" text "\n${text}")
  string(REPLACE ";" " @" text "${text}")  # separates items of a list, unless brackets keep it from that
  string(REPLACE "[" "@" text "${text}")
  string(REPLACE "]" "@" text "${text}")

  string(REGEX MATCHALL "\n#define [A-Za-z_0-9]+" names "${text}")
  string(REGEX MATCHALL "\n(static|const|constexpr) [^@{}()#=\n]*[ *&][A-Za-z_0-9]+( =|@|{|\\()" constants "${text}")
  string(REGEX MATCHALL "\nconstexpr [^@\n]*" lines "${text}")  # constexpr int a = 1, b = 2;
  string(REGEX MATCHALL ", [A-Za-z_0-9]+ =" others "${lines}")
  list(TRANSFORM others REPLACE ", ([A-Za-z_0-9]+) =" " \\1")
  list(APPEND names ${constants} ${others})
  set(rest "${text}")
  string(FIND "${rest}" "\nnamespace {\n" begin)
  while(NOT begin EQUAL -1)
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "\n}  \n" end)  # its comment, "// namespace", is gone
    if(end EQUAL -1)
      message(FATAL_ERROR "${source}: 'namespace {' without a line '}  // namespace'")
    endif()
    string(SUBSTRING "${rest}" 0 ${end} block)
    string(SUBSTRING "${rest}" ${end} -1 rest)
    foreach(declaration
        "\n(struct|class|enum class|enum|union) [A-Za-z_0-9]+"
        "\nusing [A-Za-z_0-9]+ ="
        "\n[A-Za-z_][^@{}()#\n]*[ *&][A-Za-z_0-9]+\\("
        "\n[A-Za-z_][^@{}()#=\n]*[ *&][A-Za-z_0-9]+( =|@|{| @)")
      string(REGEX MATCHALL "${declaration}" found "${block}")
      list(FILTER found EXCLUDE REGEX "^\n(using )?namespace ")
      list(APPEND names ${found})
    endforeach()
    string(FIND "${rest}" "\nnamespace {\n" begin)
  endwhile()
  list(TRANSFORM names REPLACE "[ ={(@]+$" "")
  list(TRANSFORM names REPLACE "^.*[ *&]" "")
  list(REMOVE_DUPLICATES names)

  string(REGEX MATCHALL "[A-Z][A-Za-z_0-9]*" used "${text}")
  string(REGEX MATCHALL "\nusing [A-Za-z_0-9:]+ @" imports "${text}")
  list(TRANSFORM imports REPLACE "^.*[ :]([A-Za-z_0-9]+) @$" "\\1")
  string(REPLACE "(" "( (" text "${text}")
  string(REGEX MATCHALL "[^.>:A-Za-z_0-9][a-z_][A-Za-z_0-9]*\\(" calls "${text}")
  list(TRANSFORM calls REPLACE "[^A-Za-z_0-9]" "")
  list(APPEND used ${imports} ${calls} ${names})
  list(REMOVE_DUPLICATES used)
  set(${declared} "${names}" PARENT_SCOPE)
  set(${uses} "${used}" PARENT_SCOPE)
endfunction()

# Whether two lists have an item in common.
function(ranvier_overlap first second result)
  set(rest ${${first}})
  list(LENGTH rest before)
  if(before AND ${second})
    list(REMOVE_ITEM rest ${${second}})
  endif()
  list(LENGTH rest after)
  if(before EQUAL after)
    set(${result} OFF PARENT_SCOPE)
  else()
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

# ranvier_join(<target> [<folder>]): groups the target's C++ sources in a folder, by default the current one.
function(ranvier_join target)
  if(NOT RANVIER_JOIN)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # Using one source of a group links all of them; the linker then removes functions that are not called.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections>
                         $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # no source is what the compiler began with
  set(most 12)
  set(groups 0)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR} ${ARGN})
  list(GET folder -1 folder)
  get_target_property(sources ${target} SOURCES)
  string(REPLACE "${folder}/" "" sources "${sources}")
  list(FILTER sources INCLUDE REGEX "^[a-z_0-9][a-z_/0-9]*\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(cpu|cuda)\\.cpp$")
  foreach(source IN LISTS sources)
    ranvier_read_names(${folder}/${source} declared uses)
    set(group 0)
    while(group LESS groups)
      ranvier_overlap(uses declared_${group} theirs)
      ranvier_overlap(declared uses_${group} ours)
      if(count_${group} LESS most AND NOT theirs AND NOT ours)
        break()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    if(group EQUAL groups)
      math(EXPR groups "${groups} + 1")
      set(count_${group} 0)
      set(declared_${group} "")
      set(uses_${group} "")
    endif()
    math(EXPR count_${group} "${count_${group}} + 1")
    list(APPEND declared_${group} ${declared})
    list(APPEND uses_${group} ${uses})
    list(REMOVE_DUPLICATES uses_${group})
    set_source_files_properties(${folder}/${source} PROPERTIES UNITY_GROUP ${target}_${group})
  endforeach()
endfunction()
