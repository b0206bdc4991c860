#include "tests/models/reference_llama.hpp"

#include <cmath>
#include <numbers>
#include <string>

namespace ranvier::models {

namespace {

class LlamaLoss {
 public:
  LlamaLoss(const LlamaOptions& options, const ReferenceParameters& parameters)
      : options_(options),
        parameters_(parameters),
        C(static_cast<std::size_t>(options.hidden)),
        T(static_cast<std::size_t>(options.sequence_length)) {}

  /// Sum of the tokens' losses. `activations`, if given, gets the output [B, T, C] of embedding and blocks, and
  /// `logits_out` the head's output for the last one [B, T, V].
  double loss(const ReferenceSamples& in, std::vector<std::vector<double>>* activations = nullptr,
              std::vector<double>* logits_out = nullptr) const {
    const auto& words = at("model.embed_tokens.weight");
    double total = 0;
    if (activations != nullptr) activations->assign(static_cast<std::size_t>(options_.layers) + 1, {});
    for (int b = 0; b < in.samples; ++b) {
      const auto first = static_cast<std::size_t>(b) * T;
      std::vector<double> x;
      for (std::size_t t = 0; t < T; ++t) {
        const auto row = words.begin() + static_cast<std::ptrdiff_t>(in.tokens[first + t]) * options_.hidden;
        x.insert(x.end(), row, row + options_.hidden);
      }
      for (int layer = 0;; ++layer) {
        if (activations != nullptr) {
          auto& to = (*activations)[static_cast<std::size_t>(layer)];
          to.insert(to.end(), x.begin(), x.end());
        }
        if (layer == options_.layers) break;
        block(x, "model.layers." + std::to_string(layer));
      }
      const auto logits = linear(rms_norm(x, C, "model.norm"), options_.tied ? "model.embed_tokens" : "lm_head", C);
      if (logits_out != nullptr) logits_out->insert(logits_out->end(), logits.begin(), logits.end());
      const auto V = static_cast<std::size_t>(options_.vocab_size);
      for (std::size_t t = 0; t < T; ++t) {
        double sum = 0;
        for (std::size_t v = 0; v < V; ++v) sum += std::exp(logits[t * V + v]);
        total += std::log(sum) - logits[t * V + static_cast<std::size_t>(in.targets[first + t])];
      }
    }
    return total;
  }

 private:
  const std::vector<double>& at(const std::string& name) const { return parameters_.at(name); }

  /// Norm of groups of this many channels.
  std::vector<double> rms_norm(std::vector<double> x, std::size_t channels, const std::string& name) const {
    const auto& weight = at(name + ".weight");
    for (std::size_t row = 0; row < x.size(); row += channels) {
      double squares = 0;
      for (std::size_t c = 0; c < channels; ++c) squares += x[row + c] * x[row + c] / static_cast<double>(channels);
      for (std::size_t c = 0; c < channels; ++c)
        x[row + c] *= weight[c] / std::sqrt(squares + static_cast<double>(options_.norm_epsilon));
    }
    return x;
  }

  /// x[T, in] · weight[out, in]ᵀ, and the bias, if there is one.
  std::vector<double> linear(const std::vector<double>& x, const std::string& name, std::size_t in) const {
    const auto& weight = at(name + ".weight");
    const auto bias = parameters_.find(name + ".bias");
    const std::size_t out = weight.size() / in;
    std::vector<double> y;
    for (std::size_t t = 0; t < T; ++t) {
      for (std::size_t o = 0; o < out; ++o) {
        double sum = bias != parameters_.end() ? bias->second[o] : 0;
        for (std::size_t i = 0; i < in; ++i) sum += x[t * in + i] * weight[o * in + i];
        y.push_back(sum);
      }
    }
    return y;
  }

  void block(std::vector<double>& x, const std::string& name) const {
    const auto add = [&](const std::vector<double>& branch) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
    };
    const auto heads = static_cast<std::size_t>(options_.heads * options_.stored_head_size());
    add(linear(attention(rms_norm(x, C, name + ".input_layernorm"), name + ".self_attn"),
               name + ".self_attn.o_proj", heads));

    const auto normal = rms_norm(x, C, name + ".post_attention_layernorm");
    auto gate = linear(normal, name + ".mlp.gate_proj", C);
    const auto up = linear(normal, name + ".mlp.up_proj", C);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    add(linear(gate, name + ".mlp.down_proj", static_cast<std::size_t>(options_.inner)));
  }

  double frequency(int pair) const {
    const double plain = std::pow(options_.rope_base, -2.0 * pair / options_.stored_head_size());
    if (!options_.rope_scaling) return plain;
    const RopeScaling& scaling = *options_.rope_scaling;
    if (scaling.kind == RopeScaling::Kind::linear) return plain / scaling.factor;
    const double wavelength = 2 * std::numbers::pi / plain;
    if (wavelength < scaling.original_positions / scaling.high_frequency_factor) return plain;
    if (wavelength > scaling.original_positions / scaling.low_frequency_factor) return plain / scaling.factor;
    const double smooth = (scaling.original_positions / wavelength - scaling.low_frequency_factor) /
                          (scaling.high_frequency_factor - scaling.low_frequency_factor);
    return (1 - smooth) * plain / scaling.factor + smooth * plain;
  }

  /// Queries or keys [T, heads, D] as attention reads them.
  std::vector<double> turned(std::vector<double> x, int heads, const std::string& norm) const {
    const int D = options_.stored_head_size();
    if (options_.qk_norm) x = rms_norm(std::move(x), static_cast<std::size_t>(D), norm);
    for (std::size_t head = 0; head < T * static_cast<std::size_t>(heads); ++head) {
      const double position = static_cast<double>(head / static_cast<std::size_t>(heads));
      for (int pair = 0; pair < D / 2; ++pair) {
        double& a = x[head * static_cast<std::size_t>(D) + static_cast<std::size_t>(pair)];
        double& b = x[head * static_cast<std::size_t>(D) + static_cast<std::size_t>(pair + D / 2)];
        const double cosine = std::cos(position * frequency(pair)), sine = std::sin(position * frequency(pair));
        const double turned_a = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = turned_a;
      }
    }
    return x;
  }

  std::vector<double> attention(const std::vector<double>& x, const std::string& name) const {
    const auto H = static_cast<std::size_t>(options_.heads),
               K = static_cast<std::size_t>(options_.stored_key_heads()),
               D = static_cast<std::size_t>(options_.stored_head_size());
    const auto q = turned(linear(x, name + ".q_proj", C), options_.heads, name + ".q_norm");
    const auto k = turned(linear(x, name + ".k_proj", C), options_.stored_key_heads(), name + ".k_norm");
    const auto v = linear(x, name + ".v_proj", C);
    std::vector<double> out(T * H * D);
    for (std::size_t h = 0; h < H; ++h) {
      const std::size_t kept = h * K / H;
      for (std::size_t i = 0; i < T; ++i) {
        const auto window = static_cast<std::size_t>(options_.window);
        const std::size_t first = window > 0 && i + 1 > window ? i + 1 - window : 0;
        std::vector<double> weight(i + 1);
        double sum = 0;
        for (std::size_t j = first; j <= i; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < D; ++d) score += q[(i * H + h) * D + d] * k[(j * K + kept) * D + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
          sum += weight[j];
        }
        for (std::size_t j = first; j <= i; ++j) {
          for (std::size_t d = 0; d < D; ++d)
            out[(i * H + h) * D + d] += weight[j] / sum * v[(j * K + kept) * D + d];
        }
      }
    }
    return out;
  }

  LlamaOptions options_;
  const ReferenceParameters& parameters_;
  std::size_t C, T;
};

}  // namespace

double ReferenceLlama::loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations,
                            std::vector<double>* logits) const {
  return LlamaLoss(options_, parameters_).loss(samples, activations, logits);
}

}  // namespace ranvier::models
