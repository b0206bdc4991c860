// Checkpoints in files: one rank on the asynchronous CPU device, with its states in any tier, writes them and another
// one resumes from them.
#include "actors/checkpoint/checkpoint_source.hpp"
#include "actors/rank/checkpoint_files.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/doubles/transports.hpp"
#include "tests/test.hpp"

#include <thread>

using namespace ranvier;
using actors::TierKind;

namespace {

constexpr std::int64_t all_steps = 6;

actors::TrainerOptions file_run(const actors::TierOptions& tiers, const std::filesystem::path& nvme) {
  auto options = tests::small_run();
  options.steps = all_steps;
  options.learning_rate = {.peak = 1e-2, .steps = all_steps};
  options.batch_size = 4;
  options.tiers = tiers;
  options.tiers.bucket_elements = 1500;
  options.tiers.files.directories = {nvme};
  options.checkpoint_staging = std::size_t{128} << 10;
  options.gpu = {{.scratch_bytes = 0, .staged = false}};  // the host cannot access device memory
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::vector<actors::CheckpointResult> checkpoints;
};

/// Trains on a device whose memory the host cannot access, from a checkpoint if there is one.
Trained train(const actors::TrainerOptions& options, const std::filesystem::path& checkpoints, std::int64_t every,
              const std::filesystem::path& from = {}, const std::filesystem::path& damaged = {},
              const offload::FileSystem& storage = offload::system_storage()) {
  const auto gpt = tests::small_gpt(2);
  const auto architecture = models::make_gpt(gpt);
  const tests::RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  runtime::AsioLoop loop;
  tests::LoneTransport transport;
  tests::FarDevice device(runtime::make_cpu_device({}));
  device.on_failure([&](std::exception_ptr error) { loop.stop(error); });
  offload::CheckpointFolder folder(checkpoints, storage);
  folder.lock("0123abcd");
  actors::Rank rank(loop, transport, device, actors::Rank::Samples{tokens},
                    actors::plan_rank(architecture, tokens.sample_bytes(), options, 0));
  std::unique_ptr<offload::CheckpointReader> reader;
  std::unique_ptr<actors::CheckpointSource> source;
  if (!damaged.empty()) {
    reader = std::make_unique<offload::CheckpointReader>(damaged);
    source = std::make_unique<actors::CheckpointSource>(*reader, architecture, options.tiers);
    const auto load = [&] {
      rank.resume(*source);
      rank.load([&] { loop.stop(); });
      loop.run();
    };
    CHECK_THROWS_WITH_AS(load(), doctest::Contains("changed after they were written"), Error);
  }
  if (from.empty()) {
    tests::load_initial_weights(rank, options.seed);
  } else {
    reader = std::make_unique<offload::CheckpointReader>(from);
    source = std::make_unique<actors::CheckpointSource>(*reader, architecture, options.tiers);
    rank.resume(*source);
  }
  Trained trained;
  actors::CheckpointFiles files(loop, rank.plan(), folder,
                                {.job = "0123abcd", .keep = 2, .about = [&] {
                                   return boost::json::object{{"loss", trained.losses.back()}};
                                 }});
  rank.add_checkpoints({.target = &files, .every = every, .result = [&](const actors::CheckpointResult& result) {
                          trained.checkpoints.push_back(result);
                        }});
  device.close(runtime::MemorySpace::pinned);
  device.close(runtime::MemorySpace::device);
  rank.start({.step = [&](const actors::StepResult& step) { trained.losses.push_back(step.loss); },
              .done = [&] { loop.stop(); }});
  loop.run();
  return trained;
}

}  // namespace

TEST_CASE("a run resumes from its checkpoint files, regardless of the tiers of its states before and after") {
  const tests::TemporaryFolder nvme;
  using actors::StepLocation;
  const std::vector<actors::TierOptions> all_tiers = {
      {},
      {.optimizer = TierKind::host},
      {.optimizer = TierKind::nvme},
      {.optimizer = TierKind::nvme, .step = StepLocation::host},
      {.parameters = TierKind::nvme, .optimizer = TierKind::nvme, .commit = actors::Commit::flip},
      {.gradients = TierKind::host,
       .optimizer = TierKind::host,
       .optimizer_budget = 10'000,
       .step = StepLocation::host},
      {.parameters = TierKind::host,
       .optimizer = TierKind::nvme,
       .optimizer_budget = 10'000,
       .commit = actors::Commit::flip},
  };
  std::vector<double> expected;
  for (std::size_t t = 0; t < all_tiers.size(); ++t) {
    CAPTURE(t);
    const tests::TemporaryFolder checkpoints;
    const Trained whole = train(file_run(all_tiers[t], nvme.path()), checkpoints.path(), 2);
    if (t == 0) expected = whole.losses;
    CHECK(whole.losses == expected);
    REQUIRE(!whole.checkpoints.empty());
    for (const auto& result : whole.checkpoints) {
      CHECK(result.failure == "");
      CHECK(result.warning == "");
    }
    const offload::CheckpointFolder folder(checkpoints.path());
    const auto entries = folder.list();
    REQUIRE(!entries.empty());
    CHECK(entries.size() <= 2);
    CHECK(entries.back().step == all_steps);
    for (const auto& entry : entries) {
      CAPTURE(entry.why_not);
      CHECK(entry.whole);
      CHECK(offload::verify_checkpoint(entry.path, 2).empty());
    }
    const auto& from = entries.front();
    const tests::TemporaryFolder others;
    const Trained late =
        train(file_run(all_tiers[(t + 2) % all_tiers.size()], nvme.path()), others.path(), 0, from.path);
    CHECK(late.losses ==
          std::vector<double>(expected.begin() + static_cast<std::ptrdiff_t>(from.step), expected.end()));
  }
}

TEST_CASE("checkpoints of Muon have its second moments only, and resume with complete ones too") {
  const tests::TemporaryFolder nvme;
  using actors::UpdateRule;
  const actors::TierOptions muon{.rule = UpdateRule::muon};
  const auto architecture = models::make_gpt(tests::small_gpt(2));
  for (const actors::TierOptions& tiers :
       {muon,
        actors::TierOptions{.parameters = TierKind::host, .optimizer = TierKind::nvme, .rule = UpdateRule::muon},
        actors::TierOptions{.optimizer = TierKind::host, .optimizer_budget = 20'000, .rule = UpdateRule::muon}}) {
    const tests::TemporaryFolder checkpoints, others;
    const Trained whole = train(file_run(tiers, nvme.path()), checkpoints.path(), 2);
    const auto entry = offload::CheckpointFolder(checkpoints.path()).list().front();
    CHECK(offload::verify_checkpoint(entry.path, 2).empty());
    const Trained late = train(file_run(muon, nvme.path()), others.path(), 0, entry.path);
    CHECK(late.losses ==
          std::vector<double>(whole.losses.begin() + static_cast<std::ptrdiff_t>(entry.step), whole.losses.end()));
    offload::CheckpointReader reader(entry.path);
    for (const models::UnitSpec& unit : architecture.units()) {
      const bool has_matrices = !actors::matrices_of(unit).empty();
      CHECK((reader.find(unit.name, "v")->elements < unit.elements()) == has_matrices);
      CHECK(reader.find(unit.name, "m")->elements == unit.elements());
    }
    CHECK_THROWS_WITH_AS(actors::CheckpointSource(reader, architecture, {}), doctest::Contains("elements in v of"),
                         Error);
    const actors::CheckpointSource fresh(reader, architecture, {}, actors::CheckpointSource::Moments::zero);
    CHECK(!fresh.scalars().empty());
  }
  // Older checkpoints of Muon have complete arrays, as AdamW has.
  const tests::TemporaryFolder checkpoints, others;
  (void)train(file_run({}, nvme.path()), checkpoints.path(), 2);
  const auto entry = offload::CheckpointFolder(checkpoints.path()).list().front();
  offload::CheckpointReader reader(entry.path);
  actors::CheckpointSource source(reader, architecture, muon);
  for (const models::UnitSpec& unit : architecture.units()) {
    std::vector<float> all(unit.elements()), some;
    reader.read(unit.name, "v", 0, all);
    const auto stored = stored_elements(actors::StateKind::v, unit, unit.elements(), muon);
    for (const collectives::Range& range : stored.in({0, unit.elements()})) {
      some.resize(range.count);
      source.read(unit, "v", range.begin, some);
      CHECK(std::equal(some.begin(), some.end(), all.begin() + static_cast<std::ptrdiff_t>(range.begin)));
    }
  }
  CHECK(train(file_run(muon, nvme.path()), others.path(), 0, entry.path).losses.size() ==
        static_cast<std::size_t>(all_steps - entry.step));
}

TEST_CASE("loading a damaged checkpoint leaves no partial state behind") {
  const tests::TemporaryFolder nvme, checkpoints, others;
  for (const actors::TierOptions& tiers :
       {actors::TierOptions{},
        actors::TierOptions{
            .parameters = TierKind::host, .optimizer = TierKind::nvme, .commit = actors::Commit::flip}}) {
    const auto options = file_run(tiers, nvme.path());
    const Trained whole = train(options, checkpoints.path(), 2);
    const auto all = offload::CheckpointFolder(checkpoints.path()).list();
    REQUIRE(all.size() == 2);
    {
      const auto data = all.back().path / "rank-0000.data";
      std::fstream bytes(data, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(std::filesystem::file_size(data)) - 4096).put('!');
    }
    // The previous checkpoint, or none.
    const Trained late = train(options, others.path(), 0, all.front().path, all.back().path);
    CHECK(late.losses == std::vector<double>(whole.losses.begin() + static_cast<std::ptrdiff_t>(all.front().step),
                                             whole.losses.end()));
    CHECK(train(options, others.path(), 0, {}, all.back().path).losses == whole.losses);
    for (const auto& entry : all) std::filesystem::remove_all(entry.path);
  }
}

TEST_CASE("a checkpoint records its own step, however long its folder takes to create") {
  class SlowStorage final : public offload::FileSystem {
   public:
    int make_folder(const std::filesystem::path& folder) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // during many steps
      return FileSystem::make_folder(folder);
    }
  };
  const tests::TemporaryFolder nvme, checkpoints;
  const SlowStorage slow;
  const Trained trained = train(file_run({}, nvme.path()), checkpoints.path(), 2, {}, {}, slow);
  REQUIRE(trained.checkpoints.front().step == 2);
  // The number of later checkpoints, and so whether the first is kept, depends on the time of a step.
  const offload::CheckpointFolder folder(checkpoints.path());
  const auto kept = folder.list();
  REQUIRE(!kept.empty());
  for (const auto& entry : kept) {
    CAPTURE(entry.step);
    const double loss = trained.losses.at(static_cast<std::size_t>(entry.step) - 1);
    CHECK(offload::open_checkpoint(offload::system_storage(), entry.path).about.at("loss").as_double() ==
          doctest::Approx(loss).epsilon(1e-12));
  }
}

TEST_CASE("the files of all ranks of a grid are one complete checkpoint, and damage to one file is reported") {
  const tests::TemporaryFolder checkpoints;
  const auto architecture = models::make_gpt(tests::small_gpt(3));
  auto options = tests::small_run({3, 4}, "paro-iig");
  options.group_size = 2;
  options.tiers.bucket_elements = 600;
  options.checkpoint_staging = 1;
  // Test value of an element.
  const auto value = [](const std::string& unit, std::size_t array, std::size_t element) {
    return static_cast<float>(unit.size() + unit.back() + 1000 * array) + 1e-3f * static_cast<float>(element);
  };
  offload::CheckpointFolder folder(checkpoints.path());
  folder.lock("cafe");
  std::vector<actors::CheckpointShare> shares;
  runtime::AsioLoop first_loop;
  std::unique_ptr<actors::CheckpointFiles> first;
  const auto device = runtime::make_inline_device();
  for (int r = 0; r < options.grid.ranks(); ++r) {
    runtime::AsioLoop other_loop;
    runtime::AsioLoop& loop = r == 0 ? first_loop : other_loop;
    const auto plan = tests::plan_of(architecture, options, r);
    auto files = std::make_unique<actors::CheckpointFiles>(
        loop, plan, folder, actors::CheckpointFiles::Options{.job = "cafe", .about = nullptr});
    if (r == 0) files->prepare(7);
    const auto& pieces = plan.snapshot.pieces;
    const runtime::Buffer memory =
        device->allocate(pieces.size() * plan.snapshot.staging.bytes, runtime::MemorySpace::pinned);
    const auto blocks = [&](std::size_t p) {
      return std::span(memory.data() + p * plan.snapshot.staging.bytes,
                       offload::Tier::whole_blocks(pieces[p].bytes()));
    };
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::string& unit = plan.states->all()[pieces[p].unit].spec->name;
      auto* values = reinterpret_cast<float*>(blocks(p).data());
      for (std::size_t e = 0; e < pieces[p].count; ++e)
        values[e] = value(unit, pieces[p].array, pieces[p].begin + e);
    }
    std::size_t missing = pieces.size();
    const auto close = [&] {
      files->close([&](actors::CheckpointShare share) {
        shares.push_back(std::move(share));
        loop.stop();
      });
    };
    loop.post([&] {
      files->open(7, [&] {
        if (missing == 0) close();
        for (std::size_t p = 0; p < pieces.size(); ++p) {
          files->put(pieces[p], p, blocks(p), runtime::xxh3(blocks(p)), [&] {
            if (--missing == 0) close();
          });
        }
      });
    });
    loop.run();
    CHECK(shares.back().failure == "");
    if (r == 0) first = std::move(files);
  }
  CHECK(first->commit(
            7, std::vector<actors::StateScalar>{{"step", std::int64_t{7}}, {"applied_steps", std::int64_t{5}}},
            shares) == "");

  const auto entry = folder.newest_whole();
  REQUIRE(entry);
  CHECK(entry->step == 7);
  {
    offload::CheckpointReader reader(entry->path);
    actors::CheckpointSource source(reader, architecture, options.tiers);
    CHECK(actors::find_scalar<std::int64_t>(source.scalars(), "step") == 7);
    for (const models::UnitSpec& unit : architecture.units()) {
      for (std::size_t array = 0; array < actors::optimizer_states.size(); ++array) {
        std::vector<float> all(unit.elements());
        source.read(unit, to_string(actors::optimizer_states[array]), 0, all);
        bool same = true;
        for (std::size_t e = 0; e < all.size(); ++e) same &= all[e] == value(unit.name, array, e);
        CHECK(same);
      }
    }
    auto sgd = options.tiers;
    sgd.rule = actors::UpdateRule::sgd;
    CHECK_THROWS_WITH_AS(actors::CheckpointSource(reader, architecture, sgd), doctest::Contains("`optimizer`"),
                         Error);
    actors::CheckpointSource fresh(reader, architecture, sgd, actors::CheckpointSource::Moments::zero);
    const models::UnitSpec unit = architecture.units().front();
    std::vector<float> weights(unit.elements()), m(unit.elements(), 1.0f);
    fresh.will_read(std::vector<actors::StateRange>{{&unit, "m", {0, unit.elements()}}});
    fresh.read(unit, "weights", 0, weights);
    fresh.read(unit, "m", 0, m);
    CHECK(weights.back() == value(unit.name, 0, unit.elements() - 1));
    CHECK(m == std::vector<float>(unit.elements()));
    // New moments need the bias correction of first steps.
    CHECK(actors::find_scalar<std::int64_t>(source.scalars(), "applied_steps") == 5);
    CHECK(!actors::find_scalar<std::int64_t>(fresh.scalars(), "applied_steps"));
    const auto other = models::make_gpt(tests::small_gpt(2));
    CHECK_THROWS_WITH_AS(actors::CheckpointSource(reader, other, options.tiers),
                         doctest::Contains("arrays, but the model"), Error);
  }
  const std::filesystem::path file = entry->path / "rank-0005.data";
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.put('!');
  }
  const auto damage = offload::verify_checkpoint(entry->path, 2);
  REQUIRE(damage.size() == 1);
  CHECK(damage.front().file == "rank-0005.data");
}
