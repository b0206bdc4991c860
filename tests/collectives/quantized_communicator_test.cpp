// Operations in 8 and 4 bits over plans against their definition, computed plainly, for any topology, layout and order
// of messages.
#include "collectives/communicators/quantized_communicator.hpp"

#include "collectives/communicators/plan_communicator.hpp"
#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/collectives/calls.hpp"
#include "tests/test.hpp"

#include <limits>

using namespace ranvier::collectives;
using namespace ranvier::runtime;
using namespace ranvier::test;

namespace {

constexpr std::size_t block = code_block_elements;

/// One member: its communicators and their memory.
struct QuantizedMember {
  std::unique_ptr<Executor> executor;
  std::vector<std::vector<std::byte>> packed;
  std::unique_ptr<QuantizedCommunicator> communicator;

  QuantizedMember(const Program& program, BlockCode code, int me, std::vector<int> ranks, EventLoop& loop,
                  Transport& transport, StreamView stream)
      : executor(std::make_unique<Executor>(loop, transport, stream)) {
    const std::vector<OperationShape> shapes = program.shapes();
    const std::size_t bytes = QuantizedCommunicator::packed_bytes(shapes, code);
    QuantizedCommunicator::Options options{.code = code, .packed = {}, .packed_bytes = bytes};
    const std::vector<std::byte*> staging(static_cast<std::size_t>(program.places), nullptr);
    for (int place = 0; place < program.places; ++place)
      options.packed.push_back(packed.emplace_back(bytes + 1).data());
    int chunks = 1;
    for (const OperationShape& shape : shapes)
      for (const OperationShape& inner : QuantizedCommunicator::packed_shapes(shape, code))
        chunks = std::max(chunks, program.choice.chunks(program.ranks(), inner.parts, inner.dtype));
    communicator = std::make_unique<QuantizedCommunicator>(
        loop, stream,
        std::make_unique<PlanCommunicator>(
            loop, *executor,
            PlanCommunicator::Options{.team = team_of(program.topology),
                                      .me = me,
                                      .ranks = std::move(ranks),
                                      .choice = program.choice,
                                      .first_index = 1000,
                                      .indices = static_cast<std::uint32_t>(chunks * (2 * program.places + 2)),
                                      .staging = staging,
                                      .staging_bytes = 0}),
        std::move(options));
  }
};

std::vector<float> rounded(BlockCode code, std::vector<float> values, StreamView stream) {
  round_to_blocks(stream, code, values.data(), DType::f32, values.size());
  return values;
}

/// Values of all ranks after a part of a call.
template <typename T>
std::vector<std::vector<T>> expected_after(const Program& program, BlockCode code, Collective collective,
                                           const std::vector<std::vector<T>>& before, StreamView stream) {
  const auto ranks = static_cast<std::size_t>(program.ranks());
  if (ranks == 1) return before;
  std::vector<std::vector<T>> after = before;
  const std::size_t piece = before[0].size() / ranks;
  const auto floats = [&](const std::vector<T>& values, std::size_t owned) {
    std::vector<float> made;
    for (std::size_t i = 0; i < piece; ++i) made.push_back(to_float(values[owned * piece + i]));
    return made;
  };
  for (std::size_t p = 0; p < ranks; ++p) {
    const auto owner = static_cast<std::size_t>(program.topology.rank_of_piece(static_cast<int>(p)));
    std::vector<float> values = floats(before[owner], p);
    if (collective != Collective::all_gather) {
      for (std::size_t other = 0; other < ranks; ++other) {
        const auto rank = static_cast<std::size_t>(program.topology.rank_of_piece(static_cast<int>(other)));
        if (rank == owner) continue;
        const auto added = rounded(code, floats(before[rank], p), stream);
        for (std::size_t i = 0; i < piece; ++i) values[i] += added[i];
      }
      for (float& value : values) value = to_float(from_float<T>(value));
    }
    if (collective != Collective::reduce_scatter) values = rounded(code, values, stream);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (collective == Collective::reduce_scatter && rank != owner) continue;
      for (std::size_t i = 0; i < piece; ++i) after[rank][p * piece + i] = from_float<T>(values[i]);
    }
  }
  return after;
}

template <typename T>
void run_quantized(const Program& program, BlockCode code, std::uint64_t seed) {
  CAPTURE_ALL(seed, program.dtype, program.topology.inner, program.topology.outer, program.choice.all_gather,
              program.choice.chunk_bytes, program.places, static_cast<int>(code));
  std::mt19937_64 random(seed);
  const auto ranks = static_cast<std::size_t>(program.ranks());
  Simulation simulation(program.ranks() + 1, {.seed = seed});
  simulation.loop(program.ranks()).stop();
  std::vector<int> members;  // in reverse order, so that a member's index is not its rank
  for (int rank = program.ranks() - 1; rank >= 0; --rank) members.push_back(rank);
  const auto device = make_inline_device();
  const auto stream = device->make_stream("codec", StreamWidth::one);

  std::vector<std::vector<std::vector<std::vector<T>>>> before;  // [call][part][rank]
  std::vector<std::vector<std::vector<InRuns<T>>>> memory;
  std::normal_distribution<float> normal;
  for (const Call& call : program.calls) {
    auto& parts = before.emplace_back();
    auto& places = memory.emplace_back();
    for (std::size_t part = 0; part < call.lengths.size(); ++part) {
      auto& of_ranks = parts.emplace_back();
      auto& in_runs = places.emplace_back();
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        auto& values = of_ranks.emplace_back();
        for (std::size_t i = 0; i < call.lengths[part] * ranks; ++i)
          values.push_back(from_float<T>(normal(random)));
        in_runs.emplace_back(values, call.runs_of(part), random);
      }
    }
  }
  std::vector<QuantizedMember> all;
  std::vector<std::size_t> left(ranks, program.calls.size());
  for (std::size_t me = 0; me < ranks; ++me) {
    EventLoop& loop = simulation.loop(members[me]);
    all.emplace_back(program, code, static_cast<int>(me), members, loop, simulation.transport(members[me]),
                     *stream);
    QuantizedCommunicator* const communicator = all.back().communicator.get();
    for (std::size_t number = 0; number < program.calls.size(); ++number) {
      loop.post([&, communicator, number, me] {
        std::vector<Communicator::Operand> parts;
        for (std::size_t part = 0; part < memory[number].size(); ++part) {
          const GappedRuns runs = program.calls[number].runs_of(part);
          parts.push_back(
              {memory[number][part][me].data(), before[number][part][me].size(), runs.run, runs.stride()});
        }
        communicator->run(program.calls[number].collective, parts, program.dtype, fmt::format("call {}", number),
                          [&, me] {
                            if (--left[me] == 0) simulation.loop(members[me]).stop();
                          });
      });
    }
    if (program.calls.empty()) loop.stop();
  }
  simulation.run();
  for (const QuantizedMember& member : all) CHECK(member.communicator->running().empty());
  for (std::size_t number = 0; number < memory.size(); ++number) {
    for (std::size_t part = 0; part < memory[number].size(); ++part) {
      const auto expected =
          expected_after(program, code, program.calls[number].collective, before[number][part], *stream);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        CHECK(memory[number][part][rank].gaps_untouched());
        const auto values = memory[number][part][rank].values();
        const bool equal =
            values.empty() || std::memcmp(values.data(), expected[rank].data(), values.size() * sizeof(T)) == 0;
        CHECK(equal);
      }
    }
  }
}

}  // namespace

TEST_CASE("overlapping quantized operations give the bits of their definition, in any order of messages") {
  for (const std::uint64_t seed : seeds(300)) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::size_t most) { return static_cast<int>(random() % (most + 1)); };
    const auto topologies = topologies_of(1 + up_to(7));
    Program program;
    program.topology = topologies[static_cast<std::size_t>(up_to(topologies.size() - 1))];
    program.choice = choice_of(random(), static_cast<std::size_t>(64 + up_to(2000)));
    program.choice.depth = 1 + up_to(3);
    program.dtype = number_types[static_cast<std::size_t>(up_to(2))];
    program.places = 1 + up_to(2);
    const int calls = up_to(6);
    for (int call = 0; call < calls; ++call) {
      std::vector<std::size_t> lengths;
      std::vector<GappedRuns> runs;
      const int parts = up_to(3);
      for (int part = 0; part < parts; ++part) {
        lengths.push_back(static_cast<std::size_t>(up_to(3)) * block);
        runs.push_back(up_to(1) == 0 ? GappedRuns{}
                                     : GappedRuns{(1 + static_cast<std::size_t>(up_to(2))) * block,
                                                  static_cast<std::size_t>(up_to(2)) * block});
      }
      program.calls.push_back({all_collectives[static_cast<std::size_t>(up_to(2))], lengths, runs});
    }
    ranvier::runtime::with_float_type(program.dtype, [&](auto type) {
      run_quantized<decltype(type)>(program, random() % 2 == 0 ? BlockCode::int8 : BlockCode::int4, seed);
    });
  }
}

TEST_CASE("shapes of packed data count bytes of blocks, twice for the halves of an all-to-all") {
  const OperationShape sum{Collective::all_reduce, {4 * block, 8 * block}, DType::bf16};
  const auto inner = QuantizedCommunicator::packed_shapes(sum, BlockCode::int4);
  REQUIRE(inner.size() == 2);
  CHECK(inner[0].collective == Collective::all_to_all);
  CHECK(inner[0].parts == std::vector<std::size_t>{2 * 4 * 33, 2 * 8 * 33});
  CHECK(inner[1].collective == Collective::all_gather);
  CHECK(inner[1].parts == std::vector<std::size_t>{4 * 33, 8 * 33});
  CHECK(size_of(inner[0].dtype) == 4);
  const OperationShape gather{Collective::all_gather, {2 * block}, DType::f32};
  REQUIRE(QuantizedCommunicator::packed_shapes(gather, BlockCode::int8).size() == 1);
  CHECK(QuantizedCommunicator::packed_shapes(gather, BlockCode::int8)[0].parts == std::vector<std::size_t>{2 * 65});
  const OperationShape scatter{Collective::reduce_scatter, {2 * block}, DType::f32};
  REQUIRE(QuantizedCommunicator::packed_shapes(scatter, BlockCode::int8).size() == 1);
  CHECK(QuantizedCommunicator::packed_bytes(std::array{gather, scatter}, BlockCode::int8) ==
        Executor::staged_bytes(2 * 2 * 260));
}

TEST_CASE("a number that is not finite arrives on all ranks of a quantized all-reduce") {
  const Program program{.topology = Topology::regular(3, 1), .calls = {{Collective::all_reduce, {block}}}};
  Simulation simulation(3, {.seed = 1});
  const auto device = make_inline_device();
  const auto stream = device->make_stream("codec", StreamWidth::one);
  std::vector<std::vector<float>> values(3, std::vector<float>(3 * block, 1.0f));
  values[1][2 * block + 5] = std::numeric_limits<float>::infinity();
  std::vector<QuantizedMember> all;
  for (int me = 0; me < 3; ++me) {
    EventLoop& loop = simulation.loop(me);
    all.emplace_back(program, BlockCode::int4, me, std::vector<int>{0, 1, 2}, loop, simulation.transport(me),
                     *stream);
    const Communicator::Operand part{reinterpret_cast<std::byte*>(values[static_cast<std::size_t>(me)].data()),
                                     3 * block};
    all.back().communicator->run(Collective::all_reduce, {&part, 1}, DType::f32, "sum", [&loop] { loop.stop(); });
  }
  simulation.run();
  for (const auto& of_rank : values) {
    CHECK(std::isnan(of_rank[2 * block + 5]));
    CHECK(of_rank[0] == doctest::Approx(3).epsilon(1e-4));
    CHECK(of_rank[2 * block - 1] == doctest::Approx(3).epsilon(1e-4));
  }
}

TEST_CASE("operations that are not in blocks, or larger than planned, are refused by name") {
  Simulation simulation(2, {});
  const auto device = make_inline_device();
  const auto stream = device->make_stream("codec", StreamWidth::one);
  const Program program{.topology = Topology::regular(2, 1), .calls = {{Collective::all_gather, {block}}}};
  const QuantizedMember member(program, BlockCode::int8, 0, {0, 1}, simulation.loop(0), simulation.transport(0),
                               *stream);
  std::vector<float> values(8 * block);
  const auto refused = [&](std::size_t elements, const char* message) {
    const Communicator::Operand part{reinterpret_cast<std::byte*>(values.data()), elements};
    CHECK_THROWS_WITH_AS(
        member.communicator->run(Collective::all_gather, {&part, 1}, DType::f32, "gather of h.3", [] {}),
        doctest::Contains(message), ranvier::Error);
  };
  refused(3 * block, "gather of h.3: 768 elements are not divisible into blocks of 256 elements of 2 ranks");
  refused(8 * block, "gather of h.3: all-gather needs 2112 bytes for packed data, but 576 were planned");
}
