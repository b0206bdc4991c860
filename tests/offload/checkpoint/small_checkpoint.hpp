// A checkpoint of a few blocks in two files, written as a job writes it.
#pragma once

#include "offload/checkpoint/file_writer.hpp"
#include "offload/checkpoint/folder.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/offload/blocks.hpp"
#include "tests/test.hpp"

namespace ranvier::offload::tests {

/// Units h.0 (weights in two segments, in different files, and m) and ln (weights in bf16), all drawn from a seed.
class SmallCheckpoint {
 public:
  explicit SmallCheckpoint(std::int64_t step, std::uint64_t seed = 1) {
    manifest_.step = step;
    manifest_.training = {{"seed", seed}};
    manifest_.arrays = {{"h.0", "weights", runtime::DType::f32, 900},
                        {"h.0", "m", runtime::DType::f32, 900},
                        {"ln", "weights", runtime::DType::bf16, 10}};
    manifest_.files = {{"rank-0000.data", 2 * block}, {"rank-0001.data", 2 * block}};
    manifest_.pieces = {{0, 0, 0, 400, 0}, {0, 1, 400, 500, 0}, {1, 1, 0, 900, block}, {2, 0, 0, 10, block}};
    for (const CheckpointFile& file : manifest_.files) files_.emplace_back(file.bytes);
    for (CheckpointSegment& piece : manifest_.pieces) {
      const CheckpointArray& array = manifest_.arrays[piece.array];
      for (std::uint64_t i = 0; i < piece.count; ++i) {
        const float value = value_of(seed, piece.array, piece.begin + i);
        std::byte* to = files_[piece.file].data() + piece.offset;
        if (array.dtype == runtime::DType::f32) {
          reinterpret_cast<float*>(to)[i] = value;
        } else {
          reinterpret_cast<runtime::Bf16*>(to)[i] = runtime::from_float<runtime::Bf16>(value);
        }
      }
      piece.hash = runtime::xxh3(blocks_of(piece));
    }
  }

  /// A small integer, which every type can represent.
  [[nodiscard]] static float value_of(std::uint64_t seed, std::uint32_t array, std::uint64_t element) {
    return static_cast<float>((seed * 31 + array * 7 + element) % 200) - 100;
  }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] std::span<const std::byte> blocks_of(const CheckpointSegment& piece) const {
    return files_[piece.file].span(piece.offset, manifest_.block_bytes_of(piece));
  }

  /// Writes the files in a folder, each by a writer of its rank; returns the failure, or "".
  [[nodiscard]] std::string write_files(const FileSystem& storage, const std::filesystem::path& part) const {
    runtime::AsioLoop loop;
    CheckpointFileWriter writer(loop, storage, 3);
    std::string first;
    const auto note = [&](const std::string& failure) {
      if (first.empty()) first = failure;
    };
    for (std::uint32_t file = 0; file < manifest_.files.size(); ++file) {
      writer.open(part / manifest_.files[file].name, manifest_.files[file].bytes,
                  [&, file](const std::string& failure) {
                    note(failure);
                    for (const CheckpointSegment& piece : manifest_.pieces)
                      if (piece.file == file) writer.write(piece.offset, blocks_of(piece), note);
                    writer.close([&](const std::string& closing) {
                      note(closing);
                      loop.stop();
                    });
                  });
      loop.run();
    }
    return first;
  }

  /// Writes a checkpoint from beginning to end. Throws or returns the failure.
  [[nodiscard]] std::string save(const FileSystem& storage, CheckpointFolder& folder,
                                 const std::string& job) const {
    const std::string failure = write_files(storage, folder.prepare(manifest_.step, job));
    if (failure.empty()) folder.commit(manifest_.step, job, manifest_);
    return failure;
  }

 private:
  static constexpr std::size_t block = Tier::block_bytes;

  Manifest manifest_;
  std::vector<Blocks> files_;
};

}  // namespace ranvier::offload::tests
