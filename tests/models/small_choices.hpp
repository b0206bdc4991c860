// Files of multiple-choice questions, in the format of llm.c's write_evalfile().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ranvier::tests {

struct SmallExample {
  std::vector<std::uint16_t> context;
  std::vector<std::vector<std::uint16_t>> completions;
  std::uint16_t right = 0;
};

inline std::string question_file(const std::vector<SmallExample>& examples) {
  std::vector<std::uint16_t> words;
  std::int32_t header[256] = {20240522, 1, static_cast<std::int32_t>(examples.size())};
  const auto add = [&words](const std::vector<std::uint16_t>& tokens) {
    words.push_back(static_cast<std::uint16_t>(tokens.size()));
    words.insert(words.end(), tokens.begin(), tokens.end());
  };
  for (std::size_t e = 0; e < examples.size(); ++e) {
    const std::size_t begin = words.size();
    words.insert(words.end(), {65535, 0, static_cast<std::uint16_t>(e), examples[e].right,
                               static_cast<std::uint16_t>(examples[e].completions.size())});
    add(examples[e].context);
    for (const auto& completion : examples[e].completions) add(completion);
    words[begin + 1] = static_cast<std::uint16_t>(2 * (words.size() - begin));
    header[3] = std::max<std::int32_t>(header[3], words[begin + 1]);
  }
  std::string content(sizeof header + 2 * words.size(), '\0');
  std::memcpy(content.data(), header, sizeof header);
  std::memcpy(content.data() + sizeof header, words.data(), 2 * words.size());
  return content;
}

}  // namespace ranvier::tests
