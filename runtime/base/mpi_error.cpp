#include "runtime/base/mpi_error.hpp"

#include "runtime/base/error.hpp"

#include <mpi.h>

#include <cstddef>

namespace ranvier::runtime {

std::string describe_mpi(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return {text, static_cast<std::size_t>(length)};
}

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) fail(ErrorCode::transport, "{}: {}", call, describe_mpi(code));
}

}  // namespace ranvier::runtime
