#include "models/families/bert.hpp"
#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE("losses, activations and gradients of BERT and RoBERTa equal the reference in double precision") {
  check_references(bert_family(), stride_of(7, 601));
}

TEST_CASE(
    "a BERT in tiles equals the reference in double precision, and the model without tiles but for rounding") {
  check_tiled_references(bert_family(), stride_of(13, 307));
}

TEST_CASE("a BERT in half precision follows fp32 within its rounding, with fp32 and half gradients, tiled or not") {
  tests::Share tiled(2, 6);
  for_each_half(bert_family, [&](BertOptions options, BertOptions exact, double unit) {
    if (tiled.takes()) {
      options = in_tiles(options, 4);
      exact = in_tiles(exact, 1);
    }
    CAPTURE(options.tile);
    check_follows_fp32(options, exact, made_up_samples(options, 40, 3), {0.0015 * unit, 0.015 * unit});
  });
}

TEST_CASE("the number of threads and the kind of device do not change any bit of a BERT") {
  for (const Precision precision : {Precision{}, Precision{DType::bf16, DType::f32}}) {
    BertOptions options = bert_family(precision).back().second;
    if (precision.compute != DType::f32) options = in_tiles(options, 4);
    options.hidden = 80;
    options.heads = 5;
    options.inner = 96;
    options.sequence_length = 45;
    options.targets = 31;  // one more than exist
    check_bits(options, made_up_samples(options, 3, 3));
  }
}

TEST_CASE("gradients of a BERT's microbatches add up to the gradients of all samples at once") {
  for (const auto& [kind, options] : bert_family()) {
    CAPTURE(kind);
    check_microbatches(options, 3);
  }
}

TEST_CASE(
    "a head that computes only positions with a target has the losses, details and gradients of a complete one") {
  for (const Precision precision : {Precision{}, Precision{DType::bf16, DType::f32}}) {
    CAPTURE(to_string(precision.compute));
    BertOptions options = small_bert(precision);
    options.sequence_length = 33;
    options.vocab_size = 70;
    options.tile = precision.compute == DType::f32 ? 2 : 1;  // 64 and 6 rows of the table
    ReferenceSamples samples = made_up_samples(options, 40, 3);
    for (std::size_t i = 0; i < samples.targets.size(); ++i)
      if (i % 6 != 0 || i / 33 == 1) samples.targets[i] = no_target;  // the second sample has none
    samples.targets[34] = 7;                                          // except one
    ModelRun all(device_of(2, true), options, 3);
    options.targets = 6;
    ModelRun few(device_of(2, true), options, 3);
    const double loss = all.forward(samples, 1.0 / 12), unit = half_unit(precision.compute);
    CHECK(few.forward(samples, 1.0 / 12) == doctest::Approx(loss).epsilon(allowed(1e-7) + unit));
    all.backward(false);
    few.backward(false);
    const auto gradients = few.gradients_by_name();
    for (const auto& [name, expected] : all.gradients_by_name()) {
      CAPTURE(name);
      if (!is_rounding(name)) check_close(gradients.at(name), expected, allowed(2e-6) + 4 * unit);
    }
    for (const int position : {0, 1, 32}) {
      const auto expected = all.details(samples, 1.0 / 12, position),
                 found = few.details(samples, 1.0 / 12, position);
      for (std::size_t i = 0; i < expected.losses.size(); ++i)
        CHECK(found.losses[i] == doctest::Approx(expected.losses[i]).epsilon(allowed(1e-6) + unit));
      for (std::size_t i = 0; i < expected.logits.size(); ++i)
        CHECK(found.logits[i] == doctest::Approx(expected.logits[i]).epsilon(allowed(1e-5) + 4 * unit));
    }
  }
}

TEST_CASE("a head saves and computes less with fewer targets, and refuses too many") {
  BertOptions options = small_bert();
  const Architecture all = make_bert(options);
  options.targets = 3;
  const Architecture few = make_bert(options);
  const MicrobatchShape shape{.samples = 4, .positions = 7};
  CHECK(3 * few.layers.back()->memory(shape).saved < 2 * all.layers.back()->memory(shape).saved);
  CHECK(7 * few.layers.back()->flops_per_sample(7) == doctest::Approx(3 * all.layers.back()->flops_per_sample(7)));
  CHECK(few.layers.back()->flops_per_sample(2) == doctest::Approx(all.layers.back()->flops_per_sample(2)));
  options.targets = 8;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_bert(options)),
                       doctest::Contains("`targets` is out of range: 8; use 0 to 7"), Error);
}

TEST_CASE("units and tensors of BERT and RoBERTa have the names, shapes and decay of the checkpoints") {
  const auto check = [](const Architecture& model, const Shapes& shapes) {
    CHECK(check_tensors(model, shapes).size() == 2 * 16 + 10);
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
  CHECK_THROWS_WITH_AS(static_cast<void>(make_bert(options)), doctest::Contains("`heads` 5 does not divide"),
                       Error);
  options.heads = 3;
  options.tile = 3;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_bert(options)),
                       "`tile` 3 does not divide `ffn_size` 20; use a divisor such as 2", Error);
}

TEST_CASE("a classifier's loss and gradients equal the reference in double precision, tiled or not") {
  int tile = 1;
  auto members = classifying_family();
  for (auto& [name, options] : members) {
    CAPTURE(name);
    options.tile = std::exchange(tile, 5 - tile);
    check_microbatches(options, 3);
  }
  check_references(members, stride_of(11, 401));
}

TEST_CASE("a classifier in half precision follows fp32 within its rounding") {
  const auto dropping = [](Precision precision) {
    return Family<BertOptions>{classifying_family(precision).back()};
  };
  for_each_half<BertOptions>(dropping, [&](const BertOptions& options, const BertOptions& exact, double unit) {
    check_follows_fp32(options, exact, made_up_samples(options, 40, 3), {0.015 / 4 * unit, 0.015 * unit});
  });
}

TEST_CASE("a classifier has the tensors of transformers' class, and at least two classes") {
  BertOptions options = small_bert();
  options.classes = 4;
  const auto shapes_of_head = [&] {
    Shapes shapes;
    for (const UnitSpec& unit : make_bert(options).units()) {
      CHECK(unit.name.find("predictions") == std::string::npos);
      for (const ParameterSpec& parameter : unit.parameters)
        if (unit.name == "classifier") shapes[parameter.name] = parameter.shape;
    }
    return shapes;
  };
  CHECK(shapes_of_head() == Shapes{{"bert.pooler.dense.weight", {12, 12}},
                                   {"bert.pooler.dense.bias", {12}},
                                   {"classifier.weight", {4, 12}},
                                   {"classifier.bias", {4}}});
  options.roberta = true;
  options.padding_token = 1;
  CHECK(shapes_of_head() == Shapes{{"classifier.dense.weight", {12, 12}},
                                   {"classifier.dense.bias", {12}},
                                   {"classifier.out_proj.weight", {4, 12}},
                                   {"classifier.out_proj.bias", {4}}});
  for (const int classes : {1, -1}) {
    options.classes = classes;
    CHECK_THROWS_WITH_AS(static_cast<void>(make_bert(options)), doctest::Contains("use at least 2, or 0"), Error);
  }
}
