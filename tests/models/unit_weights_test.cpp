#include "models/weights/unit_weights.hpp"

#include "models/weights/partial_weights.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;
using runtime::DType;

namespace {

/// Two parameters with a gap between them, the first padded from 3 rows to 5.
UnitSpec padded_unit() {
  return {.name = "wte",
          .parameters = {{.name = "wte.weight", .shape = {3, 7}, .stored_elements = 35},
                         {.name = "wte.bias", .shape = {5}}}};
}

const UnitSpec other_unit{.name = "ln_f", .parameters = {{.name = "ln_f.weight", .shape = {4}}}};

/// 1, 2, 3, … for values in the file, 0 in gaps and padding.
std::vector<float> flattened(const UnitSpec& unit) {
  std::vector<float> values(unit.elements());
  float next = 1;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i)
    for (std::size_t j = 0; j < unit.parameters[i].elements(); ++j) values[unit.offset(i) + j] = next++;
  return values;
}

/// Writes a file in pieces of `piece` elements of a unit.
template <typename ValuesOf>
void save(const std::filesystem::path& path, const std::vector<UnitSpec>& units, std::size_t piece,
          const ValuesOf& values_of, const TensorTypes& types = {}) {
  const WeightLayout layout(units, WeightLayout::default_file_bytes, WeightLayout::single_name, types);
  PartialWeights partial(path, PartialWeights::Kind::file, partial_path(path.parent_path(), "model", random_job()),
                         layout);
  WeightWriter writer(layout, partial.path());
  for (const UnitSpec& unit : units) {
    const std::vector<float> values = values_of(unit);
    for (std::size_t begin = 0; begin < values.size(); begin += piece)
      writer.put(unit, begin, std::span(values).subspan(begin, std::min(piece, values.size() - begin)));
  }
  CHECK(writer.bytes() == layout.value_bytes());
  writer.close();
  partial.commit();
}

std::vector<float> read_in_pieces(const Safetensors& file, const UnitSpec& unit, std::size_t piece = 1 << 20) {
  std::vector<float> values(unit.elements(), -1);
  for (std::size_t begin = 0; begin < values.size(); begin += piece)
    read_unit(file, unit, begin, std::min(values.size(), begin + piece), values.data() + begin);
  return values;
}

}  // namespace

TEST_CASE("a unit saved in pieces of any size reads back in pieces of any size, without gaps and padding") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  const std::vector<UnitSpec> units = {padded_unit(), other_unit};
  for (const std::size_t piece : {1u, 7u, 32u, 1000u}) {
    CAPTURE(piece);
    save(path, units, piece, [](const UnitSpec& unit) {
      auto values = flattened(unit);
      for (auto& value : values) value = value == 0 ? -1 : value;  // the contents of gaps must not matter
      return values;
    });

    const Safetensors file(path);
    CHECK(file.find("wte.weight")->shape == std::vector<std::size_t>{3, 7});
    check_weights(file, units);
    for (const auto& unit : units) CHECK(read_in_pieces(file, unit, piece) == flattened(unit));
  }
}

TEST_CASE_FIXTURE(InFolder, "frozen tensors keep type and bits through a half-precision run") {
  std::vector<UnitSpec> units = {padded_unit(), other_unit, {"head", {{.name = "head.weight", .shape = {3}}}}};
  units[0].trained = units[2].trained = false;
  std::vector<float> values(33);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1 / (static_cast<float>(i) - 7.3f);
  const Safetensors base(write_tensors(folder.path() / "base.safetensors",
                                       {{"wte.weight", DType::f32, {3, 7}},
                                        {"wte.bias", DType::f16, {5}},
                                        {"ln_f.weight", DType::bf16, {4}},
                                        {"head.weight", DType::bf16, {3}}},
                                       values));
  const TensorTypes types = untrained_types(base, units);
  CHECK(types == TensorTypes{{"head.weight", DType::bf16}, {"wte.bias", DType::f16}, {"wte.weight", DType::f32}});

  const auto saved = folder.path() / "saved.safetensors";
  for (const DType held : {DType::f32, DType::bf16, DType::f16})
    for (const std::size_t piece : {3u, 1000u}) {
      CAPTURE_ALL(to_string(held), piece);
      save(
          saved, units, piece,
          [&](const UnitSpec& unit) {
            std::vector<float> in_training = read_in_pieces(base, unit);
            for (float& value : in_training)
              runtime::with_float_type(
                  held, [&](auto type) { value = runtime::to_float(runtime::from_float<decltype(type)>(value)); });
            if (unit.trained) in_training[0] = 0.123456789f;
            if (!unit.trained) restore_values(base, unit, 0, in_training, held);
            return in_training;
          },
          types);
      const Safetensors file(saved);
      CHECK(file.find("ln_f.weight")->dtype == DType::f32);
      for (const auto& [name, type] : types) {
        CAPTURE(name);
        const StoredTensor &was = *base.find(name), &is = *file.find(name);
        CHECK(is.dtype == type);
        std::vector<float> before(was.elements()), after(is.elements());
        base.read(was, 0, before.size(), before.data());
        file.read(is, 0, after.size(), after.data());
        CHECK(after == before);
      }
      for (const StoredTensor& tensor : file.tensors()) CHECK(tensor.begin % size_of(*tensor.dtype) == 0);
    }

  // Values other than the rounded values of the file stay.
  std::vector<float> others(units[2].elements(), 0.5f);
  restore_values(base, units[2], 0, others, DType::bf16);
  CHECK(others == std::vector<float>(units[2].elements(), 0.5f));
}

TEST_CASE("tiles of a tensor are saved like the undivided tensor, in any order, and read back with any split") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  const UnitSpec whole{"w", {{.name = "w.weight", .shape = {6, 10}}}};
  const auto tile = [](std::size_t rows, std::size_t columns, std::size_t row, std::size_t column) {
    return UnitSpec{"w." + std::to_string(row) + "." + std::to_string(column),
                    {{.name = "w.weight",
                      .shape = {rows, columns},
                      .stored_elements = 32,
                      .tile = Tile{{6, 10}, row, column}}}};
  };
  const std::vector<std::vector<UnitSpec>> cuts = {{whole},
                                                   {tile(6, 5, 0, 5), tile(6, 5, 0, 0)},
                                                   {tile(2, 10, 4, 0), tile(2, 10, 0, 0), tile(2, 10, 2, 0)},
                                                   {tile(4, 4, 2, 0), tile(4, 6, 2, 4), tile(2, 10, 0, 0)}};
  const auto value_of = [](const UnitSpec& unit, std::size_t i) {
    const ParameterSpec& parameter = unit.parameters[0];
    const std::size_t row = i / parameter.shape[1], column = i % parameter.shape[1];
    if (i >= parameter.elements()) return 0.0f;
    return static_cast<float>(parameter.tile
                                  ? (parameter.tile->first_row + row) * 10 + parameter.tile->first_column + column
                                  : row * 10 + column);
  };
  for (const auto& saved : cuts)
    for (const std::size_t piece : {1u, 7u, 64u}) {
      CAPTURE_ALL(saved.size(), piece);
      save(path, saved, piece, [&](const UnitSpec& unit) {
        std::vector<float> values(unit.elements(), -1);
        for (std::size_t i = 0; i < unit.parameters[0].elements(); ++i) values[i] = value_of(unit, i);
        return values;
      });
      const Safetensors file(path);
      REQUIRE(file.tensors().size() == 1);
      CHECK(file.find("w.weight")->shape == std::vector<std::size_t>{6, 10});
      for (const auto& read : cuts) {
        check_weights(file, read);
        for (const UnitSpec& unit : read) {
          const std::vector<float> values = read_in_pieces(file, unit, piece);
          for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == value_of(unit, i));
        }
      }
    }
}

namespace {

/// A file whose values count up from 1, tensor after tensor.
Safetensors counted(const TemporaryFolder& folder, const std::vector<TensorToStore>& tensors,
                    const std::string& ignored = {}) {
  return Safetensors(
      write_tensors(folder.path() / "counted.safetensors", tensors, counted_values(elements_of(tensors))), ignored);
}

}  // namespace

TEST_CASE("attention masks and a head that equals the embedding need no unit, with or without a prefix") {
  const TemporaryFolder folder;
  const std::vector<UnitSpec> units = {other_unit, {"wte", {{.name = "wte.weight", .shape = {1}}}}};
  const Safetensors file(write_tensors(folder.path() / "model.safetensors",
                                       {{"transformer.h.0.attn.bias", DType::f32, {2}},
                                        {"h.11.attn.masked_bias", DType::f32, {}},
                                        {"transformer.ln_f.weight", DType::bf16, {4}},
                                        {"transformer.wte.weight", DType::f32, {1}},
                                        {"lm_head.weight", DType::f32, {1}}},
                                       {9, 9, 9, 1, 2, 3, 4, 7, 7}));
  check_weights(file, units);
  CHECK(read_in_pieces(file, other_unit) == flattened(other_unit));
}

TEST_CASE_FIXTURE(InFolder, "tensors that the model does not use are refused by name, unless they are ignored") {
  const std::vector<UnitSpec> units = {{"wte", {{.name = "wte.weight", .shape = {1}}}}};
  for (const char* name : {"h.0.attn.q_norm.weight", "transformer.h.0.crossattention.c_attn.weight",
                           "h.1.ln_1.bias", "h.0.attn.c_attn.bias", "h.attn.bias", "h..attn.bias", "score.weight",
                           "transformer.wte.weight", "lm_head.weight", "lm_head.bias"}) {
    CAPTURE(name);
    const std::vector<TensorToStore> tensors = {{"wte.weight", DType::f32, {1}}, {name, DType::f32, {1}}};
    const auto error = error_of([&] { check_weights(counted(folder, tensors), units); });
    CHECK(says(error, ErrorCode::data, fmt::format("counted.safetensors: tensor '{}'", name), "`ignore_tensors`"));
    check_weights(counted(folder, tensors, fmt::format("^{}$", name)), units);
  }
  const auto several = error_of([&] {
    check_weights(
        counted(folder, {{"wte.weight", DType::f32, {1}}, {"a", DType::f32, {1}}, {"b", DType::f32, {1}}}), units);
  });
  CHECK(says(several, "tensor 'a' and 1 more are not part of this model"));
}

TEST_CASE("other heads of a BERT checkpoint need no unit, and older names of its norms are read") {
  const TemporaryFolder folder;
  const std::vector<UnitSpec> units = {
      {"words", {{.name = "bert.embeddings.word_embeddings.weight", .shape = {1, 2}}}},
      {"positions", {{.name = "bert.embeddings.position_embeddings.weight", .shape = {1, 2}}}},
      {"norm", {{.name = "a.LayerNorm.weight", .shape = {2}}, {.name = "a.LayerNorm.bias", .shape = {2}}}},
      {"head", {{.name = "cls.predictions.bias", .shape = {1}}}}};
  std::vector<TensorToStore> tensors = {{"a.LayerNorm.beta", DType::f32, {2}},
                                        {"a.LayerNorm.gamma", DType::f32, {2}},
                                        {"bert.embeddings.position_embeddings.weight", DType::f32, {3, 2}},
                                        {"bert.embeddings.position_ids", DType::f32, {1, 3}},
                                        {"bert.embeddings.word_embeddings.weight", DType::f32, {1, 2}},
                                        {"bert.pooler.dense.weight", DType::f32, {2, 2}},
                                        {"cls.predictions.bias", DType::f32, {1}},
                                        {"cls.seq_relationship.bias", DType::f32, {2}}};
  const Safetensors file = counted(folder, tensors);
  check_weights(file, units);
  const std::vector<float> norm = read_in_pieces(file, units[2]);
  CHECK(norm[0] == 3);
  CHECK(norm[units[2].offset(1)] == 1);

  tensors.push_back({"cls.predictions.decoder.bias", DType::f32, {1}});
  const auto error = error_of([&] { check_weights(counted(folder, tensors), units); });
  CHECK(says(error, ErrorCode::data, "'cls.predictions.decoder.bias' differs from 'cls.predictions.bias'",
             "`ignore_tensors` cls.predictions.decoder.bias"));
  check_weights(counted(folder, tensors, "decoder"), units);
}

TEST_CASE_FIXTURE(
    InFolder,
    "a larger table of positions is truncated to its first rows, and tensors of another model are refused") {
  const auto table = [](const char* name, std::size_t rows, std::size_t columns) {
    return std::vector<UnitSpec>{{name, {{.name = name, .shape = {rows, columns}}}}};
  };
  const Safetensors positions = counted(folder, {{"wpe.weight", DType::f32, {5, 3}}});
  const auto first = table("wpe.weight", 2, 3);
  check_weights(positions, first);
  CHECK(read_in_pieces(positions, first[0]) == flattened(first[0]));
  const auto refused = [&](const Safetensors& file, const std::vector<UnitSpec>& units) {
    return error_of([&] { check_weights(file, units); });
  };
  CHECK(says(refused(positions, table("wpe.weight", 6, 3)), "has shape [5, 3], but the model needs [6, 3]"));
  CHECK(says(refused(positions, table("wpe.weight", 5, 2)), "has shape [5, 3], but the model needs [5, 2]"));
  const Safetensors words = counted(folder, {{"wte.weight", DType::f32, {5, 3}}});
  CHECK(says(refused(words, table("wte.weight", 2, 3)), ErrorCode::data,
             "counted.safetensors: tensor 'wte.weight' has shape [5, 3], but the model needs [2, 3]"));
  CHECK(says(refused(words, {other_unit}), ErrorCode::data, "tensor 'ln_f.weight' of shape [4] is missing"));
}
