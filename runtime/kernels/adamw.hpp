// AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization") on flat arrays.
//
//   g = gradient · gradient_scale
//   w = w · (1 - lr · decay)
//   m = β1 m + (1-β1) g          v = β2 v + (1-β2) g²
//   w = w - (lr / bias1) · m / (√v / √bias2 + ε)
//
// Operations come in PyTorch's order, on floats, with constants computed in double and rounded once.
//
// The same kernels step moving averages: w = w · (1 - average) + average · gradient. What they leave in m and v means
// nothing.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/runs.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ranvier::runtime {

struct AdamWOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  std::int64_t step = 1;      ///< counts the steps that took effect, from 1: bias1 = 1 - β1^step
  double gradient_scale = 1;  ///< clipping factor over loss scale
  double average = 0;         ///< not 0: a moving average with this weight of what is new, and nothing of the above
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

/// How the arrays of a step lie. Those in runs have equally long ones, and begin with one.
struct AdamWRuns {
  std::size_t elements = 0;
  Runs positions;  ///< of the elements, as segments count them; those between runs take no part
  Runs weights;
  Runs moments;  ///< m, v
  Runs gradient;
  Runs working;
};
/// The same where arrays lie in runs, as one piece of work.
void adamw(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs, std::vector<DecaySegment> segments,
           const AdamWOptions& options);

}  // namespace ranvier::runtime
