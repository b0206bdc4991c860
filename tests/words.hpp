// Output of a shell command; words and lines in an output, a message or a file.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::tests {

struct CommandOutput {
  int status = -1;   ///< as of wait()
  std::string text;  ///< stdout
};
[[nodiscard]] inline CommandOutput output_of_command(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  CommandOutput output;
  std::array<char, 4096> some;
  while (const std::size_t bytes = std::fread(some.data(), 1, some.size(), pipe))
    output.text.append(some.data(), bytes);
  output.status = ::pclose(pipe);
  return output;
}

[[nodiscard]] inline bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

/// Number of places in the text with these words.
[[nodiscard]] inline std::size_t count_of(std::string_view text, std::string_view words) {
  std::size_t found = 0;
  for (std::size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1)) ++found;
  return found;
}

[[nodiscard]] inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Checks that the text contains each of these words; a failure prints them and the text.
template <typename Words = std::initializer_list<std::string_view>>
void check_has(std::string_view text, const Words& all) {
  for (const std::string_view words : all)
    CHECK_MESSAGE(has(text, words), "'" << std::string(words) << "' is not in: " << std::string(text));
}

/// The opposite: none of them.
template <typename Words = std::initializer_list<std::string_view>>
void check_lacks(std::string_view text, const Words& all) {
  for (const std::string_view words : all)
    CHECK_MESSAGE(!has(text, words), "'" << std::string(words) << "' is in: " << std::string(text));
}

}  // namespace ranvier::tests
