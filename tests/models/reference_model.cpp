#include "tests/models/reference_model.hpp"

#include "models/modules/transformer_block.hpp"
#include "models/ops/cross_entropy.hpp"
#include "tests/models/reference_dropout.hpp"

#include <cmath>
#include <numbers>
#include <span>
#include <utility>

namespace ranvier::models {

namespace {

using Values = std::vector<double>;

double gelu_tanh(double v) {
  return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}
double gelu(double v) { return v * 0.5 * (1 + std::erf(v / std::numbers::sqrt2)); }
double silu(double v) { return v / (1 + std::exp(-v)); }

void add(Values& x, const Values& branch) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += branch[i];
}

double cross_entropy(std::span<const double> logits, std::int32_t target) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

double turns_of(const LlamaOptions& options, int pair) {
  const double plain = std::pow(options.rope_base, -2.0 * pair / options.stored_head_size());
  if (!options.rope_scaling) return plain;
  const RopeScaling& scaling = *options.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::linear) return plain / scaling.factor;
  const double wavelength = 2 * std::numbers::pi / plain;
  if (wavelength < scaling.original_positions / scaling.high_frequency_factor) return plain;
  if (wavelength > scaling.original_positions / scaling.low_frequency_factor) return plain / scaling.factor;
  const double smooth = (scaling.original_positions / wavelength - scaling.low_frequency_factor) /
                        (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * plain / scaling.factor + smooth * plain;
}

/// The loss of one sample.
class SampleLoss : ReferenceForm {
 public:
  SampleLoss(const ReferenceForm& form, const ReferenceParameters& parameters, const ReferenceSamples& in, int b)
      : ReferenceForm(form), parameters_(parameters), in_(in), b_(b), begin_(static_cast<std::size_t>(b) * T) {}

  double loss(std::vector<Values>* activations, Values* logits) const {
    Values x = embedding();
    for (int layer = 0;; ++layer) {
      if (activations != nullptr) {
        Values& to = (*activations)[static_cast<std::size_t>(layer)];
        to.insert(to.end(), x.begin(), x.end());
      }
      if (layer == layers) break;
      compute(x, layer);
    }
    return class_out.empty() ? head(x, logits) : classifier(x);
  }

 private:
  const Values& at(const std::string& name) const { return parameters_.at(name + ".weight"); }
  /// Null: the family has none.
  const Values* bias_of(const std::string& name) const {
    if (biased && name != table) return &parameters_.at(name + ".bias");
    const auto bias = parameters_.find(name + ".bias");
    return bias == parameters_.end() ? nullptr : &bias->second;
  }
  Dropout rule_of(std::uint32_t site) const {
    return make_dropout(dropout, in_.key.seed, in_.key.step, site, in_.key.first_sample);
  }
  void drop(Values& x, std::uint32_t site) const {
    const Dropout rule = rule_of(site);
    for (std::size_t i = 0; i < x.size() && dropout != 0; ++i) x[i] *= dropout_factor(rule, b_, i);
  }

  Values embedding() const {
    const auto row = [&](const std::string& name, std::size_t number) { return &at(name)[number * C]; };
    Values x;
    for (std::size_t t = 0; t < T; ++t) {
      const double* const word = row(words, static_cast<std::size_t>(in_.tokens[begin_ + t]));
      const double* const position = positions.empty() ? nullptr : row(positions, first_position + t);
      const double* const type = types.empty() ? nullptr : row(types, 0);
      for (std::size_t c = 0; c < C; ++c)
        x.push_back(word[c] + (position != nullptr ? position[c] : 0) + (type != nullptr ? type[c] : 0));
    }
    if (!embedding_norm.empty()) x = normed(std::move(x), embedding_norm, C);
    drop(x, embedding_dropout_site);
    return x;
  }

  /// LayerNorm of rows of `channels`; RMSNorm if there is no bias.
  Values normed(Values x, const std::string& name, std::size_t channels) const {
    const Values& weight = at(name);
    const Values* const bias = bias_of(name);
    const auto n = static_cast<double>(channels);
    for (std::size_t row = 0; row < x.size(); row += channels) {
      double mean = 0, variance = 0;
      for (std::size_t c = 0; c < channels && bias != nullptr; ++c) mean += x[row + c] / n;
      for (std::size_t c = 0; c < channels; ++c) variance += std::pow(x[row + c] - mean, 2) / n;
      const double deviation = std::sqrt(variance + norm_epsilon);
      for (std::size_t c = 0; c < channels; ++c)
        x[row + c] = (x[row + c] - mean) / deviation * weight[c] + (bias != nullptr ? (*bias)[c] : 0);
    }
    return x;
  }

  /// x [N, in] times a matrix, and the bias, if there is one.
  Values linear(const Values& x, const std::string& name, std::size_t in) const {
    const Values& weight = at(name);
    const Values* const bias = bias_of(name);
    const std::size_t out = weight.size() / in, rows = x.size() / in;
    Values y(rows * out);
    for (std::size_t row = 0; row < rows; ++row) {
      const double* const from = &x[row * in];
      double* const to = &y[row * out];
      for (std::size_t o = 0; o < out && bias != nullptr; ++o) to[o] = (*bias)[o];
      if (transposed && name != table) {
        for (std::size_t i = 0; i < in; ++i)
          for (std::size_t o = 0; o < out; ++o) to[o] += from[i] * weight[i * out + o];
      } else {
        for (std::size_t o = 0; o < out; ++o)
          for (std::size_t i = 0; i < in; ++i) to[o] += from[i] * weight[o * in + i];
      }
    }
    return y;
  }

  /// Columns of y [T, any].
  Values columns(const Values& y, std::size_t first, std::size_t count) const {
    Values some;
    for (std::size_t t = 0; t < T; ++t) {
      const auto row = y.begin() + static_cast<std::ptrdiff_t>(t * (y.size() / T) + first);
      some.insert(some.end(), row, row + static_cast<std::ptrdiff_t>(count));
    }
    return some;
  }

  void compute(Values& x, int layer) const {
    const std::string name = block + std::to_string(layer) + ".";
    const auto branch = [&](const std::string& norm, DropoutSite site, const auto& f) {
      Values y = f(norm_after ? x : normed(x, name + norm, C));
      drop(y, dropout_site(layer, site));
      add(x, y);
      if (norm_after) x = normed(std::move(x), name + norm, C);
    };
    branch(norm_1, DropoutSite::attention_branch,
           [&](const Values& y) { return linear(attention(y, name, layer), name + out, H * D); });
    branch(norm_2, DropoutSite::mlp_branch, [&](const Values& y) {
      Values wide = linear(y, name + up, C), gates;
      if (gate == up) {  // one tensor
        const std::size_t F = wide.size() / T / 2;
        gates = columns(wide, 0, F);
        wide = columns(wide, F, F);
      } else if (!gate.empty()) {
        gates = linear(y, name + gate, C);
      }
      for (std::size_t i = 0; i < wide.size(); ++i)
        wide[i] = gate.empty() ? activation(wide[i]) : wide[i] * activation(gates[i]);
      return linear(wide, name + down, wide.size() / T);
    });
  }

  /// Queries or keys [T, heads, D], as attention reads them.
  Values turned(Values x, std::size_t heads, const std::string& block_name, const std::string& norm) const {
    if (!norm.empty()) x = normed(std::move(x), block_name + norm, D);
    for (std::size_t row = 0; row < T * heads && turns; ++row)
      for (std::size_t pair = 0; pair < D / 2; ++pair) {
        double &a = x[row * D + pair], &b = x[row * D + pair + D / 2];
        const double angle = static_cast<double>(row / heads) * turns(static_cast<int>(pair));
        const double turned_a = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned_a;
      }
    return x;
  }

  Values attention(const Values& x, const std::string& name, int layer) const {
    const Values all = qkv.empty() ? Values() : linear(x, name + qkv, C);  // [T, H + 2 K, D]
    const auto part = [&](std::size_t first, std::size_t heads, const std::string& own) {
      return qkv.empty() ? linear(x, name + own, C) : columns(all, first * D, heads * D);
    };
    const Values q = turned(part(0, H, query), H, name, query_norm), k = turned(part(H, K, key), K, name, key_norm),
                 v = part(H + K, K, value);
    const Dropout rule = rule_of(dropout_site(layer, DropoutSite::attention));
    Values y(T * H * D);
    for (std::size_t h = 0; h < H; ++h) {
      const std::size_t kept = h * K / H;
      for (std::size_t i = 0; i < T; ++i) {
        const std::size_t first = window > 0 && i + 1 > window ? i + 1 - window : 0, end = causal ? i + 1 : T;
        Values weight(end);
        double sum = 0;
        for (std::size_t j = first; j < end; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < D; ++d) score += q[(i * H + h) * D + d] * k[(j * K + kept) * D + d];
          weight[j] = std::exp(score / std::sqrt(static_cast<double>(D)));
          sum += weight[j];
        }
        for (std::size_t j = first; j < end; ++j) {
          const double share = weight[j] / sum * dropout_factor(rule, b_, (h * T + i) * T + j);
          for (std::size_t d = 0; d < D; ++d) y[(i * H + h) * D + d] += share * v[(j * K + kept) * D + d];
        }
      }
    }
    return y;
  }

  double head(Values x, Values* all_logits) const {
    if (!head_dense.empty()) {
      x = linear(x, head_dense, C);
      for (double& value : x) value = activation(value);
    }
    Values logits = linear(normed(std::move(x), head_norm, C), table, C);
    const std::size_t V = logits.size() / T;
    if (!head_bias.empty())
      for (std::size_t i = 0; i < logits.size(); ++i) logits[i] += (*bias_of(head_bias))[i % V];
    if (all_logits != nullptr) all_logits->insert(all_logits->end(), logits.begin(), logits.end());
    double total = 0;
    for (std::size_t t = 0; t < T; ++t) {
      const std::int32_t target = in_.targets[begin_ + t];
      if (target != no_target) total += cross_entropy({&logits[t * V], V}, target);
    }
    return total;
  }

  double classifier(Values x) const {
    const std::uint32_t site = dropout_site(layers, DropoutSite::attention);
    x.resize(C);  // the first position
    if (drops_first) drop(x, site);
    Values pooled = linear(x, class_dense, C);
    for (double& value : pooled) value = std::tanh(value);
    drop(pooled, site + 1);
    return cross_entropy(linear(pooled, class_out, C), in_.targets[static_cast<std::size_t>(b_)]);
  }

  const ReferenceParameters& parameters_;
  const ReferenceSamples& in_;
  int b_;
  std::size_t begin_;
};

/// Fields that all families' options have.
ReferenceForm form_of(const auto& options) {
  ReferenceForm form;
  form.T = static_cast<std::size_t>(options.sequence_length);
  form.C = static_cast<std::size_t>(options.hidden);
  form.H = form.K = static_cast<std::size_t>(options.heads);
  form.D = form.C / form.H;
  form.layers = options.layers;
  return form;
}

}  // namespace

ReferenceModel::ReferenceModel(const GptOptions& options, const ReferenceParameters& parameters)
    : form_(form_of(options)), parameters_(parameters) {
  form_.biased = true;
  form_.dropout = options.dropout;
  form_.transposed = true;
  form_.activation = gelu_tanh;
  form_.words = form_.table = "wte";
  form_.positions = "wpe";
  form_.block = "h.";
  form_.norm_1 = "ln_1";
  form_.qkv = "attn.c_attn";
  form_.out = "attn.c_proj";
  form_.norm_2 = "ln_2";
  form_.up = "mlp.c_fc";
  form_.down = "mlp.c_proj";
  form_.head_norm = "ln_f";
}

ReferenceModel::ReferenceModel(const LlamaOptions& options, const ReferenceParameters& parameters)
    : form_(form_of(options)), parameters_(parameters) {
  form_.K = static_cast<std::size_t>(options.stored_key_heads());
  form_.D = static_cast<std::size_t>(options.stored_head_size());
  form_.norm_epsilon = static_cast<double>(options.norm_epsilon);
  form_.window = static_cast<std::size_t>(options.window);
  form_.turns = [options](int pair) { return turns_of(options, pair); };
  form_.activation = silu;
  form_.words = "model.embed_tokens";
  form_.block = "model.layers.";
  form_.norm_1 = "input_layernorm";
  if (options.fused) form_.qkv = "self_attn.qkv_proj";
  form_.query = "self_attn.q_proj";
  form_.key = "self_attn.k_proj";
  form_.value = "self_attn.v_proj";
  if (options.qk_norm) form_.query_norm = "self_attn.q_norm", form_.key_norm = "self_attn.k_norm";
  form_.out = "self_attn.o_proj";
  form_.norm_2 = "post_attention_layernorm";
  form_.gate = options.fused ? "mlp.gate_up_proj" : "mlp.gate_proj";
  form_.up = options.fused ? form_.gate : "mlp.up_proj";
  form_.down = "mlp.down_proj";
  form_.head_norm = "model.norm";
  form_.table = options.tied ? form_.words : "lm_head";
}

ReferenceModel::ReferenceModel(const BertOptions& options, const ReferenceParameters& parameters)
    : form_(form_of(options)), parameters_(parameters) {
  const bool roberta = options.roberta;
  const std::string prefix = roberta ? "roberta." : "bert.";
  form_.norm_epsilon = static_cast<double>(options.norm_epsilon);
  form_.biased = true;
  form_.dropout = options.dropout;
  form_.norm_after = true;
  form_.causal = false;
  form_.activation = gelu;
  form_.first_position = roberta ? static_cast<std::size_t>(options.padding_token) + 1 : 0;
  form_.words = form_.table = prefix + "embeddings.word_embeddings";
  form_.positions = prefix + "embeddings.position_embeddings";
  form_.types = prefix + "embeddings.token_type_embeddings";
  form_.embedding_norm = prefix + "embeddings.LayerNorm";
  form_.block = prefix + "encoder.layer.";
  form_.norm_1 = "attention.output.LayerNorm";
  form_.query = "attention.self.query";
  form_.key = "attention.self.key";
  form_.value = "attention.self.value";
  form_.out = "attention.output.dense";
  form_.norm_2 = "output.LayerNorm";
  form_.up = "intermediate.dense";
  form_.down = "output.dense";
  form_.head_dense = roberta ? "lm_head.dense" : "cls.predictions.transform.dense";
  form_.head_norm = roberta ? "lm_head.layer_norm" : "cls.predictions.transform.LayerNorm";
  form_.head_bias = roberta ? "lm_head" : "cls.predictions";
  form_.drops_first = roberta;
  if (!options.classifies()) return;
  form_.class_dense = roberta ? "classifier.dense" : "bert.pooler.dense";
  form_.class_out = roberta ? "classifier.out_proj" : "classifier";
}

double ReferenceModel::loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations,
                            std::vector<double>* logits) const {
  if (activations != nullptr) activations->assign(static_cast<std::size_t>(form_.layers) + 1, {});
  if (logits != nullptr) logits->clear();
  double total = 0;
  for (int b = 0; b < samples.samples; ++b)
    total += SampleLoss(form_, parameters_, samples, b).loss(activations, logits);
  return total;
}

}  // namespace ranvier::models
