#include "apps/options/flag_groups.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {
namespace {

using Blocks = std::array<int, models::ResnetOptions::rows>;

}  // namespace

OptionBinding blocks_flag(ModelOptions& model) {
  return {
      .read = [&model](const std::string& given) -> std::optional<std::string> {
        Blocks* const field = models::find_blocks(model.sizes);
        if (field == nullptr && given == "none") return {};
        if (field == nullptr)
          return fmt::format("none, since --model {} has no block groups, or use --model wide-resnet", model.name);
        static constexpr const char* valid = "four numbers above 0, as in 3,4,6,3";
        std::vector<int> numbers;
        const auto read = list<int>(numbers, valid, [](const std::string& item) { return parse_whole(item, 1); });
        if (read.read(given) || numbers.size() != field->size()) return valid;
        std::ranges::copy(numbers, field->begin());
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
