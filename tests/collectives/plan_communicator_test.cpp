#include "collectives/communicators/plan_communicator.hpp"

#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/collectives/calls.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

/// The minimum number of tag indices that the communicator allows, so that they are reused soon.
std::uint32_t indices_of(const Program& program) {
  int most = 1;
  for (const OperationShape& shape : program.shapes())
    most = std::max(most, program.choice.chunks(program.ranks(), shape.parts, program.dtype));
  return most * (2 * program.places + 2);
}

/// One member: its communicator and that communicator's memory.
struct Member {
  std::unique_ptr<Executor> executor;
  std::vector<std::vector<std::byte>> staging;
  std::unique_ptr<PlanCommunicator> communicator;

  Member(const Program& program, int me, std::vector<int> ranks, EventLoop& loop, Transport& transport,
         StreamView stream)
      : executor(std::make_unique<Executor>(loop, transport, stream)) {
    Team team = team_of(program.topology);
    const std::size_t bytes = PlanCommunicator::staging_bytes(team, me, program.choice, program.shapes());
    std::vector<std::byte*> places;
    for (int place = 0; place < program.places; ++place) places.push_back(staging.emplace_back(bytes + 1).data());
    communicator = std::make_unique<PlanCommunicator>(loop, *executor,
                                                      PlanCommunicator::Options{.team = std::move(team),
                                                                                .me = me,
                                                                                .ranks = std::move(ranks),
                                                                                .choice = program.choice,
                                                                                .first_index = 1000,
                                                                                .indices = indices_of(program),
                                                                                .staging = std::move(places),
                                                                                .staging_bytes = bytes});
  }
};

template <typename T>
void run_program(const Program& program, std::uint64_t seed) {
  CAPTURE_ALL(seed, program.dtype, program.topology.inner, program.topology.outer, program.choice.all_gather,
              program.choice.reduce_scatter, program.choice.all_reduce, program.choice.chunk_bytes, program.places);
  std::mt19937_64 random(seed);
  const int ranks = program.ranks();
  // Ranks in reverse order and one that is not a member, so that a member's index is not its rank.
  Simulation simulation(ranks + 1, {.seed = seed});
  simulation.loop(ranks).stop();
  std::vector<int> members;
  for (int rank = ranks - 1; rank >= 0; --rank) members.push_back(rank);

  const auto device = make_inline_device();
  const auto stream = device->make_stream("add", StreamWidth::one);
  ProgramMemory<T> memory(program, random);
  std::vector<Member> all;
  for (int me = 0; me < ranks; ++me) {
    EventLoop& loop = simulation.loop(members[me]);
    all.emplace_back(program, me, members, loop, simulation.transport(members[me]), *stream);
    memory.post(me, *all.back().communicator, loop);
  }
  simulation.run();
  for (const Member& member : all) CHECK(member.communicator->running().empty());
  memory.check();
}

void run_program(const Program& program, std::uint64_t seed) {
  with_number_type(program.dtype, [&](auto type) { run_program<decltype(type)>(program, seed); });
}

}  // namespace

TEST_CASE(
    "overlapping operations of several parts give the bits of their order of summation, in any order of messages") {
  for (const std::uint64_t seed : seeds(3000)) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::size_t most) { return static_cast<int>(random() % (most + 1)); };
    const auto topologies = topologies_of(1 + up_to(8));
    Program program;
    program.topology = topologies[up_to(topologies.size() - 1)];
    program.choice = choice_of(random(), static_cast<std::size_t>(32 + up_to(400)));
    program.choice.reduce_scatter = choice_of(random()).reduce_scatter;
    program.choice.all_reduce = choice_of(random()).all_reduce;
    program.choice.depth = 1 + up_to(3);
    program.dtype = number_types[up_to(3)];
    program.places = 1 + up_to(2);
    const int calls = 1 + up_to(7);
    for (int call = 0; call < calls; ++call) {
      std::vector<std::size_t> lengths;
      const int parts = up_to(3);
      for (int part = 0; part < parts; ++part) lengths.push_back(up_to(3) == 0 ? 0 : up_to(30));
      std::vector<GappedRuns> runs;
      for (int part = 0; part < parts && call % 2 == 1; ++part)
        runs.push_back(up_to(3) == 0 ? GappedRuns{}
                                     : GappedRuns{1 + static_cast<std::size_t>(up_to(40)), random() % 20});
      program.calls.push_back({all_collectives[up_to(2)], lengths, runs});
    }
    run_program(program, seed);
  }
}

TEST_CASE("every algorithm supports several parts, odd ones and empty ones, on any number of ranks") {
  ranvier::tests::Share share(1, 12);
  for (int ranks = 1; ranks <= max_ranks; ++ranks)
    for (const Topology& topology : topologies_of(ranks))
      for (std::size_t number = 0; number < 5; ++number)
        for (const std::size_t chunk_bytes : {12, 1000})
          for (const DType dtype : number_types) {
            if (!share.takes()) continue;
            Program program{.topology = topology,
                            .choice = choice_of(number, chunk_bytes),
                            .dtype = dtype,
                            .places = 2,
                            .calls = {}};
            for (const Collective collective : all_collectives) {
              program.calls.push_back({collective, {1, 0, 7, 33}});
              program.calls.push_back({collective, {0}});
              program.calls.push_back({collective, {}});
              program.calls.push_back({collective, {2}});
              program.calls.push_back({collective, {6, 0, 35}, {{3, 5}, {3, 5}, {7, 1}}});
              program.calls.push_back({collective, {6, 33}, {{1, 1}, {}}});
              program.calls.push_back({collective, {7, 35, 7}, {{7, 0}, {7, 30}, {1000, 9}}});
            }
            run_program(program, number);
          }
}

TEST_CASE("long ranges, which are separate messages, and short ones between them give the same bits") {
  for (const std::uint64_t seed : seeds(sanitized ? 1 : 10))
    for (std::size_t number = 0; number < 5; ++number)
      for (const std::size_t chunk_bytes : {12u << 10, 1u << 20}) {
        Program program{.topology = Topology::regular(2, 2),
                        .choice = choice_of(number, chunk_bytes),
                        .places = 2,
                        .calls = {}};
        for (const Collective collective : all_collectives) {
          program.calls.push_back({collective, {2049, 1, 2047, 2048, 50}});
          program.calls.push_back({collective, {6147, 2, 4096}, {{2049, 100}, {1, 1}, {4096, 9}}});
        }
        run_program(program, seed);
      }
}

namespace {

/// Two ranks whose communicators have the given staging and tag indices, on loops that do not run.
struct Pair {
  Simulation simulation{2, {}};
  std::unique_ptr<Device> device = make_inline_device();
  std::unique_ptr<Stream> stream = device->make_stream("add", StreamWidth::one);
  Executor executor{simulation.loop(0), simulation.transport(0), *stream};
  std::vector<std::byte> staging = std::vector<std::byte>(1 << 16);
  std::vector<float> data = std::vector<float>(1000);
  PlanCommunicator communicator;

  explicit Pair(std::size_t staging_bytes, std::uint32_t indices = 1 << 10, std::size_t chunk_bytes = 400)
      : communicator(simulation.loop(0), executor,
                     {.team = {Topology::regular(2, 1), {0, 1}},
                      .ranks = {0, 1},
                      .choice = {.chunk_bytes = chunk_bytes},
                      .indices = indices,
                      .staging = {staging.data()},
                      .staging_bytes = staging_bytes}) {}

  void run(Collective collective, std::size_t elements, const std::string& what) {
    const Communicator::Operand part{reinterpret_cast<std::byte*>(data.data()), elements};
    communicator.run(collective, {&part, 1}, DType::f32, what, [] {});
  }
};

}  // namespace

TEST_CASE("an operation whose staging does not fit, or that needs too many tags, is refused by name") {
  CHECK_THROWS_WITH_AS(Pair(100).run(Collective::all_reduce, 1000, "gradients of h.3"),
                       doctest::Contains("gradients of h.3: all-reduce of 1000 elements needs"), ranvier::Error);
  CHECK_THROWS_WITH_AS(Pair(1 << 16, 15).run(Collective::all_gather, 1000, "gather of h.3"),
                       doctest::Contains("gather of h.3: too many chunks: 5; 15 message tags"), ranvier::Error);
  CHECK_THROWS_WITH_AS(Pair(1 << 16).run(Collective::all_gather, 999, "gather of h.3"),
                       doctest::Contains("gather of h.3: 999 elements are not divisible by 2"), ranvier::Error);
}

TEST_CASE("runs that overlap are refused") {
  Pair pair(1 << 16);
  const Communicator::Operand part{reinterpret_cast<std::byte*>(pair.data.data()), 100, 10, 9};
  CHECK_THROWS_WITH_AS(
      pair.communicator.run(Collective::all_gather, {&part, 1}, DType::f32, "gather of h.3", [] {}),
      doctest::Contains("invalid runs: 10 elements, stride 9"), ranvier::Error);
}

TEST_CASE("a communicator lists pending operations, and runs no more at once than its staging allows") {
  Pair pair(1 << 16);
  pair.run(Collective::all_gather, 100, "gather of h.0");
  pair.run(Collective::all_gather, 100, "gather of h.1");
  REQUIRE(pair.communicator.running().size() == 1);
  CHECK(pair.communicator.running()[0].what == "gather of h.0");
  for (const auto& pending : pair.simulation.transport(0).pending()) CHECK(pending.tag.index == 0);
}

TEST_CASE("short ranges of a step are one message, and a long one is a separate message") {
  Pair pair(1 << 16, 1 << 10, 1 << 20);
  std::vector<float> a(100), b(20), c(2 * 2048);
  std::vector<Communicator::Operand> parts;
  for (auto* buffer : {&a, &c, &b}) parts.push_back({reinterpret_cast<std::byte*>(buffer->data()), buffer->size()});
  pair.communicator.run(Collective::all_gather, parts, DType::f32, "gather of h.0", [] {});
  std::vector<std::size_t> sent;
  for (const auto& pending : pair.simulation.transport(0).pending())
    if (!pending.receives) sent.push_back(pending.bytes);
  std::sort(sent.begin(), sent.end());
  CHECK(sent == std::vector<std::size_t>{60 * sizeof(float), 2048 * sizeof(float)});
}
