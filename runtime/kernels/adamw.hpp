// AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization") on flat arrays.
//
//   g = gradient · gradient_scale
//   m = β1 m + (1-β1) g          v = β2 v + (1-β2) g²
//   w = w - lr · ( (m / bias1) / (√(v / bias2) + ε) + decay · w )
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ranvier::runtime {

struct AdamWOptions {
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;
  std::int64_t step = 1;     ///< counts the steps that took effect, from 1: bias1 = 1 - β1^step
  float gradient_scale = 1;  ///< clipping factor over loss scale
};

/// A run of elements that weight decay touches or not.
struct DecaySegment {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool decays = false;
};

struct AdamWArrays {
  float* weights = nullptr;  ///< fp32 master copy
  float* m = nullptr;
  float* v = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  void* working = nullptr;  ///< the rounded copy that layers read; nullptr: layers read `weights`
  DType working_dtype = DType::f32;
};

/// One step on the elements that `segments` name (ascending, disjoint); others stay as they are.
/// Elementwise, so any split of the array gives the same bits.
void adamw(StreamView stream, const AdamWArrays& arrays, std::vector<DecaySegment> segments,
           const AdamWOptions& options);

}  // namespace ranvier::runtime
