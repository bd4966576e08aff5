// Package part is the counter that several regions change: what each of them did to it is a
// part, and the counter is the sum of its parts. Regions answer alone and tell each other
// later; two that have taken the same show the same, in whatever order, and however often, it
// came. (It is a state-based CRDT, a positive-negative counter with observed removal.)
//
// It is data and rules only: no disk, no lock, no clock. The store calls it when it redoes an
// entry, its own or one of another region's stream, so nothing here may depend on anything but
// the arguments, nor panic, whatever they are.
//
// # An example
//
// A and B are regions. A counts 3, at the sequence 1 of its op log; B has taken it, and
// deletes the counter, at its own sequence 1. Meanwhile A counts 2 more:
//
//	A: Increment(A, 1, 3)     part A {clock 1, live 1, cum 3}
//	B: Delete(B, 1, A: 1, 3)  part A {clock 1, live 1, cum 3}, base A {1, 3}: remaining 0
//	A: Increment(A, 2, 2)     part A {clock 2, live 2, cum 5}
//
// Then each tells the other. Both have part A {2, 2, 5} with the base {1, 3}, which leaves 2: what B had
// seen is gone, what it had not seen is there. Nobody needed to ask whose change was first.
//
// # How changes travel
//
// A region's stream has its changes in the order of its sequences. The region calls the same
// function for its own change as the receiver does for its copy of that region's part:
// Increment, Delete, Assign, SetExpiry, TakeBack, Settle. Or whole parts travel: Merge.
// Either may come first or again, as a change at a sequence that a part has already does
// nothing; but a change is only added to the part as of the change before it: a region that has
// missed some (a gap, a peer that was restored) merges the whole parts first.
//
// A counter that only its own region has incremented needs no parts: FromCounter makes its part
// when another region comes into play, or a SET, a deletion or an expiry.
//
// # Closing and dropping
//
// A deletion is remembered until everyone knows of it, else an old part that comes late would
// bring the counter back. So it is forgotten (Droppable) when every region has said, in its own
// stream, that it took all that was ever done to it. A region that has forgotten it
// counts from 0; one that has not yet might subtract an old base from that, or keep a take-back that the
// other does not have. Therefore every region must close its own part of a dead counter (Unclosed, then a
// Delete of its own, also if the counter does not exist): the sum begins again at 0, and so does the base,
// and nothing else is left; then it makes no difference whether the part is remembered.
//
// # Clocks that differ
//
// An expiry is a time of the clock of the region that has set it, whatever part asserts it (Expiry.By).
// Every other region judges it by the last time that it took of that clock, and the time since then, so
// never early: one whose own clock is ahead has no say in counters of others. Without a write only the
// region that has set the expiry deletes the counter, for only it knows that it has set no later one.
// Before a write elsewhere the counter is deleted there, as far as it was seen.
//
// # Deletions of operations
//
// Two regions may have applied one operation, and a deletion may have seen one of the two applications
// only. It is of the operation, so the other application must not count either. Nothing is sent for
// that. The loser's take-back is made also if the loser is deleted, and names the winner. So every region
// that has the parts knows: a base between an application and its take-back has removed the operation, and
// the winner, unless a base has removed it as well, is taken off the value (covered). If the winner was
// taken back, too, its take-back says what counts in its place; therefore that is kept as long as
// another one names it.
//
// Such a take-back would stay until a later deletion. So its region puts it into a sum, once all regions have
// acknowledged it and nothing more is owed of the operation (Settle, settle.go).
//
// A region that knows both applications knows that one will be taken back, before it is. A drain hands out
// the value as it is then (AsPaid). If two regions drain both before they know of each other,
// the operation was handed out twice, and nobody can undo that; then it counts nowhere.
//
// A Drain is no deletion, but an operation that subtracts what it hands out. So it may have twins, and
// nothing is lost, nor handed out twice in the end: what two drains subtract at once leaves the counter below
// zero, and the next one hands out that much less. The loser of two twins gives back what it has subtracted.
// That is exact beside increments. A deletion that has seen one of two twins removes both, as of any
// operation, though they may have handed out different amounts.
//
// # Words
//
//	region    one node or cluster that answers alone
//	part      what one region did to a counter; only it changes it
//	sequence  the number of an entry in the op log of the region's partition
//	dot       the sequence at which something was applied
//	clock     the sequence of a part's newest change. All changes move it, deletions too: so
//	          the clocks of a counter say what of each region must have been heard
//	live      the sequence of the newest change that makes the counter exist
//	cum       the sum of what the region applied, since it closed its part
//	base      what deletions have removed of a part: all up to a clock, with cum as it was
//	remaining what a part adds to the value: cum without the base
//	close     to delete one's own part, so that sum and base are 0
//	register  the value of a SET, beside the sums; the newest one counts
//	take-back undoing an application of an opid that another region has also applied
//	winner    the application of an opid that counts; the others are losers
//	undo      remembers a take-back and its winner, for a base between application and take-back
//	owed      what a region must take back and has no room for: it is taken back later, and until then counts
//
// # Rules, and what upholds them
//
//	a change counts once         next           TestScripts (twice), TestKnownChanges
//	the newer copy wins          MergePart      TestMergeLaws, TestRandomRuns
//	what was seen is removed     remaining      TestScripts
//	what was not seen stays      Seen, Delete   TestScripts, TestSetKeepsWhatItDidNotSee
//	taken back once, if held     CanTakeBack    TestScripts, TestTakeBackOfWhatIsGone
//	deleted once, wherever       covered        TestScripts, TestCovered, TestRandomRuns
//	handed out once              AsPaid, Seen   TestDrains, TestSeenBases
//	… with an opid               Drain          TestHandOuts
//	an empty counter goes        Emptied        TestHandOuts
//	late rather than never       CanTakeBack    TestScripts, TestMistakes, TestRandomRuns (room for one)
//	no base counts it twice      Undo, Spent    TestUndo, TestDroppedEarly
//	work does not grow           Settle         TestManyDrainedTwins, TestDrains
//	a dead counter stays dead    Live           TestScripts
//	no expiry is lost            Increment      TestScripts, TestMistakes
//	none comes early             Expiry.By      TestScripts, TestMistakes, TestRandomRuns
//	forgotten by all or none     Droppable      TestScripts, TestClosed
//	no value wraps around        Value, Room    TestValue, TestRoom
//	one encoding of a value      Decode         TestCodeRefuses, FuzzDecode
//
// Mutants (tools/mutants) break each. The checks play regions that lose, repeat
// and reorder what they tell each other: all interleavings of short scripts (check_test.go), long
// runs by chance (random_test.go), and lost and restored regions (fault_test.go).
//
// Parts belong to one goroutine at a time. A copy made with slices.Clone shows what was there when it was
// made; a copy that will be changed is made with Clone.
package part
