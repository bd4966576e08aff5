package commands

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

func TestParseInt(t *testing.T) {
	for _, n := range []int64{0, 1, -1, 9, 10, -10, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1,
		math.MinInt64 + 1, 1e18} {
		if got, ok := parseInt([]byte(strconv.FormatInt(n, 10))); !ok || got != n {
			t.Errorf("%d: %d, %v", n, got, ok)
		}
	}
	for _, s := range []string{"", "-", "+1", " 1", "1 ", "01", "-0", "-01", "00", "1.0", "1e3", "0x1",
		"9223372036854775808",
		"-9223372036854775809", "18446744073709551616", "99999999999999999999", "999999999999999999999",
		"--1", "1-", "\x001", "１"} {
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
	for s, want := range map[string]float64{"0.001": 0.001, "1e-6": 1e-6, "1E-6": 1e-6, ".5": .5, "5.": 5,
		"-1": -1, "+1": 1} {
		if got, ok := parseDecimal([]byte(s)); !ok || got != want {
			t.Errorf("%q: %v, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "nan", "inf", "-inf", "0x1p-3", "1_0", "1e", "e", "--1", " 1", "1e999",
		"infinity", strings.Repeat("1", 65)} {
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
		{"cdecrby k i 5 withstatus AT 9", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: -5,
			Flags: store.HasAt, At: 9}, withStatus},
		{"cincr k i at -3", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: 1, Flags: store.HasAt,
			At: -3}, 0},
		{"cdecr k i", store.Op{Kind: store.CIncrBy, Key: key, ID: id, Delta: -1}, 0},
		{"cmincrby i 2 a 1 b -2 withstatus",
			store.Op{Kind: store.CMIncrBy, ID: id, Keys: b("a", "b"), Deltas: []int64{1, -2}}, withStatus},
		{"cseen k i", store.Op{Kind: store.CSeen, Key: key, ID: id}, 0},
		{"cseen k idmp", store.Op{Kind: store.CSeen, Key: key, ID: []byte("idmp")}, 0},
		{"cseen k idmp a bc", store.Op{Kind: store.CSeen, Key: key, ID: []byte("\x01abc")}, 0},
		{"incr k", store.Op{Kind: store.IncrBy, Key: key, Delta: 1}, 0},
		{"decrby k 7", store.Op{Kind: store.IncrBy, Key: key, Delta: -7}, 0},
		{"set k 7", store.Op{Kind: store.Set, Key: key, Delta: 7}, 0},
		{"set k 7 nx get ex 5",
			store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.NX | store.SetGet | store.HasExpire,
				ExpireAt: 1_005_000}, 0},
		{"set k 7 xx pxat 5", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.XX | store.HasExpire,
			ExpireAt: 5}, 0},
		{"set k 7 exat 5", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.HasExpire,
			ExpireAt: 5000}, 0},
		{"set k 7 keepttl", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.KeepTTL}, 0},
		{"psetex k 5 7", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.HasExpire,
			ExpireAt: 1_000_005}, 0},
		{"setnx k 7", store.Op{Kind: store.Set, Key: key, Delta: 7, Flags: store.NX}, 0},
		{"expire k 5 xx gt", store.Op{Kind: store.ExpireAt, Key: key, Flags: store.XX | store.GT,
			ExpireAt: 1_005_000}, 0},
		{"pexpire k -2000000", store.Op{Kind: store.ExpireAt, Key: key, ExpireAt: 1}, 0},
		{"expireat k 5", store.Op{Kind: store.ExpireAt, Key: key, ExpireAt: 5000}, 0},
		{"del a b", store.Op{Kind: store.Del, Keys: b("a", "b")}, 0},
		{"fbf.madd k x y", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x", "y")}, 0},
		{"fbf.add k x", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x")}, single},
		{"fbf.insert k nocreate items x",
			store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x"), Flags: store.NoCreate}, 0},
		{"fbf.insert k capacity 9 items x", store.Op{Kind: store.FBFAdd, Key: key, Keys: b("x"),
			Object: &store.FilterOptions{Capacity: 9}}, 0},
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

const staleText = "STALE operation is older than what the table remembers (WINDOW 120 s), so it may have " +
	"been applied. " +
	"Read the counter; to count it anyway, use a new opid"

func TestErrorTexts(t *testing.T) {
	for err, want := range map[error]string{
		store.ErrOpIDSize:   "ERR opid must be 1 to 512 bytes",
		store.ErrKeySize:    "ERR key must be 1 to 65536 bytes",
		store.ErrWrongType:  "WRONGTYPE Operation against a key holding the wrong kind of value",
		store.ErrOverflow:   "ERR increment or decrement would overflow",
		store.ErrStale:      "STALE operation is older than what the table remembers",
		store.ErrFuture:     "ERR operation time is in the future",
		store.ErrMismatch:   "MISMATCH opid was used with another delta",
		store.ErrPartlySeen: "MISMATCH opid was used with some of these keys only",
		store.ErrOutOfMemory: "OOM filter memory limit reached (filter-maxmemory): try again later, " +
			"or raise it",
		store.ErrFilterExists:   "ERR item exists",
		store.ErrNoFilter:       "ERR not found",
		store.ErrUnknownOutcome: "MISCONF commit failed: outcome unknown, retry with the same opid",
		store.ErrDiskFull: "MISCONF writes are refused, nothing was applied: the disk is full, or " +
			"less than min-free-disk is free",
		store.ErrSnapshotRunning: "ERR Background save already in progress",
		store.ErrTooManyTables:   "ERR too many tables",
		errSyntax:                "ERR syntax error",
	} {
		if got := errorText(err); got != want {
			t.Errorf("%v: %s", err, got)
		}
		if wrapped := errorText(fmt.Errorf("doing this: %w",
			err)); strings.Fields(wrapped)[0] != strings.Fields(want)[0] {
			t.Errorf("wrapped %v: %s", err, wrapped)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "7": 7, "007": 7, "7b": 7, "1k": 1000, "1kb": 1024, "2M": 2e6, "2Mb": 2 << 20, "3g": 3e9,
		"3GB": 3 << 30,
		"1t":  1e12, "1tb": 1 << 40, "9223372036854775807": math.MaxInt64, "9223372036854775808": -1,
		"99999999999999999999": -1, "8388608tb": -1, "8388607tb": 8388607 << 40,
		"": -1, "b": -1, "mb": -1, "-1": -1, "+1": -1, "1.5gb": -1, "1 gb": -1, "1gbb": -1, "1kk": -1,
		"0x10": -1, "1_000": -1,
		"1m\x00": -1, "10s": -1, "\u0661": -1,
	} {
		n, ok := ParseBytes(s)
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %v, want %d", s, n, ok, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, "0ms": 0, "250ms": 250 * time.Millisecond, "10S": 10 * time.Second,
		"10m": 10 * time.Minute,
		"2h":  2 * time.Hour, "7d": 7 * 24 * time.Hour, "366d": 366 * 24 * time.Hour, "106752d": -1,
		"9223372036854775807": -1, "": -1, "m": -1, "ms": -1, "-1s": -1, "1.5h": -1, "1h30m": -1, "10min": -1,
		"1us": -1, "1kb": -1, "1 m": -1, "s10": -1,
	} {
		d, ok := ParseDuration(s, time.Second)
		if ok != (want >= 0) || ok && d != want {
			t.Errorf("%q: %v, %v, want %v", s, d, ok, want)
		}
	}
}

// FuzzUnits compares with arithmetic that knows no bounds.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"10m", "1gb", "9223372036854775807ms", "000000000000000000001", "-1", "1e3k",
		"kb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		duration, okDuration := ParseDuration(s, time.Millisecond)
		bytes, okBytes := ParseBytes(s)
		holdUnits(t, s, timeUnits, int64(time.Millisecond), int64(duration), okDuration)
		holdUnits(t, s, sizeUnits, 1, bytes, okBytes)
	})
}

// holdUnits expects got to be what s says.
func holdUnits(t *testing.T, s string, units []unit, bare, got int64, ok bool) {
	t.Helper()
	digits := strings.TrimRight(s, "abdghkmstABDGHKMST")
	factor := big.NewInt(0)
	for _, u := range append(units, unit{"", uint64(bare)}) {
		if strings.EqualFold(s[len(digits):], u.suffix) {
			factor.SetUint64(u.factor)
		}
	}
	want := factor.Sign() > 0 && digits != "" && strings.Trim(digits, "0123456789") == ""
	if want {
		n, _ := new(big.Int).SetString(digits, 10)
		n.Mul(n, factor)
		want = n.IsInt64() && (!ok || got == n.Int64())
	}
	if ok != want {
		t.Fatalf("%q: %d, %v", s, got, ok)
	}
}
