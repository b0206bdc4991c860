#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "tests/random_seed.hpp"

#include <cstdlib>
#include <random>
#include <string_view>

namespace ranvier::tests {
namespace {

std::uint64_t seed = 0;

}  // namespace

std::uint64_t random_seed() noexcept { return seed; }

}  // namespace ranvier::tests

int main(int argc, char** argv) {
  constexpr std::string_view flag = "--seed=";
  ranvier::tests::seed = std::random_device{}();
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with(flag))
      ranvier::tests::seed = std::strtoull(argv[i] + flag.size(), nullptr, 10);
  return doctest::Context(argc, argv).run();
}
