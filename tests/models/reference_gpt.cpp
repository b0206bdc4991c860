#include "tests/models/reference_gpt.hpp"

#include "models/modules/block_dropout.hpp"
#include "tests/models/reference_dropout.hpp"

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

namespace ranvier::models {

namespace {

class GptLoss {
 public:
  GptLoss(const GptOptions& options, const ReferenceParameters& parameters)
      : options_(options),
        parameters_(parameters),
        C(static_cast<std::size_t>(options.hidden)),
        T(static_cast<std::size_t>(options.sequence_length)) {}

  /// Sum of the tokens' losses. `activations`, if given, gets the output [B, T, C] of embedding and blocks, and
  /// `logits` the head's output for the last one [B, T, V].
  double loss(const ReferenceSamples& in, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits = nullptr) const {
    const auto &words = at("wte.weight"), &positions = at("wpe.weight");
    double total = 0;
    if (logits != nullptr) logits->clear();
    if (activations != nullptr) activations->assign(static_cast<std::size_t>(options_.layers) + 1, {});
    for (int b = 0; b < in.samples; ++b) {
      const auto first = static_cast<std::size_t>(b) * T;
      std::vector<double> x(T * C);
      for (std::size_t t = 0; t < T; ++t) {
        for (std::size_t c = 0; c < C; ++c) {
          x[t * C + c] = words[static_cast<std::size_t>(in.tokens[first + t]) * C + c] + positions[t * C + c];
        }
      }
      dropout(in, b, embedding_dropout_site).drop(x);
      const auto keep = [&](int layer) {
        if (activations == nullptr) return;
        auto& to = (*activations)[static_cast<std::size_t>(layer)];
        to.insert(to.end(), x.begin(), x.end());
      };
      keep(0);
      for (int layer = 0; layer < options_.layers; ++layer) {
        block(x, in, b, layer);
        keep(layer + 1);
      }
      total += head(x, in, first, logits);
    }
    return total;
  }

 private:
  const std::vector<double>& at(const std::string& name) const { return parameters_.at(name); }

  std::vector<double> layer_norm(const std::vector<double>& x, const std::string& name) const {
    const auto &weight = at(name + ".weight"), &bias = at(name + ".bias");
    std::vector<double> y(x.size());
    for (std::size_t row = 0; row < x.size(); row += C) {
      double mean = 0, variance = 0;
      for (std::size_t c = 0; c < C; ++c) mean += x[row + c] / static_cast<double>(C);
      for (std::size_t c = 0; c < C; ++c) variance += std::pow(x[row + c] - mean, 2) / static_cast<double>(C);
      const double deviation = std::sqrt(variance + 1e-5);
      for (std::size_t c = 0; c < C; ++c) y[row + c] = (x[row + c] - mean) / deviation * weight[c] + bias[c];
    }
    return y;
  }

  /// x[T, in] · weight[in, out] + bias
  std::vector<double> linear(const std::vector<double>& x, const std::string& name) const {
    const auto &weight = at(name + ".weight"), &bias = at(name + ".bias");
    const std::size_t out = bias.size(), in = weight.size() / out;
    std::vector<double> y(x.size() / in * out);
    for (std::size_t row = 0; row < x.size() / in; ++row) {
      for (std::size_t o = 0; o < out; ++o) y[row * out + o] = bias[o];
      for (std::size_t i = 0; i < in; ++i) {
        for (std::size_t o = 0; o < out; ++o) y[row * out + o] += x[row * in + i] * weight[i * out + o];
      }
    }
    return y;
  }

  ReferenceDropout dropout(const ReferenceSamples& in, int b, std::uint32_t site) const {
    return {options_.dropout, in, b, site};
  }

  void block(std::vector<double>& x, const ReferenceSamples& in, int b, int layer) const {
    const std::string h = "h." + std::to_string(layer) + ".";
    auto branch =
        linear(attention(linear(layer_norm(x, h + "ln_1"), h + "attn.c_attn"), in, b, layer), h + "attn.c_proj");
    dropout(in, b, dropout_site(layer, DropoutSite::attention_branch)).drop(branch);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += branch[i];

    auto wide = linear(layer_norm(x, h + "ln_2"), h + "mlp.c_fc");
    for (double& v : wide) {
      v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    }
    branch = linear(wide, h + "mlp.c_proj");
    dropout(in, b, dropout_site(layer, DropoutSite::mlp_branch)).drop(branch);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
  }

  std::vector<double> attention(const std::vector<double>& qkv, const ReferenceSamples& in, int b,
                                int layer) const {
    const auto H = static_cast<std::size_t>(options_.heads);
    const std::size_t D = C / H;
    const ReferenceDropout weights = dropout(in, b, dropout_site(layer, DropoutSite::attention));
    std::vector<double> out(T * C);
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        std::vector<double> weight(i + 1);
        double sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < D; ++d) score += qkv[i * 3 * C + h * D + d] * qkv[j * 3 * C + C + h * D + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
          sum += weight[j];
        }
        for (std::size_t j = 0; j <= i; ++j) {
          const double share = weight[j] / sum * weights.kept((h * T + i) * T + j);
          for (std::size_t d = 0; d < D; ++d) out[i * C + h * D + d] += share * qkv[j * 3 * C + 2 * C + h * D + d];
        }
      }
    }
    return out;
  }

  double head(const std::vector<double>& x, const ReferenceSamples& in, std::size_t first,
              std::vector<double>* logits) const {
    const auto V = static_cast<std::size_t>(options_.vocab_size);
    const auto& words = at("wte.weight");
    const auto normal = layer_norm(x, "ln_f");
    double total = 0;
    for (std::size_t t = 0; t < T; ++t) {
      double sum = 0, at_target = 0;
      for (std::size_t v = 0; v < V; ++v) {
        double logit = 0;
        for (std::size_t c = 0; c < C; ++c) logit += normal[t * C + c] * words[v * C + c];
        if (logits != nullptr) logits->push_back(logit);
        sum += std::exp(logit);
        if (static_cast<std::size_t>(in.targets[first + t]) == v) at_target = logit;
      }
      total += std::log(sum) - at_target;
    }
    return total;
  }

  GptOptions options_;
  const ReferenceParameters& parameters_;
  std::size_t C, T;
};

}  // namespace

double ReferenceGpt::loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations,
                          std::vector<double>* logits) const {
  return GptLoss(options_, parameters_).loss(samples, activations, logits);
}

}  // namespace ranvier::models
