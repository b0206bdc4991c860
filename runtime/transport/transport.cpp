#include "runtime/transport/transport.hpp"

#include <fmt/core.h>

namespace ranvier::runtime {

const char* to_string(Channel channel) noexcept {
  switch (channel) {
    case Channel::activation:
      return "activation";
    case Channel::gradient:
      return "gradient";
    case Channel::collective:
      return "collective";
    case Channel::tied:
      return "tied";
    case Channel::summary:
      return "summary";
    case Channel::weights:
      return "weights";
    case Channel::control:
      return "control";
    case Channel::pull:
      return "pull";
    case Channel::piece:
      return "piece";
    case Channel::checkpoint:
      return "checkpoint";
    case Channel::user:
      return "user";
  }
  return "?";
}

std::string to_string(Tag tag) { return fmt::format("{} {}", to_string(tag.channel), tag.index); }

}  // namespace ranvier::runtime
