// Initial weights of a run. Callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"
#include "models/core/architecture.hpp"
#include "models/core/unit.hpp"
#include "models/weights/safetensors.hpp"

#include <memory>

namespace ranvier::apps {

/// Weights of --init-from, checked to be complete for the architecture, or random weights by --seed. Adapters start
/// from --init-adapter or as in PEFT. Throws ErrorCode::data and ErrorCode::usage as models::check_weights() and
/// models::find_weights() do.
[[nodiscard]] models::UnitSource first_weights(const TrainOptions& options,
                                               const models::Architecture& architecture);

/// The weights of --init-from, if the run does not train all of them; otherwise null.
[[nodiscard]] std::shared_ptr<const models::Safetensors> untrained_weights(
    const TrainOptions& options, const models::Architecture& architecture);

}  // namespace ranvier::apps
