// Included by tests: doctest, the headers that most of them use, and CAPTURE_ALL.
#pragma once

#include "tests/effort.hpp"
#include "tests/errors.hpp"
#include "tests/seeds.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/words.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ranvier::tests {

/// A value as text; doctest prints the address of a `const char*`.
template <typename Value>
std::string printed(const Value& value) {
  if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return std::string(std::string_view(value));
  } else {
    return doctest::toString(value).c_str();
  }
}

template <typename... Values>
std::string listed(const Values&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + printed(values)), ...);
  return text;
}

}  // namespace ranvier::tests

/// Prints the expressions and their values if a check of this scope fails: CAPTURE for several at once.
#define CAPTURE_ALL(...) INFO(#__VA_ARGS__ " := ", ::ranvier::tests::listed(__VA_ARGS__))
