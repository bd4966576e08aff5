package store

import (
	"reflect"
	"testing"
)

// TestOpReset: an Op used again is as good as new, but for the memory of its
// slices.
func TestOpReset(t *testing.T) {
	var b Batch
	op := b.Add(Get)
	v := reflect.ValueOf(op).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case !f.CanSet(): // working state of Execute
		case f.Kind() == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 3, 8))
		case f.CanInt():
			f.SetInt(5)
		case f.CanUint():
			f.SetUint(5)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case f.Kind() == reflect.Interface:
			f.Set(reflect.ValueOf(ErrRead))
		}
	}
	op.Seen = Seen{Delta: 1, Result: 2, UnixMs: 3, Clip: 4}
	b.Ops = b.Ops[:0]
	op = b.Add(CIncrBy)
	if op.Kind != CIncrBy {
		t.Errorf("kind %v", op.Kind)
	}
	op.Kind = Nop
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case f.Kind() == reflect.Slice && f.Len() > 0:
			t.Errorf("%s has %d elements", name, f.Len())
		case f.Kind() != reflect.Slice && !f.IsZero():
			t.Errorf("%s is left over: %v", name, f)
		case name == "Keys" && f.Cap() != 8:
			t.Error("the memory of Keys is gone")
		}
	}
}
