#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/model_report.h"

namespace medley::cli {
namespace {

const char* name_of_kind(CacheKind kind) {
  switch (kind) {
    case CacheKind::full: return "full";
    case CacheKind::window: return "window";
    case CacheKind::state: return "state";
  }
  return "?";
}

std::string with_unit(int64_t bytes, const char* per) {
  std::string text = fmt::format("{} bytes {}", with_commas(bytes), per);
  if (bytes >= 1 << 20) text += fmt::format(" ({})", human_bytes(uint64_t(bytes)));
  return text;
}

// "latent: full, 61 layers x 576; 70,272 bytes a token"
std::string describe(const KvCacheSpec& spec) {
  std::string text = fmt::format("{}: {}{}, {} layer{} x {}; ", spec.name, name_of_kind(spec.kind),
                                 spec.window > 0 ? fmt::format(" {}", spec.window) : "", spec.num_layers,
                                 spec.num_layers == 1 ? "" : "s", spec.row_shape);
  return text + (spec.paged() ? with_unit(spec.bytes_per_token(), "a token")
                              : with_unit(spec.bytes_per_request(), "a request"));
}

void line(std::string& out, const std::string& title, const std::string& text) {
  out += fmt::format("{:<12}{}\n", title, text);
}

void write_parameters(std::string& out, const ModelReport& report) {
  const ParameterCounts& p = report.parameters;
  line(out, "parameters", fmt::format("{} in total", with_commas(p.total)));
  line(out, "", fmt::format("{} active a token", with_commas(p.active)));
  if (p.active_without_embedding != p.active)
    line(out, "", fmt::format("{} active without the input embedding", with_commas(p.active_without_embedding)));
  if (report.stored) line(out, "", fmt::format("stored in {}", human_bytes(report.stored->bytes)));
  if (!report.info.quantization.empty())
    line(out, "",
         fmt::format("published quantised ({}), which this build reads no weights of", report.info.quantization));
}

void write_cache(std::string& out, const ModelReport& report) {
  std::string title = fmt::format("cache {}", name_of(report.dtype));
  for (const KvCacheSpec& spec : report.cache) {
    line(out, title, describe(spec));
    title.clear();
  }
  const int64_t token = bytes_per_token(report.cache), request = bytes_per_request(report.cache);
  line(out, "in all",
       fmt::format("{}{}", with_unit(token, "a token"), request > 0 ? " + " + with_unit(request, "a request") : ""));
  for (const KvCacheSpec& spec : report.cache)
    if (spec.kind == CacheKind::window)
      line(out, "", fmt::format("{} keeps the last {} tokens only", spec.name, with_commas(spec.window)));
}

void write_mtp(std::string& out, const ModelReport& report) {
  if (report.info.mtp_layers == 0) return;
  const ParameterCounts& p = report.parameters;
  const char* missing = report.stored && !report.stored->has_mtp ? "; not in the files" : "";
  line(out, "MTP",
       fmt::format("{} module{}: {} parameters more, {} active; cache {} more{}", report.info.mtp_layers,
                   report.info.mtp_layers == 1 ? "" : "s", with_commas(p.mtp_total), with_commas(p.mtp_active),
                   with_unit(bytes_per_token(report.mtp_cache), "a token"), missing));
}

void write_room(std::string& out, const CacheRoom& room) {
  const std::string tokens =
      room.tokens ? fmt::format("{} tokens of one request", with_commas(*room.tokens)) : "one request of any length";
  line(out, "fits",
       fmt::format("{} of cache holds {}, or {} requests of {} tokens", human_bytes(room.memory), tokens,
                   with_commas(room.requests), with_commas(room.request_tokens)));
}

nlohmann::ordered_json to_json(const std::vector<KvCacheSpec>& specs) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const KvCacheSpec& spec : specs) {
    nlohmann::ordered_json group = {{"name", spec.name},
                                    {"kind", name_of_kind(spec.kind)},
                                    {"layers", spec.num_layers},
                                    {"row_shape", spec.row_shape},
                                    {"row_bytes", spec.row_bytes}};
    if (spec.window > 0) group["window"] = spec.window;
    if (spec.paged()) group["tokens_per_block"] = spec.tokens_per_block;
    group["bytes_per_token"] = spec.bytes_per_token();
    group["bytes_per_request"] = spec.bytes_per_request();
    groups.push_back(std::move(group));
  }
  return {{"groups", std::move(groups)},
          {"bytes_per_token", bytes_per_token(specs)},
          {"bytes_per_request", bytes_per_request(specs)}};
}

}  // namespace

std::string to_text(const ModelReport& report) {
  const ModelInfo& info = report.info;
  std::string out;
  line(out, "model", fmt::format("{} ({})", info.model_type, report.origin));
  line(out, "size",
       fmt::format("hidden {}, vocabulary {}, {}", with_commas(info.hidden_size), with_commas(info.vocab_size),
                   info.max_positions > 0 ? fmt::format("{} positions", with_commas(info.max_positions))
                                          : "any number of positions"));
  std::string title = "layers";
  for (const auto& [kind, layers] : info.layers) {
    line(out, title, fmt::format("{} x {}", layers, kind));
    title.clear();
  }
  write_parameters(out, report);
  write_cache(out, report);
  write_mtp(out, report);
  write_room(out, report.room);
  title = "kernels";
  for (const std::string& kernel : report.kernels) {
    line(out, title, kernel);
    title.clear();
  }
  line(out, "", "on " + report.backend);
  return out;
}

std::string to_json(const ModelReport& report) {
  const ModelInfo& info = report.info;
  const ParameterCounts& p = report.parameters;
  nlohmann::ordered_json layers = nlohmann::ordered_json::object();
  for (const auto& [kind, number] : info.layers) layers[kind] = number;
  nlohmann::ordered_json json = {
      {"model_type", info.model_type},
      {"config", report.origin},
      {"hidden_size", info.hidden_size},
      {"vocab_size", info.vocab_size},
      {"max_positions", info.max_positions},
      {"layers", std::move(layers)},
      {"parameters",
       {{"total", p.total}, {"active", p.active}, {"active_without_input_embedding", p.active_without_embedding}}},
      {"dtype", std::string(name_of(report.dtype))},
      {"cache", to_json(report.cache)}};
  if (info.mtp_layers > 0)
    json["mtp"] = {{"modules", info.mtp_layers},
                   {"parameters", {{"total", p.mtp_total}, {"active", p.mtp_active}}},
                   {"cache", to_json(report.mtp_cache)}};
  if (!info.quantization.empty()) json["quantization"] = info.quantization;
  if (report.stored) json["stored"] = {{"bytes", report.stored->bytes}, {"mtp", report.stored->has_mtp}};
  json["fits"] = {{"memory", report.room.memory},
                  {"tokens_of_one_request", nullptr},
                  {"request_tokens", report.room.request_tokens},
                  {"requests", report.room.requests}};
  json["backend"] = report.backend;
  json["kernels"] = report.kernels;
  if (report.room.tokens) json["fits"]["tokens_of_one_request"] = *report.room.tokens;
  return json.dump(2) + "\n";
}

}  // namespace medley::cli
