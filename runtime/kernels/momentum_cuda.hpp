// GPU kernels for momentum.hpp; arguments are checked by the caller. Loop thread only.
#pragma once

#include "runtime/kernels/momentum.hpp"
#include "runtime/kernels/momentum_cpu.hpp"

#include <span>

namespace ranvier::runtime {

/// Without momentum if `arrays.m` is null.
void sgd_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
              std::span<const DecaySegment> segments, const AdamWOptions& options,
              const cpu::MomentumConstants& constants);
/// The update is arrays.working, in fp32; `arrays.weights` is null.
void muon_momentum_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                        std::span<const DecaySegment> segments, const AdamWOptions& options,
                        const cpu::MomentumConstants& constants);

}  // namespace ranvier::runtime
