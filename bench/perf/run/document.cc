#include "bench/perf/run/document.h"

#include <algorithm>

#include "bench/machine/cpu.h"
#include "bench/perf/cell/perf_path.h"
#include "bench/perf/results/summary.h"
#include "core/json.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr char kIndent[] = "  ";

std::string Strings(const std::vector<std::string>& texts) {
  std::vector<std::string> values;
  values.reserve(texts.size());
  for (const std::string& text : texts) values.push_back(JsonString(text));
  return JsonArray(values);
}

void AddCell(const Cell& cell, JsonObject* object) {
  object->Add("pattern", NameOf(cell.pattern));
  object->Add("bytes", uint64_t{cell.bytes});
  object->Add("outstanding", uint64_t{cell.outstanding});
}

void AddIfKnown(std::string_view name, const std::optional<double>& value, JsonObject* object) {
  if (value) object->Add(name, *value);
}

// Smallest, median and largest.
std::string Spread(std::vector<double> values) {
  JsonObject spread;
  if (!values.empty()) {
    std::sort(values.begin(), values.end());
    spread.Add("min", values.front());
    spread.Add("median", values[values.size() / 2]);
    spread.Add("max", values.back());
  }
  return spread.text();
}

std::string Machine(const PerfReport& report, const DocumentFacts& facts) {
  JsonObject machine;
  machine.AddOrNull("cpu", facts.machine.cpu);
  machine.Add("processors", static_cast<uint64_t>(facts.machine.processors));
  machine.Add("virtual", facts.machine.is_virtual);
  machine.AddOrNull("governor", facts.machine.governor);
  machine.AddOrNull("congestion_control", facts.machine.congestion_control);
  machine.AddOrNull("kernel", facts.machine.kernel);
  machine.AddOrNull("distribution", facts.machine.distribution);
  machine.Add("compiler", facts.machine.compiler);
  machine.Add("libfabric", facts.libfabric);
  machine.Add("client_cpu", static_cast<uint64_t>(report.client_cpu));
  machine.Add("server_cpu", static_cast<uint64_t>(report.server_cpu));
  machine.AddJson("core_to_core_ns", Spread(report.core_to_core_ns));
  machine.Add("stolen_ms", report.stolen_ms);
  return machine.text();
}

std::string Settings(const PerfOptions& options, const PerfReport& report) {
  JsonObject settings;
  settings.AddJson("paths", Strings(options.paths));
  settings.Add("rounds", static_cast<uint64_t>(options.rounds));
  settings.Add("seconds_per_leg", report.plan.seconds_per_leg);
  settings.Add("quick", options.quick);
  settings.Add("fit_core_to_core_ns", kFitCoreToCoreNs);
  settings.Add("turns", static_cast<uint64_t>(report.turns));
  settings.Add("fit_turns", static_cast<uint64_t>(report.fit_turns));
  return settings.text();
}

std::string SummaryOf(const PerfOptions& options, const Results& results) {
  std::vector<std::string> rows;
  for (const SummaryLine& line : Summarize(results, options.paths)) {
    JsonObject row;
    row.Add("path", line.path);
    row.Add("what", line.what);
    row.Add("unit", line.unit);
    AddIfKnown("raw", line.raw, &row);
    AddIfKnown("weft", line.weft, &row);
    AddIfKnown("ratio", line.ratio, &row);
    row.AddOrNull("goal", line.goal);
    if (line.holds) row.Add("holds", *line.holds);
    rows.push_back(row.text());
  }
  return JsonArray(rows, kIndent);
}

std::string FiguresObject(const Cell& cell, const Figures& figures, JsonObject object) {
  object.Add("per_s", figures.per_s);
  object.Add("GBps", FigureNamed("GBps", cell, figures));
  if (figures.is_timed()) {
    JsonObject latency;
    for (size_t i = 0; i < kPercentiles.size(); ++i) {
      if (figures.latency_us[i] == 0) continue;
      latency.Add(PercentileName(kPercentiles[i]), figures.latency_us[i]);
    }
    object.AddJson("latency_us", latency.text());
  }
  return object.text();
}

std::string Rounds(const Cell& cell, const std::vector<Outcome>& outcomes) {
  std::vector<std::string> rounds;
  for (const Outcome& outcome : outcomes) {
    JsonObject round;
    round.Add("round", static_cast<uint64_t>(outcome.round));
    round.Add("fit", outcome.fit);
    rounds.push_back(FiguresObject(cell, outcome.figures, round));
  }
  return JsonArray(rounds);
}

// Each figure's own median.
Figures Medians(const Results& results, const LegName& leg) {
  Figures medians;
  medians.per_s = *results.Median(leg, "per_s");
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    medians.latency_us[i] = *results.Median(leg, PercentileName(kPercentiles[i]) + "_us");
  }
  return medians;
}

std::string Cells(const Results& results) {
  std::vector<std::string> cells;
  for (const auto& [leg, outcomes] : results.legs()) {
    JsonObject cell;
    cell.Add("metric", StrCat(leg.path, ".", NameOf(leg.cell), ".", leg.kind));
    cell.Add("path", leg.path);
    AddCell(leg.cell, &cell);
    cell.Add("kind", leg.kind);
    cell.Add("emulated", IsPerfPath(leg.path) && IsEmulated(leg.path));
    cell.Add("leading", LeadingFigure(leg.cell));
    cell.AddJson("median", FiguresObject(leg.cell, Medians(results, leg), JsonObject()));
    cell.AddJson("rounds", Rounds(leg.cell, outcomes));
    cells.push_back(cell.text());
  }
  return JsonArray(cells, kIndent);
}

std::string LeftOutOf(const Plan& plan) {
  std::vector<std::string> values;
  for (const LeftOut& left : plan.left_out) {
    JsonObject value;
    value.AddOrNull("path", left.path);
    AddCell(left.cell, &value);
    value.AddOrNull("kind", left.kind);
    value.Add("reason", left.reason);
    values.push_back(value.text());
  }
  return JsonArray(values, kIndent);
}

}  // namespace

std::string ToDocument(const PerfOptions& options, const PerfReport& report,
                       const DocumentFacts& facts) {
  JsonObject document;
  document.Add("format", "weft-perf");
  document.Add("version", kDocumentVersion);
  document.Add("taken_at", facts.taken_at);
  document.AddJson("machine", Machine(report, facts));
  document.AddJson("settings", Settings(options, report));
  document.AddJson("notes", Strings(report.notes));
  document.AddJson("summary", SummaryOf(options, report.results));
  document.AddJson("cells", Cells(report.results));
  document.AddJson("left_out", LeftOutOf(report.plan));
  return document.text(" ") + "\n";
}

}  // namespace weft::bench
