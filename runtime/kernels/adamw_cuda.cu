#include "runtime/kernels/adamw_cuda.hpp"

#include "runtime/kernels/state_update.cuh"

namespace ranvier::runtime {
namespace {

struct AdamWRule {
  static constexpr bool has_weights = true;
  static constexpr bool has_v = true;
  cpu::AdamWConstants constants;

  __device__ void operator()(float& weight, float& m, float& v, float gradient, float kept) const {
    const cpu::AdamWConstants& c = constants;
    const float g = __fmul_rn(gradient, c.gradient_scale);
    m = __fmaf_rn(m, c.beta1, __fmul_rn(c.one_minus_beta1, g));
    v = __fmaf_rn(v, c.beta2, __fmul_rn(__fmul_rn(c.one_minus_beta2, g), g));
    const float root = __fmaf_rn(__fsqrt_rn(v), c.root_scale, c.epsilon);
    weight = __fmaf_rn(weight, kept, -__fdiv_rn(__fmul_rn(c.step_size, m), root));
  }
};

}  // namespace

void adamw_cuda(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs,
                std::span<const DecaySegment> segments, const AdamWOptions& options,
                const cpu::AdamWConstants& constants) {
  cuda::update_states("adamw", stream, arrays, runs, segments, options, AdamWRule{constants});
}

}  // namespace ranvier::runtime
