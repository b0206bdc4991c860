#include "runtime/base/console.hpp"
#include "tests/test.hpp"

#include <fmt/core.h>

#include <fcntl.h>
#include <unistd.h>

using namespace ranvier;
using namespace ranvier::runtime;

TEST_CASE("prints to a full device or a closed pipe do not fail, and lost lines are counted") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  for (const int broken : {ends[1], ::open("/dev/full", O_WRONLY)}) {
    REQUIRE(broken >= 0);
    std::fflush(stdout);
    const int before = ::dup(STDOUT_FILENO);
    REQUIRE(::dup2(broken, STDOUT_FILENO) >= 0);
    std::string loss;
    {
      const StandardOutput output;
      for (int line = 0; line < 3; ++line) fmt::print("{}\n", std::string(10'000, 'x'));
      std::fflush(stdout);
      loss = output.loss();
    }
    REQUIRE(::dup2(before, STDOUT_FILENO) >= 0);
    ::close(before);
    ::close(broken);
    CHECK(loss.find("lines of the standard output were not written: ") != std::string::npos);
    CHECK(loss.find(broken == ends[1] ? "Broken pipe" : "No space left on device") != std::string::npos);
  }
}
