// Included by benchmarks: usual headers, times of work, made-up values, and a JSON line per case.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <typename Work>
double seconds_of(const Work& work) {
  const auto begin = Clock::now();
  work();
  return seconds_since(begin);
}

/// Seconds of the fastest call within about `total` seconds: at least three calls after a warm-up.
template <typename Work>
double quickest(double total, const Work& work) {
  work();
  double best = 1e9, sum = 0;
  for (int i = 0; i < 3 || (sum < total && i < 1000); ++i) {
    const double seconds = seconds_of(work);
    best = std::min(best, seconds);
    sum += seconds;
  }
  return best;
}

/// Random values between -scale / 2 and scale / 2.
inline void fill(std::byte* to, runtime::DType dtype, std::size_t elements, float scale = 1) {
  runtime::with_float_type(dtype, [&](auto type) {
    auto* values = reinterpret_cast<decltype(type)*>(to);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      values[i] = runtime::from_float<decltype(type)>((static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * scale);
    }
  });
}

/// Prints the fields as a JSON object on a line of its own.
template <typename... Values>
void print_case(fmt::format_string<Values...> fields, Values&&... values) {
  fmt::print("{{{}}}\n", fmt::format(fields, std::forward<Values>(values)...));
  std::fflush(stdout);
}

/// Exit status of a benchmark; prints an error after the program's name.
template <typename Run>
int status_of(std::string_view program, const Run& run) {
  try {
    run();
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return EXIT_FAILURE;
  }
}

}  // namespace ranvier::bench
