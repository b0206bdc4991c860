# cmake --install: the programs, and the package for find_package(Ranvier), with one target per folder.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ranvier_package ${CMAKE_INSTALL_LIBDIR}/cmake/Ranvier)

# Other projects include headers as "ranvier/<folder>/…". Installed headers include each other the same way, because a
# project may have its own folders models/ or runtime/.
install(TARGETS ranvier_headers EXPORT RanvierRooms INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(room IN LISTS ranvier_rooms)
  install(TARGETS ranvier_${room} EXPORT RanvierRooms ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ranvier
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
endforeach()
install(TARGETS ranvier_program EXPORT RanvierRooms ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
list(JOIN ranvier_rooms "|" any_room)
install(CODE "set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/ranvier\")
set(any_room \"${any_room}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/RanvierInstalledIncludes.cmake)

install(EXPORT RanvierRooms NAMESPACE Ranvier:: DESTINATION ${ranvier_package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/RanvierConfig.cmake.in ${PROJECT_BINARY_DIR}/RanvierConfig.cmake
                              INSTALL_DESTINATION ${ranvier_package} NO_SET_AND_CHECK_MACRO
                              NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0, a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/RanvierConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RanvierConfig.cmake ${PROJECT_BINARY_DIR}/RanvierConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/RanvierLibraries.cmake DESTINATION ${ranvier_package})

install(TARGETS ranvier-train ranvier-generate ranvier-tokenize ranvier-checkpoint ranvier-plan ranvier-report ranvier-bench
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/apps/README.md ${PROJECT_SOURCE_DIR}/apps/CHANGES.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/apps)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/apps/guides DESTINATION ${CMAKE_INSTALL_DOCDIR}/apps)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/apps/restart_loop.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/ranvier)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/apps/example-project ${PROJECT_SOURCE_DIR}/apps/slurm DESTINATION ${CMAKE_INSTALL_DATADIR}/ranvier)

# Each program writes its own manual page and completion scripts, so they have to run on this machine.
if(NOT CMAKE_CROSSCOMPILING)
  foreach(program IN ITEMS train generate tokenize checkpoint plan report bench)
    install(CODE "set(program \"$<TARGET_FILE:ranvier-${program}>\")
set(man \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1/ranvier-${program}.1\")
set(bash \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions/ranvier-${program}\")
set(zsh \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_ranvier-${program}\")")
    install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/RanvierInstallManual.cmake)
  endforeach()
endif()
