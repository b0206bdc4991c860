// The cores of one node in virtual time. Work that wants more threads at a moment than there are cores goes on more
// slowly, all of it alike, as under a fair scheduler; and where cores share memory and caches, each is slower the more
// of them are busy. One thread.
#pragma once

#include "runtime/virtual_time.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::runtime {

class VirtualCores {
 public:
  struct Options {
    int cores = 0;  ///< 0: there are always enough, and nothing below counts
    double crowding =
        1;  ///< how many times as long work takes while all are busy as while `alone` are; between, by line
    int alone = 1;
  };

  /// Time outlives it, and it outlives the time's last step.
  VirtualCores(VirtualTime& time, const Options& options) : time_(&time), options_(options) {}
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

  [[nodiscard]] double speed() const noexcept;
  void advance();
  void wait_for_next();

  VirtualTime* time_;
  Options options_;
  int threads_ = 0;      // of all pieces
  double served_ = 0;    // nanoseconds that each piece under way was given since the beginning
  Duration advanced_{};  // when that was counted
  std::uint64_t made_ = 0, waiting_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace ranvier::runtime
