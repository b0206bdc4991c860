#include "models/bert.hpp"
#include "runtime/error.hpp"
#include "tests/effort.hpp"
#include "tests/models/bert_family.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/gradient_check.hpp"
#include "tests/models/model_run.hpp"
#include "tests/models/reference_bert.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Which gradients are zero as they should be: keys' biases move all scores of a query alike, and nothing uses the
/// types but the first, nor RoBERTa's rows before its first position.
bool has_no_slope(const std::string& tensor, const BertOptions& options, std::size_t element) {
  const auto C = static_cast<std::size_t>(options.hidden);
  if (tensor.ends_with("self.key.bias")) return true;
  if (tensor.ends_with("token_type_embeddings.weight")) return element >= C;
  return tensor.ends_with("position_embeddings.weight") &&
         element < static_cast<std::size_t>(options.first_position()) * C;
}

}  // namespace

TEST_CASE("losses, activations and gradients of BERT and RoBERTa are those of the reference in double precision") {
  for (const auto& [name, options] : bert_family()) {
    CAPTURE(name);
    ModelRun run(device_of(2, true), options, 3);
    const auto samples = masked_samples(options, 40, 3);
    const double factor = 1.0 / 100;
    const double loss = run.forward(samples, factor);
    run.backward(false);

    const ReferenceParameters parameters = run.reference_parameters();
    std::vector<std::vector<double>> activations;
    const double expected = ReferenceBert(options, parameters).loss(samples, &activations);
    CHECK(loss == doctest::Approx(expected * factor).epsilon(allowed(1e-6)));
    for (std::size_t layer = 0; layer < activations.size(); ++layer) {
      const TypedArray output = run.output(layer);
      REQUIRE(output.size() == activations[layer].size());
      double worst = 0;
      for (std::size_t i = 0; i < output.size(); ++i)
        worst = worse(worst, std::abs(output[i] - activations[layer][i]));
      CHECK(worst < 2e-5);
    }

    const std::size_t stride = test::sanitized ? 151 : tests::long_run() ? 1 : 7;
    const auto gradients = run.gradients_by_name();
    for (const auto& [tensor, slopes] : differences<ReferenceBert>(options, parameters, samples, factor, stride)) {
      CAPTURE(tensor);
      const auto& ours = gradients.at(tensor);
      const double scale = norm(ours) / std::sqrt(static_cast<double>(ours.size()));
      CHECK((scale > 5e-6 || has_no_slope(tensor, options, 0)));
      double worst = 0;
      for (std::size_t i = 0; i < slopes.size(); ++i) {
        const double difference = std::abs(ours[i * stride] - slopes[i]);
        worst = worse(worst, has_no_slope(tensor, options, i * stride) ? 1e3 * difference : difference / scale);
      }
      CHECK(worst < 2e-4);
    }
    for (const auto& [unit, gradient] : run.gradients()) CHECK(gaps_untouched(unit, gradient));
  }
}

TEST_CASE("a BERT in half precision follows fp32 within its rounding, with fp32 and with half gradients") {
  for (const Precision precision : {Precision{DType::bf16, DType::f32}, Precision{DType::bf16, DType::bf16},
                                    Precision{DType::f16, DType::f16}}) {
    CAPTURE(to_string(precision.compute));
    CAPTURE(to_string(precision.gradient));
    const auto kin = bert_family(precision);
    const auto exact_kin = bert_family();
    for (std::size_t member = 0; member < kin.size(); ++member) {
      CAPTURE(kin[member].first);
      const auto samples = masked_samples(kin[member].second, 40, 3);
      ModelRun run(device_of(2, true), kin[member].second, 3),
          exact(device_of(2, true), exact_kin[member].second, 3);
      exact.set_parameters(run.reference_parameters());
      const float loss_scale = precision.compute == DType::f16 ? 1024 : 1;
      const double tolerance = precision.compute == DType::bf16 ? 0.12 : 0.015;
      const double loss = run.forward(samples, 1.0 / 100, loss_scale);
      run.backward(false);
      CHECK(loss == doctest::Approx(exact.forward(samples, 1.0 / 100)).epsilon(tolerance / 10));
      exact.backward(false);
      const auto gradients = run.gradients_by_name();
      for (const auto& [tensor, expected] : exact.gradients_by_name()) {
        CAPTURE(tensor);
        if (has_no_slope(tensor, kin[member].second, 0) && tensor.ends_with("bias")) continue;  // but rounding
        std::vector<double> error;
        for (std::size_t i = 0; i < expected.size(); ++i)
          error.push_back(gradients.at(tensor)[i] / loss_scale - expected[i]);
        CHECK(norm(error) < tolerance * norm(expected));
      }
    }
  }
}

TEST_CASE("neither the number of threads nor the kind of device changes a bit of a BERT") {
  for (const Precision precision : {Precision{}, Precision{DType::bf16, DType::f32}}) {
    BertOptions options = bert_family(precision).back().second;
    options.hidden = 80;
    options.heads = 5;
    options.inner = 96;
    options.sequence_length = 45;
    const auto samples = masked_samples(options, 3, 3);
    std::optional<double> loss;
    std::vector<TypedArray> first;
    for (const auto& [threads, at_once] : {std::pair{1, true}, {2, false}, {3, true}}) {
      if (repeats(threads, at_once)) continue;
      ModelRun run(device_of(threads, at_once), options, 3);
      const double this_loss = run.forward(samples, 1.0 / 100);
      run.backward(false);
      run.backward(true);
      if (!loss) {
        loss = this_loss;
        for (const auto& [unit, gradient] : run.gradients()) first.push_back(gradient);
      }
      CHECK(this_loss == *loss);
      for (std::size_t i = 0; i < first.size(); ++i) {
        CAPTURE(run.gradients()[i].first.name);
        CHECK(same_bits(run.gradients()[i].second, first[i]));
      }
    }
  }
}

TEST_CASE("a BERT's gradients of microbatches add up to those of all samples at once") {
  for (const auto& [kind, options] : bert_family()) {
    CAPTURE(kind);
    ModelRun together(device_of(2, true), options, 3), apart(device_of(2, true), options, 2);
    const double factor = 1.0 / 35;
    const double loss = together.forward(masked_samples(options, 10, 3), factor);
    together.backward(false);
    const ReferenceSamples all = masked_samples(options, 10, 3);
    double sum = 0;
    for (const auto& [first, count] : {std::pair{0, 2}, std::pair{2, 1}}) {
      ReferenceSamples part{.samples = count, .key = all.key};
      part.key.first_sample += first;
      const std::ptrdiff_t begin = std::ptrdiff_t{first} * options.sequence_length,
                           end = std::ptrdiff_t{first + count} * options.sequence_length;
      part.tokens.assign(all.tokens.begin() + begin, all.tokens.begin() + end);
      part.targets.assign(all.targets.begin() + begin, all.targets.begin() + end);
      sum += apart.forward(part, factor);
      apart.backward(first != 0);
    }
    CHECK(sum == doctest::Approx(loss).epsilon(allowed(1e-7)));
    const auto expected = together.gradients_by_name();
    for (const auto& [name, gradient] : apart.gradients_by_name()) {
      CAPTURE(name);
      if (name.ends_with("self.key.bias")) continue;  // nothing but rounding
      std::vector<double> error;
      for (std::size_t i = 0; i < gradient.size(); ++i) error.push_back(gradient[i] - expected.at(name)[i]);
      CHECK(norm(error) <= allowed(2e-6) * norm(expected.at(name)));
    }
  }
}

TEST_CASE("units and tensors of BERT and RoBERTa have the names, shapes and decay of the checkpoints") {
  using Shape = std::vector<std::size_t>;
  const auto tensors_of = [](const Architecture& model) {
    std::map<std::string, ParameterSpec> tensors;
    for (const UnitSpec& unit : model.units())
      for (const ParameterSpec& parameter : unit.parameters) tensors.emplace(parameter.name, parameter);
    return tensors;
  };
  const auto check = [&](const Architecture& model, const std::map<std::string, Shape>& expected) {
    const auto tensors = tensors_of(model);
    for (const auto& [name, shape] : expected) {
      CAPTURE(name);
      REQUIRE(tensors.contains(name));
      CHECK(tensors.at(name).shape == shape);
      CHECK(tensors.at(name).decays == (shape.size() > 1));
    }
    CHECK(tensors.size() == 2 * 16 + 10);
  };
  BertOptions options = small_bert();
  check(make_bert(options), {{"bert.embeddings.word_embeddings.weight", {13, 12}},
                             {"bert.embeddings.position_embeddings.weight", {7, 12}},
                             {"bert.embeddings.token_type_embeddings.weight", {2, 12}},
                             {"bert.embeddings.LayerNorm.weight", {12}},
                             {"bert.embeddings.LayerNorm.bias", {12}},
                             {"bert.encoder.layer.1.attention.self.query.weight", {12, 12}},
                             {"bert.encoder.layer.1.attention.self.query.bias", {12}},
                             {"bert.encoder.layer.1.attention.self.key.weight", {12, 12}},
                             {"bert.encoder.layer.1.attention.self.value.bias", {12}},
                             {"bert.encoder.layer.1.attention.output.dense.weight", {12, 12}},
                             {"bert.encoder.layer.1.attention.output.LayerNorm.weight", {12}},
                             {"bert.encoder.layer.1.intermediate.dense.weight", {20, 12}},
                             {"bert.encoder.layer.1.intermediate.dense.bias", {20}},
                             {"bert.encoder.layer.1.output.dense.weight", {12, 20}},
                             {"bert.encoder.layer.1.output.LayerNorm.bias", {12}},
                             {"cls.predictions.transform.dense.weight", {12, 12}},
                             {"cls.predictions.transform.LayerNorm.weight", {12}},
                             {"cls.predictions.bias", {13}}});
  options.roberta = true;
  options.padding_token = 1;
  check(make_bert(options), {{"roberta.embeddings.word_embeddings.weight", {13, 12}},
                             {"roberta.embeddings.position_embeddings.weight", {9, 12}},
                             {"roberta.encoder.layer.0.attention.self.key.bias", {12}},
                             {"lm_head.dense.weight", {12, 12}},
                             {"lm_head.dense.bias", {12}},
                             {"lm_head.layer_norm.bias", {12}},
                             {"lm_head.bias", {13}}});
  options.heads = 5;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_bert(options)), doctest::Contains("heads 5 does not divide"), Error);
  options.heads = 3;
  options.tile = 2;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_bert(options)), doctest::Contains("tile is 2"), Error);
}
