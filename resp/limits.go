package resp

// Limits bound what one request may cost. A zero field takes the value of
// DefaultLimits.
type Limits struct {
	// MaxArgs is the largest number of arguments of a request, the command's
	// name included; 1..MaxInt32. The default, 1,048,576, is Redis' for
	// clients that may send large MGETs: a million keys in a frame.
	MaxArgs int
	// MaxBulk is the longest argument, in bytes; redis.conf's
	// proto-max-bulk-len. Keys end at 64 KiB and opids at 512 bytes, so the
	// default of 1 MiB, the least that Redis accepts here, is there for ECHO
	// and the items of filters.
	MaxBulk int
	// Chunk is the name, in lower case, of a command whose arguments may be as long as
	// MaxChunk, bytes, if that is more than MaxBulk; "": there is none.
	Chunk    string
	MaxChunk int
	// MaxInline is the longest inline command, in bytes with its line end.
	// The default, 64 KiB, is Redis'.
	MaxInline int
	// MaxRequest is the longest request with its framing, in bytes, at most
	// 1 GiB; redis.conf's client-query-buffer-limit. The default of 64 MiB
	// holds a million keys of 50 bytes.
	MaxRequest int
	// Unauthenticated says that the client has yet to log in, for the words of
	// the protocol error only.
	Unauthenticated bool
}

// DefaultLimits are the limits of a client that may use the server.
var DefaultLimits = Limits{
	MaxArgs:    1 << 20,
	MaxBulk:    1 << 20,
	MaxInline:  64 << 10,
	MaxRequest: 64 << 20,
}

// UnauthenticatedLimits are the limits of a client that has yet to log in, and
// Redis' too: enough for HELLO with AUTH and SETNAME, nothing to fill memory
// with.
var UnauthenticatedLimits = Limits{
	MaxArgs:         10,
	MaxBulk:         16 << 10,
	MaxInline:       64 << 10,
	MaxRequest:      10 * (16<<10 + 16),
	Unauthenticated: true,
}

// orDefaults returns l with its zero fields filled in.
func (l Limits) orDefaults() Limits {
	if l.MaxArgs <= 0 {
		l.MaxArgs = DefaultLimits.MaxArgs
	}
	if l.MaxBulk <= 0 {
		l.MaxBulk = DefaultLimits.MaxBulk
	}
	if l.MaxInline <= 0 {
		l.MaxInline = DefaultLimits.MaxInline
	}
	if l.MaxRequest <= 0 {
		l.MaxRequest = DefaultLimits.MaxRequest
	}
	l.MaxRequest = min(l.MaxRequest, maxRequest)
	return l
}

// maxRequest keeps offsets within a request in 32 bits.
const maxRequest = 1 << 30

// ProtocolError says that a client does not speak RESP, or asks for more than
// its Limits allow. What follows on the connection cannot be understood: send
// Text as an error reply and close.
type ProtocolError struct {
	// Text is the error reply, in Redis' words where Redis has a case like it.
	Text string
}

// Error returns the text of the reply.
func (e *ProtocolError) Error() string { return e.Text }

const protocolError = "ERR Protocol error: "

// The protocol errors. Those up to ErrHTTP are Redis' own.
var (
	errMultibulkLength = &ProtocolError{protocolError + "invalid multibulk length"}
	errBulkLength      = &ProtocolError{protocolError + "invalid bulk length"}
	errMultibulkLine   = &ProtocolError{protocolError + "too big mbulk count string"}
	errBulkLine        = &ProtocolError{protocolError + "too big bulk count string"}
	errInlineLength    = &ProtocolError{protocolError + "too big inline request"}
	errQuotes          = &ProtocolError{protocolError + "unbalanced quotes in request"}
	errUnauthMultibulk = &ProtocolError{protocolError + "unauthenticated multibulk length"}
	errUnauthBulk      = &ProtocolError{protocolError + "unauthenticated bulk length"}

	// ErrHTTP meets a browser that was tricked into posting commands; Redis
	// hangs up without a word.
	ErrHTTP = &ProtocolError{protocolError + "this is not an HTTP server"}
	// errRequestLength: Redis hangs up without a word.
	errRequestLength = &ProtocolError{protocolError + "too big request"}
)

// expectedBulk is the error for an argument that does not start with '$'.
func expectedBulk(got byte) error {
	return &ProtocolError{protocolError + "expected '$', got '" + string([]byte{got}) + "'"}
}
