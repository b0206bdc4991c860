// For test programs under mpirun: every rank runs every test case, and all ranks fail if one does.
#pragma once

#include "runtime/transport/mpi_transport.hpp"

namespace ranvier::test {

[[nodiscard]] runtime::MpiSession& mpi_session();

}  // namespace ranvier::test
