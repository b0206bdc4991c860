#include "runtime/base/error.hpp"

namespace ranvier {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::data:
      return "data";
    case ErrorCode::io:
      return "io";
    case ErrorCode::memory:
      return "memory";
    case ErrorCode::device:
      return "device";
    case ErrorCode::transport:
      return "transport";
    case ErrorCode::numeric:
      return "numeric";
    case ErrorCode::internal:
      return "internal";
  }
  return "?";
}

}  // namespace ranvier
