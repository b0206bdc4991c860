// The manifest of a checkpoint: unchanged, or, if the first byte is odd, with a correct checksum, so that more of it is
// read.
#include "offload/checkpoint/manifest.hpp"
#include "runtime/files/xxh3.hpp"
#include "tests/fuzz/input.hpp"

#include <fmt/format.h>

#include <span>

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input = fuzz::view(data, size);
  const bool completed = fuzz::take_byte(input) % 2 == 1;
  std::string text(input);
  if (completed) text += fmt::format("\"xxh3\":\"{:016x}\"}}\n", runtime::xxh3(std::as_bytes(std::span(input))));
  fuzz::accepts_or_refuses("manifest.json", [&] {
    const offload::Manifest manifest = offload::parse_manifest(text, "manifest.json");
    std::uint64_t elements = 0, held = 0;
    for (const auto& array : manifest.arrays) elements += array.elements;
    for (const auto& piece : manifest.pieces) {
      held += piece.count;
      fuzz::require(piece.offset + manifest.block_bytes_of(piece) <= manifest.files.at(piece.file).bytes,
                    "a segment is inside its file");
    }
    fuzz::require(elements == held, "segments hold each element once");
    const std::string written = offload::to_json(manifest);
    fuzz::require(offload::to_json(offload::parse_manifest(written, "manifest.json")) == written,
                  "a manifest reads back as written");
  });
  return 0;
}
