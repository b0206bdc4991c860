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
    int alone = 1;  ///< busy ones that do not crowd each other
  };

  /// Time outlives it, and it outlives the time's last step.
  VirtualCores(VirtualTime& time, const Options& options) : time_(&time), options_(options) {}
  VirtualCores(const VirtualCores&) = delete;
  VirtualCores& operator=(const VirtualCores&) = delete;

  struct Work {
    Duration alone{};    ///< while no more cores than Options::alone are busy
    Duration crowded{};  ///< while all are; between, by line
  };
  /// Calls `done` after `work`, which needs so many threads all the while: longer where cores are short. 0 threads: it
  /// computes elsewhere.
  void run(const Work& work, int threads, VirtualTime::Action done);

 private:
  struct Running {
    double left = 0;      ///< nanoseconds, alone
    double crowding = 1;  ///< how many times as long they take while all cores are busy
    int threads = 0;
    VirtualTime::Action done;
  };

  /// Nanoseconds of that piece, alone, that pass in one.
  [[nodiscard]] double speed(const Running& piece) const noexcept;
  void advance();
  void wait_for_next();

  VirtualTime* time_;
  Options options_;
  int threads_ = 0;      // of all pieces
  Duration advanced_{};  // when what is left was counted
  std::uint64_t waiting_ = 0;
  std::vector<Running> pieces_;  // in the order of the calls
};

}  // namespace ranvier::runtime
