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

/// What Pagewise's own process takes beside weights and KV: code, tokenizer, activations. The
/// server keeps as much back when it sizes its pool.
inline constexpr uint64_t kPagewiseWorkingBytes = uint64_t{128} << 20;

std::span<const EngineRule> engine_rules();
const EngineRule* find_engine_rule(std::string_view name);
/// "pagewise, vllm, llama.cpp", for messages.
std::string engine_names();

}  // namespace pagewise::planner
