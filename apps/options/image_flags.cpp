#include "apps/options/flag_groups.hpp"

#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {
namespace {

using Blocks = std::array<int, models::ResnetOptions::rows>;

/// Parses four positive numbers separated by commas; none for other text.
std::optional<Blocks> parse_blocks(const std::string& text) {
  const std::vector<std::string> items = items_of(text);
  Blocks blocks{};
  if (items.size() != blocks.size()) return {};
  for (std::size_t row = 0; row < blocks.size(); ++row) {
    const auto number = parse_whole(items[row], 1);
    if (!number) return {};
    blocks[row] = *number;
  }
  return blocks;
}

}  // namespace

OptionBinding blocks_flag(ModelOptions& model) {
  return {.read = [&model](const std::string& given) -> std::optional<std::string> {
            Blocks* const field = models::find_blocks(model.sizes);
            if (field == nullptr && given == "none") return {};
            if (field == nullptr)
              return fmt::format("none, since --model {} has no block groups, or use --model wide-resnet",
                                 model.name);
            const auto blocks = parse_blocks(given);
            if (!blocks) return "four numbers above 0, as in 3,4,6,3";
            *field = *blocks;
            return {};
          },
          .write =
              [&model] {
                models::ModelSizes sizes = model.sizes;
                const Blocks* const field = models::find_blocks(sizes);
                return field == nullptr ? std::string("none") : fmt::format("{}", fmt::join(*field, ","));
              }};
}

void resolve_images(TrainOptions& options) {
  for (const std::string& flag : options.given)
    if (traits_of(flag).for_text)
      reject("--{0} is for text, but --model {1} reads images; remove --{0}", flag, options.model.name);
  options.data.tokenizer = Tokenizer::none;
}

}  // namespace ranvier::apps
