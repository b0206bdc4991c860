#include "models/weights/weight_layout.hpp"

#include "models/families/gpt.hpp"
#include "models/weights/unit_weights.hpp"
#include "runtime/files/json_text.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

UnitSpec unit_of(const std::string& name, std::vector<std::size_t> sizes) {
  UnitSpec unit{.name = name};
  for (const std::size_t size : sizes)
    unit.parameters.push_back({.name = name + "." + std::to_string(unit.parameters.size()), .shape = {size}});
  return unit;
}

std::vector<std::uint64_t> value_bytes(const WeightLayout& layout) {
  std::vector<std::uint64_t> bytes;
  for (const auto& file : layout.files()) bytes.push_back(file.bytes - file.header.size());
  return bytes;
}

}  // namespace

TEST_CASE("a file ends before the tensor that would exceed its limit, and a larger tensor has its own file") {
  const std::vector<UnitSpec> units = {unit_of("a", {10, 10, 5}), unit_of("b", {40, 1, 24})};
  CHECK(value_bytes(WeightLayout(units, 100)) == std::vector<std::uint64_t>{100, 160, 100});
  CHECK(value_bytes(WeightLayout(units, 99)) == std::vector<std::uint64_t>{80, 20, 160, 4, 96});
  CHECK(value_bytes(WeightLayout(units, 360)) == std::vector<std::uint64_t>{360});
  CHECK(value_bytes(WeightLayout(units, 1)).size() == 6);
  CHECK(value_bytes(WeightLayout({}, 1)) == std::vector<std::uint64_t>{0});
  CHECK(WeightLayout(units).elements() == 90);
  const WeightLayout halves(units, 100, "model.safetensors", {{"b.0", runtime::DType::bf16}});
  CHECK(value_bytes(halves) == std::vector<std::uint64_t>{100, 84, 96});
  CHECK(halves.index().find("\"total_size\": 280") != std::string::npos);
}

TEST_CASE("one file needs no index, and several have numbered names") {
  const std::vector<UnitSpec> units = {unit_of("b", {2, 3}), unit_of("a\"", {4})};
  CHECK(WeightLayout(units).name(0) == "model.safetensors");
  CHECK(WeightLayout(units, 1000, "adapter.safetensors").name(0) == "adapter.safetensors");
  const WeightLayout several(units, 20);
  CHECK(several.name(1) == "model-00002-of-00002.safetensors");
  CHECK(several.index("model.2") == R"({
  "metadata": {
    "total_size": 36
  },
  "weight_map": {
    "a\".0": "model.2-00002-of-00002.safetensors",
    "b.0": "model.2-00001-of-00002.safetensors",
    "b.1": "model.2-00001-of-00002.safetensors"
  }
}
)");
}

TEST_CASE("every element of every tensor has one offset, after its file's header") {
  for (const int tile : {1, 4})
    for (const std::uint64_t max_bytes :
         {std::uint64_t{1}, std::uint64_t{5000}, WeightLayout::default_file_bytes}) {
      CAPTURE_ALL(tile, max_bytes);
      const auto units =
          make_gpt({.layers = 2, .hidden = 16, .heads = 2, .vocab_size = 37, .sequence_length = 8, .tile = tile})
              .units();
      const WeightLayout layout(units, max_bytes);
      std::vector<std::vector<bool>> taken;
      for (const auto& file : layout.files()) taken.emplace_back(file.bytes / sizeof(float), false);
      std::uint64_t elements = 0;
      for (const UnitSpec& unit : units)
        for (std::size_t begin = 0; begin < unit.elements(); begin += 100)
          for (const auto& run : layout.runs(unit, begin, std::min(begin + 100, unit.elements()))) {
            elements += run.count;
            REQUIRE(run.offset >= layout.files()[run.file].header.size());
            REQUIRE(run.offset + run.count * sizeof(float) <= layout.files()[run.file].bytes);
            for (std::size_t i = 0; i < run.count; ++i) {
              const std::size_t at = run.offset / sizeof(float) + i;
              CHECK_FALSE(taken[run.file][at]);
              taken[run.file][at] = true;
            }
          }
      CHECK(elements == layout.elements());
    }
}

TEST_CASE("neighbors in a unit and in a file are one run, also if a tile is complete rows") {
  const UnitSpec unit{.name = "u",
                      .parameters = {{.name = "a", .shape = {32}},
                                     {.name = "b", .shape = {3}},
                                     {.name = "c", .shape = {2, 8}, .tile = Tile{{4, 8}, 2, 0}},
                                     {.name = "d", .shape = {2, 4}, .tile = Tile{{4, 8}, 2, 4}}}};
  const WeightLayout layout(std::vector<UnitSpec>{unit});
  const std::uint64_t data = layout.files()[0].header.size(), c = data + 35 * 4, d = c + 32 * 4;
  using StridedLayout = std::vector<WeightLayout::Run>;
  CHECK(layout.runs(unit, 0, unit.elements()) ==
        StridedLayout{{0, data, 0, 35}, {0, c + 16 * 4, 64, 16}, {0, d + 20 * 4, 96, 4}, {0, d + 28 * 4, 100, 4}});
  CHECK(layout.runs(unit, 30, 34) == StridedLayout{{0, data + 30 * 4, 30, 4}});
  CHECK(layout.runs(unit, 35, 64).empty());
}
