#include "apps/memory/host_memory.hpp"

#include "tests/apps/printed_errors.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::check_host_memory;
using apps::host_bytes;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr std::size_t MiB = 1 << 20;

struct Fixture {
  runtime::MemoryPlan plan;
  actors::TrainerOptions options;
  runtime::MemoryLimit limit{15 * MiB, "the machine has so much"};

  Fixture() {
    plan.add({MemoryKind::parameters, MemorySpace::device, "parameters", 4 * MiB});
    plan.add({MemoryKind::optimizer, MemorySpace::host, "states", 8 * MiB});
    plan.add({MemoryKind::workspace, MemorySpace::pinned, "staging", 1 * MiB});
    plan.add({MemoryKind::optimizer, MemorySpace::nvme, "files", 100 * MiB});
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a cpu device computes in its machine's memory, a GPU in its own") {
  CHECK(host_bytes(options, plan) == 13 * MiB);
  options.gpu.emplace();
  CHECK(host_bytes(options, plan) == 9 * MiB);
}

TEST_CASE_FIXTURE(Fixture, "plans beyond a machine's memory are refused with the reason, the table and a remedy") {
  const auto advice = [] { return std::string("use fewer layers"); };
  check_host_memory(options, plan, 15 * MiB, 1, limit, advice);
  const Error error = printed_error_of([&] { check_host_memory(options, plan, 26 * MiB, 2, limit, advice); });
  CHECK(error.code() == ErrorCode::memory);
  const std::string text = error.what();
  CHECK(
      text.starts_with("this machine has too little memory: 26.0 MiB needed by its 2 ranks, 15.0 MiB available: "
                       "the machine has so much\nkind "));
  const auto largest = text.find("largest: optimizer states, 8.0 MiB on this rank\nuse fewer layers");
  REQUIRE(largest != std::string::npos);
  CHECK(text.find("total") < largest);
}
