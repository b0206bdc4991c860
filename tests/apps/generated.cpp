#include "tests/apps/generated.hpp"

#include "tests/apps/job.hpp"
#include "tests/test.hpp"

#include <cstdio>

namespace ranvier::tests {

Generated run_generator(const std::string& program, const std::string& flags, const TemporaryFolder& folder) {
  const std::string report = (folder.path() / "report.txt").string();
  const std::string command = program + " " + flags + " 2>" + report;
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Generated result;
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe))
    result.text.append(part.data(), count);
  result.status = pclose(pipe);
  result.report = read_file(report);
  return result;
}

}  // namespace ranvier::tests
