#include "actors/predict/predicted_job.hpp"

namespace ranvier::actors {

Prediction predict(const models::Architecture& architecture, const models::SampleSource& samples,
                   const TrainerOptions& options, const runtime::MachineProfile& profile,
                   const PredictionOptions& how) {
  TrainerOptions usual = options;
  usual.rebalance_steps = 0;  // a prediction has too few steps
  const runtime::ProfileCosts device(profile);
  // With a GPU, all cores do host work. With a CPU device, host work has one thread.
  const runtime::ProfileCosts host(profile, runtime::ProfileCosts::Where::host);
  if (profile.gpu) return PredictedJob(architecture, samples, usual, profile, {device, host}, how).run();
  const PredictedJob::Costs costs{.device = device,
                                  .host = device,
                                  .narrow = profile.threads > 1 ? &host : nullptr,
                                  .crowding = [&](const runtime::WorkCost& cost) { return device.crowding(cost); }};
  return PredictedJob(architecture, samples, usual, profile, costs, how).run();
}

double peak_flops(const runtime::MachineProfile& profile, runtime::DType dtype) {
  const auto of = [&](runtime::DType type) {
    const auto found = profile.peak_flops_per_second.find(type);
    return found == profile.peak_flops_per_second.end() ? 0.0 : found->second;
  };
  using runtime::DType;
  if (of(dtype) > 0 || dtype == DType::f32) return of(dtype);
  return of(dtype == DType::bf16 ? DType::f16 : DType::bf16);
}

}  // namespace ranvier::actors
