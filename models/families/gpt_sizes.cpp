#include "models/families/gpt_sizes.hpp"

#include "models/core/size_checks.hpp"

namespace ranvier::models {

std::optional<std::string> size_problem(const GptOptions& options, const GptSizeNames& names) {
  const NamedSize hidden{names.hidden, options.hidden}, heads{names.heads, options.heads},
      tile{names.tile, options.tile};
  if (auto problem = min_problem(1, {{names.layers, options.layers},
                                     hidden,
                                     heads,
                                     {names.vocab_size, options.vocab_size},
                                     {names.sequence_length, options.sequence_length},
                                     tile}))
    return problem;
  if (auto problem = divisor_problem(heads, hidden)) return problem;
  if (auto problem = divisor_problem(tile, hidden)) return problem;
  return dropout_problem(names.dropout, options.dropout);
}

}  // namespace ranvier::models
