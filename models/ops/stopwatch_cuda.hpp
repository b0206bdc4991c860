// Times work on a GPU, to choose between implementations. Only _cuda.cpp files include this. Loop thread only.
#pragma once

#include "runtime/device/cuda_native.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace ranvier::models::cuda {

/// Called after a candidate failed. Clears launch errors. Throws ErrorCode::device if a kernel left the GPU unusable.
inline void expect_working_gpu(cudaStream_t queue) {
  (void)cudaGetLastError();
  runtime::cuda::check(cudaStreamSynchronize(queue), "cudaStreamSynchronize after a call that failed");
}

/// Duration of work on a stream, by the GPU's clock.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t queue) : queue_(queue) {
    runtime::cuda::check(cudaEventCreate(&begin_), "cudaEventCreate");
    runtime::cuda::check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  /// Minimum of a few rounds after a warm-up. If a single run takes more than `hopeless` seconds, returns its time.
  double seconds_of(const std::function<void()>& work, double hopeless = std::numeric_limits<double>::infinity()) {
    (void)round(work, 1);
    const double once = round(work, 1);
    if (once > hopeless) return once;
    const int times = static_cast<int>(std::clamp(0.5e-3 / std::max(once, 1e-7), 1.0, 20.0));
    double best = round(work, times);
    for (int i = 0; i < 2; ++i) best = std::min(best, round(work, times));
    return best;
  }

 private:
  double round(const std::function<void()>& work, int times) {
    runtime::cuda::check(cudaEventRecord(begin_, queue_), "cudaEventRecord");
    for (int i = 0; i < times; ++i) work();
    runtime::cuda::check(cudaEventRecord(end_, queue_), "cudaEventRecord");
    runtime::cuda::check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    runtime::cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds) / times;
  }

  cudaStream_t queue_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace ranvier::models::cuda
