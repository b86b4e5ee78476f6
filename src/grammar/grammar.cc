// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "grammar/string_lexer.h"

namespace pagewise::grammar {
namespace {

using Kind = Node::Kind;

// nest_min of what has no end within kNestMax levels.
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

std::span<const uint32_t> children_of(const Program& program, const Node& node) {
  switch (node.kind) {
    case Kind::kSequence:
    case Kind::kChoice:
    case Kind::kRepeat:
    case Kind::kNest:
    case Kind::kForward:
      return std::span(program.children).subspan(node.first, node.count);
    case Kind::kText:
      return program.texts[node.first].then;
    default:
      return {};
  }
}

/// Every part that can be met from `root` on, in the order in which it is found.
std::vector<uint32_t> reachable(const Program& program, uint32_t root) {
  std::vector<uint32_t> found = {root};
  std::vector<bool> seen(program.nodes.size());
  seen[root] = true;
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const uint32_t child : children_of(program, program.nodes[found[i]])) {
      if (seen[child]) continue;
      seen[child] = true;
      found.push_back(child);
    }
  }
  return found;
}

bool empty_possible(const Program& program, const Node& node) {
  const auto is_empty = [&program](uint32_t child) { return program.nodes[child].can_be_empty; };
  const std::span<const uint32_t> children = children_of(program, node);
  switch (node.kind) {
    case Kind::kLiteral:
      return node.count == 0;
    case Kind::kWords:
      return program.tries[node.first].places[0].word >= 0;
    case Kind::kSequence:
    case Kind::kNest:
    case Kind::kForward:
      return std::all_of(children.begin(), children.end(), is_empty);
    case Kind::kChoice:
      return std::any_of(children.begin(), children.end(), is_empty);
    case Kind::kRepeat:
      return node.min == 0;
    default:
      return false;
  }
}

uint32_t least_nesting(const Program& program, const Node& node) {
  const auto nest_min = [&program](uint32_t child) { return program.nodes[child].nest_min; };
  const std::span<const uint32_t> children = children_of(program, node);
  uint32_t most = 0;
  uint32_t least = kNever;
  for (const uint32_t child : children) {
    most = std::max(most, nest_min(child));
    least = std::min(least, nest_min(child));
  }
  switch (node.kind) {
    case Kind::kSequence:
    case Kind::kForward:
      return most;
    case Kind::kChoice:
      return least;
    case Kind::kRepeat:
      if (node.min == 0) return 0;
      return node.min == 1 ? nest_min(children[0]) : most;
    case Kind::kNest:
      return most >= kNestMax ? kNever : most + 1;
    case Kind::kText:
      return program.texts[node.first].may_end ? 0 : least;
    default:
      return 0;
  }
}

/// Works out can_be_empty and nest_min of all parts. A part is looked at again when one of its
/// children has changed, which each does at most kNestMax + 2 times.
void settle(Program& program, const std::vector<uint32_t>& parts) {
  // parents[begins[child], begins[child + 1])
  std::vector<uint32_t> begins(program.nodes.size() + 1);
  for (const uint32_t id : parts) {
    for (const uint32_t child : children_of(program, program.nodes[id])) ++begins[child + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<uint32_t> parents(begins.back());
  std::vector<uint32_t> ends = begins;
  for (const uint32_t id : parts) {
    for (const uint32_t child : children_of(program, program.nodes[id]))
      parents[ends[child]++] = id;
  }
  std::deque<uint32_t> due(parts.rbegin(), parts.rend());  // children first, mostly
  std::vector<bool> is_due(program.nodes.size(), true);
  for (; !due.empty(); due.pop_front()) {
    const uint32_t id = due.front();
    is_due[id] = false;
    Node& node = program.nodes[id];
    const bool can_be_empty = empty_possible(program, node);
    const uint32_t nest_min = least_nesting(program, node);
    if (can_be_empty == node.can_be_empty && nest_min == node.nest_min) continue;
    node.can_be_empty = can_be_empty;
    node.nest_min = nest_min;
    for (uint32_t i = begins[id]; i < begins[id + 1]; ++i) {
      if (is_due[parents[i]]) continue;
      is_due[parents[i]] = true;
      due.push_back(parents[i]);
    }
  }
}

/// Parts that this one can begin with, without a byte between.
std::span<const uint32_t> beginnings(const Program& program, const Node& node) {
  const std::span<const uint32_t> children = children_of(program, node);
  if (node.kind == Kind::kText) return {};
  if (node.kind == Kind::kRepeat) return children.first(node.max > 0 ? 1 : 0);
  if (node.kind != Kind::kSequence) return children;
  std::size_t count = 0;
  while (count < children.size() && program.nodes[children[count]].can_be_empty) ++count;
  return children.first(std::min(count + 1, children.size()));
}

/// Whether one of these parts can come to itself without a byte.
bool has_idle_loop(const Program& program, const std::vector<uint32_t>& parts) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state(program.nodes.size(), kNew);
  struct Step {
    uint32_t node;
    std::size_t next;
  };
  for (const uint32_t start : parts) {
    if (state[start] != kNew) continue;
    std::vector<Step> path = {{start, 0}};
    state[start] = kOpen;
    while (!path.empty()) {
      Step& step = path.back();
      const std::span<const uint32_t> next = beginnings(program, program.nodes[step.node]);
      if (step.next == next.size()) {
        state[step.node] = kDone;
        path.pop_back();
        continue;
      }
      const uint32_t child = next[step.next++];
      if (state[child] == kOpen) return true;
      if (state[child] == kDone) continue;
      state[child] = kOpen;
      path.push_back({child, 0});
    }
  }
  return false;
}

/// Splits the classes of bytes by `value(byte)`.
template <typename Value>
void refine(Program& program, const Value& value) {
  std::map<std::pair<uint32_t, uint32_t>, uint8_t> classes;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const std::pair<uint32_t, uint32_t> key = {program.byte_class[byte],
                                               value(static_cast<uint8_t>(byte))};
    const auto next = static_cast<uint8_t>(classes.size());
    program.byte_class[byte] = classes.try_emplace(key, next).first->second;
  }
  program.classes = static_cast<uint32_t>(classes.size());
}

void note_bytes(const Trie& trie, ByteSet& alone) {
  for (const Trie::Place& place : trie.places) {
    for (const Trie::Edge& edge : place.edges) alone.set(edge.byte);
  }
}

void classify_bytes(Program& program) {
  program.byte_class.assign(256, 0);
  program.classes = 1;
  ByteSet alone;
  for (const char c : program.text) alone.set(static_cast<uint8_t>(c));
  for (const Trie& trie : program.tries) note_bytes(trie, alone);
  for (const TextRule& text : program.texts) note_bytes(text.triggers, alone);
  refine(program, [&alone](uint8_t byte) { return alone.test(byte) ? byte + 1U : 0U; });
  if (!program.texts.empty()) refine(program, [](uint8_t byte) { return byte >= 0xFE ? 1U : 0U; });
  for (const ByteSet& set : program.sets) {
    refine(program, [&set](uint8_t byte) { return set.test(byte) ? 1U : 0U; });
  }
  if (program.strings.empty()) return;
  for (const auto& row : kStringTable) {
    refine(program, [&row](uint8_t byte) {
      return (static_cast<uint32_t>(row[byte]) << 1) | (byte == '"' ? 1U : 0U);
    });
  }
}

}  // namespace

void Trie::insert(const std::string& word, int32_t number) {
  uint32_t place = 0;
  for (const char c : word) {
    const auto byte = static_cast<uint8_t>(c);
    uint32_t to = next(place, byte);
    if (to == kNowhere) {
      to = static_cast<uint32_t>(places.size());
      places[place].edges.push_back({byte, to});
      places.emplace_back();
    }
    place = to;
  }
  if (places[place].word < 0) places[place].word = number;
}

std::string control_spelling(TokenId token) { return fmt::format("\xFF{}\xFE", token.value); }

// ---- Parts
// ----------------------------------------------------------------------------------------

Builder::Builder() = default;

Builder::Mark Builder::mark() const {
  return {program_.text.size(),     program_.nodes.size(),
          program_.children.size(), program_.sets.size(),
          program_.tries.size(),    program_.strings.size(),
          program_.texts.size(),    common_};
}

void Builder::go_back(const Mark& mark) {
  program_.text.resize(mark.text);
  program_.nodes.resize(mark.nodes);
  program_.children.resize(mark.children);
  program_.sets.resize(mark.sets);
  program_.tries.resize(mark.tries);
  program_.strings.resize(mark.strings);
  program_.texts.resize(mark.texts);
  common_ = mark.common;
}

NodeId Builder::add(const Node& node) {
  program_.nodes.push_back(node);
  return NodeId(static_cast<uint32_t>(program_.nodes.size() - 1));
}

NodeId Builder::add_with_children(Kind kind, const std::vector<NodeId>& children) {
  Node node;
  node.kind = kind;
  node.first = static_cast<uint32_t>(program_.children.size());
  node.count = static_cast<uint32_t>(children.size());
  for (const NodeId child : children) {
    PW_CHECK(child.value < program_.nodes.size());
    program_.children.push_back(child.value);
  }
  return add(node);
}

NodeId Builder::literal(std::string_view bytes) {
  Node node;
  node.kind = Kind::kLiteral;
  node.first = static_cast<uint32_t>(program_.text.size());
  node.count = static_cast<uint32_t>(bytes.size());
  program_.text += bytes;
  return add(node);
}

uint32_t Builder::add_words(const std::vector<std::string>& words) {
  Trie trie;
  for (std::size_t i = 0; i < words.size(); ++i) trie.insert(words[i], static_cast<int32_t>(i));
  program_.tries.push_back(std::move(trie));
  return static_cast<uint32_t>(program_.tries.size() - 1);
}

NodeId Builder::words(const std::vector<std::string>& words) {
  PW_CHECK(!words.empty());
  Node node;
  node.kind = Kind::kWords;
  node.first = add_words(words);
  return add(node);
}

NodeId Builder::byte_of(const ByteSet& set) {
  PW_CHECK(set.any());
  Node node;
  node.kind = Kind::kByteOf;
  const auto found = std::find(program_.sets.begin(), program_.sets.end(), set);
  node.first = static_cast<uint32_t>(found - program_.sets.begin());
  if (found == program_.sets.end()) program_.sets.push_back(set);
  return add(node);
}

NodeId Builder::control(TokenId token) { return literal(control_spelling(token)); }

NodeId Builder::string_node(const StringRule& rule) {
  Node node;
  node.kind = Kind::kString;
  node.first = static_cast<uint32_t>(program_.strings.size());
  program_.strings.push_back(rule);
  return add(node);
}

NodeId Builder::sequence(std::vector<NodeId> parts) {
  return parts.size() == 1 ? parts[0] : add_with_children(Kind::kSequence, parts);
}

NodeId Builder::choice(std::vector<NodeId> alternatives) {
  PW_CHECK(!alternatives.empty());
  return alternatives.size() == 1 ? alternatives[0]
                                  : add_with_children(Kind::kChoice, alternatives);
}

NodeId Builder::optional(NodeId part) { return choice({part, literal("")}); }

NodeId Builder::repeat(NodeId item, std::optional<NodeId> separator, uint32_t min, uint32_t max) {
  PW_CHECK(min <= max);
  PW_CHECK(min <= kRepeatMax && (max <= kRepeatMax || max == kUnbounded));
  std::vector<NodeId> children = {item};
  if (separator) children.push_back(*separator);
  const NodeId id = add_with_children(Kind::kRepeat, children);
  program_.nodes[id.value].min = min;
  program_.nodes[id.value].max = max;
  return id;
}

NodeId Builder::forward() { return add_with_children(Kind::kForward, {}); }

void Builder::define(NodeId forward, NodeId part) {
  PW_CHECK(forward.value < program_.nodes.size() && part.value < program_.nodes.size());
  Node& node = program_.nodes[forward.value];
  PW_CHECK(node.kind == Kind::kForward && node.count == 0);
  node.first = static_cast<uint32_t>(program_.children.size());
  node.count = 1;
  program_.children.push_back(part.value);
}

NodeId Builder::nest(NodeId part) { return add_with_children(Kind::kNest, {part}); }

NodeId Builder::text_until(std::vector<Trigger> triggers, bool may_end) {
  TextRule rule;
  rule.may_end = may_end;
  for (const Trigger& trigger : triggers) {
    PW_CHECK(!trigger.text.empty());
    PW_CHECK(trigger.then.value < program_.nodes.size());
    rule.triggers.insert(trigger.text, static_cast<int32_t>(rule.then.size()));
    rule.then.push_back(trigger.then.value);
  }
  // Aho and Corasick 1975: places in order of their depth, each one's suffix from its parent's.
  std::vector<Trie::Place>& places = rule.triggers.places;
  std::vector<uint32_t> order = {0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const uint32_t at = order[i];
    for (const Trie::Edge edge : places[at].edges) {
      Trie::Place& place = places[edge.to];
      place.in_control = places[at].in_control ? edge.byte != 0xFE : edge.byte == 0xFF;
      if (at != 0) {
        uint32_t suffix = places[at].shorter;
        while (suffix != 0 && rule.triggers.next(suffix, edge.byte) == Trie::kNowhere) {
          suffix = places[suffix].shorter;
        }
        const uint32_t to = rule.triggers.next(suffix, edge.byte);
        place.shorter = to == Trie::kNowhere ? 0 : to;
        // A shorter trigger may end where this one is still under way.
        if (place.word < 0) place.word = places[place.shorter].word;
      }
      order.push_back(edge.to);
    }
  }
  Node node;
  node.kind = Kind::kText;
  node.first = static_cast<uint32_t>(program_.texts.size());
  program_.texts.push_back(std::move(rule));
  return add(node);
}

// ---- Whole
// ----------------------------------------------------------------------------------------

Status Builder::check_part(NodeId part) {
  PW_CHECK(part.value < program_.nodes.size());
  if (is_full()) {
    return {ErrorCode::kUnsupported,
            fmt::format("needs more than {} parts of a grammar: ask for less", kNodesMax)};
  }
  const std::vector<uint32_t> parts = reachable(program_, part.value);
  for (const uint32_t id : parts) {
    const Node& node = program_.nodes[id];
    if (node.kind == Kind::kForward && node.count == 0) {
      return {ErrorCode::kInvalidArgument, "a part was announced and never defined"};
    }
    program_.nodes[id].can_be_empty = false;
    program_.nodes[id].nest_min = kNever;
  }
  settle(program_, parts);
  for (const uint32_t id : parts) {
    const Node& node = program_.nodes[id];
    if (node.kind != Kind::kRepeat) continue;
    for (const uint32_t child : children_of(program_, node)) {
      if (program_.nodes[child].can_be_empty && (node.max > 1 || node.count > 1)) {
        return {ErrorCode::kInvalidArgument, "repeats something that can be empty"};
      }
    }
  }
  // Any of them can be come to, not only those that the whole begins with.
  if (has_idle_loop(program_, parts)) {
    return {ErrorCode::kInvalidArgument, "refers to itself with nothing between"};
  }
  if (program_.nodes[part.value].nest_min == kNever) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("nothing that matches ends within {} levels of nesting", kNestMax)};
  }
  return Status::ok();
}

Result<std::shared_ptr<const Grammar>> Builder::build(NodeId root) {
  PW_RETURN_IF_ERROR(check_part(root));
  program_.root = root.value;
  classify_bytes(program_);
  Program program = std::move(program_);
  *this = Builder();
  return std::make_shared<const Grammar>(std::move(program));
}

}  // namespace pagewise::grammar
