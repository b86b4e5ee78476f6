// SPDX-License-Identifier: Apache-2.0
// Stores as other programs write them, broken ones, and what a name means in them.
#include "stores/find.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/temp_folder_testing.h"

namespace pagewise::stores {
namespace {

using pagewise::testing::TempFolder;

constexpr std::string_view kModelLayer = "application/vnd.ollama.image.model";

std::string digest(char hex) { return "sha256:" + std::string(64, hex); }
std::string blob_name(char hex) { return "blobs/sha256-" + std::string(64, hex); }

std::string layer(std::string_view type, std::string_view digest_text) {
  return fmt::format(R"({{"mediaType":"{}","digest":"{}","size":5}})", type, digest_text);
}

std::string manifest(const std::vector<std::string>& layers) {
  return fmt::format(
      R"({{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json",)"
      R"("config":{{"digest":"{}"}},"layers":[{}]}})",
      digest('c'), fmt::join(layers, ","));
}

std::string manifest_of(char hex) {
  return manifest({layer(kModelLayer, digest(hex)),
                   layer("application/vnd.ollama.image.template", digest('d'))});
}

std::vector<std::string> names(const Findings& findings) {
  std::vector<std::string> out;
  for (const FoundModel& model : findings.models) out.push_back(model.name);
  return out;
}

const FoundModel& named(const Findings& findings, std::string_view name) {
  const auto at = std::find_if(findings.models.begin(), findings.models.end(),
                               [&](const FoundModel& model) { return model.name == name; });
  if (at == findings.models.end()) {
    static const FoundModel kNone;
    ADD_FAILURE() << "no " << name << " in " << fmt::format("{}", names(findings));
    return kNone;
  }
  return *at;
}

Findings find_in(const TempFolder& folder, StoreKind kind = StoreKind::kFolder,
                 const WalkLimits& limits = {}) {
  const Location location{kind, folder.path()};
  return find_models({&location, 1}, limits);
}

std::string resolved(const Findings& findings, std::string_view name) {
  const auto found = resolve(findings, name);
  return found ? found->path : "error: " + found.error().message;
}

using Names = std::vector<std::string>;

TEST(OllamaStore, NamesAndTagsAreThoseOfItsManifests) {
  const TempFolder store;
  store.write(blob_name('a'), "GGUF1");
  store.write(blob_name('b'), "GGUF12");
  store.write("manifests/registry.ollama.ai/library/llama3.2/3b", manifest_of('a'));
  store.write("manifests/registry.ollama.ai/library/llama3.2/latest", manifest_of('b'));
  store.write("manifests/registry.ollama.ai/someone/tuned/q8", manifest_of('b'));
  store.write("manifests/hf.co/bartowski/Tiny-GGUF/Q4_K_M", manifest_of('a'));
  const Findings found = find_in(store, StoreKind::kOllama);
  EXPECT_EQ(names(found), (Names{"hf.co/bartowski/Tiny-GGUF:Q4_K_M", "llama3.2:3b",
                                 "llama3.2:latest", "someone/tuned:q8"}));
  EXPECT_TRUE(found.notes.empty());
  const FoundModel& model = named(found, "llama3.2:3b");
  EXPECT_EQ(model.path, store.path(blob_name('a')));
  EXPECT_EQ(model.bytes, 5U);
  EXPECT_EQ(model.problem, "");

  const std::string a = store.path(blob_name('a')), b = store.path(blob_name('b'));
  EXPECT_EQ(resolved(found, "llama3.2:3b"), a);
  EXPECT_EQ(resolved(found, "LLAMA3.2:3B"), a);
  EXPECT_EQ(resolved(found, "llama3.2"), b);  // latest
  EXPECT_EQ(resolved(found, "library/llama3.2:3b"), a);
  EXPECT_EQ(resolved(found, "registry.ollama.ai/library/llama3.2:3b"), a);
  EXPECT_EQ(resolved(found, "someone/tuned:q8"), b);
  EXPECT_EQ(resolved(found, "someone/tuned"), b);  // the only tag
  EXPECT_EQ(resolved(found, "tuned:q8"), b);
  EXPECT_EQ(resolved(found, "Tiny-GGUF:q4_k_m"), a);
}

TEST(OllamaStore, NewerManifestsWinAndListsNameTheOneThatReadsGguf) {
  const TempFolder store;
  store.write(blob_name('a'), "GGUF");
  store.write(blob_name('b'), "GGUF");
  store.write(blob_name('e'), manifest_of('b'));
  const std::string list = "application/vnd.ollama.manifest.list.v2+json";
  const std::string runners =
      fmt::format(R"({{"mediaType":"{}","manifests":[{{"runner":"mlx","digest":"{}"}},)"
                  R"({{"runner":"ollama","format":"gguf","digest":"{}"}}]}})",
                  list, digest('a'), digest('e'));
  store.write("manifests/registry.ollama.ai/library/m/1", manifest_of('a'));
  // As it links manifests: to a blob.
  store.write(blob_name('f'), runners);
  store.link("manifests-v2/registry.ollama.ai/library/m/1",
             "../../../../blobs/sha256-" + std::string(64, 'f'));
  store.write("manifests-v2/registry.ollama.ai/library/inline/1",
              fmt::format(R"({{"mediaType":"{}","manifests":[{{"runner":"llamacpp",{}]}})", list,
                          manifest_of('a').substr(1)));
  store.write("manifests-v2/registry.ollama.ai/library/foreign/1",
              fmt::format(R"({{"mediaType":"{}","manifests":[{{"runner":"mlx","digest":"{}"}}]}})",
                          list, digest('a')));
  const Findings found = find_in(store, StoreKind::kOllama);
  EXPECT_EQ(names(found), (Names{"foreign:1", "inline:1", "m:1"}));
  EXPECT_EQ(resolved(found, "m:1"), store.path(blob_name('b')));
  EXPECT_EQ(resolved(found, "inline:1"), store.path(blob_name('a')));
  EXPECT_NE(named(found, "foreign:1").problem.find("runners that read no GGUF"), std::string::npos);
}

TEST(OllamaStore, WhatIsBrokenIsListedWithItsReason) {
  const TempFolder store;
  store.write(blob_name('a'), "GGUF");
  const std::string root = "manifests/registry.ollama.ai/library/m/";
  const std::string escape = "sha256:../../../../../../etc/passwd";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is not a JSON object"},
      {"not JSON", "is not a JSON object"},
      {"[1,2]", "is not a JSON object"},
      {"{}", "names no layers"},
      {R"({"layers":7})", "names no layers"},
      {R"({"layers":[7]})", "names odd layers"},
      {R"({"layers":[]})", "names no model"},
      {R"({"layers":[{"mediaType":7,"digest":[]}]})", "names no model"},
      {manifest({layer(kModelLayer, "sha256:12")}), "names no SHA-256"},
      {manifest({layer(kModelLayer, escape)}), "names no SHA-256"},
      {manifest({layer(kModelLayer, "sha256:" + std::string(64, '/'))}), "names no SHA-256"},
      {manifest_of('9'), "its blob: No such file"},
      {manifest({layer(kModelLayer, digest('a')), layer(kModelLayer, digest('9'))}), "in 2 blobs"},
      {manifest({layer(kModelLayer, digest('a')),
                 layer("application/vnd.ollama.image.adapter", digest('9'))}),
       "LoRA"},
      {manifest({layer("application/vnd.ollama.image.tensor", digest('a'))}), "safetensors"},
      {std::string(2 << 20, ' '), "larger than any manifest"},
      {std::string(100000, '['), "is not a JSON object"},
      {R"({"manifests":[{"runner":"ollama"}]})", "an entry without a digest"},
      {fmt::format(R"({{"manifests":[{{"runner":"ollama","digest":"{}"}}]}})", digest('9')),
       "cannot be read: No such file"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    store.write(root + std::to_string(i), cases[i].first);
  }
  store.link(root + "dangling", "nowhere");
  store.link(root + "circle", "circle");
  const Findings found = find_in(store, StoreKind::kOllama);
  EXPECT_EQ(found.models.size(), cases.size() + 2);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const FoundModel& model = named(found, fmt::format("m:{}", i));
    EXPECT_NE(model.problem.find(cases[i].second), std::string::npos)
        << cases[i].first.substr(0, 80) << ": " << model.problem;
    const auto one = resolve(found, model.name);
    ASSERT_FALSE(one.has_value());
    EXPECT_EQ(one.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(one.error().message.find(model.name + ": "), 0U) << one.error().message;
  }
  EXPECT_NE(named(found, "m:dangling").problem.find("No such file"), std::string::npos);
  EXPECT_NE(named(found, "m:circle").problem.find("cannot be read"), std::string::npos);
}

TEST(OllamaStore, APipeInTheManifestsPlaceIsNotWaitedFor) {
  const TempFolder store;
  store.folder("blobs");
  store.folder("manifests/registry.ollama.ai/library/m");
  ASSERT_EQ(mkfifo(store.path("manifests/registry.ollama.ai/library/m/1").c_str(), 0600), 0);
  EXPECT_NE(named(find_in(store, StoreKind::kOllama), "m:1").problem.find("is no file"),
            std::string::npos);
}

TEST(OllamaStore, IsRecognisedInAFolderThatAPersonNamed) {
  const TempFolder store;
  store.write(blob_name('a'), "GGUF");
  store.write("manifests/registry.ollama.ai/library/m/1", manifest_of('a'));
  EXPECT_EQ(names(find_in(store)), (Names{"m:1"}));
}

TEST(HubCache, ModelsAreNamedByRepositoryAndQuantisation) {
  const TempFolder hub;
  const std::string repo = "models--bartowski--Tiny-1B-GGUF/";
  hub.write(repo + "refs/main", "c2");
  for (const char* blob : {"old", "four", "eight", "half"}) {
    hub.write(repo + "blobs/" + blob, std::string("GGUF ") + blob);
  }
  hub.link(repo + "snapshots/c1/Tiny-1B-Q4_K_M.gguf", "../../blobs/old");
  hub.link(repo + "snapshots/c1/Tiny-1B-F16.gguf", "../../blobs/half");
  hub.link(repo + "snapshots/c2/Tiny-1B-Q4_K_M.gguf", "../../blobs/four");
  hub.link(repo + "snapshots/c2/sub/Tiny-1B-Q8_0.gguf", "../../../blobs/eight");
  hub.write(repo + "snapshots/c2/config.json", "{}");
  hub.write("models--gpt2/snapshots/c/gpt2.gguf", "GGUF");
  hub.write("datasets--a--b/snapshots/c/data.txt", "no model");
  hub.write("version.txt", "1");
  const Findings found = find_in(hub, StoreKind::kHuggingFace);
  EXPECT_EQ(names(found), (Names{"bartowski/Tiny-1B-GGUF:F16", "bartowski/Tiny-1B-GGUF:Q4_K_M",
                                 "bartowski/Tiny-1B-GGUF:Q8_0", "gpt2/gpt2"}));
  EXPECT_TRUE(found.notes.empty());
  const std::string four = hub.path(repo + "snapshots/c2/Tiny-1B-Q4_K_M.gguf");
  EXPECT_EQ(named(found, "bartowski/Tiny-1B-GGUF:Q4_K_M").bytes, 9U);  // of the newer one
  for (const char* name :
       {"bartowski/Tiny-1B-GGUF:Q4_K_M", "Tiny-1B-GGUF:q4_k_m", "Tiny-1B:Q4_K_M",
        "bartowski/Tiny-1B:Q4_K_M", "Tiny-1B-Q4_K_M", "Tiny-1B-Q4_K_M.gguf",
        "bartowski/Tiny-1B-GGUF/Tiny-1B-Q4_K_M.gguf", "bartowski/Tiny-1B-GGUF:Tiny-1B-Q4_K_M"}) {
    EXPECT_EQ(resolved(found, name), four) << name;
  }
  const std::string several = resolved(found, "bartowski/Tiny-1B-GGUF");
  EXPECT_NE(several.find("3 models have that name"), std::string::npos) << several;
  for (const char* quantisation : {":F16", ":Q4_K_M", ":Q8_0"}) {
    EXPECT_NE(several.find(quantisation), std::string::npos) << several;
  }
  EXPECT_EQ(resolved(found, "gpt2"), hub.path("models--gpt2/snapshots/c/gpt2.gguf"));
}

TEST(LmStudio, FoldersArePublisherAndModel) {
  const TempFolder models;
  models.write("lmstudio-community/Tiny-GGUF/Tiny-Q4_K_M.gguf", "GGUF");
  models.write("infra-ai/ocelot-v1/ocelot-v1-instruct.gguf", "GGUF");
  models.write("infra-ai/ocelot-v1/notes.txt", "no model");
  const Findings found = find_in(models, StoreKind::kLmStudio);
  EXPECT_EQ(names(found), (Names{"infra-ai/ocelot-v1/ocelot-v1-instruct",
                                 "lmstudio-community/Tiny-GGUF:Q4_K_M"}));
  const std::string ocelot = models.path("infra-ai/ocelot-v1/ocelot-v1-instruct.gguf");
  for (const char* name : {"ocelot-v1", "infra-ai/ocelot-v1", "ocelot-v1-instruct",
                           "infra-ai/ocelot-v1/ocelot-v1-instruct.gguf"}) {
    EXPECT_EQ(resolved(found, name), ocelot) << name;
  }
}

TEST(LlamaCppCache, OldNamesAreTakenApartAndTheHubsFormIsKnown) {
  const TempFolder cache;
  cache.write("bartowski_Tiny-1B-GGUF_Tiny-1B-Q4_K_M.gguf", "GGUF");
  cache.write("bartowski_Tiny-1B-GGUF_Tiny-1B-Q4_K_M.gguf.json", "{}");
  cache.write("plain.Q8_0.gguf", "GGUF");
  cache.write("models--org--New-GGUF/snapshots/c/New-Q4_0.gguf", "GGUF");
  const Findings found = find_in(cache, StoreKind::kLlamaCpp);
  EXPECT_EQ(names(found),
            (Names{"bartowski/Tiny-1B-GGUF:Q4_K_M", "org/New-GGUF:Q4_0", "plain.Q8_0"}));
  for (const char* name : {"Tiny-1B-Q4_K_M", "bartowski/Tiny-1B-GGUF:Q4_K_M",
                           "bartowski_Tiny-1B-GGUF_Tiny-1B-Q4_K_M.gguf"}) {
    EXPECT_EQ(resolved(found, name), cache.path("bartowski_Tiny-1B-GGUF_Tiny-1B-Q4_K_M.gguf"));
  }
  EXPECT_EQ(resolved(found, "plain:q8_0"), cache.path("plain.Q8_0.gguf"));
}

TEST(Folders, PartsAreOneModelAndLackingOnesStillStandForIt) {
  const TempFolder folder;
  for (const int number : {2, 1, 3}) {
    folder.write(fmt::format("big/Big-Q4_K_M-{:05}-of-00003.gguf", number),
                 std::string(static_cast<std::size_t>(number), 'x'));
  }
  folder.write("torn/Torn-00002-of-00002.gguf", "xx");
  const Findings found = find_in(folder);
  EXPECT_EQ(names(found), (Names{"big:Q4_K_M", "torn/Torn"}));
  const FoundModel& big = named(found, "big:Q4_K_M");
  EXPECT_EQ(big.path, folder.path("big/Big-Q4_K_M-00001-of-00003.gguf"));
  EXPECT_EQ(big.parts, 3U);
  EXPECT_EQ(big.bytes, 6U);
  EXPECT_EQ(resolved(found, "Big-Q4_K_M"), big.path);
  EXPECT_EQ(resolved(found, "torn"), folder.path("torn/Torn-00002-of-00002.gguf"));
}

TEST(Folders, TwoFilesOfOneEndingAreListedByTheirOwnNames) {
  const TempFolder folder;
  folder.write("repo/chat-Q4_0.gguf", "GGUF");
  folder.write("repo/code-Q4_0.gguf", "GGUF");
  folder.write("a/same.gguf", "GGUF");
  folder.write("b/same.gguf", "GGUF");
  const Findings found = find_in(folder);
  EXPECT_EQ(names(found), (Names{"a/same", "b/same", "repo/chat-Q4_0", "repo/code-Q4_0"}));
  for (const std::string& name : names(found)) {
    EXPECT_EQ(resolved(found, name), folder.path(name + ".gguf"));
  }
  EXPECT_NE(resolved(found, "same").find("2 models have that name; give one of: a/same, b/same"),
            std::string::npos)
      << resolved(found, "same");
  EXPECT_NE(resolved(found, "repo:Q4_0").find("repo/chat-Q4_0, repo/code-Q4_0"), std::string::npos)
      << resolved(found, "repo:Q4_0");
}

TEST(Folders, LinksInCirclesOrToNowhereEndTheWalkWithANote) {
  const TempFolder folder;
  folder.write("real/m.gguf", "GGUF");
  folder.link("real/again", "../real");
  folder.link("round.gguf", "round.gguf");
  folder.link("gone.gguf", "nowhere.gguf");
  folder.link("other", "nowhere");  // of no interest
  folder.folder("folder.gguf");
  std::filesystem::create_hard_link(folder.path("real/m.gguf"), folder.path("twin.gguf"));
  folder.link("real/top", "../../" + std::filesystem::path(folder.path()).filename().string());
  const Findings found = find_in(folder);
  EXPECT_EQ(names(found), (Names{"real/m", "twin"}));
  ASSERT_EQ(found.notes.size(), 2U);
  EXPECT_EQ(found.notes[0], folder.path("gone.gguf") + ": No such file or directory");
  EXPECT_EQ(found.notes[1], folder.path("round.gguf") + ": Too many levels of symbolic links");
}

TEST(Folders, OneFileUnderTwoNamesIsNoAmbiguity) {
  const TempFolder one, two;
  one.write("org/repo/m-Q4_0.gguf", "GGUF");
  two.folder("org/repo");
  std::filesystem::create_hard_link(one.path("org/repo/m-Q4_0.gguf"),
                                    two.path("org/repo/m-Q4_0.gguf"));
  const std::vector<Location> both = {{StoreKind::kFolder, one.path()},
                                      {StoreKind::kLmStudio, two.path()}};
  EXPECT_EQ(resolved(find_models(both), "org/repo:Q4_0"), one.path("org/repo/m-Q4_0.gguf"));
  // Two files of one name are: then only the paths tell.
  two.write("org/repo/m-Q4_0.gguf.new", "other");
  std::filesystem::rename(two.path("org/repo/m-Q4_0.gguf.new"), two.path("org/repo/m-Q4_0.gguf"));
  const std::string message = resolved(find_models(both), "org/repo:Q4_0");
  EXPECT_NE(message.find(one.path("org/repo/m-Q4_0.gguf")), std::string::npos) << message;
  EXPECT_NE(message.find(two.path("org/repo/m-Q4_0.gguf")), std::string::npos) << message;
}

TEST(Folders, MoreThanAnybodyWaitsForIsCutShortAndSaid) {
  const TempFolder folder;
  for (int i = 0; i < 50; ++i) folder.write(fmt::format("m{:02}.gguf", i), "GGUF");
  std::string deep = "d";
  for (int i = 0; i < 10; ++i) deep += "/d";
  folder.write(deep + "/deep.gguf", "GGUF");
  const Findings few = find_in(folder, StoreKind::kFolder, {.depth_max = 16, .entries_max = 20});
  EXPECT_LE(few.models.size(), 20U);
  EXPECT_FALSE(few.notes.empty());
  EXPECT_NE(few.notes.front().find("more than 20 entries"), std::string::npos);
  const Findings flat = find_in(folder, StoreKind::kFolder, {.depth_max = 4, .entries_max = 1000});
  EXPECT_EQ(flat.models.size(), 50U);
  ASSERT_EQ(flat.notes.size(), 1U);
  EXPECT_NE(flat.notes.front().find("more than 4 folders deep"), std::string::npos);
}

TEST(Folders, ThousandsOfFilesAreFoundInOneLookAtEach) {
  const TempFolder folder;
  for (int i = 0; i < 3000; ++i) folder.write(fmt::format("org{}/m{}-Q4_0.gguf", i % 7, i), "GGUF");
  const auto begin = std::chrono::steady_clock::now();
  const Findings found = find_in(folder);
  EXPECT_EQ(found.models.size(), 3000U);
  EXPECT_EQ(resolved(found, "m2999-Q4_0"), folder.path("org3/m2999-Q4_0.gguf"));
  EXPECT_NE(resolved(found, "m29999-Q4_0").find("near: "), std::string::npos);
  // Nothing asserts on time in earnest; a walk that is quadratic would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Names, ThatLeadNowhereSayWhereWasLookedAndWhatIsNear) {
  const TempFolder store, folder;
  store.write(blob_name('a'), "GGUF");
  store.write("manifests/registry.ollama.ai/library/llama3.2/3b", manifest_of('a'));
  folder.write("org/Qwen-GGUF/Qwen-Q4_K_M.gguf", "GGUF");
  const std::vector<Location> both = {{StoreKind::kOllama, store.path()},
                                      {StoreKind::kFolder, folder.path()},
                                      {StoreKind::kLmStudio, "/nonexistent"}};
  const Findings found = find_models(both);
  EXPECT_EQ(found.searched.size(), 2U);
  const auto missing = resolve(found, "llama3.3:3b");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message,
            fmt::format("llama3.3:3b: no such file, and no model of that name in Ollama ({}), {}; "
                        "near: llama3.2:3b",
                        store.path(), folder.path()));
  EXPECT_NE(resolved(found, "qwen:q5_k_m").find("near: org/Qwen-GGUF:Q4_K_M"), std::string::npos)
      << resolved(found, "qwen:q5_k_m");
  EXPECT_NE(resolved(found, "something else").find("`pagewise models` lists"), std::string::npos);
  EXPECT_NE(resolved({}, "m").find("no model store is there"), std::string::npos);
  for (const std::string& odd :
       {std::string("\x1b[31m\n"), std::string(100000, 'a'), std::string(":"), std::string("a:"),
        std::string(":a"), std::string("a:b:c"), std::string("host:5000/a/b")}) {
    const auto none = resolve(found, odd);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().message.find_first_of("\n\x1b"), std::string::npos);
    EXPECT_LT(none.error().message.size(), 1000U);
  }
}

TEST(Names, QuantisationsAreReadFromTheEndOfAStem) {
  EXPECT_EQ(quantisation_of("Tiny-1B-Q4_K_M"), "Q4_K_M");
  EXPECT_EQ(quantisation_of("tiny.q8_0"), "q8_0");
  EXPECT_EQ(quantisation_of("tiny-IQ2_XXS"), "IQ2_XXS");
  EXPECT_EQ(quantisation_of("tiny-bf16"), "bf16");
  EXPECT_EQ(quantisation_of("tiny-MXFP4"), "MXFP4");
  EXPECT_EQ(quantisation_of("Llama-3.2-1B"), "");
  EXPECT_EQ(quantisation_of("tiny-final"), "");
  EXPECT_EQ(quantisation_of("tiny-"), "");
  EXPECT_EQ(quantisation_of(""), "");
}

}  // namespace
}  // namespace pagewise::stores
