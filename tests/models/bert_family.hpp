// Small BERTs, for tests: one of each kind.
#pragma once

#include "models/families/bert.hpp"
#include "models/ops/cross_entropy.hpp"
#include "tests/models/model_run.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

inline BertOptions small_bert(Precision precision = {}) {
  return {.layers = 2,
          .hidden = 12,
          .heads = 3,
          .inner = 20,
          .vocab_size = 13,
          .sequence_length = 7,
          .precision = precision};
}

inline std::vector<std::pair<std::string, BertOptions>> bert_family(Precision precision = {}) {
  const BertOptions plain = small_bert(precision);
  std::vector<std::pair<std::string, BertOptions>> family{{"BERT", plain}};

  // Sizes without gaps between tensors: one product for queries, keys and values. Logits of as many positions as have a
  // target in masked_samples(), or one more.
  BertOptions& wide = family.emplace_back("RoBERTa", plain).second;
  wide.hidden = 32;
  wide.heads = 2;
  wide.inner = 64;
  wide.types = 1;
  wide.roberta = true;
  wide.positions = 9;
  wide.padding_token = 1;
  wide.norm_epsilon = 1e-5f;
  wide.targets = 5;

  BertOptions& dropping = family.emplace_back("BERT with dropout", plain).second;
  dropping.dropout = 0.3f;
  dropping.types = 3;
  return family;
}

/// Like made_up_samples(), but only some tokens have targets.
inline ReferenceSamples masked_samples(const BertOptions& options, std::int64_t first, int count) {
  ReferenceSamples samples = made_up_samples(options, first, count);
  for (std::size_t i = 0; i < samples.targets.size(); ++i)
    if (i % 3 == 1) samples.targets[i] = no_target;
  return samples;
}

/// The family with heads for text classification.
inline std::vector<std::pair<std::string, BertOptions>> classifying_family(Precision precision = {}) {
  auto family = bert_family(precision);
  family.push_back({"RoBERTa with dropout", family[1].second});
  family.back().second.dropout = 0.2f;
  for (auto& [name, options] : family) {
    options.classes = 5;
    options.targets = 0;
  }
  return family;
}

/// Like made_up_samples(), but each target is a class.
inline ReferenceSamples labelled_samples(const BertOptions& options, std::int64_t first, int count) {
  ReferenceSamples samples = made_up_samples(options, first, count);
  samples.targets.resize(static_cast<std::size_t>(count));
  for (std::int32_t& target : samples.targets) target %= options.classes;
  return samples;
}

}  // namespace ranvier::models
