// What decides how a collective is run, as plain data; any thread.
#pragma once

#include "collectives/algorithms.hpp"
#include "runtime/dtype.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ranvier::collectives {

/// Which algorithm, by the names of algorithms.hpp ("auto" was decided before), and how an operation is cut.
struct PlanChoice {
  std::string all_gather = "ring", reduce_scatter = "ring", all_reduce = "ring";
  std::size_t chunk_bytes = 1 << 20;  ///< of the pieces of all parts together that one chunk moves, at most
  int depth = 4;                      ///< chunks in flight of one operation

  [[nodiscard]] const Algorithm& algorithm_of(Collective collective) const;
  /// Chunks of an operation with these parts; the same for each of them, one at least.
  [[nodiscard]] int chunks(int ranks, std::span<const std::size_t> parts, runtime::DType dtype) const;
};

/// An operation without its data, for planning.
struct OperationShape {
  Collective collective = Collective::all_gather;
  std::vector<std::size_t> parts;  ///< elements of each
  runtime::DType dtype = runtime::DType::f32;
  std::vector<std::size_t> runs = {};  ///< of each part, as in Communicator::Operand; empty: all are contiguous
};

}  // namespace ranvier::collectives
