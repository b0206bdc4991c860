# Writes <source>, which contains apps/view/page.html with page.js in it as text, from apps/view/page.cpp.in.
function(ranvier_page source)
  set(folder ${PROJECT_SOURCE_DIR}/apps/view)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/page.html ${folder}/page.js)
  file(READ ${folder}/page.html ranvier_page)
  file(READ ${folder}/page.js script)
  string(REPLACE "<script src=\"page.js\">" "<script>\n${script}" ranvier_page "${ranvier_page}")
  configure_file(${folder}/page.cpp.in ${source} @ONLY)
endfunction()
