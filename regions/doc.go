// Package regions lets a region read what other regions do to counters, and answers the regions that
// read it. A region is one server or one cluster. Every region serves its own clients alone, and all
// regions tell each other later what they did.
//
// Regions tell each other increments, SETs, deletions and expiries of counters, in tables that are told
// (REGIONS ALL), and the ids of these operations. Filters and sketches stay where they are. If two regions
// have applied an operation with the same id, the one applied first counts (by wall time, then by the
// region's number), and package store takes back the other one in its region. The client there was told that
// it was applied; from then on a retry gets the first one's result in both regions.
//
// This package has the connections, the requests and their answers, the members, and the comparison of
// regions. Which of its operations a region tells, and what another one makes of them, is package
// store's (Store.Pull, Store.Take). docs/design/regions.md has the rules of both.
//
// # Words
//
//	reader    a region that asks another one for its operations
//	source    the region that is asked; every region is a reader of all others and a source for them
//	member    a region that the regions' list of members names
//	number    of a member, 0 to 15; it is never given again, so there are 16 in all
//	group     a random number that all members share; another group is another set of regions
//	arbiter   the member with the lowest number: it alone changes the list of members
//	newcomer  a server that the arbiter has admitted, and that has not taken anything of the others yet
//	heir      the member that acts in the place of a removed region, see Members
//	incarnation  a random number of the source's data; it changes when a backup is restored
//	era       counts the flushes, in the list of members; a flush empties all regions
//	partition a range of slots with a log of its own; regions may have different numbers of them
//	shard     the partitions that the same nodes of a cluster have; a server alone is one shard
//	range     slots that lie in one partition of the source and in one partition of the reader
//	entry     the outcome of an operation in a partition's log; its sequence is its number there
//	section   the entries that one batch has logged for one partition
//	position  the sequence up to which a reader has taken the log of a source's partition
//	page      a part of a source's state; a reader takes pages if the log does not reach back
//	proof     that a source told a position: the section's fingerprint, and a code of the source's directory
//	fenced    of a directory: it is an older copy, so it refuses clients' writes, and nobody reads it
//	Mesh      all that reads the other regions, for one server
//	peer      the part of a Mesh that reads one shard of another region: a goroutine and a connection
//	session   one connection from a reader to a source, from its first request to its failure
//	told      of a table: REGIONS ALL. A Told is all that a source remembers of a connection (NEXT)
//	look      one comparison of this region with the others
//
// A Node is one server's end of regions. It answers requests (Source), also before the server is a member.
// Once it is one, its Mesh reads each other region, with a peer for each of that region's shards.
//
//	n, err := regions.Open(regions.Options{Store: s})
//	…
//	n.Pull(ctx, &told, args, w) // for each REGION.PULL of a client; told is the connection's
//	…
//	err = n.Close() // before the store
//
// # The way of a request
//
//  1. The reader asks its store how far each range was taken (Store.TakenOf), and sends one REGION.PULL
//     for all ranges that do not wait after a failure (peer.request).
//  2. The source checks the request (Source.Pull, ParseRequest), and refuses readers other than members.
//  3. The source looks for entries behind the reader's positions (Store.PullAll). If there are none, it
//     waits for the first one, at most as long as the request says (Store.AwaitAny).
//  4. The source answers with entries that are committed and durable, and only with its own operations.
//  5. The reader takes the entries of each range behind its position (Store.Take), and skips others. The
//     record of its log that has them has the new position too: after a crash both are there or neither is.
//     Only a very long section takes several records, and comes again if the last of them is missing.
//  6. The next request names the new positions, and which of them are committed at the reader (acked).
//     That acknowledges the entries up to there. The source may drop an entry from its log once every other
//     member has acknowledged it. For each other member, also one just admitted, it keeps at most
//     store.Options.RegionBacklog bytes of log; beyond that it drops entries all the same, and answers GAP
//     later. With RegionRefuse it keeps them, and refuses its clients' writes.
//
// So no entry is left out or counts twice, whatever is lost or sent again, and whichever side crashes: an
// entry that comes again changes nothing, as each change has its clock in the store.
//
// A session depends on nothing that the reader remembers outside its store: after any failure the reader
// connects again, and asks from its positions on.
//
// # Requests and answers
//
//	request                answer                                                  file
//	REGION.PULL            entries behind positions, or why there are none         source.go
//	REGION.PULL NEXT       the same, behind what the answer before tells           next.go
//	REGION.PULL STATE      a page of state                                         staterequest.go
//	REGION.PULL MEMBERS    the list of members                                     members.go
//	REGION.PULL SHARDS     the shards of the source, and their nodes               shards.go
//	REGION.PULL TABLES     the tables of the source                                tables.go
//	REGION.PULL POSITIONS  how far the one asked has read the one that asks        examine.go
//	REGION.PULL DIGEST     sums over keys                                          verify.go
//
// All numbers are unsigned decimals without sign or leading zeros. Replies are RESP2's.
//
// # REGION.PULL
//
//	REGION.PULL group region incarnation MAX bytes BLOCK ms
//	    partition first last after proof acked [partition first last after proof acked …]
//
//	group        64 bits
//	region       the number of the reader, 0 to 15
//	incarnation  of the source, as the reader knows it, 64 bits
//	MAX          about how many bytes to answer, 1 to 67108864; a section of the log may exceed it
//	BLOCK        how long to wait if nothing follows in any range, 0 to 60000
//	partition    of the source
//	first, last  slots of the range; each first slot occurs at most once
//	after        the reader's position: it asks for the entries behind it
//	proof        the code of the proof of after, 0: there is none
//	acked        the part of that which is committed at the reader, and will not be asked for again
//
// The answer is an array: the source's clock in unix ms, the version of the list of members that the
// source knows, and three elements for each range in which something follows: its first slot, the last
// sequence of the partition, and the entries for Store.Take, with the proof of the position behind them.
// The entries are null if there was no room for them: the oldest entries of the source's log come first,
// whatever their range is. In the place of the entries there is an error if the range cannot be read:
//
//	GAP       the log does not reach back to the position: the reader needs the state
//	REFUSED   the group, the incarnation or the range is another one, or the reader is no member
//	NOREGION  the server is not a region
//	ERR       all else
//
// If every range has an error, and none of these is GAP, then an error alone is the answer.
//
// # REGION.PULL NEXT
//
//	REGION.PULL NEXT BLOCK ms EVERY ms [acked …]
//
// continues the request before it on the connection: it asks for the entries behind those of that
// request's answer. So the reader can send it before that answer arrives, and the source need not wait
// for a request in order to tell.
//
//	EVERY  the least time between two answers, 0 to 1000, unless the answer before had no room for all:
//	       requests that arrive together are not answered together
//	acked  for each range of the request before, in its order; none: as before
//
// The answer is a string: the array of REGION.PULL, packed (store.Pack). NEXT is an error if the request
// before it, or one of its ranges, was answered by an error. While there is much to tell, the source
// answers about four times in each round trip (EVERY, 5 to 25 ms). The reader keeps six requests under way
// (ahead.go), so that the source always has one to answer: four on their way, two being taken:
//
//	reader                        source
//	REGION.PULL       ─────────►
//	                  ◄─────────  entries, as soon as there are some
//	six times NEXT    ─────────►
//	                  ◄─────────  entries, once in EVERY
//	NEXT              ─────────►  one for each answer that had entries
//	                  ◄─────────  no entries: the reader sends no NEXT for this answer
//	REGION.PULL       ─────────►  once all requests are answered
//
// # REGION.PULL STATE
//
//	REGION.PULL STATE group region incarnation MAX bytes partition first last of sequence place
//
//	of        the region whose operations the page has: the source, or a region that was removed
//	sequence  at which the state began, as its first page says; 0: this is the first page
//	place     where the page before says that this one begins; empty: the first page
//
// The answer is a page for Store.Take, or an error as above. The reader asks for pages after GAP,
// between its requests for the logs of other ranges (stateread.go). Behind the last page it goes on with
// the log, from the sequence at which the first page began, and from which the source keeps its log. No
// change is lost meanwhile, or counts twice: the log brings them all, a change that a page shows already has
// no newer clock, and pages leave out ids that were applied behind that sequence. If a page cannot be taken,
// or the reader's process ends, the state begins again.
//
// # The other requests
//
//	REGION.PULL MEMBERS group region
//	REGION.PULL SHARDS group region
//	REGION.PULL TABLES group region
//	REGION.PULL POSITIONS group region incarnation
//	REGION.PULL DIGEST group region incarnation partition first last fine time
//
// MEMBERS is answered by JSON (RegionSet.Encode). A reader asks if an answer names a higher version than
// it knows, or if it is refused, which may mean that it was removed. So MEMBERS, like SHARDS and TABLES,
// needs only the right group. Each other request is refused unless a member sends it.
//
// SHARDS is answered by JSON: [{"partitions": [[first, last], …], "nodes": [{"host": …, "port": …,
// "tls": …, "leads": …}, …], "own": …}, …], which is empty if the server has all partitions itself. A
// reader begins each connection with it, asks again from time to time, and remembers the nodes across
// restarts (remembered.go). It reads a shard from any of its nodes, and after a failure from the next.
//
// TABLES is answered by JSON (store.TableSet). A reader asks when a session begins and once a minute, and
// Status names the tables that differ. An error changes nothing else: the source is read all the same.
//
// POSITIONS turns the roles round: a region asks its readers how far they have taken its own logs. The
// answer has their positions, each with the proof that came with the entries (store.Positions). A Mesh
// asks when it starts, so each new leader of a shard does, and when a request or an answer names an entry
// that its log has not got. If the log contradicts a position with a valid proof, the directory is an
// older copy and is fenced (Store.Examine): its log says so, in a cluster that of the shard. A number
// without a proof changes nothing. A fence does not end: the operator removes the region and lets it join
// again, empty, or removes all others if they are lost.
//
// DIGEST is answered by sums over the keys of a range (store.Digest), without keys that expire before
// time, unix ms. fine is 0 for one sum for each 16 slots, and 1 for 64 sums for each 16 slots.
//
// # Members
//
// Members may not reach each other, so they do not vote: the arbiter decides. It gives each list the next
// version. Every answer tells the version that the source knows, and a reader that knows a lower one asks
// for the list. A newcomer is admitted, joins, and is then read:
//
//	operator          arbiter                     newcomer             another member
//	REGION STATUS ───────────────────────────────► says what it is
//	REGION ADMIT ───► connects to the newcomer ──► NOREGION
//	              ◄── version 3 of the list
//	REGION JOIN, with version 3 ─────────────────► takes it
//	                  reads the newcomer           reads both ────────► REFUSED: it knows version 2
//	                  ◄── REGION.PULL ──────────────────────────────────┤
//	                  answers: version 3 ──────────────────────────────►│
//	                  ◄── REGION.PULL MEMBERS ──────────────────────────┤
//	                                               ◄── REGION.PULL ─────┤ reads the newcomer
//	                                               asks again at once: it is a member there now
//
// Each step can be interrupted and done again. A server is known by the id of its data (RegionMember.Data).
// A region that is lost stays a member until the operator removes it and names its heir (REGION REMOVE,
// Node.Remove). If it is the arbiter, the member with the next number removes it, and is the arbiter from
// then on. The list keeps the lost region, as gone. Each remaining member asks each other one for the state
// of the lost region, and says in its own log that it has taken all of these (removal.go). Then the heir
// writes the lost region's parts of counters: it takes back what that region still had to take back, and
// closes the parts of deleted keys. Operations that the lost region told nobody are lost.
//
// # Who may read
//
// A reader logs in at a source as any client does (Options.Login, Options.TLS), as a user that has the
// permission +region.pull. Such a user can name any region as the reader, and any position. A false acked
// lets the source drop log that the named region still needs, which then takes the state. Nothing is lost:
// ids and deletions are kept until that region says in its own log that it took them. A server that anyone
// could read does not become a member (Options.Unsafe).
//
// # Failures
//
// A connection that fails is made again after a delay that doubles, from Options.FirstRetry to
// Options.LastRetry, less a random part. A range that fails waits by itself, and the other ranges go on.
// A refusal (ErrRefused) waits for LastRetry, as time alone does not mend it; between clusters it waits as
// other failures do, since some nodes hear of a member later. If the source reads the refused reader
// meanwhile, it knows it as a member: the reader asks at once, but only once until the next answer. A range
// whose source was flushed (store.ErrEra) waits for FirstRetry, until the reader has flushed as well. Pause
// stops the reading of a region, and Resume begins it at once, without the rest of any delay. Of equal
// failures in a row only the first is logged; Status shows the last one.
//
// # Comparing regions
//
// Verify compares the digests of this region with the digests of each other region. Two sums are comparable
// only if each region has taken all that the other one shows. Slots that clients are changing are
// compared again by their 64 sums, a few times, and then reported as not compared. A difference counts if
// it is there in a second comparison. Nothing is mended by it: the operator hears of it.
//
// A Mesh does the same by itself once in each Options.DigestPeriod (audit.go), with the regions that it
// is reading well. Slots that differ in two looks in a row are a mismatch, which Status and the log show
// until a look or Verify finds the slots equal. In a cluster each shard's leader compares its partitions.
//
// # Rules
//
// Behind each rule: what upholds it, and the test that fails without it.
//
// Reading:
//   - A reader that has nothing to take waits at the source, and does not ask again and again
//     (Source.Pull, Store.AwaitAny; TestWoken).
//   - An answer that brings nothing new does not make the reader ask again at once (takeOne, session;
//     TestUseless, TestDoesNotWait).
//   - No range starves another: the oldest entries come first (Store.PullAll; TestPullAllOldestFirst).
//   - A source need not wait for a request in order to tell (askOn; TestAhead), and answers so seldom that
//     each is worth its bytes (Told.pace; TestEvery).
//   - The reader takes nothing behind a failure on the same connection (askOn, take; TestFailsAhead).
//   - A reader takes memory for the bytes that arrived, not for those announced (answerReader.bulk;
//     TestAnswerMemory).
//   - A reader that finds a gap takes the state (gap, readStates; TestStateOverGap). In a shard it tries
//     the other nodes first (gapHere; TestGapAtOneNode).
//   - A newcomer takes no state before every other member has answered it as a member (waitsFor;
//     TestNewcomerWaits). A member that does not know it forgets deleted keys too early; the newcomer would
//     have such a deletion from a third member, and subtract it from what the key counts later.
//   - A reader that hears of a flush flushes soon (settle; TestFlush).
//   - Close ends every wait (session; TestClose), also that for a comparison (look; TestAuditCloses).
//
// Answering:
//   - A source refuses readers other than members at once (Source.answer; TestRefused), and checks the reader
//     again at each NEXT (Told.request; TestNext).
//   - Each request has one spelling (numbers; TestOneSpelling, FuzzParseRequest).
//   - A digest ends when its reader has left (Source.digest; TestDigestIsGivenUp).
//
// Members:
//   - One member decides (Node.plan; TestJoin), and all learn the newest list (peer.learn, Node.learn;
//     TestGossip, TestTwoJoin).
//   - A removed member learns that it was removed (session, Node.learn; TestRemoved). Clients may not write
//     to a region that nobody reads (Store.noteOwn; TestUnread).
//   - The others show a removed region that goes on, as it hears nothing (Node.strays; TestStray).
//   - A number is never given again (Admission.admit; TestNumbers), and no server takes the place of
//     another (Admission.admit, Node.Join; TestAdmit).
//   - A region that is to leave is heard up to its last write (Store.Leave; TestLeave, TestRegionLeaves).
//   - A directory that is an older copy is fenced (Store.Examine, Mesh.examine; TestWentBack), and a
//     number alone fences nobody (Store.checkAhead; TestNumberIsNoEvidence, TestAnswerIsNoEvidence).
//
// Shards:
//   - A reader reads a shard from any of its nodes (peer.enter, Mesh.grow; TestReadsShards), knows nodes
//     that were down at the start (peer.candidates; TestRemembersNodes), and learns new ones
//     (peer.learnAgain; TestNewNode).
//   - A node of another region is not believed (link.is; TestStrangerIsNotLearnt).
//   - In a cluster only the leader of a shard reads (Node.keep), under one name of the whole cluster
//     (Options.identity; TestNodeOfShard).
//
// Failures:
//   - Equal failures are one line of the log (failed; TestRefused), so are gaps (settle; TestGapIsOneLine).
//   - Resume waits for no timeout (resume; TestResumeSilent, TestResumeGoesOn).
//   - A source that stays silent is tried again at least every half minute (connectTo, Options.delay;
//     TestTriesEachHalfMinute).
//   - A refused reader asks at once when the source reads it, but once only (waitsLong; TestExcused).
//
// Comparing:
//   - Writes do not keep keys from being compared (peer.verify; TestVerifyWhileWritten, TestLookNarrows).
//   - A difference of a moment is no mismatch (note, lookAt; TestVerifyOnce, TestAudit, TestAuditBusy), and
//     a lasting one is found (audit; TestAudit, TestAuditShown).
//   - A comparison survives its connection (comparison.of; TestVerifyConnectsAnew).
//   - Damage of the own counters is shown as such (Node.Status; TestSuspects, TestAuditShown).
//   - A region that differs for a known reason raises no alarm (audited; TestAuditOfUnread).
//   - Tables that differ are named (tablesIll; TestTables, TestTablesIll), and a source that tells no
//     tables is read (learnTables; TestTablesOfOld).
package regions
