#include "runtime/base/error.hpp"
#include "tests/test.hpp"

#include <new>
#include <stdexcept>

using namespace ranvier;

TEST_CASE("every kind of failure has its own exit status, unlike any of a stop, a shell or a signal") {
  using enum ErrorCode;
  std::set<int> codes{stopped_exit_code};
  for (const ErrorCode code : {usage, data, io, memory, device, transport, numeric, internal}) {
    CAPTURE(to_string(code));
    CHECK(exit_code(code) >= 64);
    CHECK(exit_code(code) < 125);
    CHECK(codes.insert(exit_code(code)).second);
  }
}

TEST_CASE("an exception is a separate kind of failure") {
  CHECK(error_code(Error(ErrorCode::data, "")) == ErrorCode::data);
  CHECK(error_code(std::bad_alloc()) == ErrorCode::memory);
  CHECK(error_code(std::runtime_error("")) == ErrorCode::internal);
}
