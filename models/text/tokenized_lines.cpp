#include "models/text/tokenized_lines.hpp"

#include "models/tokenizers/text_encoder.hpp"

namespace ranvier::models {

void TokenizedLines::read_lines(const TextReading& reading, const TextTokens& text, int vocab_size,
                                const Add& add) {
  const bool prompts = !reading.prompt_field.empty();
  const Tokenizer bytes;
  TextEncoder encoder(text.tokenizer != nullptr ? *text.tokenizer : bytes, text.threads, text.specials);
  std::vector<TextEncoder::Passage> passages;
  std::size_t bytes_read = 0;
  DataFiles found = json_lines_at(path_, reading);
  left_out_ = std::move(found.left_out);
  for (const DataFile& file : found.files) {
    files_.push_back(file.path);
    DocumentReader reader(file, reading);
    for (auto pieces = reader.next(); !pieces.empty(); pieces = reader.next()) {
      reading.tell(file.path);
      passages.clear();
      for (const auto& piece : pieces) {
        bytes_read += piece.text.size();
        passages.push_back({piece.text.substr(0, piece.prompt)});
        passages.push_back({piece.text.substr(piece.prompt), piece.prompt == 0});
      }
      check_held(bytes_read, path_, prompts ? "prompts and completions exceed" : "labelled texts exceed",
                 prompts ? "use fewer lines" : "use fewer texts");
      encoder.encode(passages);
      for (std::size_t i = 0; i < pieces.size(); ++i)
        add(pieces[i], encoder.tokens(2 * i, 2), encoder.tokens(2 * i).size());
    }
    for (std::string& remark : reader.remarks()) remarks_.push_back(std::move(remark));
  }
  check_vocabulary(tokens_, vocab_size, path_);
}

}  // namespace ranvier::models
