#include "runtime/kernels/adamw.hpp"

#include "runtime/device/cuda_build.hpp"
#include "runtime/kernels/adamw_cpu.hpp"
#include "runtime/kernels/adamw_cuda.hpp"
#include "runtime/kernels/momentum.hpp"
#include "runtime/kernels/state_update.hpp"

#include <utility>

namespace ranvier::runtime {

void adamw(StreamView stream, const AdamWArrays& arrays, std::vector<DecaySegment> segments,
           const AdamWOptions& options) {
  const std::size_t end = segments.empty() ? 0 : segments.back().end;
  adamw(stream, arrays, {.elements = end}, std::move(segments), options);
}

void adamw(StreamView stream, const AdamWArrays& arrays, const AdamWRuns& runs, std::vector<DecaySegment> segments,
           const AdamWOptions& options) {
  if (options.average != 0) return sgd(stream, arrays, runs, std::move(segments), options);
  if (!has_work(arrays, runs, segments, options)) return;
  const cpu::AdamWConstants constants(options);
  if (ran_on_gpu<adamw_cuda>(stream, arrays, runs, segments, options, constants)) return;
  update_states(stream, arrays, runs, segments, options,
                [constants](float* weights, float* m, float* v, const float* gradient, std::size_t n, bool decays) {
                  cpu::adamw(weights, m, v, gradient, n, constants.kept_of(decays), constants);
                });
}

}  // namespace ranvier::runtime
