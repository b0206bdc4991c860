// The flags about what people and their programs see of a run.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/options.hpp"

namespace ranvier::apps {

void declare_watching(runtime::OptionTable& table, RunOptions& run);

}  // namespace ranvier::apps
