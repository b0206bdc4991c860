// --blocks, and checks of flags for image models. One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"

namespace ranvier::apps {

/// Binding of --blocks, the number of blocks per group: "3,4,6,3".
[[nodiscard]] OptionBinding blocks_flag(ModelOptions& model);

/// Disables the tokenizer for an image model. Throws ErrorCode::usage if a flag for text is given.
void resolve_images(TrainOptions& options);

}  // namespace ranvier::apps
