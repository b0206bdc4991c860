#include "models/images/image_source.hpp"

#include "models/images/image_set.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using namespace ranvier::tests;

namespace {

constexpr std::size_t image_bytes = 3072;

/// Images with one byte value each: `first`, first + 1 …, of classes (value mod `classes`).
void write_records(const std::filesystem::path& path, int first, int count, int classes = 10) {
  std::string content;
  for (int value = first; value < first + count; ++value) {
    content += static_cast<char>(value % classes);
    content.append(image_bytes, static_cast<char>(value));
  }
  std::ofstream(path, std::ios::binary) << content;
}

ImageDataOptions cifar(const std::filesystem::path& path) {
  return {.path = path.string(), .image_size = 32, .classes = 10};
}

/// The byte value of each sample, whose bytes are all equal, after checking its class: the value mod `classes`.
std::vector<int> values_of(const SampleSource& source, std::int64_t first, int count, int classes = 10) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * source.input_bytes());
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  source.read_inputs(first, count, reinterpret_cast<std::byte*>(bytes.data()));
  source.read_targets(first, count, reinterpret_cast<std::byte*>(labels.data()));
  std::vector<int> values;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(n * source.input_bytes());
    const auto end = begin + static_cast<std::ptrdiff_t>(source.input_bytes());
    CHECK(std::count(begin, end, *begin) == end - begin);
    CHECK(labels[n] == *begin % classes);
    values.push_back(*begin);
  }
  return values;
}

Error refusal_of(const ImageDataOptions& options) {
  return error_of([&] { static_cast<void>(open_image_data(options)); });
}

}  // namespace

TEST_CASE("a folder of CIFAR-10 has the images of its training files, in the order of their names") {
  const tests::TemporaryFolder folder;
  write_records(folder.path() / "data_batch_2.bin", 3, 2);
  write_records(folder.path() / "data_batch_1.bin", 0, 3);
  write_records(folder.path() / "test_batch.bin", 100, 4);
  std::ofstream(folder.path() / "batches.meta.txt") << "airplane\n";
  const ImageData data = open_image_data(cifar(folder.path()));
  CHECK(data.images == 5);
  CHECK(data.files.size() == 2);
  CHECK(data.validation == nullptr);
  CHECK(data.training->samples() == 5);
  CHECK(data.training->input_bytes() == image_bytes);
  CHECK(data.training->target_bytes() == sizeof(std::int32_t));
  CHECK(data.training->losses(3, 4) == 4);
  CHECK(values_of(*data.training, 0, 5) == std::vector{0, 1, 2, 3, 4});
  CHECK(values_of(*data.training, 4, 3) == std::vector{4, 0, 1});  // the next epoch

  CHECK(values_of(*open_image_data(cifar(folder.path() / "test_batch.bin")).training, 0, 4) ==
        std::vector{100, 101, 102, 103});
}

TEST_CASE(
    "a folder of CIFAR-100 has the images of train.bin with their fine classes, and mixing with CIFAR-10 is "
    "refused") {
  const tests::TemporaryFolder folder;
  const auto write = [&](const char* name, int first, int count) {
    std::string content;
    for (int value = first; value < first + count; ++value) {
      content += static_cast<char>(19 - value % 5);  // one of 20 coarse classes
      content += static_cast<char>(value % 100);
      content.append(image_bytes, static_cast<char>(value));
    }
    std::ofstream(folder.path() / name, std::ios::binary) << content;
  };
  write("train.bin", 90, 5);
  write("test.bin", 7, 2);
  ImageDataOptions options = cifar(folder.path());
  options.classes = 100;
  const ImageData data = open_image_data(options);
  CHECK(data.images == 5);
  CHECK(values_of(*data.training, 0, 5, 100) == std::vector{90, 91, 92, 93, 94});
  options.path = (folder.path() / "test.bin").string();
  CHECK(values_of(*open_image_data(options).training, 0, 2, 100) == std::vector{7, 8});

  options.path = folder.path().string();
  options.classes = 10;
  CHECK(says(refusal_of(options), "image 0 has class 90, but the model has 10 classes; use `classes` 100"));
  write_records(folder.path() / "data_batch_1.bin", 0, 3);
  options.classes = 100;
  CHECK(says(refusal_of(options), "to CIFAR-100"));
}

TEST_CASE("a crop is the image with a border, shifted by the drawn offset, and then mirrored") {
  constexpr int S = 6;
  std::array<std::uint8_t, 3 * S * S> image{}, cropped{};
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i + 1);
  const auto pixel = [&](int plane, int y, int x) {
    const bool inside = y >= 0 && y < S && x >= 0 && x < S;
    return inside ? int{image[static_cast<std::size_t>((plane * S + y) * S + x)]} : 0;
  };
  int wrong = 0;
  for (int down = -Crop::border; down <= Crop::border; ++down)
    for (int right = -Crop::border; right <= Crop::border; ++right)
      for (const bool mirrored : {false, true}) {
        crop_image({down, right, mirrored}, S, cropped.data(), image.data());
        for (int plane = 0; plane < 3; ++plane)
          for (int y = 0; y < S; ++y)
            for (int x = 0; x < S; ++x) {
              const int from = mirrored ? S - 1 - x : x;
              if (cropped[static_cast<std::size_t>((plane * S + y) * S + x)] !=
                  pixel(plane, y + down, from + right))
                ++wrong;
            }
      }
  CHECK(wrong == 0);
  // Images smaller than the border.
  std::array<std::uint8_t, 3> one{7, 8, 9}, other{1, 1, 1};
  crop_image({0, 4, true}, 1, other.data(), one.data());
  CHECK(other == std::array<std::uint8_t, 3>{0, 0, 0});
  crop_image({0, 0, true}, 1, other.data(), one.data());
  CHECK(other == one);
}

TEST_CASE("crops are drawn uniformly, from the seed and the sample only") {
  constexpr int draws = 20000;
  std::array<int, 9> down{}, right{};
  int mirrored = 0;
  for (std::int64_t n = 0; n < draws; ++n) {
    const Crop crop = draw_crop(3, n);
    REQUIRE((crop.down >= -4 && crop.down <= 4 && crop.right >= -4 && crop.right <= 4));
    ++down[static_cast<std::size_t>(crop.down + 4)];
    ++right[static_cast<std::size_t>(crop.right + 4)];
    mirrored += crop.mirrored ? 1 : 0;
  }
  for (const auto& counts : {down, right})
    for (const int count : counts) CHECK(count == doctest::Approx(draws / 9.0).epsilon(0.1));
  CHECK(mirrored == doctest::Approx(draws / 2.0).epsilon(0.03));
  const Crop far = draw_crop(3, std::int64_t{1} << 32), near = draw_crop(3, 0), seeded = draw_crop(4, 0);
  const auto differ = [](const Crop& a, const Crop& b) {
    return a.down != b.down || a.right != b.right || a.mirrored != b.mirrored;
  };
  CHECK(differ(far, near));
  CHECK(differ(seeded, near));
}

TEST_CASE("augmented images are crops by the sample's number, but not in validation") {
  const auto set = std::make_shared<const SyntheticSet>(32, 10);
  const ImageSource plain(set, 0, 8, std::nullopt), augmented(set, 0, 8, std::nullopt, 5);
  const std::size_t bytes = plain.input_bytes();
  std::vector<std::uint8_t> all(20 * bytes), image(bytes), expected(bytes);
  augmented.read_inputs(0, 20, reinterpret_cast<std::byte*>(all.data()));
  for (std::int64_t n = 0; n < 20; ++n) {
    plain.read_input(n, reinterpret_cast<std::byte*>(image.data()));
    crop_image(draw_crop(5, n), 32, expected.data(), image.data());
    CHECK(std::equal(expected.begin(), expected.end(), all.begin() + n * static_cast<std::ptrdiff_t>(bytes)));
  }
  CHECK_FALSE(std::equal(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(bytes),
                         all.begin() + 8 * static_cast<std::ptrdiff_t>(bytes)));  // the next epoch

  const tests::TemporaryFolder folder;
  write_records(folder.path() / "some.bin", 0, 10);
  ImageDataOptions options = cifar(folder.path() / "some.bin");
  options.augment_seed = 5;
  options.validation_split = 0.5;
  CHECK(values_of(*open_image_data(options).validation, 0, 5) == std::vector{5, 6, 7, 8, 9});
}

TEST_CASE("the last images are kept for validation, and the others come once an epoch in any order") {
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "some.bin";
  write_records(path, 0, 20);
  ImageDataOptions options = cifar(path);
  options.validation_split = 0.25;
  options.shuffle_seed = 7;
  const ImageData data = open_image_data(options);
  CHECK(values_of(*data.validation, 0, 5) == std::vector{15, 16, 17, 18, 19});
  std::vector<int> epoch = values_of(*data.training, 15, 15);
  CHECK(epoch != values_of(*data.training, 0, 15));
  CHECK_FALSE(std::is_sorted(epoch.begin(), epoch.end()));
  std::sort(epoch.begin(), epoch.end());
  for (int value = 0; value < 15; ++value) CHECK(epoch[static_cast<std::size_t>(value)] == value);

  options = cifar(path);
  options.validates_all = true;
  CHECK(open_image_data(options).validation->samples() == 20);
  options.validation_split = 0.01;
  CHECK(says(refusal_of(options), "leaves 20 for training and 0"));
}

TEST_CASE("invalid files, and images that the model does not support, are refused with a remedy") {
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "some.bin";
  CHECK(says(refusal_of(cifar(folder.path())), ErrorCode::data, "no image files found"));
  std::ofstream(path, std::ios::binary) << std::string(3075, 'x');
  CHECK(says(refusal_of(cifar(path)), ErrorCode::data, "3075 bytes are not records of 3073 or 3074"));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "";
  CHECK(says(refusal_of(cifar(path)), ErrorCode::data, ": 0 bytes are not records of 3073 or 3074"));
  write_records(path, 0, 8);
  ImageDataOptions options = cifar(path);
  options.classes = 7;
  CHECK(says(refusal_of(options), ErrorCode::data,
             "image 7 has class 7, but the model has 7 classes; use `classes` 10"));
  options = cifar(path);
  options.image_size = 224;
  CHECK(says(refusal_of(options), ErrorCode::usage, "use `image_size` 32"));
}

TEST_CASE("synthetic images are reproducible, of all classes, and distinct") {
  const SyntheticSet set(10, 4);
  CHECK(set.bytes() == 300);
  std::set<std::int32_t> classes;
  std::set<std::vector<std::uint8_t>> images;
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1281166}) {
    std::vector<std::uint8_t> image(300), again(300);
    set.read(n, image.data());
    SyntheticSet(10, 4).read(n, again.data());
    CHECK(image == again);
    images.insert(image);
    const std::int32_t label = set.label(n);
    CHECK((label >= 0 && label < 4));
    classes.insert(label);
  }
  CHECK(images.size() == 13);
  CHECK(classes.size() == 4);
  const ImageData data = open_image_data({.path = synthetic_images, .image_size = 10, .classes = 4});
  CHECK(data.images == SyntheticSet::count);
  CHECK(data.files.empty());
  std::vector<std::uint8_t> first(300), read(300);
  set.read(0, first.data());
  data.training->read_input(0, reinterpret_cast<std::byte*>(read.data()));
  CHECK(first == read);
}
