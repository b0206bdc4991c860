// Peak rates of all devices together, measured and from data sheets: the reference of MFU. Loop thread only.
#pragma once

#include "apps/program/device_flag.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <optional>

namespace ranvier::apps {

/// Best rate of several short measurements of a large matrix multiplication. All ranks measure at the same time, since
/// ranks on a node share its cores. Repeat measure() in several phases of the startup, since clock rates and other load
/// vary.
class PeakFlops {
 public:
  /// Adds a few measurements. All ranks call it; blocks. Frees its memory, except the stream's workspace.
  void measure(runtime::MpiSession& session, runtime::StreamView stream, runtime::DType dtype);

  /// FLOP per second of all ranks together, the same on each; 0 if memory was always short on some device.
  [[nodiscard]] double best() const noexcept { return best_; }

 private:
  double best_ = 0;
};

/// Dense FLOP per second of all ranks' GPUs by their data sheets, the same on each rank. A GPU that several ranks share
/// counts once. 0 if the table (apps/program/data_sheet.hpp) lacks a GPU; none on CPUs. All ranks call it.
[[nodiscard]] std::optional<double> data_sheet_flops(runtime::MpiSession& session, DeviceFlag device,
                                                     std::optional<int> gpu, runtime::DType dtype);

}  // namespace ranvier::apps
