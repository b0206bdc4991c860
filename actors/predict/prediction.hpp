// A training that nothing computes: all ranks of a job, the actors that would run, on phantom devices in virtual time.
//
//   const Prediction p = predict(architecture, sample_bytes, options, profile);
//   fmt::print("{:.1f} ms a step, {:.0f} % of it waiting\n", 1e3 * p.step_seconds, 100 * p.stages[0].waiting());
//
// What is predicted is the order, the messages, the memory and the waits of the real run; only durations come from the
// profile. Deterministic by seed. Any thread; one core; memory and time grow with ranks × layers × microbatches.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "models/architecture.hpp"
#include "models/sample_source.hpp"
#include "runtime/arena.hpp"
#include "runtime/error.hpp"
#include "runtime/machine_profile.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::actors {

/// What goes otherwise than planned, for "what if".
struct Disturbances {
  std::uint64_t seed = 0;
  /// Of every piece of work of devices and hosts: lognormal, its standard deviation by its mean; not of messages and
  /// files.
  double jitter = 0;
  std::vector<double> slow_ranks;  ///< by rank, how many times as long its work takes; missing ones: 1
  std::vector<double> slow_nodes;  ///< by node, how many times as long a byte takes on its links
  /// GPUs compute nothing while they take part in a collective of NCCL, as where one stream has both. What a stage
  /// computes includes that wait then.
  bool no_overlap = false;
};

struct PredictionOptions {
  int steps = 2;  ///< that are simulated; the first fills caches and pipelines, the last is reported
  Disturbances disturbances;
  bool trace = false;  ///< keep what all ranks did, in Prediction::trace
  /// Leave out ranks that do the same as others on other nodes (twins.hpp), unless there is a trace or a disturbance. A
  /// thousand ranks take as long as some ten then. Times differ by some latencies of messages a step, as a row whose
  /// share of an agreement takes longer than others' counts as all of its kind, and so does what it updates in
  /// StagePrediction; memory is the same.
  bool distinct_only = false;
  /// Asked now and then, for predictions that may take too long: where it says no, predict() throws PredictionEnded.
  std::function<bool()> goes_on = {};
};

class PredictionEnded final : public Error {
 public:
  PredictionEnded() : Error(ErrorCode::internal, "a prediction was ended before it was done") {}
};

struct StagePrediction {
  double forward_seconds = 0, backward_seconds = 0, weights_seconds = 0, optimizer_seconds = 0,
         other_seconds = 0;  ///< of a step, of an average row; weight gradients by themselves where they wait
  double step_seconds = 0;
  [[nodiscard]] double known_seconds() const {
    return forward_seconds + backward_seconds + weights_seconds + optimizer_seconds;
  }
  [[nodiscard]] double busy() const {
    return step_seconds > 0 ? (known_seconds() + other_seconds) / step_seconds : 0;
  }
  /// A share of all times of another one, for means.
  void add(const StagePrediction& other, double share);
};

struct Prediction {
  double step_seconds = 0;
  double tokens_per_second = 0;
  double model_flops_per_second = 0;  ///< of one device
  double mfu = 0;                     ///< by the profile's peak; 0: it has none
  std::vector<StagePrediction> stages;
  std::vector<double> rank_bytes_intra, rank_bytes_inter;            ///< sent in messages by each rank in a step
  std::vector<double> rank_nccl_bytes_intra, rank_nccl_bytes_inter;  ///< likewise, in NCCL's rings
  std::vector<double> rank_link_bytes_to_device,
      rank_link_bytes_to_host;                                        ///< copied between each rank's GPU and host
  std::vector<double> rank_file_bytes_read, rank_file_bytes_written;  ///< of states in files, by each rank
  double bubble = 0;  ///< share of the step in which an average rank computes nothing
  std::size_t device_bytes = 0, host_bytes = 0, file_bytes = 0;  ///< of the rank that needs most
  double device_bytes_of_all = 0;                                ///< of all ranks together
  std::uint64_t messages = 0;                                    ///< of a step, all ranks
  std::uint64_t handlers = 0;                                    ///< that the simulation ran
  std::vector<std::string> trace;  ///< by rank, Trace::chrome_events() of all steps; empty unless asked for

  /// What all ranks did as a file for Chrome or Perfetto. Throws ErrorCode::io, and ErrorCode::usage where no trace was
  /// kept.
  void write_trace(const std::filesystem::path& path) const;
};

/// Throws ErrorCode::usage where plan_rank() does, and ErrorCode::memory where a rank's plan is beyond the profile's
/// memory, with the table.
[[nodiscard]] Prediction predict(const models::Architecture& architecture, const models::SampleSource& samples,
                                 const TrainerOptions& options, const runtime::MachineProfile& profile,
                                 const PredictionOptions& how = {});

/// FLOP a second of a device that MFU counts as all of it. Of a half precision that the device does not have (bf16 on a
/// V100), that of the other one; 0: not known.
[[nodiscard]] double peak_flops(const runtime::MachineProfile& profile, runtime::DType dtype);

}  // namespace ranvier::actors
