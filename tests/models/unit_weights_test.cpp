#include "models/weights/unit_weights.hpp"

#include "runtime/error.hpp"
#include "tests/errors.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using ranvier::tests::error_of;
using ranvier::tests::says;
using ranvier::tests::TemporaryFolder;
using runtime::DType;

namespace {

/// Two parameters with a gap between them, the first padded from 3 rows to 5.
UnitSpec padded_unit() {
  return {.name = "wte",
          .parameters = {{.name = "wte.weight", .shape = {3, 7}, .stored_elements = 35},
                         {.name = "wte.bias", .shape = {5}}}};
}

const UnitSpec other_unit{.name = "ln_f", .parameters = {{.name = "ln_f.weight", .shape = {4}}}};

/// 1, 2, 3, … where the file has values, 0 in gaps and padding.
std::vector<float> flattened(const UnitSpec& unit) {
  std::vector<float> values(unit.elements());
  float next = 1;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i)
    for (std::size_t j = 0; j < unit.parameters[i].elements(); ++j) values[unit.offset(i) + j] = next++;
  return values;
}

}  // namespace

TEST_CASE("a unit saved in parts of any size is read back in parts of any size, without gaps and padding") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  const std::vector<UnitSpec> units = {padded_unit(), other_unit};
  for (const std::size_t piece : {1u, 7u, 32u, 1000u}) {
    CAPTURE(piece);
    SafetensorsWriter writer(path, tensors_of(units, DType::f32));
    for (const auto& unit : units) {
      auto values = flattened(unit);
      for (auto& value : values) value = value == 0 ? -1 : value;  // what lies in gaps must not matter
      for (std::size_t begin = 0; begin < values.size(); begin += piece) {
        const std::size_t end = std::min(values.size(), begin + piece);
        write_unit(writer, unit, begin, end, values.data() + begin);
      }
    }
    writer.commit();

    const Safetensors file(path);
    CHECK(file.find("wte.weight")->shape == std::vector<std::size_t>{3, 7});
    check_weights(file, units);
    for (const auto& unit : units) {
      std::vector<float> values(unit.elements(), -1.0f);
      for (std::size_t begin = 0; begin < values.size(); begin += piece) {
        const std::size_t end = std::min(values.size(), begin + piece);
        read_unit(file, unit, begin, end, values.data() + begin);
      }
      CHECK(values == flattened(unit));
    }
  }
}

TEST_CASE("tiles of a tensor are saved as the whole, in any order, and read back however it is cut") {
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
      CAPTURE(saved.size());
      CAPTURE(piece);
      SafetensorsWriter writer(path, tensors_of(saved, DType::f32));
      for (const UnitSpec& unit : saved) {
        std::vector<float> values(unit.elements(), -1);
        for (std::size_t i = 0; i < unit.parameters[0].elements(); ++i) values[i] = value_of(unit, i);
        for (std::size_t begin = 0; begin < values.size(); begin += piece) {
          const std::size_t end = std::min(values.size(), begin + piece);
          write_unit(writer, unit, begin, end, values.data() + begin);
        }
      }
      writer.commit();
      const Safetensors file(path);
      REQUIRE(file.tensors().size() == 1);
      CHECK(file.find("w.weight")->shape == std::vector<std::size_t>{6, 10});
      for (const auto& read : cuts) {
        check_weights(file, read);
        for (const UnitSpec& unit : read) {
          std::vector<float> values(unit.elements(), -1);
          for (std::size_t begin = 0; begin < values.size(); begin += piece) {
            const std::size_t end = std::min(values.size(), begin + piece);
            read_unit(file, unit, begin, end, values.data() + begin);
          }
          for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == value_of(unit, i));
        }
      }
    }
}

TEST_CASE("a file with a tile missing, or one twice, is not committed") {
  const TemporaryFolder folder;
  const auto half = [](std::size_t row) {
    return UnitSpec{"w", {{.name = "w.weight", .shape = {2, 8}, .tile = Tile{{4, 8}, row, 0}}}};
  };
  const std::vector<UnitSpec> units = {half(0), half(2)};
  const std::vector<float> values(32);
  SafetensorsWriter writer(folder.path() / "model.safetensors", tensors_of(units, DType::f32));
  write_unit(writer, units[0], 0, 32, values.data());
  CHECK(says(error_of([&] { writer.commit(); }), "16 of 32 values of tensor 'w.weight' are missing"));
  write_unit(writer, units[1], 0, 32, values.data());
  CHECK(error_of([&] { write_unit(writer, units[1], 0, 32, values.data()); }).code() == ErrorCode::internal);
}

TEST_CASE("tensors that no unit names are let be, with or without the prefix of the others") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  SafetensorsWriter writer(path, {{"transformer.h.0.attn.bias", DType::f32, {2}},
                                  {"transformer.ln_f.weight", DType::bf16, {4}},
                                  {"lm_head.weight", DType::f32, {1}}});
  const std::vector<float> values = {9, 9, 1, 2, 3, 4, 9};
  writer.append(values.data(), values.size());
  writer.commit();
  std::vector<float> read(other_unit.elements());
  read_unit(Safetensors(path), other_unit, 0, read.size(), read.data());
  CHECK(read == flattened(other_unit));
}

TEST_CASE("weights of another model are refused with file, tensor and both shapes") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  SafetensorsWriter writer(path, {{"wte.weight", DType::f32, {7, 3}}});
  const std::vector<float> values(21);
  writer.append(values.data(), values.size());
  writer.commit();
  const Safetensors file(path);

  const auto shape = error_of([&] { check_weights(file, std::vector<UnitSpec>{padded_unit()}); });
  CHECK(shape.code() == ErrorCode::data);
  CHECK(says(shape, "model.safetensors: tensor 'wte.weight' has shape [7, 3], but the model needs [3, 7]"));
  const auto missing = error_of([&] { check_weights(file, std::vector<UnitSpec>{other_unit}); });
  CHECK(missing.code() == ErrorCode::data);
  CHECK(says(missing, "no tensor 'ln_f.weight' of shape [4]"));
}
