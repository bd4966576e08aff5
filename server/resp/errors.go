package resp

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
