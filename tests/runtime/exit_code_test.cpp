#include "runtime/base/exit_code.hpp"

#include <doctest/doctest.h>

#include <new>
#include <set>
#include <stdexcept>

using namespace ranvier;

TEST_CASE("every kind of failure has an exit status of its own, and none is a stop's, a shell's or a signal's") {
  using enum ErrorCode;
  std::set<int> codes{stopped_exit_code};
  for (const ErrorCode code : {usage, data, io, memory, device, transport, numeric, internal}) {
    CAPTURE(to_string(code));
    CHECK(exit_code(code) >= 64);
    CHECK(exit_code(code) < 125);
    CHECK(codes.insert(exit_code(code)).second);
  }
}

TEST_CASE("an exception is a failure of its own kind") {
  CHECK(error_code(Error(ErrorCode::data, "")) == ErrorCode::data);
  CHECK(error_code(std::bad_alloc()) == ErrorCode::memory);
  CHECK(error_code(std::runtime_error("")) == ErrorCode::internal);
}
