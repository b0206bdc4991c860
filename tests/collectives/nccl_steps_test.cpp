#include "collectives/nccl/nccl_steps.hpp"

#include "collectives/communicators/executor.hpp"
#include "collectives/nccl/nccl_library.hpp"
#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using ranvier::runtime::DType;
using Kind = NcclCall::Kind;

namespace {

/// Never read or written: steps are data.
std::byte* const memory = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20);
std::byte* at(std::size_t element) { return memory + element * 4; }

}  // namespace

TEST_CASE("a contiguous part is one call of NCCL's own, in place, whichever piece a rank owns") {
  const Topology topology = Topology::regular(2, 2);  // rank 1 owns piece 2
  const Communicator::Operand part{memory, 40};
  CHECK(nccl_steps(NcclMode::own, Collective::all_gather, topology, 1, {&part, 1}, DType::f32) ==
        std::vector<NcclStep>{{NcclSpan::team, {{Kind::all_gather, at(20), at(0), 10}}}});
  CHECK(nccl_steps(NcclMode::own, Collective::reduce_scatter, topology, 1, {&part, 1}, DType::f32) ==
        std::vector<NcclStep>{{NcclSpan::team, {{Kind::reduce_scatter, at(0), at(20), 10}}}});
  CHECK(nccl_steps(NcclMode::own, Collective::all_reduce, topology, 1, {&part, 1}, DType::f32) ==
        std::vector<NcclStep>{{NcclSpan::team, {{Kind::all_reduce, at(0), at(0), 40}}}});
  CHECK(nccl_members(topology, 1, NcclSpan::team) == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("several parts are one group, and empty parts add no call") {
  const std::vector<Communicator::Operand> parts = {{at(0), 8}, {nullptr, 0}, {at(100), 4}};
  CHECK(nccl_steps(NcclMode::own, Collective::all_reduce, Topology::regular(4, 1), 3, parts, DType::f32) ==
        std::vector<NcclStep>{
            {NcclSpan::team, {{Kind::all_reduce, at(0), at(0), 8}, {Kind::all_reduce, at(100), at(100), 4}}}});
  CHECK(nccl_steps(NcclMode::own, Collective::all_reduce, Topology::regular(4, 1), 3, {&parts[1], 1}, DType::f32)
            .empty());
}

TEST_CASE("a part in runs is broadcast from, or reduced to, the owner of each run") {
  const Communicator::Operand part{memory, 8, 2, 10};  // elements 0 1, 10 11, 20 21, 30 31
  const Topology topology = Topology::regular(2, 1);
  const std::vector<NcclCall> gathers = {{Kind::broadcast, at(0), at(0), 2, 0},
                                         {Kind::broadcast, at(10), at(10), 2, 0},
                                         {Kind::broadcast, at(20), at(20), 2, 1},
                                         {Kind::broadcast, at(30), at(30), 2, 1}};
  for (const int me : {0, 1}) {
    const auto steps = nccl_steps(NcclMode::own, Collective::all_gather, topology, me, {&part, 1}, DType::f32);
    REQUIRE(steps.size() == 1);
    CHECK(steps[0].calls == gathers);
  }
  const auto scatter = nccl_steps(NcclMode::own, Collective::reduce_scatter, topology, 1, {&part, 1}, DType::f32);
  REQUIRE(scatter.size() == 1);
  CHECK(scatter[0].calls.size() == 4);
  CHECK(scatter[0].calls[3] == NcclCall{Kind::reduce, at(30), at(30), 2, 1});
  // A piece that ends inside a run.
  const Communicator::Operand cut{memory, 6, 2, 10};
  CHECK(nccl_steps(NcclMode::own, Collective::all_gather, topology, 0, {&cut, 1}, DType::f32)[0].calls ==
        std::vector<NcclCall>{{Kind::broadcast, at(0), at(0), 2, 0},
                              {Kind::broadcast, at(10), at(10), 1, 0},
                              {Kind::broadcast, at(11), at(11), 1, 1},
                              {Kind::broadcast, at(20), at(20), 2, 1}});
}

TEST_CASE("with packing memory, a part in runs is one call for any number of runs") {
  const Topology topology = Topology::regular(4, 1);
  std::byte* const place = at(50000);
  const NcclPacking packing{nullptr, place, 1 << 20};
  for (const std::size_t runs : {8, 64, 512}) {
    CAPTURE(runs);
    const Communicator::Operand part{memory, runs * 16, 16, 40};
    const std::size_t piece = part.elements / 4;
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      const auto steps = nccl_steps(NcclMode::own, collective, topology, 1, {&part, 1}, DType::f32, packing);
      REQUIRE(steps.size() == 1);
      REQUIRE(steps[0].calls.size() == 1);
      REQUIRE(steps[0].before.size() == 1);
      REQUIRE(steps[0].after.size() == 1);
      const bool gathers = collective == Collective::all_gather,
                 scatters = collective == Collective::reduce_scatter;
      CHECK(steps[0].before[0].to == place + (gathers ? piece * 4 : 0));
      CHECK(steps[0].before[0].from == memory);
      CHECK(steps[0].before[0].from_runs.first == (gathers ? piece : 0));
      CHECK(steps[0].before[0].count == (gathers ? piece : part.elements));
      CHECK(steps[0].after[0].to_runs.first == (scatters ? piece : 0));
      CHECK(steps[0].after[0].from == place + (scatters ? piece * 4 : 0));
      CHECK(steps[0].after[0].count == (scatters ? piece : part.elements));
    }
  }
  // A part that exceeds the packing memory takes one call per run.
  const Communicator::Operand large{memory, 1 << 20, 16, 40};
  CHECK(nccl_steps(NcclMode::own, Collective::all_reduce, topology, 1, {&large, 1}, DType::f32, packing)[0]
            .before.empty());
}

TEST_CASE("a hierarchical gather runs across the rows and then inside them, a reduce-scatter the other way") {
  const Topology topology = Topology::regular(2, 3);
  const Communicator::Operand part{memory, 60};
  const int me = 3;  // position 1 of row 1: piece 4
  CHECK(nccl_steps(NcclMode::hierarchical, Collective::all_gather, topology, me, {&part, 1}, DType::f32) ==
        std::vector<NcclStep>{{NcclSpan::column, {{Kind::all_gather, at(40), at(30), 10}}},
                              {NcclSpan::row, {{Kind::all_gather, at(30), at(0), 30}}}});
  CHECK(nccl_steps(NcclMode::hierarchical, Collective::reduce_scatter, topology, me, {&part, 1}, DType::f32) ==
        std::vector<NcclStep>{{NcclSpan::row, {{Kind::reduce_scatter, at(0), at(30), 30}}},
                              {NcclSpan::column, {{Kind::reduce_scatter, at(30), at(40), 10}}}});
  CHECK(nccl_steps(NcclMode::hierarchical, Collective::all_reduce, topology, me, {&part, 1}, DType::f32) ==
        std::vector<NcclStep>{{NcclSpan::row, {{Kind::reduce_scatter, at(0), at(30), 30}}},
                              {NcclSpan::column, {{Kind::all_reduce, at(30), at(30), 30}}},
                              {NcclSpan::row, {{Kind::all_gather, at(30), at(0), 30}}}});
  CHECK(nccl_members(topology, me, NcclSpan::row) == std::vector<int>{2, 3});
  CHECK(nccl_members(topology, me, NcclSpan::column) == std::vector<int>{1, 3, 5});
  const Topology flat = Topology::regular(6, 1);
  CHECK(nccl_steps(NcclMode::hierarchical, Collective::all_gather, flat, me, {&part, 1}, DType::f32) ==
        nccl_steps(NcclMode::own, Collective::all_gather, flat, me, {&part, 1}, DType::f32));
}

TEST_CASE("a plan's steps are groups of sends and receives, and received values to be added fit the staging") {
  const Topology topology = Topology::regular(4, 1);
  for (const auto& algorithm : algorithms(Collective::all_reduce)) {
    CAPTURE(algorithm.name);
    const Communicator::Operand part{memory, 400, 50, 70};
    std::byte* const staging = at(100000);
    const auto schedules =
        std::make_shared<const std::vector<RankSchedule>>(algorithm.schedules(topology, part.elements, 5, 1));
    const Executor::Operands operands{.parts = {{part.data, schedules, part.run, part.stride}},
                                      .members = {0, 1, 2, 3},
                                      .me = 1,
                                      .staging = staging,
                                      .depth = 2};
    const std::size_t bytes = Executor::staging_bytes(operands);
    const auto steps = plan_steps(topology, operands);
    CHECK(steps.size() >= 3);
    for (const NcclStep& step : steps)
      for (const NcclStep::Move& sum : step.after) {
        if (!sum.adds) continue;
        CHECK(sum.from >= staging);
        CHECK(sum.from + sum.count * 4 <= staging + bytes);
        CHECK(std::any_of(step.calls.begin(), step.calls.end(), [&](const NcclCall& call) {
          return call.kind == Kind::receive && call.to == sum.from && call.count == sum.count;
        }));
      }
  }
}

TEST_CASE("an algorithm's name determines the NCCL calls") {
  CHECK(nccl_mode("auto") == NcclMode::own);
  CHECK(nccl_mode("hierarchical") == NcclMode::hierarchical);
  for (const char* name : {"ring", "recursive", "h-ring", "ho-ring", "torus"})
    CHECK(nccl_mode(name) == NcclMode::plan);
}

TEST_CASE("elements that are not divisible by the ranks, and runs that overlap, are refused") {
  const Communicator::Operand odd{memory, 41};
  CHECK_THROWS_WITH_AS(
      (void)nccl_steps(NcclMode::own, Collective::all_gather, Topology::regular(4, 1), 0, {&odd, 1}, DType::f32),
      doctest::Contains("41 elements are not divisible by 4"), ranvier::Error);
  const Communicator::Operand overlapping{memory, 40, 10, 9};
  CHECK_THROWS_WITH_AS((void)nccl_steps(NcclMode::own, Collective::all_gather, Topology::regular(4, 1), 0,
                                        {&overlapping, 1}, DType::f32),
                       doctest::Contains("invalid runs: 10 elements, stride 9"), ranvier::Error);
}

TEST_CASE("a version is printed in the usual form") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(21903) == "2.19.3");
  CHECK(nccl_version_text(2804) == "2.8.4");
}
