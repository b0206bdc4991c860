// What a process keeps of each GPU: a library's handle, choices and plans. Only _cuda.cpp files include this.
//
//   const auto library = gpus<Library>().hold(stream);
//   library->plans[product] = …;
#pragma once

#include "runtime/cuda_native.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ranvier::models::cuda {

template <typename Kept>
class PerGpu {
 public:
  /// For one thread at a time: ranks that share a process have a loop each. It may hold it several times, as who
  /// measures does while the operations that it measures hold it.
  class Held {
   public:
    Held(std::recursive_mutex& mutex, Kept& kept) : lock_(mutex, std::adopt_lock), kept_(&kept) {}

    [[nodiscard]] Kept& operator*() const noexcept { return *kept_; }
    [[nodiscard]] Kept* operator->() const noexcept { return kept_; }

   private:
    std::unique_lock<std::recursive_mutex> lock_;
    Kept* kept_;
  };

  /// Of the stream's GPU, which becomes the calling thread's current one.
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

/// Never destroyed: the driver may be gone by then.
template <typename Kept>
[[nodiscard]] PerGpu<Kept>& gpus() {
  static auto& all = *new PerGpu<Kept>;
  return all;
}

/// Raises a flag of what is kept, for as long as it lives.
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
