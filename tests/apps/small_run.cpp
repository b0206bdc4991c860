#include "tests/apps/small_run.hpp"

#include <stdexcept>

namespace ranvier::tests {

std::string small_text() {
  static constexpr const char* words[] = {"node ",   "nerve ", "axon ",  "signal ",
                                          "myelin ", "gap\n",  "renew ", "the "};
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < 8192) {
    state = state * 1664525u + 1013904223u;
    text += words[state >> 29];
  }
  return text;
}

std::string token_file(const std::vector<std::uint16_t>& tokens) {
  std::int32_t header[256] = {20240520, 1, static_cast<std::int32_t>(tokens.size())};
  std::string content(sizeof header + 2 * tokens.size(), '\0');
  std::memcpy(content.data(), header, sizeof header);
  std::memcpy(content.data() + sizeof header, tokens.data(), 2 * tokens.size());
  return content;
}

Flags small_run(const std::string& data, const Flags& more) {
  Flags flags =
      join({"--data", data},
           "--layers 4 --hidden 32 --heads 2 --vocab-size 256 --sequence-length 16 --steps 4 --batch-size 4 "
           "--microbatch-size 1 --threads 1 --timeout 20 --learning-rate 1e-3");
  for (std::size_t i = 0; i + 1 < more.size(); i += 2) {
    const auto same = std::find(flags.begin(), flags.end(), more[i]);
    if (same == flags.end()) {
      flags.insert(flags.end(), {more[i], more[i + 1]});
    } else {
      *(same + 1) = more[i + 1];
    }
  }
  if (more.size() % 2 == 1) flags.push_back(more.back());
  const auto has = [&flags](const char* flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  if ((has("--save") || has("--trace")) && !has("--overwrite")) flags.emplace_back("--overwrite");
  return flags;
}

std::vector<std::string> metric(const std::string& path, const std::string& key) {
  std::vector<std::string> values;
  for (const auto& line : lines_of(read_file(path))) {
    if (!line.starts_with("{\"step\":")) continue;
    const std::string quoted = "\"" + key + "\":";
    auto begin = line.find(quoted);
    if (begin == std::string::npos) throw std::runtime_error(path + " has a line without " + key + ": " + line);
    begin = line.find_first_not_of(' ', begin + quoted.size());
    values.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
  }
  return values;
}

std::string validation_of(const Outcome& outcome) {
  const auto begin = outcome.output.find("validation loss ");
  REQUIRE(begin != std::string::npos);
  return outcome.output.substr(begin, outcome.output.find("  over ", begin) - begin);
}

void check_close(const std::vector<std::string>& losses, const std::vector<std::string>& others) {
  REQUIRE(losses.size() == others.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const double loss = std::stod(losses[step]);
    CHECK(std::abs(loss - std::stod(others[step])) < 1e-6 * loss);
  }
}

}  // namespace ranvier::tests
