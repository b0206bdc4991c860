#include "offload/checkpoint/manifest.hpp"

#include "runtime/files/xxh3.hpp"
#include "tests/test.hpp"

#include <fmt/format.h>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::tests;

namespace {

constexpr std::size_t block_bytes = 4096;

/// Two arrays in three segments in two files.
Manifest small() {
  Manifest manifest;
  manifest.step = 500;
  manifest.arrays = {{"h.0", "weights", runtime::DType::f32, 3000}, {"h.0 \"ü\"", "m", runtime::DType::bf16, 7}};
  manifest.files = {{"rank-0000.data", 3 * block_bytes}, {"rank-0001.data", block_bytes}, {"rank-0002.data", 0}};
  manifest.pieces = {{0, 0, 0, 2000, 0, 0xfedcba9876543210u},
                     {0, 1, 2000, 1000, 0, 1},
                     {1, 0, 0, 7, 2 * block_bytes, std::numeric_limits<std::uint64_t>::max()}};
  manifest.training = {{"applied_steps", 499}, {"loss_scale", "0x1p+16"}};
  manifest.about = {{"options", {{"layers", "12"}}}};
  return manifest;
}

Error refusal(const Manifest& manifest) {
  return error_of([&] { static_cast<void>(parse_manifest(to_json(manifest), "DIR/manifest.json")); });
}

/// Appends the checksum that a manifest needs.
std::string signed_text(std::string text) {
  text += fmt::format("\"xxh3\":\"{:016x}\"}}\n", runtime::xxh3(std::as_bytes(std::span(text))));
  return text;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  text.resize(text.rfind("\"xxh3\""));
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return signed_text(text.replace(at, what.size(), by));
}

}  // namespace

TEST_CASE("a manifest reads back as written") {
  const Manifest manifest = small();
  const std::string text = to_json(manifest);
  const Manifest read = parse_manifest(text, "DIR/manifest.json");
  CHECK(to_json(read) == text);
  CHECK(read.step == 500);
  CHECK(read.arrays[1].unit == "h.0 \"ü\"");
  CHECK(read.arrays[1].dtype == runtime::DType::bf16);
  CHECK(read.pieces[0].hash == 0xfedcba9876543210u);
  CHECK(read.pieces[2].offset == 2 * block_bytes);
  CHECK(read.training == manifest.training);
  CHECK(read.about == manifest.about);
  CHECK(read.bytes_of(read.pieces[2]) == 14);
  CHECK(read.block_bytes_of(read.pieces[2]) == block_bytes);
  CHECK(read.data_bytes() == 4 * block_bytes);
}

TEST_CASE("numbers that JSON lacks become null in a manifest, which stays valid") {
  Manifest manifest = small();
  manifest.about = {{"loss", std::nan("")}, {"list", {1.5, std::numeric_limits<double>::infinity()}}};
  const Manifest read = parse_manifest(to_json(manifest), "DIR/manifest.json");
  CHECK(read.about == boost::json::object{{"loss", nullptr}, {"list", {1.5, nullptr}}});
}

TEST_CASE("every changed byte of a manifest and every truncation is refused") {
  const std::string text = to_json(small());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    for (const auto& bad : {changed, text.substr(0, i), text.substr(0, i) + text.substr(i + 1)}) {
      CAPTURE(i);
      const Error error = error_of([&] { static_cast<void>(parse_manifest(bad, "DIR/manifest.json")); });
      CHECK(says(error, ErrorCode::data, "DIR/manifest.json: ", "changed after it was written"));
    }
  }
  CHECK(says(error_of([&] { static_cast<void>(parse_manifest(text + "\n", "x")); }), "no checksum at the end"));
}

TEST_CASE("a manifest that does not describe a complete checkpoint is refused with the reason") {
  const auto check = [](auto&& change, const char* words) {
    Manifest manifest = small();
    change(manifest);
    CHECK(says(refusal(manifest), ErrorCode::data, "DIR/manifest.json: ", words));
  };
  check([](Manifest& m) { m.step = -1; }, "step -1 is not an integer");
  check([](Manifest& m) { m.pieces[0].array = 2; }, "array of a segment is out of range: 2 of 2");
  check([](Manifest& m) { m.pieces[0].file = 3; }, "file of a segment is out of range: 3 of 3");
  check([](Manifest& m) { m.pieces.erase(m.pieces.begin()); }, "elements 0 to 2000 of weights of h.0 are missing");
  check([](Manifest& m) { m.pieces[1].count = 999; }, "elements 2999 to 3000 of weights of h.0 are missing");
  check([](Manifest& m) { m.pieces[1].begin = 1999; }, "elements 1999 to 2000 of weights of h.0 are listed twice");
  check([](Manifest& m) { m.pieces[1].count = 1001; }, "has 3000 elements, but segments reach 3001");
  check([](Manifest& m) { m.pieces[1].count = 0; }, "a segment of weights of h.0 has 0 elements, not 1 to 524288");
  check([](Manifest& m) { m.pieces[1].count = 524289; }, "has 524289 elements");
  check([](Manifest& m) { m.pieces[1].begin = std::uint64_t{1} << 61; },
        "the start of a segment 2305843009213693952 is");
  check([](Manifest& m) { m.pieces[2].offset = 4097; }, "offset 4097 of rank-0000.data, not a multiple of 4096");
  check([](Manifest& m) { m.pieces[2].offset = block_bytes; },
        "two segments of rank-0000.data overlap at offset 4096");
  check([](Manifest& m) { m.pieces[2].offset = 3 * block_bytes; }, "rank-0000.data has no segment at offset 8192");
  check([](Manifest& m) { m.files[0].bytes -= 1; },
        "a segment at offset 8192 of rank-0000.data exceeds its 12287 bytes");
  check([](Manifest& m) { m.files[2].bytes = 1; }, "rank-0002.data has 1 bytes, but segments reach 0");
  check([](Manifest& m) { m.arrays[1] = m.arrays[0]; }, "weights of h.0 is listed twice");
  check([](Manifest& m) { m.arrays[1].elements = std::uint64_t{1} << 60; }, "too many elements");
  check([](Manifest& m) { m.arrays[1].unit.clear(); }, "the unit \"\" is not a string of 1 to 255 bytes");
  check([](Manifest& m) { m.files[1] = m.files[0]; }, "file rank-0000.data is listed twice");
  for (const char* name : {"../rank-0000.data", "/etc/passwd", ".hidden", "..", "a/b", "a\nb", "manifest.json"})
    check([&](Manifest& m) { m.files[0].name = name; }, "is not the name of a checkpoint file");
}

TEST_CASE("segments of int8 arrays consist of whole blocks") {
  using runtime::DType;
  Manifest manifest;
  manifest.arrays = {{"h.0", "m", DType::i8, 1000}, {"h.0", "v", DType::u8, 1000}};
  manifest.files = {{"rank-0000.data", 4 * block_bytes}};
  manifest.pieces = {{0, 0, 0, 512, 0, 1},
                     {0, 0, 512, 488, block_bytes, 2},
                     {1, 0, 0, 256, 2 * block_bytes, 3},
                     {1, 0, 256, 744, 3 * block_bytes, 4}};
  const Manifest read = parse_manifest(to_json(manifest), "DIR/manifest.json");
  CHECK(to_json(read) == to_json(manifest));
  CHECK(read.arrays[0].dtype == DType::i8);
  CHECK(read.arrays[1].dtype == DType::u8);
  CHECK(read.bytes_of(read.pieces[1]) == 2 * 260);
  CHECK(read.bytes_of(read.pieces[3]) == 3 * 260);

  Manifest split = manifest;
  split.pieces[0].count = split.pieces[1].begin = split.pieces[1].count = 500;
  CHECK(
      says(refusal(split), ErrorCode::data, "a segment of m of h.0 starts at element 500, not a multiple of 256"));
  Manifest large = manifest;
  large.pieces[0].count = 8065 * 256 + 1;
  CHECK(says(refusal(large), ErrorCode::data, "a segment of m of h.0 has 2064641 elements, not 1 to 2064640"));
  large.arrays[0].elements = std::uint64_t{1} << 60;
  CHECK(says(refusal(large), ErrorCode::data, "m of h.0 has too many elements"));
}

TEST_CASE("a manifest in another format is refused with the reason") {
  const std::string text = to_json(small());
  const auto check = [&](const std::string& bad, const char* words) {
    const Error error = error_of([&] { static_cast<void>(parse_manifest(bad, "DIR/manifest.json")); });
    CHECK(says(error, ErrorCode::data, words));
  };
  check(replaced(text, "\"version\":1", "\"version\":2"), "version 2 is not supported, only 1");
  check(replaced(text, "ranvier checkpoint", "another"), "not the manifest of a checkpoint");
  check(replaced(text, "\"step\"", "\"Step\""), "'step' is missing");
  check(replaced(text, "\"training\":{", "\"training\":[],\"more\":{"), "'training' is not an object");
  check(replaced(text, "\"pieces\":[", "\"pieces\":3,\"more\":["), "'pieces' is not a list");
  check(replaced(text, "[0,1,2000,", "[0,1,1.5,2000,"), "item 1 of 'pieces' does not have 6 parts");
  check(replaced(text, ",2000,1000,", ",2000,1e3,"), "is not an integer");
  check(replaced(text, "fedcba9876543210", "Fedcba9876543210"), "is not a checksum of 16 digits");
  check(replaced(text, "bf16", "fp17"), "m of h.0 \"ü\" has elements of unknown type fp17");
  check(signed_text("[1,\n"), "not JSON");
}

TEST_CASE("a manifest of many segments takes less than a hundred bytes for each") {
  Manifest manifest;
  constexpr std::uint64_t count = checkpoint_segment_bytes / 4, pieces = 20'000;
  manifest.arrays = {{"h.0", "weights", runtime::DType::f32, pieces * count}};
  manifest.files = {{"rank-0000.data", pieces * checkpoint_segment_bytes}};
  for (std::uint64_t i = 0; i < pieces; ++i)
    manifest.pieces.push_back({0, 0, i * count, count, i * checkpoint_segment_bytes, i * 0x9E3779B97F4A7C15u});
  const std::string text = to_json(manifest);
  CHECK(text.size() < 100 * pieces);
  CHECK(parse_manifest(text, "x").pieces.size() == pieces);
}
