// Sessions over tcp as bytes on their two sockets, the control connection's and the link's: a tape
// that records one between a client and a server, and a player that takes the place of one of
// them, and judges what the other says. Both read the wire by docs/wire_format.md alone, and use
// none of the code that they test.
//
// A recording is a text of lines, each a preamble, a join, a welcome, or a frame:
//
//   # words
//   control > HEX      the client, on the control connection; bytes as in recording_text.h
//   link < HEX         the server, on the link's socket
//
// in the order in which they passed the tape: so whoever says a line has heard those above it.
//
// What the other side chooses anew each time, the player takes out of what that one says, and puts
// it where its own side repeats it: the connection's index, its token and its first sequence
// number; the link's token; keys, handles, leases and sessions; numbers of operations. What it
// repeats itself has to be what the player has said.
//
// What the other side says has to be equal to what was recorded, but for
//   - that, and the time that a deadline leaves;
//   - where batches begin and end, and so the credits in them;
//   - hellos: nothing may be missing in them that was there; features and services have to be the
//     same. Of the messages about paths the candidate counts, of a Bye that it is one;
//   - frames that may be ignored.
//
// Threads: the test's, which calls Turn() between the turns of the engine under test.
// Errors: expectations of the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/descriptor.h"

namespace weft::test {

// What one side has said on one socket.
struct WireUnit {
  bool on_link = false;  // else on the control connection
  bool from_client = false;
  std::string bytes;
};

std::string LineOf(const WireUnit& unit);
std::vector<WireUnit> ReadWireRecording(const std::string& path);

// Cuts what one side says on one socket into units.
class WireCutter {
 public:
  WireCutter(bool on_link, bool from_client) : on_link_(on_link), from_client_(from_client) {}
  void Append(std::string_view bytes) { bytes_ += bytes; }
  // The next whole one.
  std::optional<WireUnit> Next();

 private:
  const bool on_link_;
  const bool from_client_;
  bool is_first_ = true;
  std::string bytes_;
};

// Listens for one client, and hands on what it and the server at `server` say, on both sockets. The
// recording ends with the client's Bye, if it says one: what a server says then depends on when it
// hears that.
class WireTape {
 public:
  explicit WireTape(const std::string& server);  // "127.0.0.1:PORT"
  const std::string& address() const { return address_; }
  void Turn();

  const std::string& text() const { return text_; }
  size_t units_of_client() const { return units_of_client_; }
  // The client has said Bye, or hung up.
  bool is_over() const { return is_over_; }

 private:
  struct Way {
    Descriptor client;
    Descriptor server;
    bool on_link;
    WireCutter from_client;
    WireCutter from_server;
    std::string to_server;  // what there was no room for yet
    std::string to_client;
  };
  void Pass(Way& way, bool from_client);

  const std::string server_;
  Descriptor listening_;
  std::string address_;
  std::vector<Descriptor> newcomers_;
  std::vector<Way> ways_;
  std::string text_;
  size_t units_of_client_ = 0;
  bool is_over_ = false;
};

class WirePlayer {
 public:
  // In the place of the client, of the server at `server`.
  static std::unique_ptr<WirePlayer> AsClient(std::vector<WireUnit> units,
                                              const std::string& server);
  // In the place of the server, for one client.
  static std::unique_ptr<WirePlayer> AsServer(std::vector<WireUnit> units);
  const std::string& address() const { return address_; }
  void Turn();

  // All lines have been said, or heard.
  bool is_done() const { return next_ == units_.size(); }
  // For what a failure says.
  std::string place() const;
  // What the other side has said: units of the control connection, and frames.
  size_t heard() const { return heard_; }

 private:
  // A preamble, a join, a welcome; a frame of the link; or one of a batch.
  struct Piece {
    static constexpr uint32_t kGreeting = 0;
    static constexpr uint32_t kInBatch = 256;  // and the frame's kind; below: the link's
    uint32_t kind = kGreeting;
    uint8_t flags = 0;
    uint32_t operation = 0;
    std::string payload;
  };
  // One side's, of a connection.
  struct Names {
    std::string connection;  // index and token, as they stand in a batch
    uint32_t first_sequence = 0;
  };
  struct Socket {
    Socket(Descriptor opened, bool on_link, bool from_client)
        : descriptor(std::move(opened)), heard(on_link, from_client) {}
    Descriptor descriptor;
    WireCutter heard;
    std::string to_say;
  };

  WirePlayer(std::vector<WireUnit> units, bool is_client, std::string address)
      : units_(std::move(units)), is_client_(is_client), address_(std::move(address)) {}

  void Listen(Socket& socket);
  void TakeLinkUnit(const std::string& bytes);
  static std::vector<Piece> PiecesOf(const std::string& bytes);

  bool Say(const WireUnit& unit);
  std::string SayControl(std::string bytes);
  std::string SayOnLink(std::string bytes);
  bool Hear(const WireUnit& unit);
  void HearControl(const std::string& recorded, const std::string& live);
  void HearPiece(Piece recorded, Piece live);
  void HearMessage(const std::string& recorded, const std::string& live);
  void HearGrant(const std::string& recorded, const std::string& live);
  std::vector<std::pair<size_t, std::map<uint64_t, uint64_t>*>> GrantNumbers(char kind);

  // `live` has another name at `at` than `recorded`.
  void Learn(const std::string& recorded, const std::string& live, size_t at, size_t bytes);
  std::string Translated(std::string_view bytes) const;

  const std::vector<WireUnit> units_;
  const bool is_client_;
  std::string address_;
  Descriptor listening_;
  std::vector<Descriptor> newcomers_;
  std::optional<Socket> control_;
  std::optional<Socket> link_;

  size_t next_ = 0;        // of units_
  size_t next_piece_ = 0;  // of that one
  size_t heard_ = 0;
  std::deque<std::string> heard_on_control_;
  std::deque<Piece> heard_on_link_;

  // By what was recorded: what it is called now. Random, and so they are found wherever they stand.
  std::map<std::string, std::string> names_;
  // The same for small numbers, which are looked for in their places.
  std::map<uint64_t, uint64_t> asks_;
  std::map<uint64_t, uint64_t> leases_;
  std::map<uint32_t, uint32_t> operations_;  // of the other side
  Names own_;
  Names other_;
  uint32_t said_frames_ = 0;  // on the link
  uint32_t said_batches_ = 0;
  uint32_t heard_frames_ = 0;
  uint32_t heard_batches_ = 0;
  uint16_t owed_ = 0;   // credits
  uint32_t given_ = 0;  // credits of said_batches_ that came back
};

}  // namespace weft::test
