find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Boost 1.81 REQUIRED COMPONENTS program_options)
find_package(fmt REQUIRED)

# oneDNN of Debian 12 (2.6) and Ubuntu 24.04 (3.x); the CPU's matrix products.
find_package(dnnl REQUIRED)

if(RANVIER_TESTS)
  find_package(doctest REQUIRED)
endif()
