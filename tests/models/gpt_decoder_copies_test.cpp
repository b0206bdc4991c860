#include "models/generation/decoder.hpp"

#include "models/core/initialize.hpp"
#include "models/families/model.hpp"
#include "tests/device_under_test.hpp"
#include "tests/emulation/stream.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

TEST_CASE("a GPU's logits reach the host as one copy, for a prompt and for each token") {
  const GptOptions options{.layers = 2, .hidden = 24, .heads = 3, .vocab_size = 70, .sequence_length = 19};
  const auto device = tests::make_device();
  Decoder decoder(*device, decoder_model(options),
                  [](const UnitSpec& unit, std::size_t begin, std::span<float> out) {
                    initialize(unit, 1, begin, begin + out.size(), out.data());
                  });
  const std::vector<std::int32_t> tokens{3, 14, 15, 9, 26, 5};
  for (const std::size_t count : {6, 1, 1, 1, 1}) {  // graph replay starts before the last one
    CAPTURE(decoder.positions());
    const emulation::WatchedCopies copies;
    const auto logits = decoder.read(std::span(tokens).first(count));
    CHECK(std::count_if(copies.done.begin(), copies.done.end(), [&](const emulation::CopyDone& copy) {
            return copy.to == logits.data() && copy.bytes == logits.size_bytes();
          }) == 1);
  }
}
