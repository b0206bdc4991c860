#include "models/families/bert_sizes.hpp"

#include "models/core/size_checks.hpp"

#include <fmt/format.h>

namespace ranvier::models {
namespace {

constexpr int max_padding_token = 1 << 29;  // later positions still fit 32 bits

}  // namespace

std::optional<std::string> size_problem(const BertOptions& options, const BertSizeNames& names) {
  const NamedSize hidden{names.hidden, options.hidden}, heads{names.heads, options.heads};
  if (auto problem = min_problem(1, {{names.layers, options.layers},
                                     hidden,
                                     heads,
                                     {names.inner, options.inner},
                                     {names.vocab_size, options.vocab_size},
                                     {names.sequence_length, options.sequence_length},
                                     {names.types, options.types},
                                     {names.tile, options.tile}}))
    return problem;
  if (options.padding_token < 0 || options.padding_token > max_padding_token)
    return fmt::format("{} is out of range: {}; use 0 to {}", names.padding_token, options.padding_token,
                       max_padding_token);
  if (options.classes < 0 || options.classes == 1)
    return fmt::format("{} is too small: {}; use at least 2, or 0 for masked language modelling", names.classes,
                       options.classes);
  if (auto problem = divisor_problem(heads, hidden)) return problem;
  if (auto problem = dropout_problem(names.dropout, options.dropout)) return problem;
  return tile_problem(names.tile, options.tile,
                      {{fmt::format("{} {}", names.hidden, options.hidden), options.hidden},
                       {fmt::format("{} {}", names.inner, options.inner), options.inner}});
}

std::string_view bert_family(const BertOptions& options) noexcept { return options.roberta ? "roberta" : "bert"; }

}  // namespace ranvier::models
