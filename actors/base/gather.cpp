#include "actors/base/gather.hpp"

#include <cstdint>
#include <memory>

namespace ranvier::actors {

using runtime::Channel;
using runtime::Tag;

namespace {

// Lengths and contents use the channel of weights, which is idle at the end of a run.
constexpr Tag length_tag{Channel::weights, (1u << 20) - 1};
constexpr Tag content_tag{Channel::weights, (1u << 20) - 2};

struct Gathering {
  std::vector<std::string> blocks;
  std::vector<std::uint64_t> lengths;
  std::function<void(std::vector<std::string>)> done;
  std::size_t missing = 0;
};

}  // namespace

void gather(runtime::Transport& transport, std::string mine, std::function<void(std::vector<std::string>)> done) {
  auto state = std::make_shared<Gathering>();
  state->done = std::move(done);
  const auto ranks = static_cast<std::size_t>(transport.ranks());
  if (transport.rank() != 0) {
    state->blocks.push_back(std::move(mine));
    state->lengths.push_back(state->blocks[0].size());
    transport.send(0, length_tag, std::as_bytes(std::span(state->lengths)), [state] {});
    transport.send(0, content_tag, std::as_bytes(std::span(state->blocks[0])), [state] { state->done({}); });
    return;
  }
  state->blocks.resize(ranks);
  state->lengths.resize(ranks);
  state->blocks[0] = std::move(mine);
  state->missing = ranks - 1;
  if (ranks == 1) return state->done(std::move(state->blocks));
  for (std::size_t r = 1; r < ranks; ++r) {
    const int peer = static_cast<int>(r);
    transport.receive(
        peer, length_tag, std::as_writable_bytes(std::span(&state->lengths[r], 1)), [state, &transport, r, peer] {
          state->blocks[r].resize(state->lengths[r]);
          transport.receive(peer, content_tag, std::as_writable_bytes(std::span(state->blocks[r])), [state] {
            if (--state->missing == 0) state->done(std::move(state->blocks));
          });
        });
  }
}

}  // namespace ranvier::actors
