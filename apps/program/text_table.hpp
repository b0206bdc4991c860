// Text table whose columns are as wide as their widest cells. Pure functions, callable from any thread.
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

/// Assumed width of the terminal.
inline constexpr std::size_t screen_columns = 120;

/// Number of UTF-8 characters, each counted as one column.
[[nodiscard]] std::size_t display_columns(std::string_view text);
/// Cuts text to `columns`, with "…" at the end.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t columns);

class TextTable {
 public:
  struct Column {
    std::string title;
    bool left = false;  ///< left-aligned, for words; false: right-aligned, for numbers
  };
  using Row = std::vector<std::string>;

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Adds a row with one cell per column.
  void add(Row row);
  /// Widths in columns of the terminal.
  [[nodiscard]] std::size_t width() const;
  [[nodiscard]] std::size_t width_of(std::size_t column) const;
  /// Titles and rows, each with a newline.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace ranvier::apps
