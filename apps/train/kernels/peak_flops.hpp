// Rates of all ranks' devices together, measured and on their data sheets, which MFU is a share of. Loop thread only.
#pragma once

#include "apps/program/device_flag.hpp"
#include "runtime/dtype.hpp"
#include "runtime/mpi_transport.hpp"
#include "runtime/stream.hpp"

#include <optional>

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

/// Dense FLOP per second on the data sheets of all ranks' GPUs together, the same on each rank. A GPU that several
/// ranks share counts once. 0: the table (apps/program/data_sheet.hpp) lacks one of them. None: ranks compute on CPUs.
/// All ranks call it.
[[nodiscard]] std::optional<double> data_sheet_flops(runtime::MpiSession& session, DeviceFlag device,
                                                     std::optional<int> gpu, runtime::DType dtype);

}  // namespace ranvier::apps
