// Package regions lets a region, which is one node, read what other regions do, and answers
// those that read it. What is told, and what becomes of it, is the store's (store/pull.go,
// store/take.go): here are connections, the command, and how it goes.
//
// A Mesh reads each other region over one connection, for all partitions at once:
//
//	m, err := regions.Start(regions.Options{Store: s, Peers: map[part.Region]string{1: "b:6379"}})
//	…
//	err = m.Close() // before the store
//
//	who reads                                    who is read
//	Store.TakenOf ── REGION.PULL, one request ──► Source.Pull ── Store.Pull of each range
//	Store.Take    ◄── what follows, or nothing ── waits until something follows: Store.AwaitAny
//
// Who reads asks for what follows that which it has taken, so nothing need be remembered here:
// after any failure it connects, and asks again. The cursor is in the store's record with what
// was taken. A source keeps its log until others acknowledge it.
//
// # The command
//
//	REGION.PULL group region incarnation MAX bytes BLOCK ms
//	    partition first last after acked [partition first last after acked …]
//
// All numbers are unsigned decimals without sign or leading zeros.
//
//	group        of the regions, 64 bits
//	region       who asks, 0 to 15
//	incarnation  of the source, as who asks knows it, 64 bits
//	MAX          about how many bytes to answer, 1 to 67108864; a section of the log may exceed it
//	BLOCK        how long to wait if nothing follows anywhere, 0 to 60000
//	partition    of the source
//	first, last  slots: those of the partition, or of one of the reader's if that has fewer; each
//	             first slot at most once
//	after        the sequence up to which the reader has taken the partition's log
//	acked        of that, what is durable there and will not be asked again
//
// The reply is an array: the source's clock in unix ms, the version of the members that it knows, and for
// each range of which something follows three elements: its first slot, an integer; the last sequence of the partition, a string;
// and what follows, for Store.Take. That is null if there was no room for it: what is older in the
// source's log comes first, of whatever range. It is an error if that range cannot be read:
//
//	GAP       the log does not reach back so far: the state is needed
//	REFUSED   another group, incarnation or range, or who asks is no member
//	NOREGION  the server is not a region
//	ERR       all else
//
// An error other than GAP of all ranges is the reply itself. The reply must be RESP2's.
//
// # When it fails
//
// A connection that fails is made anew after a while that grows, and differs by chance. A range
// that fails waits by itself; the others go on. What time alone does not mend (ErrRefused, a
// gap) waits for Options.LastRetry. Only the first of failures that are alike is logged; Status
// shows the last. Resume asks at once. SetPeers follows a change of members.
//
// A GAP is not mended yet: the range waits, and Status says so, until states can be exchanged.
//
// # Rules, and what upholds them
//
//	nobody asks again and again    AwaitAny, Source.Pull       TestWoken
//	a stranger is refused at once  Source.answer               TestRefused
//	alike failures are one line    failed                      TestRefused
//	Close ends what hangs          session (AfterFunc)         TestClose
//	no range starves another       store.PullAll               TestPullAllOldestFirst (store)
//	a useless answer makes no loop take, takeOne, session      TestUseless, TestDoesNotWait
//	memory is for what arrived     answerReader.bulk           TestAnswerMemory, FuzzAnswer
//	one spelling of a request      numbers                     TestOneSpelling, FuzzParseRequest
//	a gap is one line              settle                      TestGapIsOneLine
package regions
