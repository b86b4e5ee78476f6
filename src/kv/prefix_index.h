// SPDX-License-Identifier: Apache-2.0
// Which prefixes are in memory: a tree of blocks, compared by their tokens.
//
// A node stands for up to `block_tokens` tokens that follow its parent's, and names the blocks (at
// most one a group) that hold their K and V. Which groups may lack theirs is the owner's business
// (behind a sliding window blocks go while the node stays). The path from a root (one a namespace)
// to a node is the whole prefix, so a hit is exact by construction: tokens are compared, digests
// are not, and there is nothing that could collide.
//
//   root "acme"                                      block_tokens = 4
//    ├─ [1 2 3 4] block 0
//    │   ├─ [5 6 7 8] block 1
//    │   │   └─ [9] block 2                          partly filled: a leaf until it is full
//    │   └─ [5 6 9 9] block 7                        diverges inside the block: a sibling
//    └─ [8 8] block 3
//
// Invariants, proved by check_invariants() in O(nodes * children):
//   T1  siblings differ: none's tokens are a prefix of another's (a longer equal block replaces a
//   shorter one) T2  children are sorted by tokens; only full nodes and roots have children T3  a
//   block belongs to at most one node
//
// Because of T1 and T2, the child that shares the most tokens with a query stands directly before
// or at the place where the query would be inserted: O(log children) comparisons find it.
//
// Thread: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace pagewise::kv {

using NodeId = StrongId<struct NodeTag, uint32_t>;

class PrefixIndex {
 public:
  /// `blocks[g]`: capacity of group g. Has room for `nodes` nodes besides roots, and grows beyond.
  PrefixIndex(uint32_t block_tokens, std::span<const uint32_t> blocks, uint32_t nodes);

  /// Admits block ids of the group below `blocks`.
  void grow(uint32_t group, uint32_t blocks);

  /// `digest`: what prefixes below it are told apart by from those below other roots.
  NodeId add_root(uint64_t digest = 0);
  /// For nodes that become full from now on.
  void set_root_digest(NodeId root, uint64_t digest);
  /// Requires: a root without children.
  void remove_root(NodeId root);

  /// The child of `parent` that shares the most leading tokens with `tokens`, and how many. Among
  /// equals the first by tokens. The null node and 0 when no child shares any.
  struct Match {
    NodeId child;
    uint32_t tokens = 0;
  };
  Match longest_child(NodeId parent, std::span<const TokenId> tokens) const;

  /// The same among the children that have a block of `group`. Cost: O(log children), and one more
  /// for every child without such a block that shares more.
  Match longest_child_with(NodeId parent, std::span<const TokenId> tokens, uint32_t group) const;

  /// Appends the full nodes that match `tokens` from `root` on to `path` and returns how far inside
  /// the next block the best child goes on (possibly the null node).
  Match walk(NodeId root, std::span<const TokenId> tokens, std::vector<NodeId>& path) const;

  /// Appends at most `tokens_max` tokens of a path that goes on below `parent`: through
  /// `from.child` behind its first `from.tokens` tokens, else through the first child; always the
  /// first one below. Cost: O(tokens_max).
  void follow(NodeId parent, const Match& from, uint32_t tokens_max,
              std::vector<TokenId>& out) const;

  /// Requires: parent is full or a root; 1..block_tokens tokens; `blocks` (one a group) belong to
  /// no node. May break T1 for a moment: the caller removes the sibling that the new node extends.
  NodeId insert(NodeId parent, std::span<const TokenId> tokens, std::span<const BlockId> blocks);
  /// The node's blocks now hold `tokens`. Requires: the node's tokens are a prefix of them.
  void extend(NodeId node, std::span<const TokenId> tokens);
  /// The node stands for only the first `tokens` of its tokens. Requires: no children, no sibling
  /// that shares them.
  void truncate(NodeId node, uint32_t tokens);
  /// Another block holds the same tokens, or none does (the null block). Requires: it belongs to no
  /// node.
  void set_block(NodeId node, uint32_t group, BlockId block);
  /// Requires: not a root, no children.
  void remove(NodeId node);

  /// The null node for a root.
  NodeId parent(NodeId node) const { return nodes_[node.value].parent; }
  NodeId root(NodeId node) const { return nodes_[node.value].root; }
  bool is_root(NodeId node) const { return !parent(node).valid(); }
  /// Blocks from the root to this node's end; 0 for a root.
  uint32_t depth(NodeId node) const { return nodes_[node.value].depth; }
  std::span<const TokenId> tokens(NodeId node) const {
    return {tokens_.data() + std::size_t{node.value} * block_tokens_, nodes_[node.value].fill};
  }
  bool is_full(NodeId node) const { return nodes_[node.value].fill == block_tokens_; }
  /// Of a full node: stands for the root and all tokens from it to the node's end. Equal prefixes
  /// have equal ones; different ones too, but seldom: nothing that matters may depend on it.
  uint64_t digest(NodeId node) const { return nodes_[node.value].digest; }
  std::span<const NodeId> children(NodeId node) const { return nodes_[node.value].children; }
  /// The null block where the group has none.
  BlockId block(NodeId node, uint32_t group) const {
    return blocks_[std::size_t{node.value} * groups_ + group];
  }
  /// The node that names this block; the null node when it is not findable.
  NodeId owner(uint32_t group, BlockId block) const { return owner_[group][block.value]; }
  /// The siblings that share the most tokens with `node` are among these two (either may be the
  /// null node).
  struct Neighbours {
    NodeId before, after;
  };
  Neighbours neighbours(NodeId node) const;

  uint32_t block_tokens() const { return block_tokens_; }
  uint32_t size() const { return size_; }                                  // nodes, without roots
  uint32_t slots() const { return static_cast<uint32_t>(nodes_.size()); }  // ids are below this
  bool used(NodeId node) const { return nodes_[node.value].used; }

  void check_invariants() const;

 private:
  struct Node {
    NodeId parent, root;
    uint32_t depth = 0;
    uint32_t fill = 0;  // tokens
    bool used = false;
    uint64_t digest = 0;           // of a full node or a root
    std::vector<NodeId> children;  // sorted by tokens
  };

  NodeId allocate();
  void deallocate(NodeId node);
  void note_digest(NodeId node);
  /// Where `tokens` would be inserted among the parent's children.
  std::size_t place(const Node& parent, std::span<const TokenId> tokens) const;

  const uint32_t block_tokens_;
  const uint32_t groups_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> unused_;            // slots, last one first
  std::vector<TokenId> tokens_;             // [slot, block_tokens]
  std::vector<BlockId> blocks_;             // [slot, group]
  std::vector<std::vector<NodeId>> owner_;  // [group][block]
  uint32_t size_ = 0;
};

/// Leading tokens that both have.
uint32_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace pagewise::kv
