// SGD with momentum, and the elementwise parts of Muon (Jordan et al. 2024, "Muon: an optimizer for hidden layers in
// neural networks"), as torch.optim.SGD and torch.optim.Muon, with decoupled weight decay. Same arrays, runs, segments,
// rounding and constants as adamw(); `v` is unused.
//
//   g = gradient · gradient_scale;  w = w · (1 - lr · decay) - lr · update
//
// lr is options.learning_rate: callers multiply it by options.muon_rate for Muon's matrices.
#pragma once

#include "runtime/kernels/adamw.hpp"

#include <vector>

namespace ranvier::runtime {

/// SGD: m = momentum · m + g, update = m; without momentum if `arrays.m` is null: update = g. options.average works as
/// in adamw().
void sgd(StreamView stream, const UpdateArrays& arrays, const std::vector<DecaySegment>& segments,
         const UpdateOptions& options);

/// Nesterov momentum of Muon: m = m + (1 - momentum) · (g - m), update = g + momentum · (m - g). Writes `update`, whose
/// layout is arrays.runs.positions, only inside the segments. Uses neither weights nor working copy.
void muon_momentum(StreamView stream, const UpdateArrays& arrays, float* update,
                   const std::vector<DecaySegment>& segments, const UpdateOptions& options);

/// Changes weights, and their working copy, by an orthogonalized `update` in the layout arrays.runs.positions. Uses
/// neither gradient nor moments.
void muon_apply(StreamView stream, const UpdateArrays& arrays, const float* update,
                const std::vector<DecaySegment>& segments, const UpdateOptions& options);

}  // namespace ranvier::runtime
