#include "runtime/kernels/momentum.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/kernels/momentum_cpu.hpp"
#include "runtime/kernels/momentum_cuda.hpp"
#include "runtime/kernels/state_update.hpp"

#include <utility>

namespace ranvier::runtime {
namespace {

void refuse_average(const AdamWOptions& options) {
  expect(options.average == 0, "Muon computes no moving average, but its coefficient is {}; use sgd()",
         options.average);
}

}  // namespace

void sgd(StreamView stream, const AdamWArrays& all, const AdamWRuns& runs, std::vector<DecaySegment> segments,
         const AdamWOptions& options) {
  AdamWArrays arrays = all;
  arrays.v = nullptr;
  if (options.average != 0) arrays.m = nullptr;
  if (!has_work(arrays, runs, segments, options)) return;
  const cpu::MomentumConstants constants(options);
  if (ran_on_gpu<sgd_cuda>(stream, arrays, runs, segments, options, constants)) return;
  const bool has_m = arrays.m != nullptr;
  update_states(stream, arrays, runs, segments, options,
                [=](float* weights, float* m, float*, const float* gradient, std::size_t n, bool decays) {
                  const float kept = constants.kept_of(decays);
                  if (has_m) {
                    cpu::sgd_momentum(weights, m, gradient, n, kept, constants);
                  } else {
                    cpu::sgd(weights, gradient, n, kept, constants);
                  }
                });
}

void muon_momentum(StreamView stream, const AdamWArrays& all, float* update, const AdamWRuns& all_runs,
                   std::vector<DecaySegment> segments, const AdamWOptions& options) {
  refuse_average(options);
  expect(all.m != nullptr, "Muon has no momentum array");
  // The rule's result is stored like a working copy.
  AdamWArrays arrays = all;
  arrays.weights = arrays.v = nullptr;
  arrays.working = update;
  arrays.working_dtype = DType::f32;
  AdamWRuns runs = all_runs;
  runs.weights = runs.working = runs.positions;
  if (!has_work(arrays, runs, segments, options)) return;
  const cpu::MomentumConstants constants(options);
  if (ran_on_gpu<muon_momentum_cuda>(stream, arrays, runs, segments, options, constants)) return;
  update_states(stream, arrays, runs, segments, options,
                [constants](float* result, float* m, float*, const float* gradient, std::size_t n, bool) {
                  cpu::muon_momentum(result, m, gradient, n, constants);
                });
}

void muon_apply(StreamView stream, const AdamWArrays& all, const float* update, const AdamWRuns& all_runs,
                std::vector<DecaySegment> segments, const AdamWOptions& all_options) {
  refuse_average(all_options);
  AdamWArrays arrays = all;
  arrays.m = nullptr;
  arrays.gradient = update;
  arrays.gradient_dtype = DType::f32;
  AdamWRuns runs = all_runs;
  runs.gradient = runs.moments = runs.positions;
  AdamWOptions options = all_options;
  options.gradient_scale = 1;
  sgd(stream, arrays, runs, std::move(segments), options);
}

}  // namespace ranvier::runtime
