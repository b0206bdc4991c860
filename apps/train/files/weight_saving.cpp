#include "apps/train/files/weight_saving.hpp"

#include "models/weights/unit_weights.hpp"

#include <utility>

namespace ranvier::apps {

std::vector<models::TensorToStore> saved_tensors(const Job& job) {
  return models::tensors_of(job.architecture.units(), runtime::DType::f32);
}

SavedWeights::Beside saved_beside(const Job& job) {
  SavedWeights::Beside beside = job.beside_weights;
  if (!job.config.empty()) beside["config.json"] = job.config;
  return beside;
}

WeightSaving::WeightSaving(const RankRun& run, FileWriter& writer, actors::Rank& rank)
    : run_(run), writer_(writer), rank_(rank) {}

void WeightSaving::start(runtime::Handler done) {
  collector_.emplace(run_.transport, rank_, run_.job.architecture, run_.options.trainer.grid);
  if (!run_.speaks()) return collect(std::move(done));
  writer_.write(
      [this] {
        weights_.emplace(run_.options.run.save, saved_tensors(run_.job), saved_beside(run_.job), run_.timeout());
      },
      [this, done = std::move(done)] { collect(done); });
}

void WeightSaving::collect(runtime::Handler done) {
  collector_->run(
      [this](const models::UnitSpec& unit, std::size_t begin, std::span<const float> values,
             runtime::Handler stored) {
        writer_.write([this, &unit, begin, values] { weights_->put(unit, begin, values); }, std::move(stored));
      },
      [this, done = std::move(done)] {
        if (!weights_) return done();
        writer_.write([this] { weights_->commit(); }, done);
      });
}

}  // namespace ranvier::apps
