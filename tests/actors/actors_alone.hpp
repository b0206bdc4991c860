// Helpers for tests of single actors: ranks of a grid with plans, memory and messages, but only the actors that a test
// adds; their streams run late. Also synthetic gradients, and the expected results of reductions.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/rank/rank_plan.hpp"
#include "models/core/pass_order.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/delayed_device.hpp"
#include "tests/doubles/transports.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

namespace ranvier::tests {

/// A rank without parts.
struct BareRank {
  BareRank(runtime::Simulation& simulation, const models::Architecture& architecture,
           const actors::TrainerOptions& options, int rank, std::uint64_t seed)
      : loop(simulation.loop(rank)),
        transport(
            simulation.transport(rank),
            [this](int peer, runtime::Tag, std::size_t) {
              peers.insert(peer);
              ++sent;
            },
            [this](int peer, runtime::Tag, std::size_t) { peers.insert(peer); }),
        device(loop, seed * 1000 + static_cast<std::uint64_t>(rank)),
        plan(actors::plan_rank(architecture, RandomTokens(8, 37).sample_bytes(), options, rank)),
        resources(loop, transport, device, plan.memory, plan.tiers) {
    plan.stage->bind(context().arena);
    plan.states->bind(context().arena);
  }

  [[nodiscard]] const actors::RankContext& context() const { return resources.context(); }
  [[nodiscard]] const std::vector<actors::UnitState>& units() const { return plan.states->all(); }

  runtime::EventLoop& loop;
  std::set<int> peers;   ///< with whom messages were exchanged
  std::size_t sent = 0;  ///< messages
  WatchedTransport transport;
  DelayedDevice device;
  actors::RankPlan plan;
  actors::RankResources resources;
};

/// The ranks of a grid, in virtual time.
class BareGrid {
 public:
  BareGrid(const models::Architecture& architecture, const actors::TrainerOptions& options, std::uint64_t seed)
      : simulation_(options.grid.ranks(), {.seed = seed}) {
    for (int rank = 0; rank < options.grid.ranks(); ++rank)
      ranks_.push_back(std::make_unique<BareRank>(simulation_, architecture, options, rank, seed));
  }

  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
  [[nodiscard]] BareRank& operator[](std::size_t rank) { return *ranks_[rank]; }

  /// Runs until no event is left.
  void settle() {
    for (const auto& rank : ranks_) rank->loop.after(std::chrono::minutes(1), [&rank] { rank->loop.stop(); });
    simulation_.run();
  }

 private:
  runtime::Simulation simulation_;
  std::vector<std::unique_ptr<BareRank>> ranks_;
};

/// Whether an element of a unit belongs to a parameter, not to the padding that makes the unit divisible by the ranks.
inline bool is_parameter(const models::UnitSpec& unit, std::size_t element) {
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    const std::size_t offset = unit.offset(p);
    if (element >= offset && element < offset + unit.parameters[p].elements()) return true;
  }
  return false;
}

inline float read_as(runtime::DType dtype, const std::byte* from) {
  return runtime::with_float_type(dtype, [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return runtime::to_float(value);
  });
}
inline void write_as(runtime::DType dtype, std::byte* to, float number) {
  runtime::with_float_type(dtype, [&](auto type) {
    const auto value = runtime::from_float<decltype(type)>(number);
    std::memcpy(to, &value, sizeof value);
  });
}

/// The number after rounding to the stored type.
inline float rounded(runtime::DType dtype, float number) {
  std::byte stored[sizeof(float)];
  write_as(dtype, stored, number);
  return read_as(dtype, stored);
}

/// A pseudo-random number in [-1, 1), determined by the arguments.
inline float drawn(std::uint64_t seed, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu + c;
  for (int round = 0; round < 2; ++round) x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  return static_cast<float>(static_cast<std::int64_t>(x >> 40)) * 0x1p-23f - 1;
}

/// Gradients of layers for each row and microbatch of a batch, and their sums in the promised order. Each hop adds the
/// results of the previous one, from at most two ranks, so every sum has one order.
class MadeUpGradients {
 public:
  MadeUpGradients(const models::Architecture& architecture, const actors::TrainerOptions& options,
                  std::uint64_t seed)
      : architecture_(&architecture),
        dtype_(options.precision.gradient),
        scope_(options.sharding.gradients),
        rows_(options.grid.g_data),
        group_(options.group_size),
        seed_(seed) {}

  [[nodiscard]] float value(int row, int microbatch, std::size_t layer, const models::UnitSpec& unit,
                            std::size_t element) const {
    const auto who = static_cast<std::uint64_t>(row * 64 + microbatch) * 64 + layer;
    return rounded(dtype_, drawn(seed_, who, unit.elements(), element));
  }

  /// Writes or adds a unit's gradients to memory, as a layer does.
  void write(std::byte* unit, int row, int microbatch, std::size_t layer, const models::UnitSpec& spec,
             bool adds) const {
    const std::size_t width = runtime::size_of(dtype_);
    for (std::size_t e = 0; e < spec.elements(); ++e) {
      if (!is_parameter(spec, e)) continue;
      std::byte* const to = unit + e * width;
      const float gradient = value(row, microbatch, layer, spec, e);
      write_as(dtype_, to, adds ? read_as(dtype_, to) + gradient : gradient);
    }
  }

  /// Sum over one row's microbatches, use by use; the column's final result is the sum of these over rows.
  [[nodiscard]] float of_row(int row, int microbatches, const models::UnitSpec& unit, std::size_t element) const {
    return over_uses(unit, [&](std::size_t layer) {
      return in_order(microbatches, [&](int m) { return value(row, m, layer, unit, element); });
    });
  }

  /// Sum over all rows, in the order of the gradients' scope.
  [[nodiscard]] float reduced(int microbatches, const models::UnitSpec& unit, std::size_t element) const {
    using collectives::Scope;
    if (scope_ == Scope::none)
      return together(0, rows_, [&](int row) { return of_row(row, microbatches, unit, element); });
    const auto of_microbatches = [&](std::size_t layer, int first, int count) {
      return in_order(microbatches, [&](int m) {
        return together(first, count, [&](int row) { return value(row, m, layer, unit, element); });
      });
    };
    if (scope_ == Scope::global)
      return over_uses(unit, [&](std::size_t layer) { return of_microbatches(layer, 0, rows_); });
    return together(0, rows_ / group_, [&](int group) {
      return over_uses(unit, [&](std::size_t layer) { return of_microbatches(layer, group * group_, group_); });
    });
  }

 private:
  [[nodiscard]] float add(float a, float b) const { return rounded(dtype_, a + b); }

  template <typename F>
  [[nodiscard]] float in_order(int microbatches, const F& of_microbatch) const {
    float sum = of_microbatch(0);
    for (int m = 1; m < microbatches; ++m) sum = add(sum, of_microbatch(m));
    return sum;
  }
  /// Sums 1, 2 or 4 terms: the first two, the last two, then both.
  template <typename F>
  [[nodiscard]] float together(int first, int count, const F& of_one) const {
    if (count == 1) return of_one(first);
    return add(together(first, count / 2, of_one), together(first + count / 2, count / 2, of_one));
  }
  template <typename F>
  [[nodiscard]] float over_uses(const models::UnitSpec& unit, const F& of_layer) const {
    bool first = true;
    float sum = 0;
    for (std::size_t layer = 0; layer < architecture_->layers.size(); ++layer) {
      for (const models::UnitSpec& used : architecture_->layers[layer]->units()) {
        if (used.name != unit.name) continue;
        sum = first ? of_layer(layer) : add(sum, of_layer(layer));
        first = false;
      }
    }
    return sum;
  }

  const models::Architecture* architecture_;
  runtime::DType dtype_;
  collectives::Scope scope_;
  int rows_, group_;
  std::uint64_t seed_;
};

/// The numbers from 0 on, `count` of them.
inline std::vector<std::size_t> numbers_of(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// A part under test on each rank of a grid, made from its rank and, if it takes them, the gradients.
template <typename Part>
struct PartOfRanks {
  PartOfRanks(models::Architecture model, const actors::TrainerOptions& options, std::uint64_t seed)
      : architecture(std::move(model)), gradients(architecture, options, seed), grid(architecture, options, seed) {
    for (std::size_t r = 0; r < grid.size(); ++r) {
      if constexpr (std::is_constructible_v<Part, BareRank&, const MadeUpGradients&>)
        parts.push_back(std::make_unique<Part>(grid[r], gradients));
      else
        parts.push_back(std::make_unique<Part>(grid[r]));
    }
  }
  /// A GPT of two layers.
  PartOfRanks(const actors::TrainerOptions& options, std::uint64_t seed)
      : PartOfRanks(models::make_gpt(small_gpt(2)), options, seed) {}

  /// The units of a rank, by number.
  [[nodiscard]] std::vector<std::size_t> units() { return numbers_of(grid[0].units().size()); }

  models::Architecture architecture;
  MadeUpGradients gradients;
  BareGrid grid;
  std::vector<std::unique_ptr<Part>> parts;  ///< by rank
};

/// Test value of an element of a unit in tests of bundles.
inline float numbered(std::size_t unit, std::size_t element) { return static_cast<float>(unit * 40009 + element); }

/// Rows of one stage, in groups of two, whose buckets are small and whose bundles have several of them.
inline actors::TrainerOptions bundled_run(const char* sharding, int rows) {
  auto options = small_run({1, rows}, sharding);
  options.batch_size = 8 * rows;
  options.group_size = rows > 1 ? 2 : 1;
  options.tiers.bucket_elements = 1024;
  options.tiers.bundle_bytes = 1024;
  return options;
}

}  // namespace ranvier::tests
