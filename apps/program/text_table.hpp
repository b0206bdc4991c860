// Rows of cells as lines for people, with columns as wide as their widest cell. Pure; any thread.
//
//   TextTable table({{"stage"}, {"layers", true}});
//   table.add({"0", "embedding … h.1"});
//   fmt::print("{}", table.text());
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

/// Of a terminal that what is printed is meant for.
inline constexpr std::size_t screen_columns = 120;

/// Characters of UTF-8, each of which takes a column.
[[nodiscard]] std::size_t display_columns(std::string_view text);
/// As it is, or its beginning and "…", in at most `columns`.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t columns);

class TextTable {
 public:
  struct Column {
    std::string title;
    bool left = false;  ///< cells begin at the left, as words do; numbers end at the right
  };
  using Row = std::vector<std::string>;

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// A cell for each column.
  void add(Row row);
  /// Of a line, and of a column.
  [[nodiscard]] std::size_t width() const;
  [[nodiscard]] std::size_t width_of(std::size_t column) const;
  /// The titles and the rows, each with its end.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace ranvier::apps
