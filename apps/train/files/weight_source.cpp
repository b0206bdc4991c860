#include "apps/train/files/weight_source.hpp"

#include "models/initialize.hpp"
#include "models/weights/unit_weights.hpp"

#include <memory>

namespace ranvier::apps {

actors::WeightSource first_weights(const TrainOptions& options, const models::Architecture& architecture) {
  const RunOptions& run = options.run;
  if (run.init_from.empty()) {
    return [seed = options.trainer.seed](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
      models::initialize(unit, seed, begin, begin + out.size(), out.data());
    };
  }
  const auto file = std::make_shared<const models::Safetensors>(models::find_weights(run.init_from, "--init-from"),
                                                                run.ignored_tensors);
  models::check_weights(*file, architecture.units());
  return [file](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    models::read_unit(*file, unit, begin, begin + out.size(), out.data());
  };
}

}  // namespace ranvier::apps
