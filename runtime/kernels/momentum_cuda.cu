#include "runtime/kernels/momentum_cuda.hpp"

#include "runtime/kernels/state_update.cuh"

namespace ranvier::runtime {
namespace {

struct SgdRule {
  static constexpr bool has_weights = true;
  static constexpr bool has_v = false;
  cpu::MomentumConstants constants;
  bool has_m;

  __device__ void operator()(float& weight, float& m, float&, float gradient, float kept) const {
    const float g = __fmul_rn(gradient, constants.gradient_scale);
    m = has_m ? __fmaf_rn(m, constants.momentum, g) : g;
    weight = __fmaf_rn(weight, kept, -__fmul_rn(constants.learning_rate, m));
  }
};

struct MuonRule {
  static constexpr bool has_weights = false;
  static constexpr bool has_v = false;
  cpu::MomentumConstants constants;

  __device__ void operator()(float& update, float& m, float&, float gradient, float) const {
    const float g = __fmul_rn(gradient, constants.gradient_scale);
    m = __fmaf_rn(constants.one_minus_momentum, __fsub_rn(g, m), m);
    update = __fmaf_rn(constants.momentum, __fsub_rn(m, g), g);
  }
};

}  // namespace

void sgd_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
              std::span<const DecaySegment> segments, const AdamWOptions& options,
              const cpu::MomentumConstants& constants) {
  cuda::update_states("sgd", stream, arrays, runs, segments, options, SgdRule{constants, arrays.m != nullptr});
}

void muon_momentum_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                        std::span<const DecaySegment> segments, const AdamWOptions& options,
                        const cpu::MomentumConstants& constants) {
  cuda::update_states("muon_momentum", stream, arrays, runs, segments, options, MuonRule{constants});
}

}  // namespace ranvier::runtime
