#include "runtime/transport/transport.hpp"
#include "tests/test.hpp"

using namespace ranvier::runtime;

TEST_CASE("a tag prints as its channel and index") {
  CHECK(to_string(Tag{Channel::activation, 7}) == "activation 7");
  CHECK(to_string(Tag{Channel::user, 0}) == "user 0");
}
