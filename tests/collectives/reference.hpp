// Expected results of collectives, computed plainly: the sum of every element in the order that the algorithm's header
// promises.
#pragma once

#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/recursive.hpp"
#include "runtime/base/dtype.hpp"
#include "tests/test.hpp"

#include <bit>
#include <type_traits>

namespace ranvier::test {

using collectives::Collective;
using collectives::Plan;
using collectives::Topology;
using runtime::DType;

inline constexpr std::array all_collectives = {Collective::all_gather, Collective::reduce_scatter,
                                               Collective::all_reduce};

struct Case {
  Collective collective = Collective::all_reduce;
  std::string_view algorithm = "ring";  ///< or "tree", an all-reduce that is not in the list
  Topology topology = Topology::regular(1, 1);
  std::size_t elements = 0;

  [[nodiscard]] int ranks() const { return topology.ranks(); }
};

/// Memory layout of a part: runs with gaps between them, or contiguous if `run` is 0.
struct GappedRuns {
  std::size_t run = 0;
  std::size_t gap = 0;

  [[nodiscard]] std::size_t stride() const { return run == 0 ? 0 : run + gap; }
  [[nodiscard]] std::size_t place(std::size_t element) const {
    return run == 0 ? element : element / run * stride() + element % run;
  }
};

/// Values that are stored in runs; the gaps hold random bytes, which must not be changed.
template <typename T>
class InRuns {
 public:
  InRuns(const std::vector<T>& values, const GappedRuns& runs, std::mt19937_64& random)
      : runs_(runs), elements_(values.size()), memory_(values.empty() ? 0 : runs.place(values.size() - 1) + 1) {
    for (T& element : memory_) {
      const std::uint64_t bits = random();
      std::memcpy(static_cast<void*>(&element), &bits, sizeof(T));
    }
    for (std::size_t i = 0; i < elements_; ++i) memory_[runs_.place(i)] = values[i];
    before_ = memory_;
  }

  [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> values;
    for (std::size_t i = 0; i < elements_; ++i) values.push_back(memory_[runs_.place(i)]);
    return values;
  }
  [[nodiscard]] bool gaps_untouched() const {
    std::vector<T> memory = memory_;
    for (std::size_t i = 0; i < elements_; ++i) memory[runs_.place(i)] = before_[runs_.place(i)];
    return memory.empty() || std::memcmp(memory.data(), before_.data(), memory.size() * sizeof(T)) == 0;
  }

 private:
  GappedRuns runs_;
  std::size_t elements_;
  std::vector<T> memory_, before_;
};

/// Every algorithm of every collective, the tree included.
inline std::vector<std::pair<Collective, std::string_view>> all_algorithms() {
  std::vector<std::pair<Collective, std::string_view>> all = {{Collective::all_reduce, "tree"}};
  for (const Collective collective : all_collectives)
    for (const auto& algorithm : collectives::algorithms(collective)) all.emplace_back(collective, algorithm.name);
  return all;
}

/// A choice of the algorithms with this number, from 0 on, in their lists.
inline collectives::PlanChoice choice_of(std::size_t number, std::size_t chunk_bytes = 1 << 20) {
  const auto name = [number](Collective collective) {
    const auto all = collectives::algorithms(collective);
    return std::string(all[number % all.size()].name);
  };
  return {.all_gather = name(Collective::all_gather),
          .reduce_scatter = name(Collective::reduce_scatter),
          .all_reduce = name(Collective::all_reduce),
          .chunk_bytes = chunk_bytes};
}

/// A team of all ranks of the topology, in their order.
inline collectives::Team team_of(const Topology& topology) {
  collectives::Team team{topology, std::vector<int>(static_cast<std::size_t>(topology.ranks()))};
  std::iota(team.members.begin(), team.members.end(), 0);
  return team;
}

/// All divisions of that many ranks into rows.
inline std::vector<Topology> topologies_of(int ranks) {
  std::vector<Topology> all;
  for (int inner = 1; inner <= ranks; ++inner)
    if (ranks % inner == 0) all.push_back(Topology::regular(inner, ranks / inner));
  return all;
}

/// Plans of all chunks.
inline std::vector<Plan> plans_of(const collectives::Algorithm& algorithm, const Topology& topology,
                                  std::size_t elements, int chunks) {
  std::vector<Plan> plans;
  for (int chunk = 0; chunk < chunks; ++chunk) plans.push_back(algorithm.plan(topology, elements, chunks, chunk));
  return plans;
}

/// Steps of `rank` in each plan.
inline std::vector<collectives::RankSchedule> schedules_of(const std::vector<Plan>& plans, int rank) {
  std::vector<collectives::RankSchedule> schedules;
  for (const Plan& plan : plans) schedules.push_back(collectives::schedule_of(plan, rank));
  return schedules;
}

inline Plan plan_of(const Case& c) {
  if (c.algorithm == "tree") return collectives::tree_all_reduce(c.ranks(), c.elements);
  return collectives::algorithm(c.collective, c.algorithm).plan(c.topology, c.elements);
}

inline constexpr std::array number_types = {DType::f32, DType::bf16, DType::f16, DType::f64};

/// Calls `f` with a number of one of these types.
template <typename F>
decltype(auto) with_number_type(DType dtype, F&& f) {
  return dtype == DType::f64 ? f(double{}) : runtime::with_float_type(dtype, std::forward<F>(f));
}

template <typename T>
[[nodiscard]] T number(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return runtime::from_float<T>(static_cast<float>(value));
}

template <typename T>
[[nodiscard]] T plus(T left, T right) {
  if constexpr (std::is_same_v<T, double>) {
    return left + right;
  } else {
    return runtime::from_float<T>(runtime::to_float(left) + runtime::to_float(right));
  }
}

/// One per rank. Not a vector: there are many, and AddressSanitizer makes allocations slow.
template <typename T>
class Values {
 public:
  Values() = default;
  template <typename Iterator>
  Values(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  void push_back(T value) { values_.at(size_++) = value; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const T* begin() const { return values_.data(); }
  [[nodiscard]] T& operator[](std::size_t index) { return values_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const { return values_[index]; }

 private:
  std::array<T, 64> values_{};
  std::size_t size_ = 0;
};

/// owner + 1, owner + 2, … owner.
template <typename T>
T sum_round_ring(const Values<T>& values, int owner) {
  const int count = static_cast<int>(values.size());
  T sum = values[(owner + 1) % count];
  for (int hop = 2; hop <= count; ++hop) sum = plus(sum, values[(owner + hop) % count]);
  return sum;
}

template <typename T>
T sum_by_halving(const Values<T>& values, int owner) {
  const int count = static_cast<int>(values.size());
  Values<T> behind;
  for (int x = 0; x < count; ++x) behind.push_back(values[(owner - x + count) % count]);
  for (int d = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - 1))); d > 0; d /= 2)
    for (int x = 0; x < d && x + d < count; ++x) behind[x] = plus(behind[x], behind[x + d]);
  return behind[0];
}

template <typename T>
T sum_by_tree(Values<T> values) {
  const std::size_t ranks = values.size();
  for (std::size_t stride = 1; stride < ranks; stride *= 2)
    for (std::size_t rank = 0; rank + stride < ranks; rank += 2 * stride)
      values[rank] = plus(values[rank], values[rank + stride]);
  return values[0];
}

/// First the sums inside the nodes, for the owner's position; then the sum over these.
template <typename T, typename Sum>
T sum_inside_then_across(const Topology& topology, const Values<T>& values, int owner, Sum sum) {
  Values<T> nodes;
  for (int o = 0; o < topology.outer; ++o) {
    const auto row = values.begin() + topology.rank(0, o);
    nodes.push_back(sum(Values<T>(row, row + topology.inner), owner % topology.inner));
  }
  return sum(nodes, owner / topology.inner);
}

template <typename T>
T sum_of_ho_ring(const Topology& topology, const Values<T>& values, int owner) {
  const auto& [inner, outer, nodes] = topology;
  if (inner == 1 || outer == 1) return sum_round_ring(values, owner);
  const int i = owner % inner, o = owner / inner;
  T sum{};
  for (int hop = 1; hop <= outer; ++hop) {
    const int m = (o + hop) % outer;
    const auto value = [&](int distance) { return values[topology.rank((i + distance) % inner, m)]; };
    T others = value(1);
    for (int distance = 2; distance < inner; ++distance) others = plus(others, value(distance));
    sum = plus(hop == 1 ? value(0) : plus(value(0), sum), others);
  }
  return sum;
}

/// Sum of one element, given each rank's value of it and the rank that owns its piece.
template <typename T>
T sum_of(const Case& c, const Values<T>& values, int owner) {
  if (c.ranks() == 1) return values[0];
  if (c.algorithm == "tree") return sum_by_tree(values);
  if (c.algorithm == "ring") return sum_round_ring(values, owner);
  if (c.algorithm == "ho-ring") return sum_of_ho_ring(c.topology, values, owner);
  if (c.algorithm == "recursive") {
    Values<T> by_piece;
    for (int piece = 0; piece < c.ranks(); ++piece) by_piece.push_back(values[c.topology.rank_of_piece(piece)]);
    return sum_by_halving(by_piece, c.topology.piece(owner));
  }
  if (c.algorithm == "hierarchical") return sum_inside_then_across(c.topology, values, owner, sum_by_halving<T>);
  return sum_inside_then_across(c.topology, values, owner, sum_round_ring<T>);
}

template <typename T>
std::vector<std::vector<T>> random_buffers(const Case& c, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<std::vector<T>> buffers(c.ranks(), std::vector<T>(c.elements));
  for (auto& buffer : buffers)
    for (T& value : buffer) value = number<T>(normal(random));
  return buffers;
}

/// Final values of all elements for which the algorithm makes a promise.
template <typename T>
std::vector<T> promised(const Case& c, const std::vector<std::vector<T>>& before) {
  const std::size_t length = c.elements / c.ranks();
  std::vector<T> expected(c.elements);
  Values<T> values;
  for (int rank = 0; rank < c.ranks(); ++rank) values.push_back(T{});
  for (std::size_t i = 0; i < c.elements; ++i) {
    const int owner = c.topology.rank_of_piece(static_cast<int>(i / length));
    for (int rank = 0; rank < c.ranks(); ++rank) values[rank] = before[rank][i];
    expected[i] = c.collective == Collective::all_gather ? values[owner] : sum_of(c, values, owner);
  }
  return expected;
}

/// Whether `rank` ended with the bits that the algorithm promises, if it promises any.
template <typename T>
bool as_promised(const Case& c, const std::vector<T>& expected, const std::vector<std::vector<T>>& after,
                 int rank) {
  const bool owns_a_piece = c.collective == Collective::reduce_scatter;
  const std::size_t count = owns_a_piece ? c.elements / c.ranks() : c.elements;
  const std::size_t begin = owns_a_piece ? c.topology.piece(rank) * count : 0;
  return count == 0 || std::memcmp(after[rank].data() + begin, expected.data() + begin, count * sizeof(T)) == 0;
}

}  // namespace ranvier::test
