// Predicts a training step by running all ranks' actors on phantom devices in virtual time.
//
//   const Prediction p = predict(architecture, samples, options, profile);
//   fmt::print("{:.1f} ms per step, bubble {:.0f} %\n", 1e3 * p.step_seconds, 100 * p.bubble);
//
// Order, messages, memory and waits equal the real run; durations come from the profile. Deterministic by seed. Any
// thread; one core. Memory and time grow with ranks × layers × microbatches.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "models/core/architecture.hpp"
#include "models/core/sample_source.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::actors {

/// Disturbances for what-if predictions.
struct Disturbances {
  std::uint64_t seed = 0;
  /// Lognormal variation of all device and host work: standard deviation divided by mean. Not for messages and files.
  double jitter = 0;
  std::vector<double> slow_ranks;  ///< slowdown factor by rank; missing ones: 1
  std::vector<double> slow_nodes;  ///< slowdown factor of links by node; missing ones: 1
  /// GPUs do not compute during NCCL collectives, as if both used one stream. Compute times of stages include that
  /// wait.
  bool no_overlap = false;
};

struct PredictionOptions {
  int steps = 2;  ///< simulated steps; the first fills caches and pipelines, the last is reported
  Disturbances disturbances;
  bool trace = false;  ///< record spans of all ranks in Prediction::trace
  /// Simulates one of several equivalent ranks (distinct_rows()), unless there is a trace or a disturbance. Then
  /// predictions of a thousand ranks take as long as of about ten. Memory is the same. Step and optimizer times differ
  /// by a few message latencies per step, since each row replaces all equivalent ones in agreements.
  bool distinct_only = false;
  /// Polled during slow predictions; if it returns false, predict() throws PredictionEnded.
  std::function<bool()> goes_on = {};
};

class PredictionEnded final : public Error {
 public:
  PredictionEnded() : Error(ErrorCode::internal, "prediction was cancelled") {}
};

struct StagePrediction {
  double forward_seconds = 0, backward_seconds = 0, weights_seconds = 0, optimizer_seconds = 0,
         other_seconds = 0;  ///< time per step, mean over rows; `weights_seconds`: deferred weight gradients only
  double step_seconds = 0;
  [[nodiscard]] double known_seconds() const {
    return forward_seconds + backward_seconds + weights_seconds + optimizer_seconds;
  }
  [[nodiscard]] double busy() const {
    return step_seconds > 0 ? (known_seconds() + other_seconds) / step_seconds : 0;
  }
  /// Adds `share` times the times of `other`, to compute means.
  void add(const StagePrediction& other, double share);
};

/// Traffic of a rank per step in bytes.
struct RankTraffic {
  double intra = 0, inter = 0;            ///< messages sent inside the node and to other nodes
  double nccl_intra = 0, nccl_inter = 0;  ///< sent by NCCL's rings
  double to_device = 0, to_host = 0;      ///< copied between GPU and host
  double read = 0, written = 0;           ///< files of tiers
  std::uint64_t messages = 0;             ///< number of messages sent
};

struct Prediction {
  double step_seconds = 0;
  double tokens_per_second = 0;
  double model_flops_per_second = 0;  ///< model FLOP per second and device
  double mfu = 0;                     ///< relative to the profile's peak; 0: unknown peak
  std::vector<StagePrediction> stages;
  std::vector<RankTraffic> traffic;  ///< by rank; empty: not simulated
  double bubble = 0;                 ///< fraction of the step without compute, mean over ranks
  std::size_t device_bytes = 0, host_bytes = 0, file_bytes = 0;  ///< maximum over ranks
  double device_bytes_of_all = 0;                                ///< sum over ranks
  std::uint64_t messages = 0;                                    ///< messages per step, all ranks
  std::uint64_t handlers = 0;                                    ///< handlers that the simulation ran
  std::vector<std::string> trace;  ///< by rank: Trace::chrome_events() of all steps; empty without a trace

  /// Writes a trace file for Chrome or Perfetto. Throws ErrorCode::io, and ErrorCode::usage if there is no trace.
  void write_trace(const std::filesystem::path& path) const;
};

/// Throws ErrorCode::usage like plan_rank(), and ErrorCode::memory with the memory table if a rank's plan exceeds the
/// profile's memory.
[[nodiscard]] Prediction predict(const models::Architecture& architecture, const models::SampleSource& samples,
                                 const TrainerOptions& options, const runtime::MachineProfile& profile,
                                 const PredictionOptions& how = {});

/// Peak FLOP per second of a device, the reference of MFU; 0: unknown. For a half precision that the device lacks (bf16
/// on a V100) it is the peak of the other one.
[[nodiscard]] double peak_flops(const runtime::MachineProfile& profile, runtime::DType dtype);

}  // namespace ranvier::actors
