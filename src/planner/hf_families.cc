// SPDX-License-Identifier: Apache-2.0
#include "planner/hf_families.h"

#include <algorithm>
#include <iterator>

namespace pagewise::planner {
namespace {

using Kind = FamilyKind;
using Windows = FamilyWindows;

// Source of every line: the class that `model_type` names in transformers 5.24,
// models/TYPE/configuration_TYPE.py; of openelm: the configuration published with
// apple/OpenELM-270M.
constexpr Family kFamilies[] = {
    {"llama", Kind::kAttention, Windows::kNone, 0, {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"mistral", Kind::kAttention, Windows::kAll, 0, {32, 4096, 32, 8, kNull, 4096, 131072}},
    {"mixtral", Kind::kAttention, Windows::kAll, 0, {32, 4096, 32, 8, kNull, kNull, 131072}},
    {"qwen2", Kind::kAttention, Windows::kFromLayer, 0, {32, 4096, 32, 32, kNull, 4096, 32768}},
    {"qwen2_vl", Kind::kAttention, Windows::kFromLayer, 0, {80, 8192, 64, 8, kNull, 4096, 32768}},
    {"qwen2_vl_text",
     Kind::kAttention,
     Windows::kFromLayer,
     0,
     {80, 8192, 64, 8, kNull, 4096, 32768}},
    {"qwen2_5_vl", Kind::kAttention, Windows::kFromLayer, 0, {80, 8192, 64, 8, kNull, 4096, 32768}},
    {"qwen2_5_vl_text",
     Kind::kAttention,
     Windows::kFromLayer,
     0,
     {80, 8192, 64, 8, kNull, 4096, 32768}},
    {"qwen2_moe", Kind::kAttention, Windows::kSwitched, 0, {24, 2048, 16, 16, kNull, 4096, 32768}},
    {"qwen3", Kind::kAttention, Windows::kFromLayer, 0, {32, 4096, 32, 32, 128, 4096, 32768}},
    {"qwen3_moe", Kind::kAttention, Windows::kSwitched, 0, {24, 2048, 32, 4, kNull, 4096, 32768}},
    {"qwen3_vl_text", Kind::kAttention, Windows::kNone, 0, {32, 4096, 32, 32, 128, kNull, 128000}},
    {"gemma", Kind::kAttention, Windows::kNone, 0, {28, 3072, 16, 16, 256, kNull, 8192}},
    {"gemma2", Kind::kAttention, Windows::kPeriod, 2, {26, 2304, 8, 4, 256, 4096, 8192}},
    {"gemma3_text", Kind::kAttention, Windows::kPeriod, 6, {26, 2304, 8, 4, 256, 4096, 131072}},
    {"gemma3n_text", Kind::kAttention, Windows::kPeriod, 5, {35, 2048, 8, 2, 256, 512, 32768}},
    {"gemma4_text", Kind::kTwoSizes, Windows::kPeriod, 6, {30, 2304, 8, 4, 256, 512, 131072}},
    {"phi", Kind::kAttention, Windows::kNone, 0, {24, 2048, 32, kNull, kNull, kNull, 2048}},
    {"phi3", Kind::kAttention, Windows::kAll, 0, {32, 3072, 32, kNull, kNull, kNull, 4096}},
    {"deepseek_v2", Kind::kLatent, Windows::kNone, 0, {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"deepseek_v3", Kind::kLatent, Windows::kNone, 0, {61, 7168, 128, 128, kNull, kNull, 4096}},
    {"gpt_oss", Kind::kAttention, Windows::kPeriod, 2, {36, 2880, 64, 8, 64, 128, 131072}},
    {"falcon", Kind::kFalcon, Windows::kNone, 0, {32, 4544, 71, kNull, kNull, kNull, 2048}},
    {"olmo", Kind::kAttention, Windows::kNone, 0, {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"olmo2", Kind::kAttention, Windows::kNone, 0, {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"olmo3", Kind::kAttention, Windows::kPeriod, 4, {32, 4096, 32, kNull, kNull, 4096, 2048}},
    {"granite", Kind::kAttention, Windows::kNone, 0, {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"granitemoe", Kind::kAttention, Windows::kNone, 0, {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"cohere", Kind::kAttention, Windows::kNone, 0, {40, 8192, 64, kNull, kNull, kNull, 8192}},
    {"cohere2", Kind::kAttention, Windows::kPeriod, 4, {40, 8192, 64, kNull, kNull, 4096, 8192}},
    {"smollm3", Kind::kAttention, Windows::kSwitched, 0, {36, 2048, 16, 4, kNull, kNull, 32768}},
    {"stablelm", Kind::kAttention, Windows::kNone, 0, {32, 2560, 32, 32, kNull, kNull, 4096}},
    {"starcoder2", Kind::kAttention, Windows::kAll, 0, {30, 3072, 24, 2, kNull, kNull, 4096}},
    {"gpt_neox", Kind::kAttention, Windows::kNone, 0, {44, 6144, 64, kNull, kNull, kNull, 2048}},
    {"openelm", Kind::kOpenElm, Windows::kNone, 0, {}},
    {"jamba", Kind::kJamba, Windows::kNone, 0, {32, 4096, 32, 8, kNull, kNull, 262144}},
    {"qwen3_next", Kind::kGatedDelta, Windows::kNone, 4, {48, 2048, 16, 2, 256, kNull, 32768}},
    {"qwen3_5_text", Kind::kGatedDelta, Windows::kNone, 4, {32, 4096, 16, 4, 256, kNull, 32768}},
    {"lfm2", Kind::kConvolutions, Windows::kNone, 0, {32, 2560, 32, 8, kNull, kNull, 128000}},
    {"granitemoehybrid",
     Kind::kGraniteHybrid,
     Windows::kNone,
     0,
     {32, 4096, 32, kNull, kNull, kNull, 2048}},
    {"nemotron_h", Kind::kNemotronH, Windows::kNone, 0, {kNull, 4096, 32, 8, 128, kNull, 4096}},
    {"falcon_h1", Kind::kFalconH1, Windows::kNone, 0, {32, 4096, 32, 8, kNull, kNull, 8192}},
};

// Source: the classes of transformers whose `is_encoder_decoder` is true.
constexpr std::string_view kEncoderDecoders[] = {
    "t5",
    "mt5",
    "umt5",
    "longt5",
    "t5gemma",
    "t5gemma2",
    "bart",
    "mbart",
    "plbart",
    "switch_transformers",
    "pegasus",
    "pegasus_x",
    "marian",
    "whisper",
    "blenderbot",
    "blenderbot-small",
    "led",
    "bigbird_pegasus",
    "m2m_100",
    "nllb-moe",
    "fsmt",
    "prophetnet",
    "encoder-decoder",
    "speech_to_text",
    "moonshine",
    "seamless_m4t",
    "seamless_m4t_v2",
    "udop",
    "pix2struct",
    "florence2",
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view type) {
  const auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [&](const Family& family) { return family.type == type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

bool is_encoder_decoder(std::string_view type) {
  return std::find(std::begin(kEncoderDecoders), std::end(kEncoderDecoders), type) !=
         std::end(kEncoderDecoders);
}

}  // namespace pagewise::planner
