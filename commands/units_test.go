package commands

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "7": 7, "007": 7, "7b": 7, "1k": 1000, "1kb": 1024, "2M": 2e6, "2Mb": 2 << 20, "3g": 3e9, "3GB": 3 << 30,
		"1t": 1e12, "1tb": 1 << 40, "9223372036854775807": math.MaxInt64, "9223372036854775808": -1,
		"99999999999999999999": -1, "8388608tb": -1, "8388607tb": 8388607 << 40,
		"": -1, "b": -1, "mb": -1, "-1": -1, "+1": -1, "1.5gb": -1, "1 gb": -1, "1gbb": -1, "1kk": -1, "0x10": -1, "1_000": -1,
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
		"0": 0, "7": 7 * time.Second, "0ms": 0, "250ms": 250 * time.Millisecond, "10S": 10 * time.Second, "10m": 10 * time.Minute,
		"2h": 2 * time.Hour, "7d": 7 * 24 * time.Hour, "366d": 366 * 24 * time.Hour, "106752d": -1,
		"9223372036854775807": -1, "": -1, "m": -1, "ms": -1, "-1s": -1, "1.5h": -1, "1h30m": -1, "10min": -1, "1us": -1, "1kb": -1, "1 m": -1, "s10": -1,
	} {
		d, ok := ParseDuration(s, time.Second)
		if ok != (want >= 0) || ok && d != want {
			t.Errorf("%q: %v, %v, want %v", s, d, ok, want)
		}
	}
}

// FuzzUnits compares with arithmetic that knows no bounds.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"10m", "1gb", "9223372036854775807ms", "000000000000000000001", "-1", "1e3k", "kb"} {
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
