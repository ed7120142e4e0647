// The results of weft_scale: a table for the person, JSON lines for programs.
//
// Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::bench {

struct ScaleRow {
  std::string metric;  // "scale.shm.connections.p50_ratio"
  std::string what;    // "shm: p50 with 1000 connections / with one"
  double value = 0;
  std::string unit;               // "", "us", "KiB", ...
  std::optional<double> at_most;  // the goal, if there is one
  std::optional<double> at_least;
};

class ScaleReport {
 public:
  void Add(ScaleRow row) { rows_.push_back(std::move(row)); }
  // Something that the person has to know beside the figures.
  void Note(std::string text) { notes_.push_back(std::move(text)); }
  // A program that could not measure.
  void Fail(std::string text);

  bool complete() const { return complete_; }
  // The rows, what a person has to know, and last the goals that were missed, by their metrics.
  std::string ToTable() const;
  // {"metric": "...", "value": ...}
  std::string ToJsonLines() const;

 private:
  std::vector<ScaleRow> rows_;
  std::vector<std::string> notes_;
  bool complete_ = true;
};

// The middle one, or the mean of the two. REQUIRES: values.
double MedianOf(std::vector<double> values);

}  // namespace weft::bench
