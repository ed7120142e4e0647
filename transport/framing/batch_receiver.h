// Takes the peer's batches: checks their order, credits and frames, and delivers messages.
//
// What comes before the connection is open is kept, and taken by Open(). A large batch is answered
// in parts (batch_parts.h).
//
// Threads: one engine's. Lifetime: a member of its connection; connection, sender and host outlive
//   it.
// Errors: what breaks the protocol goes to Host::OnMalformed(), which shuts the sender: nothing is
//   delivered any more.
// Invariants: sequence numbers are taken without a gap; see credit_window.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/bytes.h"
#include "transport/connection.h"
#include "transport/framing/batch.h"
#include "transport/framing/batch_sender.h"
#include "transport/framing/early_batches.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/seal.h"

namespace weft {

class BatchReceiver {
 public:
  class Host {
   public:
    // A frame that is no message. False: no peer of this protocol sends it.
    virtual bool OnFrame(const Frame& frame) = 0;
    virtual void OnMalformed(std::string_view what) = 0;
    // Credits have come, and somebody waits for them (BatchSender::awaits_room()).
    virtual void OnRoom() = 0;

   protected:
    ~Host() = default;
  };

  // `connection` is what the handler is told about.
  BatchReceiver(Host* host, Connection* connection, ConnectionHandler* handler, BatchSender* sender)
      : connection_(*connection), handler_(handler), sender_(*sender), host_(host) {}
  BatchReceiver(const BatchReceiver&) = delete;
  BatchReceiver& operator=(const BatchReceiver&) = delete;

  ConnectionHandler* handler() const { return handler_; }
  void set_handler(ConnectionHandler* handler) { handler_ = handler; }
  uint64_t messages() const { return messages_; }
  uint64_t batches() const { return batches_; }

  // The first batch has the number `first_sequence`. `most_early_bytes` in at most
  // `most_early_batches` may come before Open(). A seal outlives Stop(). REQUIRES: with a proof,
  // the domain does not tell links.
  void Start(FramingDomain* domain, uint32_t first_sequence, size_t most_early_batches,
             size_t most_early_bytes, const BatchTag& tag = {});
  // Delivers what came early. REQUIRES: started; the sender is open.
  void Open();
  void Stop();

  // For ConnectionTable: the number of the batch that comes next, behind those that came early.
  uint32_t next_sequence() const { return sequence_ + static_cast<uint32_t>(early_.count()); }
  // The same: 0 where the batch ends in the proof, or there is none; else the bits that differ. It
  // takes as long whichever these are.
  uint64_t DifferenceOfProof(ByteSpan batch) const;
  // REQUIRES: `header` is the batch's, and names this connection; DifferenceOfProof() is 0.
  void OnBatch(ByteSpan batch, const BatchHeader& header);
  // A batch with another token or number than this connection's next one, of which nobody knows
  // where it comes from. True: the peer has sealed it for another place: somebody on the way has
  // changed the order, and it ends the connection. It takes as long whichever token and number.
  bool OnMisplaced(ByteSpan batch, const BatchHeader& header);

 private:
  void KeepEarly(ByteSpan batch);
  ByteSpan Unseal(Seal& seal, ByteSpan batch, const BatchHeader& header);
  bool TakePart(ByteSpan batch, uint16_t frames);
  const char* Account(const BatchHeader& header);
  bool DispatchInParts(ByteSpan batch, uint16_t frames);
  template <class After>
  bool DispatchFrames(ByteSpan batch, uint16_t frames, After after);
  bool TakeOtherFrame(BatchReader& reader);

  Connection& connection_;
  ConnectionHandler* handler_;  // null: not known yet
  BatchSender& sender_;
  uint64_t messages_ = 0;  // received
  uint64_t batches_ = 0;
  FramingDomain* domain_ = nullptr;  // null: stopped
  uint32_t sequence_ = 0;
  uint8_t frames_to_part_ = 0;  // LinkDomain's
  BatchTag tag_;
  Host* const host_;
  EarlyBatches early_;
};

}  // namespace weft
