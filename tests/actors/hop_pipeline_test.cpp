#include "actors/base/rank_context.hpp"
#include "actors/states/hop_pipeline.hpp"
#include "actors/states/model_share.hpp"
#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using namespace ranvier::collectives;
using namespace ranvier::runtime;
using ranvier::test::seeds;

namespace {

/// A column and a reduction of two units in it, as one bundle.
struct Reduction {
  int ranks = 1, group_size = 1, node_size = 1;
  Sharding sharding;
  bool by_microbatch = false;       ///< the hops after a microbatch, otherwise the hops after a batch
  std::vector<std::size_t> pieces;  ///< elements of a finest piece, by unit
  PlanChoice choice;
  DType dtype = DType::f32;
  WireTypes wire = {};

  [[nodiscard]] std::size_t elements(std::size_t unit) const {
    return pieces[unit] * static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] ShardLayout layout(int rank) const {
    std::vector<int> node_of;
    for (int r = 0; r < ranks; ++r) node_of.push_back(r / node_size);
    return {node_of, group_size, rank};
  }
  [[nodiscard]] std::vector<Hop> hops() const {
    const ShardFlow flow = layout(0).flow(sharding, wire);
    return by_microbatch ? flow.reduce_microbatch : flow.reduce_batch;
  }
  /// Scope of a rank's data before the hops, and after; the complete unit if there are no hops.
  [[nodiscard]] Scope whole() const { return hops().empty() ? Scope::none : hops().front().whole; }
  [[nodiscard]] Scope piece() const {
    if (hops().empty()) return Scope::none;
    return hops().back().collective == Collective::all_gather ? hops().back().whole : hops().back().piece;
  }
};

using Units = std::vector<std::vector<std::byte>>;  // the range of scope whole(), by unit

std::vector<Units> random_units(const Reduction& reduction, std::mt19937_64& random) {
  std::vector<Units> all(static_cast<std::size_t>(reduction.ranks));
  std::normal_distribution<float> normal;
  for (int rank = 0; rank < reduction.ranks; ++rank) {
    for (std::size_t unit = 0; unit < reduction.pieces.size(); ++unit) {
      const std::size_t count = reduction.layout(rank).range(reduction.whole(), reduction.elements(unit)).count;
      auto& bytes = all[static_cast<std::size_t>(rank)].emplace_back(count * size_of(reduction.dtype));
      with_float_type(reduction.dtype, [&](auto type) {
        for (std::size_t i = 0; i < count; ++i) {
          const auto value = from_float<decltype(type)>(normal(random));
          std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
        }
      });
    }
  }
  return all;
}

/// Copies a rank's part of a slice between the unit and contiguous memory, run after run.
template <typename Copy>
void for_runs(const Reduction& reduction, std::size_t unit, const Range& slice, std::vector<std::byte>& whole,
              std::vector<std::byte>& compact, Copy copy) {
  const std::size_t bytes = size_of(reduction.dtype), piece = reduction.pieces[unit] * bytes;
  compact.resize(whole.size() / piece * slice.count * bytes);
  for (std::size_t p = 0; p < whole.size() / piece; ++p) {
    copy(whole.data() + p * piece + slice.begin * bytes, compact.data() + p * slice.count * bytes,
         slice.count * bytes);
  }
}

/// Reduces both units in slices of this many elements of every finest piece, the last ones shorter; 0: at once. The
/// slices are in place or, with `compact`, each in separate memory.
std::vector<Units> reduce(const Reduction& reduction, std::vector<Units> units, std::size_t slice, bool compact,
                          std::uint64_t seed) {
  std::vector<std::vector<HopPipeline::ItemShape>> shapes;
  std::vector<std::vector<Range>> slices;  // [bundle][unit]
  const std::size_t longest = std::max(reduction.pieces[0], reduction.pieces[1]);
  for (std::size_t begin = 0; begin < longest; begin += slice == 0 ? longest : slice) {
    auto& of_units = slices.emplace_back();
    auto& shape = shapes.emplace_back();
    for (std::size_t unit = 0; unit < reduction.pieces.size(); ++unit) {
      const std::size_t piece = reduction.pieces[unit];
      of_units.push_back(slice == 0 ? Range{} : Range{begin, begin < piece ? std::min(slice, piece - begin) : 0});
      if (slice == 0 || begin < piece) shape.push_back({reduction.elements(unit), of_units.back().count});
    }
  }

  Simulation simulation(reduction.ranks, {.seed = seed});
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<ModelShare> shares(units.size());
  std::vector<std::unique_ptr<actors::RankResources>> contexts;
  std::vector<std::unique_ptr<HopPipeline>> pipelines;
  std::vector<std::size_t> left(static_cast<std::size_t>(reduction.ranks), slices.size());
  std::vector<std::vector<Units>> parts_of(slices.size(), std::vector<Units>(units.size(), Units(2)));
  for (int rank = 0; rank < reduction.ranks; ++rank) {
    std::vector<int> ranks;
    for (int r = 0; r < reduction.ranks; ++r) ranks.push_back(r);
    auto& column = shares[static_cast<std::size_t>(rank)].column;
    column = std::make_unique<ColumnOptions>(
        ColumnOptions{reduction.layout(rank), reduction.sharding, ranks, {}, reduction.wire});
    column->choices.fill(reduction.choice);
  }
  for (int rank = 0; rank < reduction.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    MemoryPlan memory;
    offload::TierPlan regions;
    const TierOptions tiers;
    PlanContext planner{shares[r], tiers, memory, regions};
    const auto plan = HopPipeline::plan(planner,
                                        {.hops = reduction.hops(),
                                         .dtype = reduction.dtype,
                                         .family = 0,
                                         .name = "gradients",
                                         .wire = &WireTypes::reduce},
                                        shapes);
    devices.push_back(make_inline_device());
    contexts.push_back(std::make_unique<actors::RankResources>(simulation.loop(rank), simulation.transport(rank),
                                                               *devices[r], memory, regions));
    pipelines.push_back(std::make_unique<HopPipeline>(contexts[r]->context(), *shares[r].column, plan));
    simulation.loop(rank).post([&, r, rank] {
      for (std::size_t s = 0; s < slices.size(); ++s) {
        std::vector<HopPipeline::Item> items;
        for (std::size_t unit = 0; unit < reduction.pieces.size(); ++unit) {
          const std::size_t begin = reduction.layout(rank).range(reduction.whole(), reduction.elements(unit)).begin;
          if (slice > 0 && slices[s][unit].count == 0) continue;  // the shorter unit is finished
          std::byte* data = units[r][unit].data();
          if (compact) {
            for_runs(reduction, unit, slices[s][unit], units[r][unit], parts_of[s][r][unit],
                     [](std::byte* from, std::byte* to, std::size_t bytes) { std::copy_n(from, bytes, to); });
            data = parts_of[s][r][unit].data();
          }
          items.push_back({data, begin, reduction.elements(unit), slices[s][unit], compact});
        }
        pipelines[r]->submit(std::move(items), "slice", [&, r, rank, s] {
          for (std::size_t unit = 0; unit < reduction.pieces.size() && compact; ++unit) {
            for_runs(reduction, unit, slices[s][unit], units[r][unit], parts_of[s][r][unit],
                     [](std::byte* to, std::byte* from, std::size_t bytes) { std::copy_n(from, bytes, to); });
          }
          if (--left[r] == 0) simulation.loop(rank).stop();
        });
      }
    });
  }
  simulation.run();
  return units;
}

/// Whether each rank ends with the same bits after the last hop.
bool same_result(const Reduction& reduction, const std::vector<Units>& some, const std::vector<Units>& others) {
  for (int rank = 0; rank < reduction.ranks; ++rank) {
    const ShardLayout layout = reduction.layout(rank);
    for (std::size_t unit = 0; unit < reduction.pieces.size(); ++unit) {
      const Range whole = layout.range(reduction.whole(), reduction.elements(unit));
      const Range piece = layout.range(reduction.piece(), reduction.elements(unit));
      const std::size_t bytes = size_of(reduction.dtype), r = static_cast<std::size_t>(rank);
      const std::size_t begin = (piece.begin - whole.begin) * bytes;
      if (std::memcmp(some[r][unit].data() + begin, others[r][unit].data() + begin, piece.count * bytes) != 0)
        return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a reduction in slices of every finest piece gives the bits of the reduction at once") {
  std::array<int, 4> jobs{};  // by number of hops
  const auto all_seeds = seeds(static_cast<std::uint64_t>(tests::effort(600, 600, 240)));
  for (const std::uint64_t seed : all_seeds) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::size_t most) { return static_cast<std::size_t>(random() % (most + 1)); };
    const auto divisor = [&](int number) {
      int chosen = 1 + static_cast<int>(up_to(static_cast<std::size_t>(number - 1)));
      while (number % chosen != 0) --chosen;
      return chosen;
    };
    Reduction reduction;
    reduction.ranks = 1 + static_cast<int>(up_to(8));
    reduction.group_size = divisor(reduction.ranks);
    reduction.node_size = divisor(reduction.ranks);
    constexpr std::array scopes = {Scope::none, Scope::group, Scope::global};
    reduction.sharding = {scopes[up_to(2)], scopes[up_to(2)], scopes[up_to(2)]};
    reduction.by_microbatch = up_to(1) == 1;
    reduction.pieces = {1 + up_to(60), 1 + up_to(60)};
    const auto name = [&](Collective collective) {
      const auto all = algorithms(collective);
      return std::string(all[up_to(all.size() - 1)].name);
    };
    reduction.choice = {name(Collective::all_gather), name(Collective::reduce_scatter),
                        name(Collective::all_reduce), 32 + up_to(400), 1 + static_cast<int>(up_to(3))};
    reduction.dtype = std::array{DType::f32, DType::bf16, DType::f16}[up_to(2)];
    std::size_t granule = 1;
    if (up_to(3) == 0) {
      const auto type = [&] { return std::array{WireType::same, WireType::int8, WireType::int4}[up_to(2)]; };
      reduction.wire.reduce = {type(), type()};
      granule = code_block_elements;
      reduction.pieces = {granule * (1 + up_to(4)), granule * (1 + up_to(4))};
    }
    ++jobs[reduction.hops().size()];

    const std::vector<Units> units = random_units(reduction, random);
    const std::vector<Units> at_once = reduce(reduction, units, 0, false, seed);
    if (reduction.ranks > 1 && !reduction.hops().empty()) CHECK(at_once != units);
    const std::size_t slice = granule > 1 ? granule * (1 + up_to(4)) : 1 + up_to(70);
    CHECK(same_result(reduction, at_once, reduce(reduction, units, slice, false, seed + 1)));
    CHECK(same_result(reduction, at_once, reduce(reduction, units, slice, true, seed + 2)));
  }
  CHECK(jobs[2] >= static_cast<int>(all_seeds.size() / 30));
  CHECK(jobs[3] >= static_cast<int>(all_seeds.size() / 200));
}

TEST_CASE("a slice longer than a finest piece is refused") {
  ModelShare share;
  share.column =
      std::make_unique<ColumnOptions>(ColumnOptions{ShardLayout(std::vector<int>{0, 0}, 1, 0), {}, {0, 1}, {}});
  MemoryPlan memory;
  offload::TierPlan regions;
  const TierOptions tiers;
  PlanContext planner{share, tiers, memory, regions};
  const std::vector<std::vector<HopPipeline::ItemShape>> shapes = {{{20, 11}}};
  CHECK_THROWS_WITH_AS(
      (void)HopPipeline::plan(planner, {.hops = share.column->layout.flow({}).reduce_batch, .name = "gradients"},
                              shapes),
      doctest::Contains("a slice of 11 elements of pieces that have 10"), ranvier::Error);
}
