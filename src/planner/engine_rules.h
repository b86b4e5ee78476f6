// SPDX-License-Identifier: Apache-2.0
// How the engines that can be planned for divide a device's memory: what they leave free, how much
// of the rest becomes KV, in which blocks, and whether a request's memory is reserved or taken as
// it grows. Facts with their sources, in one table (engine_rules.cc).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pagewise::planner {

/// What the engine does with several devices.
enum class DeviceSplit : uint8_t {
  kNone,    // it uses one
  kHeads,   // each device has a share of every layer's KV heads, at least one
  kLayers,  // each device has some of the layers
};

/// What `share` is a share of.
enum class ShareBasis : uint8_t { kDevice, kRest };

struct EngineRule {
  std::string_view name;
  ShareBasis basis = ShareBasis::kDevice;
  double share = 1;            // of the device, or of what weights and working memory leave
  uint64_t margin_bytes = 0;   // left free on each device
  uint64_t working_bytes = 0;  // beside weights and KV, where it is not told
  uint32_t block_tokens = 0;   // its usual block
  bool pages = true;           // false: a request's whole context is reserved
  DeviceSplit split = DeviceSplit::kNone;
  std::string_view note;    // what the figures leave out, in a clause
  std::string_view source;  // where the figures come from
};

/// What Pagewise's own process may take beside weights, KV and what the forward pass works in:
/// code, tokenizer, requests, logits. server_memory.h counts what is there once a server has
/// answered, less than 40 MiB with vocabularies of up to 262,144 tokens; the rest is for many
/// clients. Of a model whose widths are not known, all that is taken off.
inline constexpr uint64_t kPagewiseProcessBytes = uint64_t{128} << 20;

std::span<const EngineRule> engine_rules();
const EngineRule* find_engine_rule(std::string_view name);
/// "pagewise, vllm, llama.cpp", for messages.
std::string engine_names();

}  // namespace pagewise::planner
