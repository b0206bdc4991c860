#include "actors/predict/predicted_job.hpp"

namespace ranvier::actors {

Prediction predict(const models::Architecture& architecture, const models::SampleSource& samples,
                   const TrainerOptions& options, const runtime::MachineProfile& profile,
                   const PredictionOptions& how) {
  const runtime::ProfileCosts device(profile);
  const runtime::ProfileCosts host(
      profile, profile.gpu ? runtime::ProfileCosts::Where::host : runtime::ProfileCosts::Where::device);
  return PredictedJob(architecture, samples, options, profile, {device, host}, how).run();
}

}  // namespace ranvier::actors
