// Bytes over links against PaRO's Table 2, as formulas of flat rings, and MiCS §3.3's hierarchical gathers.
#include "actors/predict/volume.hpp"

#include "models/families/gpt.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using collectives::named_shardings;
using collectives::parse_sharding;
using runtime::DType;

namespace {

std::vector<int> alike_nodes(int ranks, int node_size) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / node_size);
  return nodes;
}

PlanChoices all_algorithms(const char* one_way, const char* both_ways) {
  PlanChoices choices;
  choices.fill({.all_gather = one_way, .reduce_scatter = one_way, .all_reduce = both_ways});
  return choices;
}

VolumeOptions flat_rings(int ranks, int node_size) {
  return {.node_of = alike_nodes(ranks, node_size),
          .group_size = node_size,
          .algorithms = all_algorithms("ring", "ring")};
}

/// Elements over all ranks: inside the groups, and between them.
struct Elements {
  std::uint64_t inside = 0, between = 0;
};
Elements operator+(Elements a, Elements b) { return {a.inside + b.inside, a.between + b.between}; }
Elements operator*(std::uint64_t factor, Elements a) { return {factor * a.inside, factor * a.between}; }

void check(const PhaseVolume& volume, Elements expected) {
  CHECK(volume.intra_node.elements == expected.inside);
  CHECK(volume.inter_node.elements == expected.between);
}

}  // namespace

TEST_CASE("flat rings send the volume of Table 2, element by element") {
  struct Case {
    std::uint64_t N, M, s;
  };
  for (const auto& [N, M, s] :
       {Case{4, 2, 1}, {4, 2, 4}, {6, 3, 2}, {6, 2, 5}, {9, 3, 3}, {64, 8, 8}, {8, 1, 2}, {5, 5, 3}}) {
    const std::uint64_t g = N / M, psi = N * 32 * 11;
    const Elements none;
    // Each of the N edges of the global ring carries psi (N-1)/N; g of them are between groups.
    const Elements ring{(N - g) * (psi * (N - 1) / N), g > 1 ? g * (psi * (N - 1) / N) : 0};
    const Elements I{N * (psi * (M - 1) / M), 0};
    const Elements X{0, psi * (g - 1)};
    struct Row {
      const char* name;
      Elements forward, backward, update;
    };
    const Row table_2[] = {
        {"zero1", none, none, 2 * ring},
        {"zero2", none, s * ring, ring},
        {"zero3", s * ring, 2 * s * ring, none},
        {"mics", s * I, 2 * s * I, 2 * X},
        {"zero++", s * ring, s * I + s * ring, none},
        {"paro-igg", s * I, 2 * s * I + s * X, X},
        {"paro-iig", s * I, 2 * s * I, 2 * X},
        {"paro-nig", none, s * I, 2 * X + I},
        {"ddp", none, none, 2 * ring},
    };
    VolumeCounter counter(flat_rings(static_cast<int>(N), static_cast<int>(M)));
    const auto units = moves_of(std::vector<ShardedUnit>{{N * 32 * 5}, {N * 32}, {N * 32 * 5}}, s);
    for (const auto& [name, forward, backward, update] : table_2) {
      INFO("name ", name, ", N ", N, ", M ", M, ", s ", s);
      // With one group its ring is the global one, whose closing edge is inside the group.
      const auto volume = counter.count(units, parse_sharding(name));
      if (g == 1) {
        const auto one = [](Elements e) { return e.inside + e.between; };
        const Elements flat{psi * (N - 1), 0};
        const std::string row = name;
        CHECK(volume.total().inter_node.elements == 0);
        if (row == "zero3" || row == "mics") CHECK(volume.total().intra_node.elements == one(3 * s * flat));
        continue;
      }
      check(volume.forward, forward);
      check(volume.backward, backward);
      check(volume.update, update);
    }
  }
}

TEST_CASE("the gather of frozen parameters has Ψ − Ψ′ elements, and the rest of Table 2 the Ψ′ trained ones") {
  for (const auto& [N, M, s] : {std::array<std::uint64_t, 3>{4, 2, 3}, {6, 3, 1}, {64, 8, 8}}) {
    const std::uint64_t g = N / M;
    const Elements none;
    struct Way {
      const char* name;
      Elements forward, gather, scatter, update;
    };
    const auto table_2 = [&, N = N, M = M, s = s](std::uint64_t psi, bool is_trained) {
      const Elements ring{(N - g) * (psi * (N - 1) / N), g * (psi * (N - 1) / N)};
      const Elements I{N * (psi * (M - 1) / M), 0}, X{0, psi * (g - 1)};
      return std::array{Way{"zero1", none, none, none, 2 * ring}, Way{"zero2", none, none, s * ring, ring},
                        Way{"zero3", s * ring, s * ring, s * ring, none}, Way{"mics", s * I, s * I, s * I, 2 * X},
                        // The second copy of frozen parameters is still valid.
                        Way{"zero++", is_trained ? s * ring : s * I, s * I, s * ring, none},
                        Way{"paro-igg", s * I, s * I, s * (I + X), X},
                        Way{"paro-nig", none, none, s * I, 2 * X + I}};
    };
    const std::uint64_t base = N * 32 * 100, adapters = N * 32 * 3;
    VolumeCounter counter(flat_rings(static_cast<int>(N), static_cast<int>(M)));
    const auto units = moves_of(std::vector<ShardedUnit>{{.elements = base / 2, .trained = false},
                                                         {.elements = adapters},
                                                         {.elements = base / 2, .trained = false}},
                                s);
    for (const Way& frozen : table_2(base, false)) {
      for (const Way& trained : table_2(adapters, true)) {
        INFO("frozen.name ", frozen.name, ", trained.name ", trained.name);
        const auto volume = counter.count(units, {parse_sharding(frozen.name), parse_sharding(trained.name)});
        check(volume.forward, frozen.forward + trained.forward);
        check(volume.backward, frozen.gather + trained.gather + trained.scatter);
        check(volume.update, trained.update);
      }
    }
  }
}

TEST_CASE("between groups the number of elements is that in the last column of Table 2") {
  // Figure 5: N = 64, s = 8, g = 8.
  constexpr std::uint64_t N = 64, g = 8, s = 8, psi = N * 32 * 1000;
  constexpr std::uint64_t gA = g * (psi / N * (N - 1)), X = psi * (g - 1);
  VolumeCounter counter(flat_rings(N, 8));
  const auto between = [&](const char* name) {
    return counter.count(moves_of(std::vector<ShardedUnit>{{psi}}, s), parse_sharding(name))
        .total()
        .inter_node.elements;
  };
  CHECK(between("zero1") == 2 * gA);
  CHECK(between("zero2") == (s + 1) * gA);
  CHECK(between("zero3") == 3 * s * gA);
  CHECK(between("mics") == 2 * X);
  CHECK(between("zero++") == 2 * s * gA);
  CHECK(between("paro-igg") == (s + 1) * X);
  CHECK(between("paro-iig") == 2 * X);
  CHECK(between("paro-nig") == 2 * X);
}

TEST_CASE("a hierarchical gather in a group that spans nodes sends (p - k)/p out of each node") {
  for (const auto& [p, k] : {std::pair{4, 2}, {6, 3}, {6, 2}, {16, 8}}) {
    for (const int groups : {1, 3}) {
      INFO("p ", p, ", k ", k, ", groups ", groups);
      const int ranks = p * groups;
      const std::size_t psi = std::size_t(ranks) * 32 * 9;
      const auto nodes_of_group = std::uint64_t(p / k);
      const auto gathered = [&, p = p, k = k](const char* algorithm) {
        VolumeCounter counter(
            {.node_of = alike_nodes(ranks, k), .group_size = p, .algorithms = all_algorithms(algorithm, "ring")});
        const auto volume = counter.count(moves_of(std::vector<ShardedUnit>{{psi}}, 2), parse_sharding("mics"));
        return volume.forward.inter_node.elements / (2 * nodes_of_group * std::uint64_t(groups));
      };
      CHECK(gathered("ring") == psi / std::size_t(p) * std::size_t(p - 1));
      for (const char* algorithm : {"hierarchical", "h-ring", "ho-ring"}) {
        CHECK(gathered(algorithm) == psi / std::size_t(p) * std::size_t(p - k));
      }
    }
  }
}

TEST_CASE("parameters are sent in the compute type, gradients in their own type") {
  auto options = flat_rings(4, 2);
  options.precision = {DType::bf16, DType::f32};
  VolumeCounter counter(options);
  const auto volume = counter.count(moves_of(std::vector<ShardedUnit>{{6400}}, 3), parse_sharding("zero2"));
  CHECK(volume.backward.inter_node.bytes == 4 * volume.backward.inter_node.elements);
  CHECK(volume.update.inter_node.bytes == 2 * volume.update.inter_node.elements);
  CHECK(volume.total().inter_node.bytes == volume.backward.inter_node.bytes + volume.update.inter_node.bytes);
}

TEST_CASE("messages in blocks send 260 or 132 bytes per 256 elements, and sums go by groups (ZeRO++)") {
  using enum collectives::WireType;
  constexpr std::uint64_t N = 8, M = 2, g = N / M, s = 3, blocks = 11 * N, psi = blocks * 256;
  // Elements of rings of the column, within all groups, and between groups.
  constexpr std::uint64_t ring_inside = (N - g) * (psi * (N - 1) / N), ring_between = g * (psi * (N - 1) / N);
  constexpr std::uint64_t I = N * (psi * (M - 1) / M), X = psi * (g - 1);
  struct Bytes {
    std::uint64_t inside = 0, between = 0;
  };
  const auto in_int8 = [](std::uint64_t elements) { return elements / 256 * 260; };
  const auto in_int4 = [](std::uint64_t elements) { return elements / 256 * 132; };
  const auto in_half = [](std::uint64_t elements) { return 2 * elements; };
  const auto check_bytes = [](const PhaseVolume& volume, const Bytes& bytes) {
    CHECK(volume.intra_node.bytes == bytes.inside);
    CHECK(volume.inter_node.bytes == bytes.between);
  };
  auto options = flat_rings(N, M);
  options.precision = {DType::bf16, DType::bf16};
  options.wire = {.gather = {.inter_node = int8}, .reduce = {.intra_node = int8, .inter_node = int4}};
  VolumeCounter counter(options);
  const auto units = moves_of(std::vector<ShardedUnit>{{psi}}, s);
  const auto count = [&](const char* name) { return counter.count(units, parse_sharding(name)); };

  // A column spans nodes, so all its messages have the type of links between nodes.
  const Volume zero3 = count("zero3");
  check_bytes(zero3.forward, {s * in_int8(ring_inside), s * in_int8(ring_between)});
  check_bytes(zero3.backward, {s * (in_int8(ring_inside) + in_int8(I)), s * (in_int8(ring_between) + in_int4(X))});
  CHECK(zero3.forward.inter_node.elements == s * ring_between);
  CHECK(zero3.backward.inter_node.elements == s * (ring_between + X));
  CHECK(zero3.forward.seconds > 0);

  const Volume zeropp = count("zero++");
  check_bytes(zeropp.forward, {s * in_int8(ring_inside), s * in_int8(ring_between)});
  check_bytes(zeropp.backward, {s * (in_half(I) + in_int8(I)), s * in_int4(X)});
  check_bytes(count("mics").backward, {s * (in_half(I) + in_int8(I)), 0});
  check_bytes(count("mics").update, {0, 2 * in_int4(X)});
  check_bytes(count("ddp").update, {in_int8(I) + in_half(0) + in_int8(I), 2 * in_int4(X)});
  // The refresh gathers parameters from the column.
  check_bytes(count("zero1").update, {in_int8(I) + in_int8(ring_inside), in_int4(X) + in_int8(ring_between)});
  // Reduced gradients are gathered in the type of reductions.
  check_bytes(count("GGN").update, {in_int8(I), in_int4(X)});
}

TEST_CASE("all teams of a kind use the type for links between nodes if one of them spans nodes") {
  using enum collectives::WireType;
  // Groups of two, one of which spans nodes.
  VolumeOptions options{
      .node_of = {0, 0, 0, 1, 1, 1}, .group_size = 2, .algorithms = all_algorithms("ring", "ring")};
  options.wire = {.reduce = {.intra_node = int8, .inter_node = int4}};
  VolumeCounter counter(options);
  constexpr std::uint64_t psi = 6 * 256 * 2;
  const auto update = counter.count(moves_of(std::vector<ShardedUnit>{{psi}}, 1), parse_sharding("ddp")).update;
  const auto all = update.intra_node.elements + update.inter_node.elements;
  CHECK(update.intra_node.bytes + update.inter_node.bytes == all / 256 * 132);
}

TEST_CASE("a unit that two layers use is gathered and reduced for each, and updated once") {
  VolumeCounter counter(flat_rings(4, 2));
  for (const auto& [name, sharding] : named_shardings()) {
    CAPTURE(name);
    const auto once = counter.count(moves_of(std::vector<ShardedUnit>{{6400, 1}}, 3), sharding);
    const auto twice = counter.count(moves_of(std::vector<ShardedUnit>{{6400, 2}}, 3), sharding);
    CHECK(twice.forward.inter_node.elements == 2 * once.forward.inter_node.elements);
    CHECK(twice.backward.intra_node.elements == 2 * once.backward.intra_node.elements);
    CHECK(twice.update.inter_node == once.update.inter_node);
  }
}

TEST_CASE("pulls bring each rank the shards of the others, directly from their owners") {
  auto options = flat_rings(6, 3);
  options.pulls = true;
  VolumeCounter pulls(options);
  constexpr std::uint64_t psi = 6 * 32 * 10, s = 2;
  const auto units = moves_of(std::vector<ShardedUnit>{{psi}}, s);
  // From the column: two of the other five ranks' sixths are on the same node.
  check(pulls.count(units, parse_sharding("zero3")).forward, {s * 6 * 2 * psi / 6, s * 6 * 3 * psi / 6});
  check(pulls.count(units, parse_sharding("mics")).forward, {s * 6 * 2 * psi / 3, 0});
  check(pulls.count(units, parse_sharding("GIG")).forward, {s * 6 * 2 * psi / 6, s * 6 * 3 * psi / 6});
  const auto zeropp = pulls.count(units, parse_sharding("zero++"));
  CHECK(zeropp.forward.inter_node.elements == s * 6 * 3 * psi / 6);
  CHECK(zeropp.backward.intra_node.elements > 0);
  CHECK(pulls.count(units, parse_sharding("zero1")).forward.intra_node.elements == 0);
  CHECK(pulls.count(units, parse_sharding("zero3")).forward.seconds > 0);
}

TEST_CASE("the volume of a column depends on its ranks' actual nodes, not on its layout") {
  // Rows 0 and 1 share a node in this column, but not in another one: the layout treats every rank separately.
  VolumeCounter counter({.node_of = {0, 0, 1, 1},
                         .node_of_row = {0, 1, 2, 3},
                         .group_size = 1,
                         .algorithms = all_algorithms("ring", "ring")});
  const auto volume = counter.count(moves_of(std::vector<ShardedUnit>{{6400}}, 3), parse_sharding("zero1"));
  check(volume.update, {2 * 2 * 4800, 2 * 2 * 4800});
}

TEST_CASE("every sharding triple sends a computable volume, on uneven nodes too, and one rank sends nothing") {
  const std::vector<int> uneven{0, 0, 0, 1, 1, 2};
  for (const int group_size : {1, 2, 3, 6}) {
    VolumeCounter counter(
        {.node_of = uneven, .group_size = group_size, .algorithms = all_algorithms("recursive", "recursive")});
    VolumeCounter alone({.node_of = {0}});
    for (const char p : std::string("NIG")) {
      for (const char g : std::string("NIG")) {
        for (const char o : std::string("NIG")) {
          const auto sharding = parse_sharding(std::string{p, g, o});
          const auto total = counter.count(moves_of(std::vector<ShardedUnit>{{6 * 32 * 5}}, 3), sharding).total();
          CHECK(total.inter_node.elements > 0);
          CHECK(total.seconds > 0);
          const auto nothing = alone.count(moves_of(std::vector<ShardedUnit>{{32}}, 3), sharding).total();
          CHECK(nothing.intra_node.elements + nothing.inter_node.elements == 0);
          CHECK(nothing.seconds == 0);
        }
      }
    }
  }
}
