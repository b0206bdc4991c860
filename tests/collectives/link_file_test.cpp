#include "collectives/plans/link_file.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;
using namespace ranvier::tests;

namespace {

const std::string intra =
    R"("intra_node": {"latency_seconds": 0, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9})";
const std::string inter =
    R"("inter_node": {"latency_seconds": 4e-05, "bytes_per_second": 25000000, "node_bytes_per_second": 5e7})";

/// Error message of the refusal of `json`.
ranvier::Error refusal(const std::string& json) {
  const auto error = error_of([&] { (void)parse_links(json, "--links cluster.json"); });
  CHECK(says(error, ranvier::ErrorCode::usage, "--links cluster.json: "));
  return error;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a links file has latency and rates of both link classes") {
  const Links links = read_links(folder.write("links.json", "{" + inter + ",\n" + intra + "}\n"));
  CHECK(links.intra_node == Link{0, 6e9, 12e9});
  CHECK(links.inter_node == Link{4e-5, 2.5e7, 5e7});
}

TEST_CASE("a links file reads back as written") {
  const Links links{{1.0 / 3e6, 1e10 / 7, 2e10 / 7}, {5.1e-5, 123456789.123456789, 1e300}};
  const Links read = parse_links(to_json(links), "a test");
  for (const auto link : {&Links::intra_node, &Links::inter_node})
    for (const auto field : {&Link::latency_seconds, &Link::bytes_per_second, &Link::node_bytes_per_second})
      CHECK(read.*link.*field == doctest::Approx(links.*link.*field).epsilon(1e-14));
}

TEST_CASE("an incomplete links file is refused with the name of the missing entry") {
  CHECK(says(refusal("{}"), "has no link class"));
  CHECK(says(refusal("{" + intra + R"(, "inter_node": {"latency_seconds": 1, "bytes_per_second": 1}})"),
             "lacks 'inter_node.node_bytes_per_second'"));
}

TEST_CASE("a link class without links may be omitted, and is omitted when written") {
  const Links one_node = parse_links("{" + intra + "}", "a test");
  CHECK(one_node.intra_node.measured());
  CHECK(!one_node.inter_node.measured());
  CHECK(parse_links(to_json(one_node), "a test") == one_node);
  const Links one_rank_each = parse_links("{" + inter + "}", "a test");
  CHECK(!one_rank_each.intra_node.measured());
  CHECK(parse_links(to_json(one_rank_each), "a test") == one_rank_each);

  require_classes(one_node, std::vector{0, 0, 0}, "a test");
  require_classes(one_node, std::vector{0}, "a test");
  require_classes(one_rank_each, std::vector{0, 1, 2}, "a test");
  const auto refused = [](const Links& links, const std::vector<int>& node_of) {
    const auto error = error_of([&] { require_classes(links, node_of, "--links cluster.json"); });
    CHECK(says(error, ranvier::ErrorCode::usage, "ranvier-bench `write_links`"));
    return error;
  };
  CHECK(says(
      refused(one_node, {0, 0, 1, 1}),
      "--links cluster.json: no entry for links of class 'inter_node', but the ranks of this run are on 2 nodes"));
  CHECK(says(refused(one_rank_each, {0, 1, 2, 2}), "no entry for links of class 'intra_node'"));
}

TEST_CASE("a malformed links file is refused with the reason and its form") {  // by the reader of machine profiles
  CHECK(says(refusal("links"), "is not JSON", R"(write {"intra_node": {"latency_seconds": )"));
  CHECK(says(refusal("{" + intra + ", " + replaced(inter, "inter_node", "inter-node") + "}"),
             "unknown key 'inter-node': perhaps 'inter_node'"));
  for (const char* value : {"-1", "1e999"})
    CHECK(says(refusal("{" + intra + ", " + replaced(inter, "4e-05", value) + "}"),
               "'inter_node.latency_seconds' that is not a number from 0 on"));
  for (const char* value : {"0", "-1", "1e999"})
    CHECK(says(refusal("{" + intra + ", " + replaced(inter, "25000000", value) + "}"),
               "'inter_node.bytes_per_second' that is not a number above 0"));
}

TEST_CASE("a missing links file is refused by name") {
  const auto error = error_of([] { (void)read_links("/nowhere/links.json"); });
  CHECK(says(error, ranvier::ErrorCode::usage, "`links` /nowhere/links.json"));
}
