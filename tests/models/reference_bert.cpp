#include "tests/models/reference_bert.hpp"

#include "models/families/bert_layers.hpp"
#include "models/modules/block_dropout.hpp"
#include "models/ops/cross_entropy.hpp"
#include "tests/models/reference_dropout.hpp"

#include <cmath>
#include <numbers>
#include <string>

namespace ranvier::models {

namespace {

class BertLoss {
 public:
  BertLoss(const BertOptions& options, const ReferenceParameters& parameters)
      : options_(options),
        parameters_(parameters),
        prefix_(options.roberta ? "roberta." : "bert."),
        C(static_cast<std::size_t>(options.hidden)),
        T(static_cast<std::size_t>(options.sequence_length)) {}

  /// Sum of the losses of tokens that have a target. `activations`, if given, gets the output [B, T, C] of embedding
  /// and blocks.
  double loss(const ReferenceSamples& in, std::vector<std::vector<double>>* activations = nullptr) const {
    double total = 0;
    if (activations != nullptr) activations->assign(static_cast<std::size_t>(options_.layers) + 1, {});
    for (int b = 0; b < in.samples; ++b) {
      const auto first = static_cast<std::size_t>(b) * T;
      std::vector<double> x = embedding(in, b, first);
      for (int layer = 0;; ++layer) {
        if (activations != nullptr) {
          auto& to = (*activations)[static_cast<std::size_t>(layer)];
          to.insert(to.end(), x.begin(), x.end());
        }
        if (layer == options_.layers) break;
        x = block(x, in, b, layer);
      }
      total += options_.classifies() ? classifier(x, in, b) : head(x, in, first);
    }
    return total;
  }

 private:
  const std::vector<double>& at(const std::string& name) const { return parameters_.at(name); }

  std::vector<double> embedding(const ReferenceSamples& in, int b, std::size_t first) const {
    const std::string name = prefix_ + "embeddings.";
    const auto &words = at(name + "word_embeddings.weight"), &places = at(name + "position_embeddings.weight"),
               &types = at(name + "token_type_embeddings.weight");
    const std::size_t row = options_.roberta ? static_cast<std::size_t>(options_.padding_token) + 1 : 0;
    std::vector<double> x;
    for (std::size_t t = 0; t < T; ++t)
      for (std::size_t c = 0; c < C; ++c)
        x.push_back(words[static_cast<std::size_t>(in.tokens[first + t]) * C + c] + places[(row + t) * C + c] +
                    types[c]);
    x = layer_norm(x, name + "LayerNorm");
    dropout(in, b, embedding_dropout_site).drop(x);
    return x;
  }

  std::vector<double> layer_norm(std::vector<double> x, const std::string& name) const {
    const auto &weight = at(name + ".weight"), &bias = at(name + ".bias");
    for (std::size_t row = 0; row < x.size(); row += C) {
      double mean = 0, variance = 0;
      for (std::size_t c = 0; c < C; ++c) mean += x[row + c] / static_cast<double>(C);
      for (std::size_t c = 0; c < C; ++c) variance += std::pow(x[row + c] - mean, 2) / static_cast<double>(C);
      const double deviation = std::sqrt(variance + static_cast<double>(options_.norm_epsilon));
      for (std::size_t c = 0; c < C; ++c) x[row + c] = (x[row + c] - mean) / deviation * weight[c] + bias[c];
    }
    return x;
  }

  /// x[N, in] · weight[out, in]ᵀ + bias
  std::vector<double> linear(const std::vector<double>& x, const std::string& name) const {
    const auto &weight = at(name + ".weight"), &bias = at(name + ".bias");
    const std::size_t out = bias.size(), in = weight.size() / out;
    std::vector<double> y;
    for (std::size_t t = 0; t < x.size() / in; ++t) {
      for (std::size_t o = 0; o < out; ++o) {
        y.push_back(bias[o]);
        for (std::size_t i = 0; i < in; ++i) y.back() += x[t * in + i] * weight[o * in + i];
      }
    }
    return y;
  }

  static std::vector<double> gelu(std::vector<double> x) {
    for (double& v : x) v *= 0.5 * (1 + std::erf(v / std::numbers::sqrt2));
    return x;
  }

  ReferenceDropout dropout(const ReferenceSamples& in, int b, std::uint32_t site) const {
    return {options_.dropout, in, b, site};
  }

  std::vector<double> block(const std::vector<double>& x, const ReferenceSamples& in, int b, int layer) const {
    const std::string name = prefix_ + "encoder.layer." + std::to_string(layer) + ".";
    const auto add = [&](std::vector<double> branch, const std::vector<double>& residual, DropoutSite place) {
      dropout(in, b, dropout_site(layer, place)).drop(branch);
      for (std::size_t i = 0; i < branch.size(); ++i) branch[i] += residual[i];
      return branch;
    };
    const auto attended =
        linear(attention(x, name + "attention.self.", in, b, layer), name + "attention.output.dense");
    const auto middle =
        layer_norm(add(attended, x, DropoutSite::attention_branch), name + "attention.output.LayerNorm");
    const auto wide = linear(gelu(linear(middle, name + "intermediate.dense")), name + "output.dense");
    return layer_norm(add(wide, middle, DropoutSite::mlp_branch), name + "output.LayerNorm");
  }

  std::vector<double> attention(const std::vector<double>& x, const std::string& name, const ReferenceSamples& in,
                                int b, int layer) const {
    const auto q = linear(x, name + "query"), k = linear(x, name + "key"), v = linear(x, name + "value");
    const auto H = static_cast<std::size_t>(options_.heads);
    const std::size_t D = C / H;
    const ReferenceDropout weights = dropout(in, b, dropout_site(layer, DropoutSite::attention));
    std::vector<double> out(T * C);
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        std::vector<double> weight(T);
        double sum = 0;
        for (std::size_t j = 0; j < T; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < D; ++d) score += q[i * C + h * D + d] * k[j * C + h * D + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
          sum += weight[j];
        }
        for (std::size_t j = 0; j < T; ++j) {
          const double share = weight[j] / sum * weights.kept((h * T + i) * T + j);
          for (std::size_t d = 0; d < D; ++d) out[i * C + h * D + d] += share * v[j * C + h * D + d];
        }
      }
    }
    return out;
  }

  double classifier(const std::vector<double>& x, const ReferenceSamples& in, int b) const {
    const std::uint32_t site = dropout_site(options_.layers, DropoutSite::attention);
    std::vector<double> first(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(C));
    if (options_.roberta) dropout(in, b, site).drop(first);
    std::vector<double> pooled = linear(first, options_.roberta ? "classifier.dense" : "bert.pooler.dense");
    for (double& v : pooled) v = std::tanh(v);
    dropout(in, b, site + 1).drop(pooled);
    double sum = 0;
    const auto logits = linear(pooled, options_.roberta ? "classifier.out_proj" : "classifier");
    for (const double logit : logits) sum += std::exp(logit);
    return std::log(sum) - logits[static_cast<std::size_t>(in.targets[static_cast<std::size_t>(b)])];
  }

  double head(const std::vector<double>& x, const ReferenceSamples& in, std::size_t first) const {
    const bool roberta = options_.roberta;
    const auto V = static_cast<std::size_t>(options_.vocab_size);
    const auto normal = layer_norm(gelu(linear(x, roberta ? "lm_head.dense" : "cls.predictions.transform.dense")),
                                   roberta ? "lm_head.layer_norm" : "cls.predictions.transform.LayerNorm");
    const auto &words = at(prefix_ + "embeddings.word_embeddings.weight"),
               &bias = at(roberta ? "lm_head.bias" : "cls.predictions.bias");
    double total = 0;
    for (std::size_t t = 0; t < T; ++t) {
      if (in.targets[first + t] == no_target) continue;
      double sum = 0, at_target = 0;
      for (std::size_t v = 0; v < V; ++v) {
        double logit = bias[v];
        for (std::size_t c = 0; c < C; ++c) logit += normal[t * C + c] * words[v * C + c];
        sum += std::exp(logit);
        if (static_cast<std::size_t>(in.targets[first + t]) == v) at_target = logit;
      }
      total += std::log(sum) - at_target;
    }
    return total;
  }

  BertOptions options_;
  const ReferenceParameters& parameters_;
  std::string prefix_;
  std::size_t C, T;
};

}  // namespace

double ReferenceBert::loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations) const {
  return BertLoss(options_, parameters_).loss(samples, activations);
}

}  // namespace ranvier::models
