// Package raftmsg has the bytes of Raft's messages and entries. It knows no connection and no file:
// package cluster's Transport sends and receives the messages, each with EncodeRequest, Read,
// DecodeRequest, EncodeResponse and DecodeResponse in turn, and its meta log is a file of entries.
//
// The dialer of a connection asks, the listener answers in order; each message is
//
//	length of the rest u32 | type u8 | body
//
// with big-endian numbers, and byte strings after their length, u32. A snapshot's bytes
// follow its request. The library's own transport uses msgpack, whose lengths it believes
// before it has the bytes: here lengths are believed as the bytes arrive, and a message that no node
// sends is ErrMalformed.
package raftmsg

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// The types of messages.
const (
	appendRequest byte = 1 + iota
	voteRequest
	preVoteRequest
	snapshotRequest
	timeoutNowRequest
	response // its request says of which type
	failure  // a text instead of a response
)

// Limits of messages.
const (
	MaxRequest  = 65 << 20              // bytes of a request: an entry of the largest size, and more
	MaxResponse = 4 << 10               // bytes of a response
	MaxEntries  = 1 << 20               // bytes of a message's entries together, unless one alone is longer
	EntrySize   = 8 + 8 + 1 + 4 + 4 + 8 // of an entry without its data
	maxText     = 1 << 10               // of an id, an address, an error
	maxState    = 64 << 20              // bytes of a snapshot
	maxCount    = 1024                  // entries of a message: the library allows no more
	maxServers  = 64 << 10              // bytes of a configuration
)

// ErrMalformed is a message that no node of ours sends.
var ErrMalformed = errors.New("it sends a malformed message of Raft")

// encoder appends the fields of a message to b.
type encoder struct{ b []byte }

func (e *encoder) u8(v byte)    { e.b = append(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) bytes(v []byte) {
	e.b = append(binary.BigEndian.AppendUint32(e.b, uint32(len(v))), v...)
}

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) header(h raft.RPCHeader) {
	e.u8(byte(h.ProtocolVersion))
	e.bytes(h.ID)
	e.bytes(h.Addr)
}

// time keeps the zero time apart from 1970.
func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.u64(0)
	} else {
		e.u64(uint64(t.UnixNano()))
	}
}

func (e *encoder) entry(l *raft.Log) {
	e.u64(l.Index)
	e.u64(l.Term)
	e.u8(byte(l.Type))
	e.bytes(l.Data)
	e.bytes(l.Extensions)
	e.time(l.AppendedAt)
}

// finish fills in the length that begin left room for.
func (e *encoder) finish(limit int) ([]byte, error) {
	if len(e.b)-4 > limit {
		return nil, fmt.Errorf("a message of Raft has %d bytes, more than %d", len(e.b)-4, limit)
	}
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b, nil
}

// begin starts a message in the memory of b.
func begin(b []byte, kind byte) *encoder { return &encoder{append(b[:0], 0, 0, 0, 0, kind)} }

// EncodeRequest returns a request as it is sent, in the memory of b if that suffices.
func EncodeRequest(b []byte, request any) ([]byte, error) {
	var e *encoder
	switch r := request.(type) {
	case *raft.AppendEntriesRequest:
		e = begin(b, appendRequest)
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.bytes(r.Leader)
		e.u64(r.PrevLogEntry)
		e.u64(r.PrevLogTerm)
		e.u64(r.LeaderCommitIndex)
		for _, l := range r.Entries {
			e.entry(l)
		}
	case *raft.RequestVoteRequest:
		e = begin(b, voteRequest)
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.bytes(r.Candidate)
		e.u64(r.LastLogIndex)
		e.u64(r.LastLogTerm)
		e.bool(r.LeadershipTransfer)
	case *raft.RequestPreVoteRequest:
		e = begin(b, preVoteRequest)
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.u64(r.LastLogIndex)
		e.u64(r.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		if r.Size < 0 || r.Size > maxState {
			return nil, fmt.Errorf("a snapshot has %d bytes, more than %d", r.Size, maxState)
		}
		e = begin(b, snapshotRequest)
		e.header(r.RPCHeader)
		e.u8(byte(r.SnapshotVersion))
		e.u64(r.Term)
		e.bytes(r.Leader)
		e.u64(r.LastLogIndex)
		e.u64(r.LastLogTerm)
		e.bytes(r.Configuration)
		e.u64(r.ConfigurationIndex)
		e.u64(uint64(r.Size))
	case *raft.TimeoutNowRequest:
		e = begin(b, timeoutNowRequest)
		e.header(r.RPCHeader)
	default:
		return nil, fmt.Errorf("no message for %T", request)
	}
	return e.finish(MaxRequest)
}

// EncodeResponse returns the answer to a request as it is sent.
func EncodeResponse(b []byte, answer raft.RPCResponse) ([]byte, error) {
	e := begin(b, response)
	switch r := answer.Response.(type) {
	case *raft.AppendEntriesResponse:
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.u64(r.LastLog)
		e.bool(r.Success)
		e.bool(r.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.bool(r.Granted)
	case *raft.RequestPreVoteResponse:
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.bool(r.Granted)
	case *raft.InstallSnapshotResponse:
		e.header(r.RPCHeader)
		e.u64(r.Term)
		e.bool(r.Success)
	case *raft.TimeoutNowResponse:
		e.header(r.RPCHeader)
	default:
		if answer.Error == nil {
			return nil, fmt.Errorf("no message for %T", answer.Response)
		}
	}
	if answer.Error != nil {
		text := answer.Error.Error()
		e = begin(e.b, failure)
		e.bytes([]byte(text[:min(len(text), maxText)]))
	}
	return e.finish(MaxResponse)
}

// decoder reads the fields of a message. What it returns shares the message's memory.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() byte {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (d *decoder) bytes(limit int) []byte {
	size := d.take(4)
	if size == nil || binary.BigEndian.Uint32(size) > uint32(limit) {
		d.bad = true
		return nil
	}
	if v := d.take(uint64(binary.BigEndian.Uint32(size))); len(v) > 0 {
		return v
	}
	return nil // as the library has it
}

func (d *decoder) bool() bool {
	v := d.u8()
	d.bad = d.bad || v > 1
	return v == 1
}

func (d *decoder) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(d.u8()), ID: d.bytes(maxText),
		Addr: d.bytes(maxText)}
}

func (d *decoder) time() time.Time {
	if n := d.u64(); n != 0 {
		return time.Unix(0, int64(n))
	}
	return time.Time{}
}

// configuration reads an encoded raft.Configuration, on which the library panics if it
// is damaged.
func (d *decoder) configuration(b []byte) {
	if d.bad = d.bad || len(b) > maxServers; d.bad {
		return
	}
	defer func() { d.bad = recover() != nil }()
	raft.DecodeConfiguration(b)
}

// entry reads an entry, of a type that a cluster of ours has.
func (d *decoder) entry() *raft.Log {
	l := &raft.Log{Index: d.u64(), Term: d.u64(), Type: raft.LogType(d.u8())}
	l.Data, l.Extensions, l.AppendedAt = d.bytes(MaxRequest), d.bytes(MaxRequest), d.time()
	switch l.Type {
	case raft.LogCommand, raft.LogNoop, raft.LogBarrier:
	case raft.LogConfiguration:
		d.configuration(l.Data)
	default:
		d.bad = true
	}
	return l
}

// EncodeEntries returns entries, one behind the other.
func EncodeEntries(entries ...*raft.Log) []byte {
	var e encoder
	for _, l := range entries {
		e.entry(l)
	}
	return e.b
}

// DecodeEntries reads what EncodeEntries returned.
func DecodeEntries(b []byte) (entries []*raft.Log, err error) {
	for d := (decoder{b: b}); len(d.b) > 0; {
		entries = append(entries, d.entry())
		if d.bad {
			return nil, ErrMalformed
		}
	}
	return entries, nil
}

// DecodeRequest reads a request. No byte may be left.
func DecodeRequest(kind byte, body []byte) (request raft.WithRPCHeader, err error) {
	d := decoder{b: body}
	switch h := d.header(); kind {
	case appendRequest:
		r := &raft.AppendEntriesRequest{RPCHeader: h, Term: d.u64(), Leader: d.bytes(maxText),
			PrevLogEntry: d.u64(), PrevLogTerm: d.u64(), LeaderCommitIndex: d.u64()}
		for !d.bad && len(d.b) > 0 {
			d.bad = len(r.Entries) == maxCount
			r.Entries = append(r.Entries, d.entry())
		}
		request = r
	case voteRequest:
		request = &raft.RequestVoteRequest{RPCHeader: h, Term: d.u64(), Candidate: d.bytes(maxText),
			LastLogIndex: d.u64(), LastLogTerm: d.u64(), LeadershipTransfer: d.bool()}
	case preVoteRequest:
		request = &raft.RequestPreVoteRequest{RPCHeader: h, Term: d.u64(), LastLogIndex: d.u64(),
			LastLogTerm: d.u64()}
	case snapshotRequest:
		r := &raft.InstallSnapshotRequest{RPCHeader: h, SnapshotVersion: raft.SnapshotVersion(d.u8()),
			Term:   d.u64(),
			Leader: d.bytes(maxText), LastLogIndex: d.u64(), LastLogTerm: d.u64(),
			Configuration: d.bytes(MaxRequest), ConfigurationIndex: d.u64(), Size: int64(d.u64())}
		d.configuration(r.Configuration)
		d.bad = d.bad || r.Size < 0 || r.Size > maxState || r.SnapshotVersion != raft.SnapshotVersionMax
		request = r
	case timeoutNowRequest:
		request = &raft.TimeoutNowRequest{RPCHeader: h}
	default:
		d.bad = true
	}
	if d.bad || len(d.b) > 0 {
		return nil, ErrMalformed
	}
	return request, nil
}

// DecodeResponse reads the answer to a request into one of the library's responses. An error that
// the peer answered is returned as an error other than ErrMalformed.
func DecodeResponse(kind byte, body []byte, into any) (err error) {
	d := decoder{b: body}
	if kind == failure {
		text := d.bytes(maxText)
		if d.bad || len(d.b) > 0 {
			return ErrMalformed
		}
		return RemoteError(text)
	}
	switch h := d.header(); r := into.(type) {
	case *raft.AppendEntriesResponse:
		*r = raft.AppendEntriesResponse{RPCHeader: h, Term: d.u64(), LastLog: d.u64(), Success: d.bool(),
			NoRetryBackoff: d.bool()}
	case *raft.RequestVoteResponse:
		*r = raft.RequestVoteResponse{RPCHeader: h, Term: d.u64(), Granted: d.bool()}
	case *raft.RequestPreVoteResponse:
		*r = raft.RequestPreVoteResponse{RPCHeader: h, Term: d.u64(), Granted: d.bool()}
	case *raft.InstallSnapshotResponse:
		*r = raft.InstallSnapshotResponse{RPCHeader: h, Term: d.u64(), Success: d.bool()}
	case *raft.TimeoutNowResponse:
		*r = raft.TimeoutNowResponse{RPCHeader: h}
	default:
		return fmt.Errorf("no message for %T", into)
	}
	if d.bad || len(d.b) > 0 || kind != response {
		return ErrMalformed
	}
	return nil
}

// RemoteError is what the Raft of another node says of a request. The connection is fine.
type RemoteError string

// Error returns the other node's text.
func (e RemoteError) Error() string { return string(e) }

// Read reads a message of at most limit bytes, into memory that grows with what
// has arrived. begun is called once its length is known.
func Read(r *bufio.Reader, limit int, begun func()) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	begun()
	size := int(binary.BigEndian.Uint32(head[:4]))
	if size < 1 || size > limit {
		return 0, nil, ErrMalformed
	}
	size--
	const step = 1 << 20
	body = make([]byte, 0, min(size, step))
	for len(body) < size {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(size, 2*cap(body))), body...)
		}
		n := len(body)
		body = body[:min(size, cap(body))]
		if _, err := io.ReadFull(r, body[n:]); err != nil {
			return 0, nil, noEOF(err)
		}
	}
	return head[4], body, nil
}

// noEOF makes an end within a message an error of its own.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
