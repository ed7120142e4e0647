// Who brings connections up and ends them, and what it tells a FramedConnection.
//
// Threads, Lifetime: as FramedConnection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/link.h"
#include "transport/path.h"

namespace weft {

class FramedConnection;

// Who brings a connection up and ends it. All On...() calls come from ConnectionTable::RunEvents(),
// where everything is allowed: StopLink(), StartLink(), Open(), End(), and deleting the connection
// after End().
class ConnectionOwner {
 public:
  // Batches can travel. The next step is Open(), when the peer says the same.
  virtual void OnLinkUp(FramedConnection& connection) = 0;

  // While connecting: this path failed; StopLink() and try another, or End(). Once open: the path
  // broke (UNAVAILABLE) or the peer broke the protocol (DATA_LOSS); tell the peer, End().
  virtual void OnBroken(FramedConnection& connection, const absl::Status& why) = 0;

  // The user called Close(). Tell the peer `why`, then End() with CANCELLED.
  virtual void OnCloseRequested(FramedConnection& connection, std::string_view why) = 0;

  // From anywhere. Brings `grant` (at most kMaxGrantBytes) to the peer's OnGrant(), beside the data
  // path and in order. What can't be sent any more is dropped: the end of the connection is near,
  // and ends all leases.
  virtual void SendGrant(FramedConnection& connection, ByteSpan grant) = 0;

 protected:
  ~ConnectionOwner() = default;
};

// What both ends have agreed on in the handshake, as this end sees it.
struct LinkAgreement {
  uint32_t peer_index = 0;  // the peer's index() and token()
  uint32_t peer_token = 0;
  uint32_t send_window_slots = 0;     // what the peer grants: kMinWindowSlots..kMaxWindowSlots
  uint32_t receive_window_slots = 0;  // what is granted to the peer: the same bounds
  uint32_t batch_bytes = 0;           // the smaller of both slot_bytes(); >= kMinBatchBytes
  bool peer_answers = false;          // requests (requests.h)
  bool peer_leases = false;           // grants (transport/leases/)
  uint32_t send_sequence = 0;         // of the first batch to the peer: its first_sequence(), or 0
  uint32_t receive_sequence = 0;      // of the first from it: first_sequence(), or 0
  // One side wants SecurityOptions::require_encryption: nothing crosses the network in the clear.
  bool only_sealed = false;
  // Each side has told what batches for it end in (batch.h): the peer's batch_proof(), and this
  // side's own. False: one of them is of an older release.
  bool has_proofs = false;
  Nonce128 send_proof = {};
  Nonce128 receive_proof = {};
};

// Room for a LargeOffer beside a message or two. Checked in StartLink().
inline constexpr uint32_t kMinBatchBytes = 256;

}  // namespace weft
