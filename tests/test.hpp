// Included by tests: doctest, the headers that most of them use, and CAPTURE_ALL.
#pragma once

#include "tests/effort.hpp"
#include "tests/errors.hpp"
#include "tests/seeds.hpp"
#include "tests/temporary_folder.hpp"

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
#include <utility>
#include <vector>

namespace ranvier::tests {

template <typename... Values>
std::string listed(const Values&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::string(doctest::toString(values).c_str())), ...);
  return text;
}

}  // namespace ranvier::tests

/// Prints the expressions and their values if a check of this scope fails: CAPTURE for several at once.
#define CAPTURE_ALL(...) INFO(#__VA_ARGS__ " := ", ::ranvier::tests::listed(__VA_ARGS__))
