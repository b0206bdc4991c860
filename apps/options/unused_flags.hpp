// Given flags that have no effect on this run, for notes in the startup output. Contradicting flags are errors instead
// (parse_train_options()). Pure functions, callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/options.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// A sentence per flag without effect: "--min-learning-rate 1e-05 has no effect with --lr-decay constant". Includes GPU
/// flags on other devices. `options` are resolved; `table` has read them.
[[nodiscard]] std::vector<std::string> unused_flags(const TrainOptions& options, const OptionTable& table);

}  // namespace ranvier::apps
