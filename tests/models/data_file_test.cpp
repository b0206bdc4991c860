#include "models/text/data_file.hpp"

#include "models/text/data_files.hpp"
#include "tests/models/compressed.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;
using namespace std::string_view_literals;

namespace {

struct Fixture {
  TemporaryFolder folder;

  DataFile seen(std::string_view name, std::string_view content, const TextReading& reading = {}) const {
    return recognise(folder.write(name, content), reading);
  }
  void refused(std::string_view name, std::string_view content, std::string_view words) const {
    CAPTURE(name);
    const auto error = error_of([&] { seen(name, content); });
    CHECK(says(error, ErrorCode::data, std::string(name) + ": ", words, "`token_format` text"));
    // The flag still reads them as bytes.
    CHECK(seen(name, content, {.format = TokenFormat::text}).format == TokenFormat::text);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "files that are neither text nor tokens are refused with their kind and a remedy") {
  refused("a.npy", "\x93NUMPY\x01\0v\0{'descr': '<u2'}"sv, "a NumPy array (.npy); write text as JSON lines");
  refused("a.npy", "\x93NUMPY\x01\0v\0{'descr': '<u2'}"sv, "`token_format` uint16");
  const std::string zip_head("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x09\0\0\0", 30);
  refused("a.npz", zip_head + "arr_0.npy", "NumPy arrays (.npz)");
  std::string torch = zip_head + "m/data.pkl";
  torch[26] = 10;
  refused("a.pt", torch, "a PyTorch file (.pt); convert the weights to safetensors and use them with `init_from`");
  refused("a.docx", zip_head + "word/docu", "a zip archive; unpack it");
  refused("a.parquet", "PAR1\x15\x04\x15\0"sv, "a Parquet table; convert it: python3 -c 'import pandas");
  refused("data-00000-of-00001.arrow", "\xff\xff\xff\xff\x10\x01\0\0"sv, "datasets.load_from_disk(\"FOLDER\")");
  refused("a.xz", "\xfd\x37zXZ\0\0\x04"sv, "compressed with xz; decompress it");
  refused("a.bz2", "BZh91AY&SY\x12\x34\0"sv, "compressed with bzip2");
  refused("a.pdf", "%PDF-1.7\n1 0 obj\n", "a PDF; extract its text");
  refused("a.out",
          "\x7f"
          "ELF\x02\x01\x01\0"sv,
          "a program or library (ELF)");
  refused("a.pkl", "\x80\x04\x95\x0a\0\0\0"sv, "a Python pickle");
  refused("old.pkl", "\x80\x02}q\0(X"sv, "a Python pickle");
  refused("a.png", "\x89PNG\r\n\x1a\n"sv, "an image (PNG)");
  refused("a.wav", "RIFF\x24\x08\0\0WAVEfmt "sv, "a sound (WAV)");
  refused("utf16.txt", "\xff\xfeh\0i\0"sv, "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8");
  refused("utf32.txt", "\xff\xfe\0\0h\0\0\0"sv, "UTF-32 text");
  refused("a.safetensors", "\x40\0\0\0\0\0\0\0{\"wte.weight\":{"sv,
          "weights in safetensors; use them with `init_from`, not as data");
  refused("questions", "\x8a\xd8\x34\x01\x01\0\0\0"sv, "`hellaswag`");
  refused("a.tar.gz", gzipped("name" + std::string(253, '\0') + "ustar\0"), "a tar archive, compressed; unpack it");
  std::string numbers;
  for (char token = 'a'; token <= 'z'; ++token) numbers += {token, '\0', '\x05', '\0'};
  refused("numbers.dat", numbers, "not text: 78 of the first 104 bytes are not UTF-8, the first at offset 1");
  refused("tokens.bin.gz", gzipped("\x01\0\x02\0"sv), "compressed tokens; decompress them");
}

TEST_CASE_FIXTURE(Fixture, "text that starts like the name of a format is text") {
  for (const char* text :
       {"BZh is how bzip2 begins", "GGUF, PAR1 and ORC are words", "The big WAVE", "GIF89a is a name",
        "Obj is short for object", "{\"not\": \"lines\"\n}\n", "{ int x; }\n{ int y; }\n", "P"})
    CHECK(seen("a.txt", text).format == TokenFormat::text);
}

TEST_CASE_FIXTURE(Fixture, "JSON lines are known by their name or by their first lines, compressed ones too") {
  const std::string lines = "{\"id\": 1, \"text\": \"one\"}\n{\"id\": 2, \"text\": \"two\"}\n";
  CHECK(seen("a.jsonl", lines).format == TokenFormat::jsonl);
  CHECK(seen("a.txt", lines).format == TokenFormat::jsonl);
  CHECK(seen("a.json", "{\"body\": 1}\n\n{\"body\": 2}\n").format == TokenFormat::jsonl);
  CHECK(seen("short.ndjson", "{}").format == TokenFormat::jsonl);
  const DataFile gzip = seen("a.jsonl.gz", gzipped(lines)), zstd = seen("a.zst", zstd_packed(lines));
  CHECK(gzip.format == TokenFormat::jsonl);
  CHECK(gzip.compression == Compression::gzip);
  CHECK(zstd.format == TokenFormat::jsonl);
  CHECK(zstd.compression == Compression::zstd);
  CHECK(seen("a.jsonl", lines, {.format = TokenFormat::text}).format == TokenFormat::text);
}

TEST_CASE_FIXTURE(Fixture,
                  "JSON that is not JSON lines, and tables, are refused with the command that converts them") {
  for (const char* array : {"[{\"text\": \"one\"}]", "\xef\xbb\xbf \n[\n  {\n    \"text\": \"one\"\n  }\n]\n"}) {
    refused("a.json", array, "a.json: a JSON array, not JSON lines; convert it: jq -c '.[]' '");
    refused("a.txt", array, "a JSON array");
  }
  refused("strings.json", "[\"one\", \"two\"]", "a JSON array");
  refused("one.json", "{\"name\": \"x\"}\n", "one JSON object, not JSON lines; convert it to one object per line");
  refused("state.json", "{\n  \"_fingerprint\": 1\n}\n", "jq -c . '");
  refused("a.csv", "id,text\n1,one\n", "a.csv: a table (.csv); convert it and use `json_field`");
  refused("a.tsv", "id\ttext\n", "dialect=\"excel-tab\"");
  refused("a.csv.gz", gzipped("id,text\n"), "decompress it and convert it");
  for (const char* text : {"[section]\nkey = 1\n", "[{x}] is a set", "a,b\n"})
    CHECK(seen("a.txt", text).format == TokenFormat::text);
}

TEST_CASE_FIXTURE(Fixture, "text in another encoding than UTF-8 is refused if a tokenizer would read it") {
  const TextReading utf8{.needs_utf8 = true};
  const std::string latin =
      "sch\xf6n ist es \xfc"
      "ber dem Fluss, \xe4hnlich wie gestern";
  const auto error = error_of([&] { seen("latin.txt", latin, utf8); });
  CHECK(says(error,
             "latin.txt: not UTF-8 (Latin-1, for instance): byte 0xf6 at offset 3; use "
             "iconv -f WINDOWS-1252 -t UTF-8 '",
             "`token_format` text"));
  CHECK(seen("latin.txt", latin).format == TokenFormat::text);  // bytes are tokens
  CHECK(seen("latin.txt", latin, {.format = TokenFormat::text, .needs_utf8 = true}).format == TokenFormat::text);
  // Damage is accepted: few invalid bytes among plain ones or among characters.
  CHECK(seen("damaged.txt", "plain \xff text, and more \xfe of it", utf8).format == TokenFormat::text);
  CHECK(seen("damaged.txt", "äöüß \xff äöü \xff ß \xff ä \xff", utf8).format == TokenFormat::text);
}

TEST_CASE_FIXTURE(Fixture, "a folder is refused if data in unsupported formats outweigh its text") {
  const auto refuses = [&](const char* name, std::string_view words) {
    const auto error = error_of([&] { static_cast<void>(data_files_in(folder.path() / name, {})); });
    CHECK(says(error, ErrorCode::data, std::string(name) + ": ", words));
  };
  folder.write("saved/dataset_info.json", "{\n  \"citation\": \"\"\n}");
  folder.write("saved/state.json", "{\n  \"_data_files\": [{\"filename\": \"data-00000-of-00001.arrow\"}]\n}");
  folder.write("saved/data-00000-of-00001.arrow", "\xff\xff\xff\xff\x10\x01\0\0"sv);
  refuses("saved", "data-00000-of-00001.arrow: an Arrow stream; convert the folder that save_to_disk() wrote");
  folder.write("cloned/README.md", "a readme.");
  folder.write("cloned/data/train.parquet", "PAR1" + std::string(100, '\0'));
  refuses("cloned", "cloned: 104 bytes have unsupported formats, but only 9 bytes are text: ");
  folder.write("cloned/README.md", std::string(200, 'x'));
  CHECK(data_files_in(folder.path() / "cloned", {}).left_out.size() == 1);
  folder.write("nano/input.txt", "text");
  folder.write("nano/train.bin", "\x01\0\x02\0\x03\0"sv);
  refuses("nano", "train.bin: a .bin with tokens, next to text; name their format with `token_format`");
  CHECK(data_files_in(folder.path() / "nano", {.format = TokenFormat::text}).files.size() == 1);
  // A PDF next to its text, and a file next to its converted text, are not reasons to refuse.
  folder.write("papers/a.pdf", "%PDF-1.7" + std::string(500, ' '));
  folder.write("papers/a.txt", "its text.");
  folder.write("arrays/a.json", "[" + std::string(500, ' ') + "{\"text\": \"a\"}]");
  folder.write("arrays/a.json.jsonl", "{\"text\": \"a\"}\n");
  for (const char* name : {"papers", "arrays"}) CHECK(data_files_in(folder.path() / name, {}).files.size() == 1);
  folder.write("objects/README.md", "a readme.");
  folder.write("objects/1.json", "{\n  \"text\": \"a document\"\n}");
  refuses("objects", "1.json: one JSON object, not JSON lines; convert it to one object per line: jq -c . '");
}

TEST_CASE_FIXTURE(Fixture, "files for validation and tests are skipped in a folder with files for training") {
  const auto left_out = [&](const char* name, const TextReading& reading = {}) {
    std::string names;
    const DataFiles found = data_files_in(folder.path() / name, reading);
    for (const auto& one : found.left_out) {
      names += one.path.lexically_relative(folder.path() / name).string() + ' ';
      CHECK(one.why.starts_with("name suggests that it is not for training, unlike "));
    }
    CHECK(!found.files.empty());
    return names;
  };
  for (const char* file : {"nano/train.bin", "nano/val.bin"}) folder.write(file, "\x01\0"sv);
  CHECK(left_out("nano", {.format = TokenFormat::uint16}) == "val.bin ");
  for (const char* file : {"hf/train-00000-of-00002.jsonl", "hf/train-00001-of-00002.jsonl", "hf/notes.txt",
                           "hf/validation-00000-of-00001.jsonl", "hf/test.jsonl"})
    folder.write(file, "{\"text\": \"x\"}\n");
  CHECK(left_out("hf") == "test.jsonl validation-00000-of-00001.jsonl ");
  for (const char* file : {"wiki/wiki.train.tokens", "wiki/wiki.valid.tokens", "imdb/Train/pos/1.txt",
                           "imdb/test/neg/2.txt", "alone/test.txt", "code/train.py", "code/test.py"})
    folder.write(file, "text");
  CHECK(left_out("wiki") == "wiki.valid.tokens ");
  CHECK(left_out("imdb") == "test/neg/2.txt ");
  CHECK(left_out("alone").empty());
  CHECK(left_out("code").empty());
}

TEST_CASE_FIXTURE(
    Fixture, "a .bin next to a meta.pkl is read as nanoGPT's, with a remark; otherwise its format must be named") {
  const std::string tokens("\x01\0\x02\0\x03\0", 6);
  const auto unknown = error_of([&] { seen("train.bin", tokens); });
  CHECK(says(unknown, "starts with 131073, not with llm.c's magic number 20240520", "`token_format` uint16"));
  folder.write("meta.pkl", "\x80\x04\x95");
  const DataFile file = seen("train.bin", tokens);
  CHECK(file.format == TokenFormat::uint16);
  CHECK(file.remark.find("train.bin: read as uint16 tokens") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "skipped files of a folder are listed with the reason") {
  folder.write("d/a.txt", "text");
  folder.write("d/b/c.txt.gz", gzipped("more text"));
  folder.write("d/.git/config", "hidden");
  folder.write("d/empty.txt", "");
  folder.write("d/image.png", "\x89PNG\r\n");
  folder.write("d/tokens.bin", "abcdefgh");
  folder.write("d/zero.txt", std::string(100, 'x') + std::string(1, '\0'));
  std::filesystem::create_symlink(folder.path() / "nowhere", folder.path() / "d/link.txt");
  const DataFiles found = data_files_in(folder.path() / "d", {});
  REQUIRE(found.files.size() == 2);
  CHECK(found.files[0].path == folder.path() / "d/a.txt");
  CHECK(found.files[1].compression == Compression::gzip);
  REQUIRE(found.left_out.size() == 6);
  CHECK(left_out_text(folder.path() / "d", found.left_out) ==
        (folder.path() / "d").string() +
            ": skipped 6 files: .git (hidden), empty.txt (empty), image.png (an image (PNG)), link.txt (not a "
            "regular file), "
            "tokens.bin (a .bin with tokens, next to text), and 1 more");
  CHECK(found.left_out[5].why == "not text: zero byte at offset 100");
  CHECK(left_out_text("d", {}).empty());

  folder.write("tokens/1.bin", "abcd");
  folder.write("tokens/1.idx", "belongs to it");
  folder.write("tokens/readme.md", "not tokens");
  const DataFiles tokens = data_files_in(folder.path() / "tokens", {.format = TokenFormat::uint16});
  CHECK(tokens.files.size() == 1);
  REQUIRE(tokens.left_out.size() == 1);
  CHECK(tokens.left_out[0].why == "not named .bin");
  folder.write("images/a.png", "\x89PNG\r\n");
  const auto none = error_of([&] { static_cast<void>(data_files_in(folder.path() / "images", {})); });
  CHECK(says(none, ErrorCode::data, "images: the folder has no text files", "1 file: a.png (an image (PNG))"));
}
