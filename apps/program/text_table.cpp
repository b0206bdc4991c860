#include "apps/program/text_table.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::apps {
namespace {

constexpr std::size_t gap = 2;  // between columns

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::size_t display_columns(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

std::string shortened(std::string_view text, std::size_t columns) {
  if (display_columns(text) <= columns) return std::string(text);
  std::size_t at = 0;
  for (std::size_t kept = 0; at < text.size(); ++at) {
    if (!continues_character(text[at]) && ++kept == columns) break;
  }
  return std::string(text.substr(0, at)) + "…";
}

void TextTable::add(Row row) {
  expect(row.size() == columns_.size(), "a row of {} cells in a table of {} columns", row.size(), columns_.size());
  rows_.push_back(std::move(row));
}

std::size_t TextTable::width_of(std::size_t column) const {
  std::size_t width = display_columns(columns_[column].title);
  for (const Row& row : rows_) width = std::max(width, display_columns(row[column]));
  return width;
}

std::size_t TextTable::width() const {
  std::size_t width = gap * (columns_.size() - 1);
  for (std::size_t c = 0; c < columns_.size(); ++c) width += width_of(c);
  return width;
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) widths.push_back(width_of(c));
  std::string text;
  const auto append = [&](auto&& cell_of) {
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string_view cell = cell_of(c);
      const std::size_t blanks = widths[c] - display_columns(cell);
      if (c > 0) text.append(gap, ' ');
      if (!columns_[c].left) text.append(blanks, ' ');
      text += cell;
      if (columns_[c].left && c + 1 < columns_.size()) text.append(blanks, ' ');
    }
    text += '\n';
  };
  append([&](std::size_t c) { return std::string_view(columns_[c].title); });
  for (const Row& row : rows_) append([&](std::size_t c) { return std::string_view(row[c]); });
  return text;
}

}  // namespace ranvier::apps
