package commands

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

func TestParseInt(t *testing.T) {
	for _, n := range []int64{0, 1, -1, 9, 10, -10, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, 1e18} {
		if got, ok := parseInt([]byte(strconv.FormatInt(n, 10))); !ok || got != n {
			t.Errorf("%d: %d, %v", n, got, ok)
		}
	}
	for _, s := range []string{"", "-", "+1", " 1", "1 ", "01", "-0", "-01", "00", "1.0", "1e3", "0x1", "9223372036854775808",
		"-9223372036854775809", "18446744073709551616", "99999999999999999999", "999999999999999999999", "--1", "1-", "\x001", "１"} {
		if got, ok := parseInt([]byte(s)); ok {
			t.Errorf("%q is read as %d", s, got)
		}
	}
}

func FuzzParseInt(f *testing.F) {
	f.Add("0")
	f.Add("-9223372036854775808")
	f.Add("18446744073709551615")
	f.Fuzz(func(t *testing.T, s string) {
		// Canonical is exactly what formatting the number gives back.
		n, err := strconv.ParseInt(s, 10, 64)
		want := err == nil && strconv.FormatInt(n, 10) == s
		if got, ok := parseInt([]byte(s)); ok != want || ok && got != n {
			t.Errorf("parseInt(%q) = %d, %v", s, got, ok)
		}
		u, err := strconv.ParseUint(s, 10, 64)
		want = err == nil && strconv.FormatUint(u, 10) == s
		if got, ok := parseUint([]byte(s)); ok != want || ok && got != u {
			t.Errorf("parseUint(%q) = %d, %v", s, got, ok)
		}
	})
}

func TestParseDecimal(t *testing.T) {
	for s, want := range map[string]float64{"0.001": 0.001, "1e-6": 1e-6, "1E-6": 1e-6, ".5": .5, "5.": 5, "-1": -1, "+1": 1} {
		if got, ok := parseDecimal([]byte(s)); !ok || got != want {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "nan", "inf", "-inf", "0x1p-3", "1_0", "1e", "e", "--1", " 1", "1e999", "infinity", strings.Repeat("1", 65)} {
		if got, ok := parseDecimal([]byte(s)); ok {
			t.Errorf("%q is read as %v", s, got)
		}
	}
}

// parse plays a request up to its operation.
func parse(line string) (*store.Op, Style, error) {
	p := newIdlePipeline()
	p.round.now = 1_000_000
	args := toArgs(strings.Fields(line))
	c, refused := p.table.resolve(args)
	if refused != "" {
		return nil, 0, errors.New(refused)
	}
	p.add(c, args, false)
	if s := p.round.slots[0]; s.kind == slotError {
		return nil, 0, errors.New(s.text)
	}
	return &p.round.batch.Ops[0], p.round.slots[0].style, nil
}

// describeOp renders what an operation was parsed into.
func describeOp(op *store.Op, style Style) string {
	s := fmt.Sprintf("kind %d flags %b key %s id %s keys %s delta %d deltas %v at %d expire %d style %d",
		op.Kind, op.Flags, op.Key, op.ID, op.Keys, op.Delta, op.Deltas, op.At, op.ExpireAt, style)
	if o, ok := op.Object.(*store.FilterOptions); ok {
		s += fmt.Sprintf(" filter %+v", *o)
	}
	return s
}

func TestParseIntoOperations(t *testing.T) {
	b := func(words ...string) [][]byte { return toArgs(words) }
	key, id := []byte("k"), []byte("i")
	for _, c := range []struct {
		line  string
		want  store.Op
		style Style
	}{
		{"cincrby k i 5", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: 5}, 0},
		{"cdecrby k i 5 withstatus AT 9", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: -5, Flags: store.HasAt, At: 9}, withStatus},
		{"cincr k i at -3", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: 1, Flags: store.HasAt, At: -3}, 0},
		{"cdecr k i", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: -1}, 0},
		{"cmincrby i 2 a 1 b -2 withstatus", store.Op{Kind: store.CMIncrBy, ID: id, Keys: b("a", "b"), Deltas: []int64{1, -2}}, withStatus},
		{"cseen k i", store.Op{Kind: store.CSeen, Key: key, ID: id}, 0},
		{"cseen k idmp", store.Op{Kind: store.CSeen, Key: key, ID: []byte("idmp")}, 0},
		{"cseen k idmp a bc", store.Op{Kind: store.CSeen, Key: key, ID: []byte("\x01abc")}, 0},
		{"incr k", store.Op{Kind: store.IncrBy, Key: key, Delta: 1}, 0},
		{"decrby k 7", store.Op{Kind: store.IncrBy, Key: key, Delta: -7}, 0},
		{"set k 7", store.Op{Kind: store.Set, Key: key, Delta: 7}, 0},
		{"set k 7 nx get ex 5", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.NX | store.SetGet | store.HasExpire, ExpireAt: 1_005_000}, 0},
		{"set k 7 xx pxat 5", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.XX | store.HasExpire, ExpireAt: 5}, 0},
		{"set k 7 exat 5", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.HasExpire, ExpireAt: 5000}, 0},
		{"set k 7 keepttl", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.KeepTTL}, 0},
		{"psetex k 5 7", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.HasExpire, ExpireAt: 1_000_005}, 0},
		{"setnx k 7", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.NX}, 0},
		{"expire k 5 xx gt", store.Op{Kind: store.ExpireAt, Key: key, Flags: store.XX | store.GT, ExpireAt: 1_005_000}, 0},
		{"pexpire k -2000000", store.Op{Kind: store.ExpireAt, Key: key, ExpireAt: 1}, 0},
		{"expireat k 5", store.Op{Kind: store.ExpireAt, Key: key, ExpireAt: 5000}, 0},
		{"del a b", store.Op{Kind: store.Del, Keys: b("a", "b")}, 0},
		{"fbf.madd k x y", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x", "y")}, 0},
		{"fbf.add k x", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x")}, single},
		{"fbf.insert k nocreate items x", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x"), Flags: store.NoCreate}, 0},
		{"fbf.insert k capacity 9 items x", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x"), Object: &store.FilterOptions{Capacity: 9}}, 0},
		{"fbf.reserve k fixed bits 64 hashes 2 refresh 10 past 1", store.Op{Kind: store.FBFReserve, Key: key,
			Object: &store.FilterOptions{Fixed: true, Bits: 64, Hashes: 2, Refresh: 10e6, Past: 1}}, 0},
		{"flushall async", store.Op{Kind: store.FlushAll}, 0},
		{"flushdb async", store.Op{Kind: store.FlushAll, Flags: store.OneDB}, 0},
	} {
		op, style, err := parse(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if got, want := describeOp(op, style), describeOp(&c.want, c.style); got != want {
			t.Errorf("%s\n got %s\nwant %s", c.line, got, want)
		}
	}
}

const staleText = "STALE operation is older than what the table remembers (WINDOW), so it may have been applied: " +
	"check the counter; if it must still count, send it with a new opid"

func TestErrorTexts(t *testing.T) {
	for err, want := range map[error]string{
		store.ErrOpIDSize:        "ERR opid must be 1 to 512 bytes",
		store.ErrKeySize:         "ERR key must be 1 to 65536 bytes",
		store.ErrWrongType:       "WRONGTYPE Operation against a key holding the wrong kind of value",
		store.ErrOverflow:        "ERR increment or decrement would overflow",
		store.ErrStale:           staleText,
		store.ErrFuture:          "ERR operation time is in the future",
		store.ErrMismatch:        "MISMATCH opid was used with another delta",
		store.ErrPartlySeen:      "MISMATCH opid was used with some of these keys only",
		store.ErrOutOfMemory:     "OOM filter memory limit reached",
		store.ErrFilterExists:    "ERR item exists",
		store.ErrNoFilter:        "ERR not found",
		store.ErrUnknownOutcome:  "MISCONF commit failed: outcome unknown, retry with the same opid",
		store.ErrDiskFull:        "MISCONF writes are refused, nothing was applied: the disk is full, or less than min-free-disk is free",
		store.ErrSnapshotRunning: "ERR Background save already in progress",
		store.ErrClosed:          "ERR store is closed",
		store.ErrTooManyTables:   "ERR too many tables",
		errSyntax:                "ERR syntax error",
	} {
		if got := errorText(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
		if wrapped := errorText(fmt.Errorf("doing this: %w", err)); strings.Fields(wrapped)[0] != strings.Fields(want)[0] {
			t.Errorf("wrapped %v: %s", err, wrapped)
		}
	}
}
