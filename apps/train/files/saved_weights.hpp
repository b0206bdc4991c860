// The weights that --save asks for, as they are written at the end of a run, when nothing else has them: where a
// disk is full or a folder is gone, they wait for somebody to mend it, and say so. One thread at a time, which may
// block.
#pragma once

#include "models/layer.hpp"
#include "models/weights/safetensors_writer.hpp"
#include "runtime/event_loop.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

class SavedWeights {
 public:
  /// Small files that go beside weights whose folder is the model's: names and contents.
  using Beside = std::map<std::string, std::string>;

  /// `patience` is how long each wait for space may last. Throws ErrorCode::io if the file cannot be made within
  /// it.
  SavedWeights(std::string save, std::vector<models::TensorToStore> tensors, Beside beside,
               runtime::Duration patience);

  /// Elements [begin, begin + values.size()) of a unit; throws ErrorCode::io likewise.
  void put(const models::UnitSpec& unit, std::size_t begin, std::span<const float> values);

  /// Gives the files their names, the weights first. Throws ErrorCode::io, saying what was saved.
  void commit();

  /// What all files take, but for some bytes.
  [[nodiscard]] static std::size_t bytes(std::span<const models::TensorToStore> tensors, const Beside& beside);

 private:
  template <typename Write>
  void or_say_what_is_lost(const Write& write);
  /// Sleeps a while; whether to try again.
  bool wait(const std::filesystem::path& path, int error);

  std::string save_;
  Beside beside_;
  runtime::Duration patience_;
  std::size_t bytes_;
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;
  std::chrono::steady_clock::time_point refused_{};  // last
  std::optional<models::SafetensorsWriter> writer_;
};

}  // namespace ranvier::apps
