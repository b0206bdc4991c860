// Error check of every MPI call. Loop thread only.
#pragma once

#include "runtime/base/error.hpp"

#include <mpi.h>

#include <cstddef>
#include <string>

namespace ranvier::runtime {

/// MPI's own text for an error code.
[[nodiscard]] inline std::string describe_mpi(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

/// Throws ErrorCode::transport with the call's name unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) fail(ErrorCode::transport, "{}: {}", call, describe_mpi(code));
}

}  // namespace ranvier::runtime
