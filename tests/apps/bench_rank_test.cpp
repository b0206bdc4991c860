// A measurement that fails.
#include "apps/bench/bench_rank.hpp"

#include "runtime/base/error.hpp"
#include "tests/mpi_session.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;

TEST_CASE("an error while a measurement's messages are in flight is printed before its memory is freed") {
  struct Operand {
    bool& freed;
    ~Operand() { freed = true; }
  };
  bool freed = false, freed_when_said = true;
  std::string said;
  apps::BenchRank rank(test::mpi_session(), runtime::make_cpu_device({}), [&](const std::exception& error) {
    said = error.what();
    freed_when_said = freed;
  });
  const auto measure = [&] {
    const Operand operand{freed};
    static_cast<void>(rank.slowest_seconds([](auto) { fail(ErrorCode::internal, "failed on purpose"); }));
  };
  CHECK_THROWS_AS(measure(), Error);
  check_has(said, {"failed on purpose"});
  CHECK_FALSE(freed_when_said);
}
