// Flags that were given and change nothing in this run. Who gave them expects something of them, so the start says
// so. What cannot be meant is refused where flags are resolved; this is for what does no harm. Pure; any thread.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/options.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// For resolved options and the table that read them: a sentence for each such flag, "--min-learning-rate 1e-05 has
/// no effect with --lr-decay constant". A switch of the GPU counts where the device is none.
[[nodiscard]] std::vector<std::string> unused_flags(const TrainOptions& options, const runtime::OptionTable& table);

}  // namespace ranvier::apps
