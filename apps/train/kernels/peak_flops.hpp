// What the devices of all ranks compute at most: the rate that MFU is a share of. Loop thread only.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/mpi_transport.hpp"
#include "runtime/stream.hpp"

namespace ranvier::apps {

/// The best of several short turns of a large matrix product, which all ranks take at the same time, since those
/// that share a machine share what it computes. Turns in different phases of a start see more than one of a
/// machine's moods: clock rates, neighbours, ranks that still load.
class PeakFlops {
 public:
  /// A few turns more. All ranks call it; blocks, and gives back all memory that it took but the stream's own.
  void measure(runtime::MpiSession& session, runtime::StreamView stream, runtime::DType dtype);

  /// FLOP per second of all ranks together, the same on each; 0: some device had no room for a product in any turn.
  [[nodiscard]] double best() const noexcept { return best_; }

 private:
  double best_ = 0;
};

}  // namespace ranvier::apps
