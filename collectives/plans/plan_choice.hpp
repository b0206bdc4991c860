// Parameters for running a collective, as plain data; any thread.
#pragma once

#include "collectives/plans/algorithms.hpp"
#include "runtime/base/dtype.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ranvier::collectives {

/// Algorithm, by the names of algorithms.hpp ("auto" is resolved before), and chunking.
struct PlanChoice {
  std::string all_gather = "ring", reduce_scatter = "ring", all_reduce = "ring";
  std::size_t chunk_bytes = 1 << 20;  ///< maximum bytes of all parts' pieces per chunk
  int depth = 4;                      ///< chunks in flight per operation

  [[nodiscard]] const Algorithm& algorithm_of(Collective collective) const;
  /// Number of chunks of an operation with these parts, at least one.
  [[nodiscard]] int chunks(int ranks, std::span<const std::size_t> parts, runtime::DType dtype) const;
};

/// Shape of an operation, for planning.
struct OperationShape {
  Collective collective = Collective::all_gather;
  std::vector<std::size_t> parts;  ///< elements of each part
  runtime::DType dtype = runtime::DType::f32;
  std::vector<std::size_t> runs = {};  ///< run of each part, as in Communicator::Operand; empty: all are contiguous
};

}  // namespace ranvier::collectives
