// Cores of one node in virtual time. If work needs more threads than there are cores, all of it slows down equally,
// as under a fair scheduler. Cores that share memory and caches also slow down with the number of busy ones. One
// thread.
#pragma once

#include "runtime/simulation/virtual_time.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::runtime {

class VirtualCores {
 public:
  struct Options {
    int cores = 0;  ///< 0: unlimited; the fields below are ignored
    int alone = 1;  ///< number of busy cores that do not slow each other down
  };

  /// `time` outlives it, and it outlives the last step of `time`.
  VirtualCores(VirtualTime& time, const Options& options) : time_(&time), options_(options) {}
  VirtualCores(const VirtualCores&) = delete;
  VirtualCores& operator=(const VirtualCores&) = delete;

  struct Work {
    Duration alone{};    ///< duration if at most Options::alone cores are busy
    Duration crowded{};  ///< duration if all are busy; linear in between
  };
  /// Calls `done` after `work`, which needs `threads` threads throughout; later if cores are short. 0 threads: no
  /// cores needed.
  void run(const Work& work, int threads, VirtualTime::Action done);

 private:
  struct Running {
    double left = 0;      ///< remaining nanoseconds, as if alone
    double crowding = 1;  ///< slowdown if all cores are busy
    int threads = 0;
    VirtualTime::Action done;
  };

  /// Progress of the piece: nanoseconds of `left` per nanosecond.
  [[nodiscard]] double speed(const Running& piece) const noexcept;
  void advance();
  void wait_for_next();

  VirtualTime* time_;
  Options options_;
  int threads_ = 0;      // total of all pieces
  Duration advanced_{};  // time for which `left` is valid
  std::uint64_t waiting_ = 0;
  std::vector<Running> pieces_;  // in the order of the calls
};

}  // namespace ranvier::runtime
