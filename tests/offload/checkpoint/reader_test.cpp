#include "offload/checkpoint/reader.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/int8_block.hpp"
#include "tests/doubles/memory_storage.hpp"
#include "tests/offload/checkpoint/small_checkpoint.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using namespace ranvier::tests;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t seed_of_small = 5;
const fs::path small_path = "/run/step-00000500";

/// A folder with a checkpoint of step 500, and others.
std::unique_ptr<MemoryStorage> with_small(const std::vector<std::int64_t>& others = {}) {
  auto storage = std::make_unique<MemoryStorage>();
  CheckpointFolder folder("/run", *storage);
  folder.lock("aaaa");
  REQUIRE(SmallCheckpoint(500, seed_of_small).save(*storage, folder, "aaaa").empty());
  for (const std::int64_t step : others)
    REQUIRE(SmallCheckpoint(step, seed_of_small).save(*storage, folder, "aaaa").empty());
  return storage;
}

/// An array of many segments of a block each, in turn in three files.
constexpr std::uint32_t many_pieces = 60;
constexpr std::uint64_t per_piece = 1024;
const fs::path many_path = "/run/step-00000001";

void write_many(const FileSystem& storage) {
  Manifest manifest;
  manifest.step = 1;
  manifest.arrays = {{"h.0", "weights", runtime::DType::f32, many_pieces * per_piece}};
  CheckpointFolder folder("/run", storage);
  folder.lock("aaaa");
  const fs::path part = folder.prepare(1, "aaaa");
  std::vector<int> files;
  for (const char* name : {"rank-0000.data", "rank-0001.data", "rank-0002.data"}) {
    manifest.files.push_back({name, many_pieces / 3 * 4096});
    files.push_back(storage.open(part / name, false));
  }
  for (std::uint32_t i = 0; i < many_pieces; ++i) {
    std::vector<float> values(per_piece);
    for (std::uint64_t j = 0; j < per_piece; ++j) values[j] = static_cast<float>(i * per_piece + j);
    const auto bytes = std::as_bytes(std::span(values));
    REQUIRE(storage.write_all(files[i % 3], i / 3 * 4096, bytes) == 0);
    manifest.pieces.push_back({0, i % 3, i * per_piece, per_piece, i / 3 * 4096, runtime::xxh3(bytes)});
  }
  for (const int file : files) storage.close(file);
  std::shuffle(manifest.pieces.begin(), manifest.pieces.end(), std::mt19937_64(1));
  folder.commit(1, "aaaa", manifest);
}

}  // namespace

TEST_CASE("any range of any array reads back as written") {
  const auto storage = with_small();
  for (const CheckpointReaderOptions& options :
       {CheckpointReaderOptions{}, CheckpointReaderOptions{1, 0}, CheckpointReaderOptions{3, 1}}) {
    CheckpointReader reader(small_path, options, *storage);
    CHECK(reader.manifest().step == 500);
    CHECK(reader.path() == small_path);
    std::mt19937_64 random(test::random_seed());
    CAPTURE(test::random_seed());
    for (int round = 0; round < 200; ++round) {
      const auto array = static_cast<std::uint32_t>(random() % 3);
      const CheckpointArray& of = reader.manifest().arrays[array];
      const std::uint64_t begin = random() % (of.elements + 1), count = random() % (of.elements - begin + 1);
      std::vector<float> values(count);
      reader.read(of.unit, of.name, begin, values);
      for (std::uint64_t i = 0; i < count; ++i)
        REQUIRE(values[i] == SmallCheckpoint::value_of(seed_of_small, array, begin + i));
    }
  }
}

TEST_CASE("any range of arrays in int8 reads as the floats of their blocks") {
  using runtime::int8_block_elements;
  constexpr std::size_t elements = 1000, first = 512;  // the last block is incomplete
  std::mt19937_64 random(test::random_seed());
  CAPTURE(test::random_seed());
  MemoryStorage storage;
  CheckpointFolder folder("/run", storage);
  folder.lock("aaaa");
  Manifest manifest;
  manifest.step = 1;
  manifest.arrays = {{"h.0", "m", runtime::DType::i8, elements}, {"h.0", "v", runtime::DType::u8, elements}};
  manifest.files = {{"rank-0000.data", 4 * Tier::block_bytes}};
  const int file = storage.open(folder.prepare(1, "aaaa") / "rank-0000.data", false);
  std::vector<std::vector<float>> expected;
  for (std::uint32_t array = 0; array < 2; ++array) {
    const runtime::DType dtype = manifest.arrays[array].dtype;
    std::vector<float> values(elements);
    std::uniform_real_distribution<float> of_type(dtype == runtime::DType::i8 ? -1.0f : 0.0f, 1.0f);
    for (float& value : values) value = of_type(random);
    std::vector<runtime::Int8Block> blocks((elements + int8_block_elements - 1) / int8_block_elements);
    runtime::blocks_of_floats(blocks.data(), values.data(), dtype, elements);
    runtime::floats_of_blocks(expected.emplace_back(elements).data(), blocks.data(), dtype, elements);
    for (const std::size_t begin : {std::size_t{0}, first}) {
      CheckpointSegment piece{array, 0, begin, begin == 0 ? first : elements - first,
                              manifest.pieces.size() * Tier::block_bytes};
      std::vector<std::byte> bytes(Tier::block_bytes);
      std::memcpy(bytes.data(), blocks.data() + begin / int8_block_elements, runtime::bytes_of(dtype, piece.count));
      REQUIRE(storage.write_all(file, piece.offset, bytes) == 0);
      piece.hash = runtime::xxh3(bytes);
      manifest.pieces.push_back(piece);
    }
  }
  storage.close(file);
  folder.commit(1, "aaaa", manifest);
  CHECK(verify_checkpoint(many_path, 2, nullptr, storage).empty());
  CheckpointReader reader(many_path, {}, storage);
  for (int round = 0; round < 200; ++round) {
    const std::size_t array = random() % 2, begin = random() % (elements + 1),
                      end = begin + random() % (elements - begin + 1);
    std::vector<float> values(end - begin);
    reader.read("h.0", manifest.arrays[array].name, begin, values);
    const auto from = expected[array].begin();
    REQUIRE(values ==
            std::vector<float>(from + static_cast<std::ptrdiff_t>(begin), from + static_cast<std::ptrdiff_t>(end)));
  }
}

TEST_CASE("a checkpoint is read from a real disk") {
  const TemporaryFolder parent;
  CheckpointFolder folder(parent.path());
  folder.lock("aaaa");
  REQUIRE(SmallCheckpoint(500, seed_of_small).save(system_storage(), folder, "aaaa").empty());
  CHECK(verify_checkpoint(parent.path() / "step-00000500", 2).empty());
  CheckpointReader reader(parent.path() / "step-00000500");
  std::vector<float> values(900);
  reader.read("h.0", "weights", 0, values);
  for (std::uint64_t i = 0; i < values.size(); ++i)
    REQUIRE(values[i] == SmallCheckpoint::value_of(seed_of_small, 0, i));
}

TEST_CASE("one rank looks up the sizes of files, and the rank that reads a truncated file detects it") {
  MemoryStorage storage;
  write_many(storage);
  storage.damage(many_path / "rank-0001.data", [](std::string& content) { content.resize(4096); });
  int looks = 0;
  storage.refuse = [&](const std::string& call, const fs::path& path) {
    return looks += call == "size" && path.extension() == ".data" ? 1 : 0, 0;
  };
  CHECK(says(error_of([&] { CheckpointReader(many_path, {}, storage); }), "wrong size: 4096 bytes instead of"));
  CHECK(looks == 2);
  CheckpointReader reader(many_path, {.check_files = false}, storage);
  CHECK(looks == 2);
  std::vector<float> values(2 * per_piece);
  reader.read("h.0", "weights", 0, values);
  const Error error = error_of([&] { reader.read("h.0", "weights", 4 * per_piece, values); });
  CHECK(says(error, ErrorCode::data, "truncated"));
}

TEST_CASE("sequential reads read each segment once, and ahead; others read no more than they need") {
  for (const int ahead : {0, 1, 8})
    for (const std::uint64_t count : {100u, 1024u, 1500u, 5000u}) {
      MemoryStorage storage;
      write_many(storage);
      std::map<std::string, int> reads;
      CheckpointReader reader(many_path, {.threads = 3, .ahead = ahead}, storage);
      storage.refuse = [&](const std::string& call, const fs::path& path) {
        if (call == "read") ++reads[path.filename()];
        return 0;
      };
      const std::uint64_t all = many_pieces * per_piece;
      std::vector<float> values(count);
      for (std::uint64_t begin = 0; begin < all; begin += count) {
        const std::span<float> part(values.data(), std::min(count, all - begin));
        reader.read("h.0", "weights", begin, part);
        for (std::uint64_t i = 0; i < part.size(); ++i) REQUIRE(part[i] == static_cast<float>(begin + i));
      }
      CHECK(reads ==
            std::map<std::string, int>{{"rank-0000.data", 20}, {"rank-0001.data", 20}, {"rank-0002.data", 20}});
    }
  MemoryStorage storage;
  write_many(storage);
  int reads = 0;
  {
    CheckpointReader reader(many_path, {.threads = 3, .ahead = 8}, storage);
    storage.refuse = [&](const std::string& call, const fs::path&) { return reads += call == "read" ? 1 : 0, 0; };
    std::vector<float> values(2 * per_piece);
    for (const std::uint64_t piece : {40u, 7u, 55u}) reader.read("h.0", "weights", piece * per_piece, values);
  }
  CHECK(reads == 6);
}

TEST_CASE("announced ranges are read ahead, and once, regardless of their location") {
  MemoryStorage storage;
  write_many(storage);
  std::atomic<int> reads = 0;
  CheckpointReader reader(many_path, {.threads = 3, .ahead = 8}, storage);
  storage.refuse = [&](const std::string& call, const fs::path&) { return reads += call == "read" ? 1 : 0, 0; };
  const std::vector<std::uint64_t> pieces = {40, 7, 55};
  std::vector<CheckpointRange> ranges;
  for (const std::uint64_t piece : pieces)
    ranges.push_back({"h.0", "weights", piece * per_piece, (piece + 1) * per_piece});
  reader.will_read(ranges);
  std::vector<float> values(per_piece / 2);
  for (const std::uint64_t piece : pieces) {
    for (const std::uint64_t begin : {piece * per_piece, piece * per_piece + values.size()}) {
      reader.read("h.0", "weights", begin, values);
      CHECK(values.front() == static_cast<float>(begin));
    }
    // The first read brings all of them.
    for (int i = 0; i < 1000 && reads < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(reads == 3);
  }
}

TEST_CASE(
    "every changed byte and every truncation of a checkpoint is reported and refused, and the previous one is "
    "used") {
  const auto storage = with_small({600});
  const fs::path newest = "/run/step-00000600";
  const CheckpointFolder folder("/run", *storage);
  std::vector<float> values(900);
  const auto read_all = [&] {
    CheckpointReader reader(newest, {.threads = 1, .ahead = 0}, *storage);
    for (const CheckpointArray& array : reader.manifest().arrays)
      reader.read(array.unit, array.name, 0, std::span(values).first(array.elements));
  };
  REQUIRE(verify_checkpoint(newest, 1, nullptr, *storage).empty());
  read_all();

  for (const char* name : {"rank-0000.data", "rank-0001.data", "manifest.json"}) {
    const fs::path file = newest / name;
    const bool data = std::string_view(name) != "manifest.json";
    const auto size = static_cast<std::size_t>(storage->size(file));
    for (std::size_t at = 0; at < size; at += static_cast<std::size_t>(effort(1, 1, 7))) {
      CAPTURE_ALL(file, at);
      storage->damage(file,
                      [&](std::string& content) { content[at] = static_cast<char>(content[at] ^ (1 << at % 8)); });
      const auto damages = verify_checkpoint(newest, 1, nullptr, *storage);
      REQUIRE(damages.size() == 1);
      CHECK(damages[0].file == name);
      if (data)
        CHECK(damages[0].what.find(fmt::format("bytes at offset {}, elements ", at / 4096 * 4096)) !=
              std::string::npos);
      if (at % 16 == 0 || at + 1 == size) {
        CHECK(says(error_of(read_all), ErrorCode::data, file.c_str()));
        CHECK(folder.newest_whole()->step == (data ? 600 : 500));  // data are not looked at
      }
      storage->damage(file,
                      [&](std::string& content) { content[at] = static_cast<char>(content[at] ^ (1 << at % 8)); });

      std::string rest;
      storage->damage(file, [&](std::string& content) {
        rest = content.substr(at);
        content.resize(at);
      });
      if (at % 16 == 0 || at + 1 == size) {
        const auto cut = verify_checkpoint(newest, 1, nullptr, *storage);
        REQUIRE(!cut.empty());
        CHECK(cut[0].file == name);
        CHECK(says(error_of(read_all), file.c_str()));
        CHECK(folder.newest_whole()->step == 500);
      }
      storage->damage(file, [&](std::string& content) { content += rest; });
    }
  }
  REQUIRE(verify_checkpoint(newest, 1, nullptr, *storage).empty());
}

TEST_CASE("damage is reported with file, offset and elements by any number of threads") {
  MemoryStorage storage;
  write_many(storage);
  storage.damage(many_path / "rank-0002.data", [](std::string& content) { content[4096 + 5] ^= 1; });
  storage.damage(many_path / "rank-0000.data", [](std::string& content) { content[3 * 4096] ^= 1; });
  storage.close(storage.open(many_path / "notes", false));
  std::uint64_t bytes = 0;
  const auto damages = verify_checkpoint(many_path, 4, [&](std::uint64_t checked) { bytes += checked; }, storage);
  CHECK(bytes == many_pieces * 4096);
  REQUIRE(damages.size() == 3);
  CHECK(damages[0].file == "notes");
  CHECK(damages[0].what == "not part of the checkpoint");
  CHECK(damages[1].file == "rank-0000.data");
  CHECK(damages[1].what.starts_with(
      "the 4096 bytes at offset 12288, elements 9216 to 10240 of weights of h.0, changed "
      "after they were written: checksum "));
  CHECK(damages[2].file == "rank-0002.data");

  // Reads are refused in the damaged ranges only, also if these were read ahead.
  CheckpointReader reader(many_path, {.threads = 2, .ahead = 4}, storage);
  std::vector<float> values(per_piece);
  for (std::uint64_t piece = 0; piece < many_pieces; ++piece) {
    const auto read = [&] { reader.read("h.0", "weights", piece * per_piece, values); };
    if (piece == 5 || piece == 9) {
      const Error error = error_of(read);
      CHECK(says(error, ErrorCode::data,
                 piece == 9 ? "/run/step-00000001/rank-0000.data: the 4096 bytes at offset 12288" : "rank-0002"));
    } else {
      read();
      CHECK(values[0] == static_cast<float>(piece * per_piece));
    }
  }
}

TEST_CASE("a disk that fails a read is distinguished from damage") {
  const auto storage = with_small();
  CheckpointReader reader(small_path, {}, *storage);
  storage->refuse = [](const std::string& call, const fs::path&) { return call == "read" ? -EIO : 0; };
  std::vector<float> values(10);
  const Error error = error_of([&] { reader.read("ln", "weights", 0, values); });
  CHECK(says(error, ErrorCode::io,
             "rank-0000.data: the 4096 bytes at offset 4096, elements 0 to 10 of weights of ln, cannot be read: "
             "Input/output error"));
  CHECK(verify_checkpoint(small_path, 1, nullptr, *storage).size() == 1);  // the manifest
}

TEST_CASE("a file system without O_DIRECT is read through its cache") {
  const auto storage = with_small();
  for (const bool at_open : {true, false}) {
    storage->faults.direct_open_refused = at_open ? EINVAL : 0;
    bool refused = at_open;
    storage->refuse = [&](const std::string& call, const fs::path& path) {
      return call == "read" && path.extension() == ".data" && !std::exchange(refused, true) ? -EINVAL : 0;
    };
    CheckpointReader reader(small_path, {.threads = 1}, *storage);
    std::vector<float> values(900);
    reader.read("h.0", "m", 0, values);
    CHECK(values[899] == SmallCheckpoint::value_of(seed_of_small, 1, 899));
    CHECK(refused);
  }
}

TEST_CASE("a missing part of a checkpoint is refused with the request") {
  const auto storage = with_small();
  CheckpointReader reader(small_path, {}, *storage);
  std::vector<float> values(10);
  CHECK(reader.find("h.0", "weights")->elements == 900);
  CHECK(reader.find("h.1", "weights") == nullptr);
  CHECK(says(error_of([&] { reader.read("h.1", "weights", 0, values); }), "weights of h.1 is missing"));
  CHECK(says(error_of([&] { reader.read("ln", "weights", 1, values); }),
             "/run/step-00000500: weights of ln has 10 elements, but 1 to 11 were requested"));
  CHECK(says(error_of([&] { reader.read("ln", "weights", ~std::uint64_t{0} - 4, values); }), "were requested"));
  CHECK(says(error_of([&] { CheckpointReader("/run/step-00000400", {}, *storage); }),
             "manifest.json; use a complete checkpoint"));
}
