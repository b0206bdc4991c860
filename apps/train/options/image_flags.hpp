// --blocks, and what models of images do not have.
#pragma once

#include "apps/train/options/train_options.hpp"

namespace ranvier::apps {

/// Blocks of each row: "3,4,6,3".
[[nodiscard]] runtime::OptionBinding blocks_flag(ModelOptions& model);

/// Throws ErrorCode::usage for flags about text with a model of images, and has data read without a tokenizer.
void resolve_images(TrainOptions& options, const runtime::OptionTable& table);

}  // namespace ranvier::apps
