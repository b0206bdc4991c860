// Error check of every MPI call. Loop thread only.
#pragma once

#include <string>

namespace ranvier::runtime {

/// MPI's own text for an error code.
[[nodiscard]] std::string describe_mpi(int code);

/// Throws ErrorCode::transport with the call's name unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace ranvier::runtime
