#include "apps/train/prediction_check.hpp"

#include "apps/plan/ranking.hpp"
#include "apps/program/flag_names.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/grid.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

namespace ranvier::apps {

namespace {

namespace json = boost::json;

using actors::RankTraffic;

constexpr std::chrono::seconds longest_prediction(5);
constexpr std::size_t max_stages = 16;  // above: one line for the average stage

/// A kind of bytes per step. A run cannot measure all: NCCL does not report its traffic, and copies between hosts and
/// GPUs are not counted.
struct ByteRow {
  const char* text;
  const char* key;
  double RankTraffic::* predicted;
  double StepMeter::UsualStep::* measured = nullptr;
};
constexpr std::array byte_rows{
    ByteRow{"sent inside nodes", "bytes_intra", &RankTraffic::intra, &StepMeter::UsualStep::bytes_intra},
    ByteRow{"sent between nodes", "bytes_inter", &RankTraffic::inter, &StepMeter::UsualStep::bytes_inter},
    ByteRow{"NCCL, inside nodes", "nccl_bytes_intra", &RankTraffic::nccl_intra},
    ByteRow{"NCCL, between nodes", "nccl_bytes_inter", &RankTraffic::nccl_inter},
    ByteRow{"host to GPU", "bytes_to_device", &RankTraffic::to_device},
    ByteRow{"GPU to host", "bytes_to_host", &RankTraffic::to_host},
    ByteRow{"files read", "file_bytes_read", &RankTraffic::read, &StepMeter::UsualStep::bytes_read},
    ByteRow{"files written", "file_bytes_written", &RankTraffic::written, &StepMeter::UsualStep::bytes_written}};

/// Metrics of a step, predicted or measured.
struct Figures {
  double step_seconds = 0;
  std::vector<double> busy = {};                    ///< fraction of a step that each stage computes
  std::array<double, byte_rows.size()> bytes = {};  ///< over all ranks
  double device_bytes = 0;                          ///< device memory of the rank that uses most
};

Figures predicted_figures(const actors::Prediction& prediction) {
  Figures figures{.step_seconds = prediction.step_seconds,
                  .device_bytes = static_cast<double>(prediction.device_bytes)};
  for (const actors::StagePrediction& stage : prediction.stages) {
    const double computed = stage.known_seconds();
    figures.busy.push_back(stage.step_seconds > 0 ? computed / stage.step_seconds : 0);
  }
  for (const RankTraffic& rank : prediction.traffic)
    for (std::size_t b = 0; b < byte_rows.size(); ++b) figures.bytes[b] += rank.*byte_rows[b].predicted;
  return figures;
}

/// Busy fractions are means over a stage's ranks.
Figures measured_figures(const std::vector<RankTotals>& ranks, const runtime::GridShape& shape) {
  Figures figures{.step_seconds = ranks.front().step.seconds,
                  .busy = std::vector<double>(static_cast<std::size_t>(shape.g_inter))};
  const runtime::Grid grid(shape, shape.ranks());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const StepMeter::UsualStep& step = ranks[r].step;
    const auto stage = static_cast<std::size_t>(grid.position(static_cast<int>(r)).stage);
    if (step.seconds > 0) figures.busy[stage] += step.busy_seconds / step.seconds / shape.g_data;
    for (std::size_t b = 0; b < byte_rows.size(); ++b)
      if (byte_rows[b].measured != nullptr) figures.bytes[b] += step.*byte_rows[b].measured;
    figures.device_bytes = std::max(figures.device_bytes, static_cast<double>(ranks[r].device_bytes));
  }
  return figures;
}

std::string line(const std::string& what, const std::string& predicted, const std::string& measured,
                 const std::string& difference) {
  return fmt::format("{:<22} {:>11} {:>11} {:>10}\n", what, predicted, measured, difference);
}

std::string ratio_text(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f}%", 100 * (predicted / measured - 1)) : "";
}

std::string table(const std::string& profile, const Figures& predicted, const Figures& measured) {
  std::string text =
      fmt::format("prediction from profile '{}' compared with the median step of this run\n", profile) +
      line("", "predicted", "measured", "difference");
  const auto milliseconds = [](double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); };
  text += line("step", milliseconds(predicted.step_seconds), milliseconds(measured.step_seconds),
               ratio_text(predicted.step_seconds, measured.step_seconds));
  const auto busy = [&](const std::string& whose, double said, double was) {
    text += line(whose + " computes", fmt::format("{:.1f}%", 100 * said), fmt::format("{:.1f}%", 100 * was),
                 fmt::format("{:+.1f}", 100 * (said - was)));
  };
  if (measured.busy.size() <= max_stages) {
    for (std::size_t s = 0; s < measured.busy.size(); ++s)
      busy(fmt::format("stage {}", s), predicted.busy[s], measured.busy[s]);
  } else {
    const auto mean = [](const std::vector<double>& all) {
      return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
    };
    busy("average stage", mean(predicted.busy), mean(measured.busy));
  }
  const auto readable = [](double number) { return runtime::format_bytes(static_cast<std::size_t>(number)); };
  const auto bytes = [&](const char* what, double said, double was, bool is_measured = true) {
    if (said == 0 && was == 0) return;
    text += line(what, readable(said), is_measured ? readable(was) : "", ratio_text(said, was));
  };
  for (std::size_t b = 0; b < byte_rows.size(); ++b)
    bytes(byte_rows[b].text, predicted.bytes[b], measured.bytes[b], byte_rows[b].measured != nullptr);
  bytes("largest device memory", predicted.device_bytes, measured.device_bytes);
  return text;
}

json::object to_json(const Figures& figures) {
  json::object all{{"step_seconds", figures.step_seconds},
                   {"busy", json::array(figures.busy.begin(), figures.busy.end())}};
  for (std::size_t b = 0; b < byte_rows.size(); ++b)
    if (byte_rows[b].measured != nullptr) all[byte_rows[b].key] = figures.bytes[b];
  all["device_bytes"] = figures.device_bytes;
  // Neighbouring rows, such as both directions: both bytes or none.
  for (std::size_t b = 0; b < byte_rows.size(); ++b)
    if (byte_rows[b].measured == nullptr && figures.bytes[b] + figures.bytes[b ^ 1] > 0)
      all[byte_rows[b].key] = figures.bytes[b];
  return all;
}

}  // namespace

ProfileOfRun profile_of_run(const TrainOptions& options, const ProfileSearchPath& places, int threads) {
  const bool gpu = options.device.device == DeviceFlag::cuda;
  const auto read = [&](const std::string& name) {
    runtime::MachineProfile profile = runtime::read_machine_profile(name);
    if (profile.gpu != gpu)
      reject(
          "--profile {} describes {}, but this run computes on {}; use a profile of these machines (ranvier-bench "
          "profile) or --profile none",
          name, profile.gpu ? "GPUs" : "CPUs", gpu ? "a GPU" : "a CPU");
    return profile;
  };
  if (options.run.profile == no_profile) return {};
  if (!options.run.profile.empty()) return {.profile = read(options.run.profile)};
  const auto found = find_profile(places, {.gpu = gpu, .threads = threads});
  if (!found) return {};
  const std::string where = places.named.empty() ? *found : fmt::format("{}={}", profile_variable, *found);
  try {
    return {.profile = read(*found),
            .remark = fmt::format("profile: {} (--profile none disables the prediction)\n", where)};
  } catch (const Error& error) {
    return {.remark = fmt::format("no prediction from {}: {}\n", where, message_of(error))};
  }
}

PredictionCheck compare(const actors::Prediction& prediction, const runtime::GridShape& grid,
                        const runtime::MachineProfile& profile, const std::vector<RankTotals>& ranks) {
  const Figures predicted = predicted_figures(prediction), measured = measured_figures(ranks, grid);
  const json::object record{
      {"profile", profile.name}, {"predicted", to_json(predicted)}, {"measured", to_json(measured)}};
  return {.text = table(profile.name, predicted, measured),
          .record = json::serialize(json::object{{"prediction", record}})};
}

/// Slow rank of RANVIER_FAULT, if it affects at least half of the steps and so the median step.
actors::Disturbances disturbances_of(const actors::TrainerOptions& trainer, std::int64_t steps) {
  actors::Disturbances all;
  const auto& fault = trainer.fault;
  if (!fault || fault->kind != actors::TrainerOptions::Fault::Kind::slow || 2 * fault->step > steps) return all;
  all.slow_ranks.assign(static_cast<std::size_t>(trainer.grid.ranks()), 1.0);
  if (fault->rank >= 0 && fault->rank < trainer.grid.ranks())
    all.slow_ranks[static_cast<std::size_t>(fault->rank)] = fault->times;
  return all;
}

PredictionCheck check_prediction(const RankRun& run, const actors::TrainerOptions& trainer,
                                 const runtime::MachineProfile& profile, const std::vector<RankTotals>& ranks) {
  const auto none = [&](const std::string& why) {
    return PredictionCheck{.text = fmt::format("no prediction from profile '{}': {}\n", profile.name, why)};
  };
  if (ranks.front().step.steps == 0) return none("the first step is not compared and was the only one");
  const auto until = std::chrono::steady_clock::now() + longest_prediction;
  const actors::Disturbances disturbances =
      disturbances_of(trainer, static_cast<std::int64_t>(ranks.front().step.steps));
  actors::Prediction prediction;
  try {
    prediction = actors::predict(run.job.architecture, *run.job.source, trainer, profile,
                                 {.disturbances = disturbances,
                                  .distinct_only = usual_prediction(trainer.grid.ranks()).distinct_only,
                                  .goes_on = [until] { return std::chrono::steady_clock::now() < until; }});
  } catch (const actors::PredictionEnded&) {
    return none(fmt::format("the prediction takes more than {} s; use ranvier-plan", longest_prediction.count()));
  } catch (const Error& error) {
    return none(message_of(error));
  }
  PredictionCheck check = compare(prediction, trainer.grid, profile, ranks);
  if (!profile.gpu && profile.threads != trainer.threads)
    check.text += fmt::format("the profile describes ranks with {} thread{}; the ranks of this run had {}\n",
                              profile.threads, profile.threads == 1 ? "" : "s", trainer.threads);
  if (!disturbances.slow_ranks.empty())
    check.text += fmt::format("predicted with rank {} slowed down {} times (RANVIER_FAULT)\n", trainer.fault->rank,
                              trainer.fault->times);
  return check;
}

}  // namespace ranvier::apps
