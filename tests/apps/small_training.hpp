// A checkpoint of a small GPT, in ranvier-train's format, whose values follow from a seed.
#pragma once

#include "models/families/model.hpp"
#include "offload/checkpoint/folder.hpp"
#include "runtime/files/xxh3.hpp"

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::tests {

struct SmallTraining {
  models::GptOptions gpt{.layers = 2, .hidden = 16, .heads = 2, .vocab_size = 300, .sequence_length = 8};
  std::int64_t step = 500;
  float seed = 1;
  std::vector<const char*> states{"weights", "m", "v"};
  boost::json::object training{{"step", step}};
  boost::json::object options{{"tile", "1"}, {"tokenizer", "bytes"}, {"learning-rate", "0.001"}};
  /// Value of element `i` of a unit's state, including gaps and padding.
  std::function<float(const std::string& unit, const std::string& state, std::size_t i)> value =
      [this](const std::string& unit, const std::string& state, std::size_t i) {
        return seed + static_cast<float>((unit.size() * 7 + state.size() * 31 + i * 13) % 1000) / 1000;
      };

  [[nodiscard]] std::vector<models::UnitSpec> units() const { return models::make_gpt(gpt).units(); }

  /// The weights of two ranks, each with a part of every array, in two files.
  std::filesystem::path save(const std::filesystem::path& folder) const {
    using namespace offload;
    constexpr std::size_t block = 4096;
    const std::string job = "0123456789abcdef";
    CheckpointFolder checkpoints(folder);
    std::filesystem::create_directories(folder);
    const auto part = checkpoints.prepare(step, job);
    Manifest manifest{.step = step, .training = training};
    manifest.about = {{"options", options}, {"config", models::model_config_json(gpt)}, {"version", "0.1.0"},
                      {"loss", 2.5},        {"time", "2026-01-01T00:00:00Z"},           {"grid", "1 x 2"}};
    std::vector<std::string> files(2);
    for (const models::UnitSpec& unit : units())
      for (const char* state : states) {
        const auto array = static_cast<std::uint32_t>(manifest.arrays.size());
        manifest.arrays.push_back({unit.name, state, runtime::DType::f32, unit.elements()});
        const std::size_t half = unit.elements() / 2;
        for (std::uint32_t file = 0; file < 2; ++file) {
          const std::size_t begin = file == 0 ? 0 : half, end = file == 0 ? half : unit.elements();
          std::string bytes;
          for (std::size_t i = begin; i < end; ++i) {
            const float each = value(unit.name, state, i);
            bytes.append(reinterpret_cast<const char*>(&each), sizeof each);
          }
          bytes.resize((bytes.size() + block - 1) / block * block);
          manifest.pieces.push_back({array, file, begin, end - begin, files[file].size(),
                                     runtime::xxh3(std::as_bytes(std::span(bytes)))});
          files[file] += bytes;
        }
      }
    for (std::size_t file = 0; file < files.size(); ++file) {
      manifest.files.push_back({"rank-000" + std::to_string(file) + ".data", files[file].size()});
      std::ofstream(part / manifest.files.back().name, std::ios::binary) << files[file];
    }
    checkpoints.commit(step, job, manifest);
    return checkpoints.newest_whole()->path;
  }
};

}  // namespace ranvier::tests
