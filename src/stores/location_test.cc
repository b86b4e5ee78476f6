// SPDX-License-Identifier: Apache-2.0
#include "stores/location.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/temp_folder_testing.h"

namespace pagewise::stores {
namespace {

using pagewise::testing::TempFolder;

std::vector<std::string> paths(StoreKind kind, std::map<std::string, std::string> variables) {
  std::vector<std::string> out;
  for (const Location& location :
       usual_locations([&](const char* name) { return variables[name]; })) {
    if (location.kind == kind) out.push_back(location.path);
  }
  return out;
}

using Paths = std::vector<std::string>;

TEST(Locations, StandInTheHomeFolderUnlessToldOtherwise) {
  const std::map<std::string, std::string> home = {{"HOME", "/home/me"}};
  EXPECT_EQ(paths(StoreKind::kOllama, home),
            (Paths{"/home/me/.ollama/models", "/usr/share/ollama/.ollama/models"}));
  EXPECT_EQ(paths(StoreKind::kHuggingFace, home), (Paths{"/home/me/.cache/huggingface/hub"}));
  EXPECT_EQ(paths(StoreKind::kLmStudio, home),
            (Paths{"/home/me/.lmstudio/models", "/home/me/.cache/lm-studio/models"}));
  EXPECT_EQ(paths(StoreKind::kLlamaCpp, home), (Paths{"/home/me/.cache/llama.cpp"}));
}

TEST(Locations, FollowEachProgramsVariables) {
  EXPECT_EQ(paths(StoreKind::kOllama, {{"HOME", "/h"}, {"OLLAMA_MODELS", "/big/ollama/"}}),
            (Paths{"/big/ollama"}));
  EXPECT_EQ(paths(StoreKind::kHuggingFace, {{"HOME", "/h"},
                                            {"HF_HUB_CACHE", "/hub"},
                                            {"HUGGINGFACE_HUB_CACHE", "/old"},
                                            {"HF_HOME", "/hf"}}),
            (Paths{"/hub"}));
  EXPECT_EQ(paths(StoreKind::kHuggingFace,
                  {{"HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}, {"HF_HOME", "/hf"}}),
            (Paths{"/old"}));
  EXPECT_EQ(paths(StoreKind::kHuggingFace, {{"HOME", "/h"}, {"HF_HOME", "~/hf"}}),
            (Paths{"/h/hf/hub"}));
  EXPECT_EQ(paths(StoreKind::kHuggingFace, {{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}),
            (Paths{"/x/huggingface/hub"}));
  EXPECT_EQ(paths(StoreKind::kLlamaCpp, {{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}),
            (Paths{"/x/llama.cpp"}));
  EXPECT_EQ(paths(StoreKind::kLlamaCpp, {{"HOME", "/h"}, {"LLAMA_CACHE", "/cache"}}),
            (Paths{"/cache"}));
}

TEST(Locations, WithoutAHomeAreThoseThatNeedNone) {
  EXPECT_EQ(paths(StoreKind::kOllama, {}), (Paths{"/usr/share/ollama/.ollama/models"}));
  EXPECT_TRUE(paths(StoreKind::kHuggingFace, {}).empty());
  EXPECT_TRUE(paths(StoreKind::kLmStudio, {}).empty());
  EXPECT_TRUE(paths(StoreKind::kLlamaCpp, {}).empty());
}

TEST(Locations, LmStudioMayHaveMovedItsHome) {
  const TempFolder home;
  home.write(".lmstudio-home-pointer", "/big/lmstudio\n");
  EXPECT_EQ(paths(StoreKind::kLmStudio, {{"HOME", home.path()}}),
            (Paths{"/big/lmstudio/models", home.path(".lmstudio/models"),
                   home.path(".cache/lm-studio/models")}));
}

TEST(Locations, APlaceThatTwoWaysLeadToStandsOnce) {
  const TempFolder home;
  home.write(".lmstudio-home-pointer", home.path(".lmstudio"));
  EXPECT_EQ(paths(StoreKind::kLmStudio, {{"HOME", home.path()}}),
            (Paths{home.path(".lmstudio/models"), home.path(".cache/lm-studio/models")}));
}

}  // namespace
}  // namespace pagewise::stores
