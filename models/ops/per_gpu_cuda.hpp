// State of a process per GPU: a library's handle, choices and plans. Only _cuda.cpp files include this.
//
//   const auto library = gpus<Library>().hold(stream);
//   library->plans[product] = …;
#pragma once

#include "runtime/device/cuda_native.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ranvier::models::cuda {

template <typename Kept>
class PerGpu {
 public:
  /// Exclusive access for one thread, because ranks in one process have a loop thread each. The same thread may lock it
  /// repeatedly: while measuring, also in the measured operations.
  class Held {
   public:
    Held(std::recursive_mutex& mutex, Kept& kept) : lock_(mutex, std::adopt_lock), kept_(&kept) {}

    [[nodiscard]] Kept& operator*() const noexcept { return *kept_; }
    [[nodiscard]] Kept* operator->() const noexcept { return kept_; }

   private:
    std::unique_lock<std::recursive_mutex> lock_;
    Kept* kept_;
  };

  /// Locks the state of the stream's GPU, which becomes the calling thread's current one.
  [[nodiscard]] Held hold(runtime::StreamView stream) {
    (void)runtime::cuda::native(stream);
    const int gpu = runtime::cuda::properties(stream.device()).ordinal;
    mutex_.lock();
    return Held(mutex_, kept_[gpu]);
  }

 private:
  std::recursive_mutex mutex_;
  std::map<int, Kept> kept_;
};

/// Never destroyed: the driver may already be unloaded at exit.
template <typename Kept>
[[nodiscard]] PerGpu<Kept>& gpus() {
  static auto& all = *new PerGpu<Kept>;
  return all;
}

/// Sets a flag of the state during its lifetime.
class Measuring {
 public:
  explicit Measuring(bool& flag) : flag_(&flag) { *flag_ = true; }
  ~Measuring() { *flag_ = false; }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

 private:
  bool* flag_;
};

}  // namespace ranvier::models::cuda
