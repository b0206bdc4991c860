// A program's arguments in tests, written like a command line.
#pragma once

#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

namespace ranvier::tests {

/// "--g-inter 2 --defer-weights" is three arguments; a list has one argument per text, which may have spaces.
class Flags : public std::vector<std::string> {
 public:
  Flags() = default;
  Flags(std::initializer_list<std::string> arguments) : vector(arguments) {}
  Flags(const char* line) : Flags(std::string(line)) {}
  Flags(const std::string& line) {
    std::istringstream arguments(line);
    for (std::string argument; arguments >> argument;) push_back(argument);
  }

  void add(const Flags& more) { insert(end(), more.begin(), more.end()); }

  [[nodiscard]] std::string line() const {
    std::string line;
    for (const std::string& argument : *this) line += argument + " ";
    return line;
  }
};

[[nodiscard]] inline Flags join(Flags first, const Flags& second) {
  first.add(second);
  return first;
}

/// parse(argc, argv) of a program with these arguments.
template <typename Parse>
auto parse_flags(const char* program, const std::vector<std::string>& arguments, const Parse& parse) {
  std::vector<const char*> all{program};
  for (const std::string& argument : arguments) all.push_back(argument.c_str());
  return parse(static_cast<int>(all.size()), all.data());
}

}  // namespace ranvier::tests
