// What collectives must give, computed plainly: the sum of every element in the order of the algorithm.
#pragma once

#include <array>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "collectives/ring.hpp"
#include "collectives/tree.hpp"
#include "runtime/dtype.hpp"

namespace ranvier::test {

using collectives::Plan;
using runtime::DType;

enum class Algorithm { reduce_scatter, all_gather, all_reduce, tree };

struct Case {
  Algorithm algorithm = Algorithm::all_reduce;
  int ranks = 1;
  std::size_t elements = 0;
  int chunks = 1;
  int depth = 1;
  DType dtype = DType::f32;
};

inline std::vector<Plan> plans_of(const Case& c) {
  if (c.algorithm == Algorithm::tree) return {collectives::tree_all_reduce(c.ranks, c.elements)};
  std::vector<Plan> plans;
  for (int chunk = 0; chunk < c.chunks; ++chunk) {
    switch (c.algorithm) {
      case Algorithm::reduce_scatter:
        plans.push_back(collectives::ring_reduce_scatter(c.ranks, c.elements, c.chunks, chunk));
        break;
      case Algorithm::all_gather:
        plans.push_back(collectives::ring_all_gather(c.ranks, c.elements, c.chunks, chunk));
        break;
      default:
        plans.push_back(collectives::ring_all_reduce(c.ranks, c.elements, c.chunks, chunk));
    }
  }
  return plans;
}

template <typename T>
[[nodiscard]] T plus(T left, T right) {
  if constexpr (std::is_same_v<T, double>) {
    return left + right;
  } else {
    return runtime::from_float<T>(runtime::to_float(left) + runtime::to_float(right));
  }
}

/// The sum over all ranks of one element, in the order of the algorithm.
template <typename T>
T sum_of(const Case& c, const std::vector<std::vector<T>>& values, std::size_t element) {
  if (c.algorithm == Algorithm::tree) {
    std::array<T, 64> partial;
    for (int rank = 0; rank < c.ranks; ++rank) partial[rank] = values[rank][element];
    for (int stride = 1; stride < c.ranks; stride *= 2) {
      for (int rank = 0; rank + stride < c.ranks; rank += 2 * stride) {
        partial[rank] = plus(partial[rank], partial[rank + stride]);
      }
    }
    return partial[0];
  }
  const int owner = static_cast<int>(element / (c.elements / c.ranks));
  T sum = values[(owner + 1) % c.ranks][element];
  for (int hop = 2; hop <= c.ranks; ++hop) sum = plus(sum, values[(owner + hop) % c.ranks][element]);
  return sum;
}

template <typename T>
std::vector<std::vector<T>> random_buffers(const Case& c, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<std::vector<T>> buffers(c.ranks, std::vector<T>(c.elements));
  for (auto& buffer : buffers) {
    for (T& value : buffer) {
      if constexpr (std::is_same_v<T, double>) {
        value = normal(random);
      } else {
        value = runtime::from_float<T>(static_cast<float>(normal(random)));
      }
    }
  }
  return buffers;
}

/// Whether `rank` ended with the bits that the algorithm promises, where it promises any.
template <typename T>
bool as_promised(const Case& c, const std::vector<std::vector<T>>& before, const std::vector<std::vector<T>>& after,
                 int rank) {
  const std::size_t length = c.elements / c.ranks;
  for (std::size_t i = 0; i < c.elements; ++i) {
    const int owner = length == 0 ? 0 : static_cast<int>(i / length);
    if (c.algorithm == Algorithm::reduce_scatter && owner != rank) continue;
    const T expected = c.algorithm == Algorithm::all_gather ? before[owner][i] : sum_of(c, before, i);
    if (std::memcmp(&after[rank][i], &expected, sizeof(T)) != 0) return false;
  }
  return true;
}

}  // namespace ranvier::test
