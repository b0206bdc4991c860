#include "apps/files/weight_source.hpp"

#include "models/core/initialize.hpp"
#include "models/families/adapter_files.hpp"
#include "models/weights/unit_weights.hpp"

#include <vector>

namespace ranvier::apps {
namespace {

std::shared_ptr<const models::Safetensors> open_base(const RunOptions& run) {
  return std::make_shared<const models::Safetensors>(models::find_weights(run.init_from, "--init-from"),
                                                     run.ignored_tensors);
}

models::UnitSource base_weights(const RunOptions& run, const std::vector<models::UnitSpec>& units,
                                const models::UnitSource& initial) {
  if (run.init_from.empty()) return initial;
  const auto file = open_base(run);
  const models::AbsentTensors absent = models::absent_head(*file, units);
  models::check_weights(*file, units, absent);
  return [file, absent, initial](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    if (!absent.empty()) initial(unit, begin, out);
    models::read_unit(*file, unit, begin, begin + out.size(), out.data(), absent);
  };
}

}  // namespace

std::shared_ptr<const models::Safetensors> untrained_weights(const TrainOptions& options,
                                                             const models::Architecture& architecture) {
  return options.run.init_from.empty() || architecture.trained_parameters() == architecture.parameters()
             ? nullptr
             : open_base(options.run);
}

models::UnitSource first_weights(const TrainOptions& options, const models::Architecture& architecture) {
  const RunOptions& run = options.run;
  const models::UnitSource initial = [seed = options.trainer.seed](const models::UnitSpec& unit, std::size_t begin,
                                                                   std::span<float> out) {
    models::initialize(unit, seed, begin, begin + out.size(), out.data());
  };
  const auto units = architecture.units();
  const auto adapters = models::adapter_units(units);
  const models::UnitSource of_adapters =
      run.init_adapter.empty() ? initial : models::open_adapter(run.init_adapter, adapters);
  const models::UnitSource of_base = base_weights(run, models::base_units(units), initial);
  if (adapters.empty()) return of_base;
  // Completely trained modules start from the adapter if there is one, otherwise from the base weights.
  const bool given = !run.init_adapter.empty();
  return [of_adapters, of_base, given](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    (models::has_adapters(unit) || (given && unit.trained) ? of_adapters : of_base)(unit, begin, out);
  };
}

}  // namespace ranvier::apps
