#include "models/bert_sizes.hpp"

#include "models/gpt_sizes.hpp"

#include <fmt/format.h>

#include <utility>

namespace ranvier::models {
namespace {

constexpr int most_padding_token = 1 << 29;  // positions that follow it still count in 32 bits

}  // namespace

std::optional<std::string> size_problem(const BertOptions& options, const BertSizeNames& names) {
  for (const auto& [name, value] : {std::pair{names.layers, options.layers},
                                    {names.hidden, options.hidden},
                                    {names.heads, options.heads},
                                    {names.inner, options.inner},
                                    {names.vocab_size, options.vocab_size},
                                    {names.sequence_length, options.sequence_length},
                                    {names.types, options.types},
                                    {names.tile, options.tile}}) {
    if (value < 1) return fmt::format("{} is {}: it must be at least 1", name, value);
  }
  if (options.padding_token < 0 || options.padding_token > most_padding_token)
    return fmt::format("{} is {}: it must be 0 or more, and at most {}", names.padding_token, options.padding_token,
                       most_padding_token);
  if (options.classes < 0 || options.classes == 1)
    return fmt::format("{} is {}: give at least 2, or 0 of a model that fills masks", names.classes,
                       options.classes);
  if (options.hidden % options.heads != 0)
    return fmt::format("{} {} does not divide {} {}: choose a divisor such as {}", names.heads, options.heads,
                       names.hidden, options.hidden, divisor_near(options.heads, options.hidden));
  if (!(options.dropout >= 0 && options.dropout < 1))
    return fmt::format("{} is {}: it must be at least 0 and less than 1", names.dropout, options.dropout);
  return tile_problem(names.tile, options.tile,
                      {{fmt::format("{} {}", names.hidden, options.hidden), options.hidden},
                       {fmt::format("{} {}", names.inner, options.inner), options.inner}});
}

std::string_view bert_family(const BertOptions& options) noexcept { return options.roberta ? "roberta" : "bert"; }

}  // namespace ranvier::models
