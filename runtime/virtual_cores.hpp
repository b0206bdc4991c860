// The cores of one node in virtual time. Work that wants more threads at a moment than there are cores goes on more
// slowly, all of it alike, as under a fair scheduler. One thread.
#pragma once

#include "runtime/virtual_time.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::runtime {

class VirtualCores {
 public:
  /// 0 cores: there are always enough. Time outlives it, and it outlives the time's last step.
  VirtualCores(VirtualTime& time, int cores) : time_(&time), cores_(cores) {}
  VirtualCores(const VirtualCores&) = delete;
  VirtualCores& operator=(const VirtualCores&) = delete;

  /// Calls `done` after `work`, which needs so many threads all the while: longer where cores are short. 0 threads: it
  /// computes elsewhere.
  void run(Duration work, int threads, VirtualTime::Action done);

 private:
  struct Piece {
    double end = 0;  ///< by the clock that runs as fast as work goes on
    std::uint64_t number = 0;
    int threads = 0;
    VirtualTime::Action done;

    /// Heaps have the greatest in front.
    bool operator<(const Piece& other) const { return end != other.end ? end > other.end : number > other.number; }
  };

  [[nodiscard]] double speed() const noexcept { return threads_ <= cores_ ? 1.0 : double(cores_) / threads_; }
  void advance();
  void wait_for_next();

  VirtualTime* time_;
  int cores_;
  int threads_ = 0;      // of all pieces
  double served_ = 0;    // nanoseconds that each piece under way was given since the beginning
  Duration advanced_{};  // when that was counted
  std::uint64_t made_ = 0, waiting_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace ranvier::runtime
