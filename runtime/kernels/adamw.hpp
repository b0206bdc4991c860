// AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization") on flat arrays, in floats and in
// PyTorch's order of operations. Constants are computed in double and rounded once.
//
//   g = gradient · gradient_scale;  w = w · (1 - lr · decay);  m = β1 m + (1-β1) g;  v = β2 v + (1-β2) g²
//   w = w - (lr / bias1) · m / (√v / √bias2 + ε)
//
// The same functions update moving averages: w = w · (1 - average) + average · gradient. They then leave m and v
// unchanged.
//
// States in bf16 are computed in floats and rounded stochastically: to either neighbour, with a probability by its
// distance, so that small updates take effect on average. The random numbers depend on step and position in the unit
// only. Moments in int8 (int8_block.hpp) are rounded to nearest.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/philox.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace ranvier::runtime {

/// Position of an array's first element for stochastic rounding.
struct RoundingOrigin {
  PhiloxKey key;
  std::uint32_t unit = 0;     ///< distinguishes arrays with the same key
  std::uint64_t element = 0;  ///< element of the unit at position 0 of UpdateRuns::positions
};

/// Options of a step for adamw(), and for SGD and Muon (momentum.hpp).
struct UpdateOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.95;     ///< factor of the previous m in sgd() and Muon (momentum.hpp)
  std::int64_t step = 1;      ///< number of committed steps, starting at 1: bias1 = 1 - β1^step
  double gradient_scale = 1;  ///< clipping factor / loss scale
  double average =
      0;  ///< if not 0: weight of the new value in a moving average; all fields above but `step` are ignored
  RoundingOrigin rounding;  ///< for states in bf16
  double muon_rate = 1;     ///< Muon's learning rate for matrices inside blocks, relative to `learning_rate`
};

/// Range of elements [begin, end) with or without weight decay.
struct DecaySegment {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool decays = false;
};

/// Strided layouts of the arrays. All strided ones have the same run length and start with a complete run. With moments
/// in int8, this length and the stride of the moments are multiples of int8_block_elements.
struct UpdateRuns {
  std::size_t elements = std::numeric_limits<std::size_t>::max();  ///< the following ones stay unchanged
  /// Positions of the elements, in which segments are counted; elements between runs are skipped.
  StridedLayout positions;
  StridedLayout weights;
  StridedLayout moments;  ///< layout of m and v, counted in elements
  StridedLayout gradient;
  StridedLayout working;
};

struct UpdateArrays {
  void* weights = nullptr;  ///< master copy
  void* m = nullptr;
  void* v = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  void* working = nullptr;  ///< rounded copy that the layers read; nullptr: layers read `weights`
  DType working_dtype = DType::f32;
  DType weights_dtype = DType::f32;  ///< f32 or bf16
  DType m_dtype = DType::f32;        ///< f32, bf16 or i8
  DType v_dtype = DType::f32;        ///< f32, bf16 or u8
  UpdateRuns runs;
};

/// Updates the elements in `segments` (ascending, disjoint), as one piece of work; others stay unchanged. Elementwise,
/// so any split of the array gives the same bits.
///
/// Moments in int8: the array starts with a block, and a split falls on blocks. Each block is converted to floats,
/// updated and rounded once, so elements outside of the segments are rounded again with the block's new scale. Throws
/// ErrorCode::internal for more than 64 segments per block.
void adamw(StreamView stream, const UpdateArrays& arrays, const std::vector<DecaySegment>& segments,
           const UpdateOptions& options);

}  // namespace ranvier::runtime
