// Package regions lets a region, which is one node or a cluster, read what other regions do, and answers
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
// The reply is an array: the source's clock in unix ms; the version of the members, as the source
// knows them; and for each range of which something follows three elements: its first slot, an
// integer; the last sequence of the partition, a string; and what follows, for Store.Take. That is
// null if there was no room for it: what is older in the source's log comes first, of whatever range.
// It is an error if that range cannot be read:
//
//	GAP       the log does not reach back so far, or to where it is enough: the state is needed
//	REFUSED   another group, incarnation or range, or who asks is no member
//	NOREGION  the server is not a region
//	ERR       all else
//
// An error other than GAP of all ranges is the reply itself. The reply must be RESP2's.
//
//	REGION.PULL NEXT BLOCK ms EVERY ms [acked …]
//
// continues the request before on the connection (next.go): it asks for what follows that which its
// answer tells, so it can be sent before that arrives. Nothing else is remembered for a connection.
//
//	EVERY        how long after what the answer before told was looked for this is done again, 0
//	to 1000, unless that was
//	             not all there was: so requests that come together are not answered together
//	acked        for each range, in its order; none: as before
//
// It is checked as the request before, and is an error if that was, or any range in its answer. The
// reply is a string: the array that it otherwise would be, packed (store.Pack). Who reads has some
// of these under way while there is much to tell (ahead.go), so that what is done between two
// answers does not wait for a request to arrive:
//
//	reader  ── request ──►                                              source
//	        ◄── answer ── what followed, as soon as there was something
//	        ── NEXT, NEXT, NEXT, … ──►                                  tells every quarter of a round trip
//	        ◄── answer ── … as long as it tells something
//	        ── NEXT ──►                                                 for each of them
//	        ◄── answer ── nothing: none is sent for it; behind the last one a request as in the beginning
//
//	REGION.PULL MEMBERS group region
//
// is answered by the members, JSON as RegionSet.Encode makes it; region is who asks, who need not be one.
//
//	REGION.PULL SHARDS group region
//
// is answered by the shards, JSON: [{"partitions": [[first, last], …], "nodes": [{"host": …,
// "port": …, "tls": …, "leads": …}, …], "own": …}, …]; empty, if the server has all partitions
// itself. Who reads begins each connection with that: it reads each shard over one of its own, from
// any of its nodes, and after a failure from the next one (shards.go). It asks again from time to
// time, and remembers the nodes across restarts (remembered.go).
//
//	REGION.PULL TABLES group region
//
// is answered by the tables, JSON: a store.TableSet. Who reads asks when a session begins and once
// a minute, and Status says by name what tables differ (tables.go). An answer that is an error, or
// not understood, changes nothing else.
//
// # Who is a member
//
// A Node is one server's end of regions, also before it is a member. The members decide nothing
// together, since they may not reach each other: the one with the lowest number does, the arbiter. It
// gives the set the next version. Each answer tells the version that the source knows; who
// knows a lower one asks it for the members, and so does who is refused, which may be because it is no
// member any more. A newcomer is admitted by the arbiter, and is a member once it joins:
//
//	operator          arbiter                newcomer            another member
//	REGION STATUS ──────────────────────────► what it is
//	REGION ADMIT ───► version 3; can I
//	                  reach it? ────────────► NOREGION
//	REGION JOIN ────────────────────────────► version 3
//	                  reads it               reads both, but ──► REFUSED: version 2
//	                  ◄── REGION.PULL ───────────────────────────┤ the answer says: version 3
//	                  MEMBERS ──────────────────────────────────► reads the newcomer
//	                                         is asked: so it asks at once, and need not wait
//
// All of it may be interrupted anywhere and done again: to admit and to join twice is to do it
// once. The id of the data (RegionMember.Data) tells that it is the same server.
//
// # When it fails
//
// A connection that fails is made anew after a while that grows, and differs by chance. A range
// that fails waits by itself; the others go on. What time alone does not mend (ErrRefused, a
// gap) waits for Options.LastRetry, and a range of a region that was flushed (store.ErrEra) for
// Options.FirstRetry, until this one is, too. Only the first of failures that are alike is logged; Status
// shows the last. Resume asks at once. SetPeers follows a change of members.
//
// # States
//
// A range that got GAP takes the state instead (store/regionstate.go), page by page, between the
// requests for the logs of the others, and goes on with the log behind the last page:
//
//	REGION.PULL STATE group region incarnation MAX bytes partition first last of sequence place
//
//	of        whose operations are told: the source's own, or those of a region that is lost
//	sequence  at which the state began, as its first page said; 0: this is the first one
//	place     where the page before said that this one begins; empty: the first one
//
// The reply is a page, for Store.TakeState, or an error as above. A page that cannot be taken makes the
// state begin again, and so does the end of the process.
//
// A region that has taken nothing yet of anyone takes no state before all others have answered it as a
// member: one that does not know it would forget a dead key that another one still tells it of.
// Status says whom it waits for.
//
// # Positions
//
//	REGION.PULL POSITIONS group region incarnation
//
// is answered by how far the source has taken the asking region's logs, with that region's proofs
// (store.Positions). A Mesh asks for them when it starts, and when somebody names an entry that
// this region has not got (examine.go). So a directory that is an older copy finds out, and no
// number alone is believed.
//
// # Digests
//
//	REGION.PULL DIGEST group region incarnation partition first last fine time
//
// is answered with store.Digest, of what does not expire until a time, unix ms. Verify compares
// with each region, by groups of 16 slots: only if both have taken all that the other one shows. Of
// what is being changed it asks again, for a while, for the 64 buckets of keys that each group has
// (fine is 1), and then tells that it could not be compared. What differs counts if it still does
// when it is asked for again.
//
// A Mesh does the same by itself once in Options.DigestPeriod (audit.go), with regions whose
// reading is neither paused nor failing, unless this one was removed or restored. Slots that differ
// in two looks in a row are a mismatch: it is in Status and in the log until a look, or Verify,
// finds them equal. The leader of each shard does it for the partitions of that.
//
// # Rules, and what upholds them
//
//	nobody asks again and again    AwaitAny, Source.Pull       TestWoken
//	a stranger is refused at once  Source.answer               TestRefused
//	alike failures are one line    failed                      TestRefused
//	resume waits for no timeout    resume                      TestResumeSilent, TestResumeGoesOn
//	a silent one is tried anew     connectTo, Options.delay    TestTriesEachHalfMinute
//	Close ends what hangs          session (AfterFunc)         TestClose
//	a flush is followed soon       settle                      TestFlush
//	a gap is mended                gap, readStates             TestStateOverGap
//	no dead key comes back         readStates (waitsFor)       TestNewcomerWaits
//	one member decides             Node.plan                   TestJoin
//	all learn of the newest set    peer.learn, Node.learn      TestGossip, TestTwoJoin
//	a removed member knows it      session, Node.learn         TestRemoved
//	what nobody reads is refused   store.noteUnread            TestUnread (store), TestRemoved
//	who went back is fenced        store.Examine, Mesh.examine TestWentBack (store, too)
//	a number is no evidence        store.checkAhead            TestNumberIsNoEvidence (store,
//	too), TestAnswerIsNoEvidence (store)
//	who leaves is heard to the end store.Leave, fbfkv region   TestLeave (store), TestRegionLeaves
//	a refusal is asked about once  waitsLong, askedUs          TestExcused
//	a number is never given again  Admission.admit             TestNumbers
//	no server in another's place   Admission.admit, Node.Join  TestAdmit
//	no range starves another       store.PullAll               TestPullAllOldestFirst (store)
//	a useless answer makes no loop take, takeOne, session      TestUseless, TestDoesNotWait
//	memory is for what arrived     answerReader.bulk           TestAnswerMemory, FuzzAnswer
//	one spelling of a request      numbers                     TestOneSpelling, FuzzParseRequest
//	traffic keeps no digest away   peer.verify (fine)          TestVerifyWhileWritten,
//	TestLookNarrows, TestDigestBuckets (store)
//	a moment is no difference      open.agreed (suspect)       TestVerifyOnce, TestSuspects,
//	TestDigestOfDropped (store)
//	a digest ends with its asker   Source.digest               TestDigestIsGivenUp, TestDigestEnds (store)
//	a look survives its connection comparison.of               TestVerifyConnectsAnew
//	a gap is one line              settle                      TestGapIsOneLine
//	any node of a shard is read    peer.enter, Mesh.grow       TestReadsShards
//	a name that is lost is enough  peer.candidates             TestRemembersNodes
//	new nodes are learnt           peer.learnAgain             TestNewNode
//	nobody tells of another region link.is                     TestStrangerIsNotLearnt
//	a gap at one node is no gap    settle, gapHere             TestGapAtOneNode
//	a source need not be asked     askOn, Source.Pull          TestAhead
//	nothing behind a failure       askOn, take                 TestFailsAhead
//	who continues is checked again Told.request, Source.answer TestNext
//	answers are worth their bytes  Told.pace                   TestEvery
//	only a leader reads            Node.keep                   TestNodeOfShard
//	a cluster has one name         Options.identity            TestNodeOfShard
//	a difference is not missed     audit                       TestAudit, TestAuditShown
//	one look raises no alarm       note, lookAt                TestAudit, TestAuditBusy,
//	TestVerifyEndsMismatch
//	damage here is told            note, Node.Status           TestSuspects, TestAuditShown
//	who differs anyway is not told audited                     TestAuditOfUnread
//	a look does not hold up Close  look, wait                  TestAuditCloses
//	tables that differ are named   tablesIll                   TestTables, TestTablesIll
//	who tells no tables is read    learnTables                 TestTablesOfOld
package regions
