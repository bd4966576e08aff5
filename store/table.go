package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Mode says what a table does when its filter reports an opid (G5).
type Mode uint8

// The modes of a table.
const (
	// Exact confirms a positive by the whole opid against records on disk.
	Exact Mode = iota
	// Approx takes a positive for a duplicate, as the paper does.
	Approx
)

// Word is what clients say for it.
func (m Mode) Word() string { return [...]string{"EXACT", "APPROX"}[m] }

// IDTime says how the time of an operation is read from its opid.
type IDTime uint8

// The formats of opids that carry a time. UUIDs and ULIDs are read as text or
// as 16 bytes; IDTimeMS reads a leading decimal unix time in milliseconds. With
// these three an opid without a time is refused. IDTimeAuto reads the time of
// a UUIDv7 or ULID; any other opid has no time, and a time in the future counts as none.
const (
	IDTimeNone IDTime = iota
	IDTimeUUIDv7
	IDTimeULID
	IDTimeMS
	IDTimeAuto
)

// Word is what clients say for it.
func (t IDTime) Word() string { return [...]string{"NONE", "UUIDV7", "ULID", "MS", "AUTO"}[t] }

// TableRegions says whether a member of regions tells the others what it does to the keys of a table.
type TableRegions uint8

// The zero value is the mode's default: all in EXACT, none in APPROX, whose operations have no
// records to compare with other regions' records.
const (
	RegionsDefault TableRegions = iota
	RegionsAll
	RegionsNone
)

// Limits of table settings.
const (
	MinWindow      = time.Second
	MaxWindow      = 366 * 24 * time.Hour
	MinError       = 1e-12
	MaxError       = 0.5
	MaxSkew        = time.Hour
	MaxTables      = 256
	MaxTableName   = 128
	MaxCapacity    = 1 << 40 // of a filter key
	MinTableMemory = 1 << 20
	MinTableDisk   = 1 << 20 // each partition gets a share
	MaxFixedBits   = 1 << 36
	MaxTop         = 10_000
)

// windowRange is MinWindow to MaxWindow, for people.
const windowRange = "1s to 366d"

// DefaultSkew and DefaultIDTime are the SKEW and IDTIME of a table that names none.
const (
	DefaultSkew   = 5 * time.Second
	DefaultIDTime = IDTimeAuto
)

// DefaultTable is the name of the table with the empty prefix. It always exists.
const DefaultTable = "default"

// TableOptions is the policy of a table. A zero field takes the documented
// default.
type TableOptions struct {
	Name   string
	Prefix string
	// Window is how long an opid is recognised at least after it was applied;
	// MinWindow..MaxWindow, default 120 s.
	Window time.Duration
	// Error is the highest false positive probability of the table's filter;
	// MinError..MaxError, default 1e-6 in APPROX and 1e-3 in EXACT.
	Error float64
	// Mode is Exact by default.
	Mode Mode
	// MaxMemory caps the bytes of the table's filters; 0: only the server's
	// cap applies. At the cap an APPROX table refuses new operations; the filter
	// of an EXACT one errs more, which costs only look-ups.
	MaxMemory uint64
	// MaxDisk caps the bytes of the table's EXACT records; 0: no cap.
	MaxDisk uint64
	// IDTime is IDTimeAuto by default in tables that clients create: package commands
	// fills in DefaultIDTime. Here zero means IDTimeNone.
	IDTime IDTime
	// Skew is how far the clocks of clients and server may differ, 0 to
	// MaxSkew. Zero means zero: package commands fills in DefaultSkew.
	Skew time.Duration
	// Regions is whether other regions are told of the keys.
	Regions TableRegions `json:",omitempty"`
	// Scale: counters count steps of 10^-Scale, and are written as decimals; 0 to MaxScale.
	Scale uint8 `json:",omitempty"`
	// Min and Max bound every counter: no write leaves them. Min is at most 0 and Max at least
	// 0, for a counter that does not exist is 0.
	Min, Max Bound `json:",omitzero"`
	// Top is how many counters CTOP lists at most, from the highest value on; 0 to MaxTop.
	Top int `json:",omitempty"`
}

// hasBounds reports whether the table's counters have bounds.
func (o *TableOptions) hasBounds() bool { return o.Min.Set || o.Max.Set }

// Told reports whether other regions are told of the keys.
func (o *TableOptions) Told() bool {
	return o.Regions == RegionsAll || o.Regions == RegionsDefault && o.Mode == Exact
}

// TableChange is an ALTER: a nil field keeps the present option.
type TableChange struct {
	Window    *time.Duration
	Error     *float64
	Mode      *Mode
	MaxMemory *uint64
	MaxDisk   *uint64
	IDTime    *IDTime
	Skew      *time.Duration
	Regions   *TableRegions
	Scale     *uint8
	Min, Max  *Bound // as they were written, see Bound.Points
	Top       *int
}

// TableInfo describes a table, its options and the state of its filters.
type TableInfo struct {
	TableOptions
	ForgottenBefore int64 // unix ms; operations of an earlier time are STALE
	Filter          FilterInfo
	// RecordBytes and Records size the EXACT records kept for confirmation;
	// Runs counts the sorted runs on disk.
	Records, RecordBytes uint64
	Runs                 int
	heldFigures
	Figures
}

// FilterInfo describes a filter, or all filters of a table together.
type FilterInfo struct {
	Options       FilterOptions
	Generations   int // live, of the newest segment
	Segments      int
	Bytes         uint64
	Items         uint64        // remembered now
	Inserted      uint64        // since creation
	Refreshes     uint64        // since creation
	Opened        uint64        // segments opened since creation; not of FIXED filters
	Fill          []float64     // fill ratio per generation, newest first
	EffectiveFPP  float64       // of the whole filter, now
	Window        time.Duration // guaranteed remembering time
	RefreshPeriod time.Duration // present time between two refreshes at the latest
}

// Validate reports the first setting that is out of range, in words ready for
// an "ERR …" reply. Zero fields are defaults and always valid.
func (o TableOptions) Validate() error {
	switch {
	case o.Name == "" || len(o.Name) > MaxTableName:
		return fmt.Errorf("%w: a table's name must be 1 to %d bytes", ErrOption, MaxTableName)
	case len(o.Prefix) > MaxKey:
		return fmt.Errorf("%w: PREFIX must be at most %d bytes", ErrOption, MaxKey)
	case !utf8.ValidString(o.Name) || !utf8.ValidString(o.Prefix):
		return fmt.Errorf("%w: a table's name and PREFIX must be valid UTF-8", ErrOption)
	case o.Window != 0 && (o.Window < MinWindow || o.Window > MaxWindow):
		return fmt.Errorf("%w: WINDOW must be %s", ErrOption, windowRange)
	case o.Error != 0 && !(o.Error >= MinError && o.Error <= MaxError):
		return fmt.Errorf("%w: ERROR must be %g to %g", ErrOption, MinError, MaxError)
	case o.Mode > Approx:
		return fmt.Errorf("%w: MODE must be EXACT or APPROX", ErrOption)
	case o.MaxMemory != 0 && o.MaxMemory < MinTableMemory:
		return fmt.Errorf("%w: MAXMEMORY must be at least %d bytes", ErrOption, uint64(MinTableMemory))
	case o.MaxDisk != 0 && o.MaxDisk < MinTableDisk:
		return fmt.Errorf("%w: MAXDISK must be at least %d bytes, or 0 for no limit", ErrOption,
			uint64(MinTableDisk))
	case o.IDTime > IDTimeAuto:
		return fmt.Errorf("%w: IDTIME must be AUTO, NONE, UUIDV7, ULID or MS", ErrOption)
	case o.Skew < 0 || o.Skew > MaxSkew:
		return fmt.Errorf("%w: SKEW must be 0 to 1h", ErrOption)
	case o.Min.N > 0 || !o.Min.Set && o.Min.N != 0:
		return fmt.Errorf("%w: MIN must be NONE or a number such as -12.34: of at most 0, as a counter that does "+
			"not exist is 0, and at least -2^63 steps of SCALE", ErrOption)
	case o.Max.N < 0 || !o.Max.Set && o.Max.N != 0:
		return fmt.Errorf("%w: MAX must be NONE or a number such as 12.34: of at least 0, as a counter that does "+
			"not exist is 0, and at most 2^63-1 steps of SCALE", ErrOption)
	case o.Scale > MaxScale:
		return fmt.Errorf("%w: SCALE must be 0 to %d", ErrOption, MaxScale)
	case o.Top < 0 || o.Top > MaxTop:
		return fmt.Errorf("%w: TOP must be NONE or 1 to %d", ErrOption, MaxTop)
	case o.Regions > RegionsNone:
		return fmt.Errorf("%w: REGIONS must be ALL or NONE", ErrOption)
	case o.Regions == RegionsAll && o.Mode == Approx:
		return fmt.Errorf("%w: REGIONS ALL needs MODE EXACT: an APPROX table has no records to compare "+
			"with those of other regions", ErrOption)
	}
	return nil
}

// withDefaults fills the zero fields.
func (o TableOptions) withDefaults() TableOptions {
	if o.Window == 0 {
		o.Window = 120 * time.Second
	}
	if o.Error == 0 {
		o.Error = defaultError(o.Mode)
	}
	return o
}

func defaultError(m Mode) float64 {
	if m == Approx {
		return 1e-6
	}
	return 1e-3
}

// Apply returns the options after an ALTER, or of a CREATE if o has no more than a name
// and a prefix, SKEW and IDTIME. Settings that stood at the
// default of the old mode move to the default of the new one. Bounds stay what they are in another scale;
// ErrOption if they cannot.
func (c TableChange) Apply(o TableOptions) (TableOptions, error) {
	if c.Mode != nil && *c.Mode != o.Mode {
		if o.Error == defaultError(o.Mode) {
			o.Error = defaultError(*c.Mode)
		}
		o.Mode = *c.Mode
	}
	set(&o.Window, c.Window)
	set(&o.Error, c.Error)
	set(&o.MaxMemory, c.MaxMemory)
	set(&o.MaxDisk, c.MaxDisk)
	set(&o.IDTime, c.IDTime)
	set(&o.Skew, c.Skew)
	set(&o.Regions, c.Regions)
	set(&o.Top, c.Top)
	scale := o.Scale
	set(&o.Scale, c.Scale) // before the bounds, which are in steps of it
	err := o.setBound("MIN", &o.Min, c.Min, scale)
	return o, cmp.Or(err, o.setBound("MAX", &o.Max, c.Max, scale))
}

// setBound gives a table one of its bounds anew, or keeps the one it has, which is in steps of a scale.
func (o *TableOptions) setBound(token string, b, v *Bound, scale uint8) error {
	if set(b, v); v == nil {
		for ; scale > o.Scale && b.N%10 == 0; scale-- {
			b.N /= 10
		}
		b.Points = Points(scale)
	}
	if o.Scale > MaxScale {
		return nil // which Validate refuses
	}
	if err := b.toSteps(o.Scale); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOption, token, err)
	}
	return nil
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// TableSet is all the tables there are, by ascending name; one is DefaultTable. It is not changed
// in place.
type TableSet []TableOptions

// NewTables are the tables of a new data directory: the table default.
func NewTables() TableSet {
	return TableSet{TableOptions{Name: DefaultTable, Skew: DefaultSkew, IDTime: DefaultIDTime}.withDefaults()}
}

// Create returns the set with a table more; the set itself if the very same is there, so that who
// got no answer can ask again. ErrOption, ErrTableExists or ErrTooManyTables.
func (t TableSet) Create(o TableOptions) (TableSet, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	for _, other := range t {
		switch {
		case other == o:
			return t, nil
		case other.Name == o.Name || other.Prefix == o.Prefix:
			return nil, ErrTableExists
		}
	}
	if len(t) >= MaxTables {
		return nil, ErrTooManyTables
	}
	return append(slices.Clone(t), o).sorted(), nil
}

// Alter returns the set with a changed table. ErrOption or ErrNoTable.
func (t TableSet) Alter(name string, ch TableChange) (TableSet, error) {
	next := slices.Clone(t)
	d := next.find(name)
	if d == nil {
		return nil, ErrNoTable
	}
	o, err := ch.Apply(*d)
	if err = cmp.Or(err, o.Validate()); err != nil {
		return nil, err
	}
	*d = o.withDefaults()
	return next, nil
}

// Drop returns the set without a table. ErrDropDefault or ErrNoTable.
func (t TableSet) Drop(name string) (TableSet, error) {
	switch {
	case name == DefaultTable:
		return nil, ErrDropDefault
	case t.find(name) == nil:
		return nil, ErrNoTable
	}
	return slices.DeleteFunc(slices.Clone(t), func(o TableOptions) bool { return o.Name == name }), nil
}

// Validate reports whether it is a set that Create, Alter and Drop can have made of NewTables: nil, or
// ErrOption with the reason.
func (t TableSet) Validate() error {
	if len(t) > MaxTables {
		return fmt.Errorf("%w: %d tables, more than %d", ErrOption, len(t), MaxTables)
	}
	prefixes := make(map[string]bool, len(t))
	for i, o := range t {
		switch err := o.Validate(); {
		case err != nil:
			return err
		case o != o.withDefaults():
			return fmt.Errorf("%w: the table %q lacks a setting", ErrOption, o.Name)
		case i > 0 && o.Name <= t[i-1].Name:
			return fmt.Errorf("%w: the table %q is not behind %q", ErrOption, o.Name, t[i-1].Name)
		case prefixes[o.Prefix]:
			return fmt.Errorf("%w: two tables have the prefix %q", ErrOption, o.Prefix)
		}
		prefixes[o.Prefix] = true
	}
	if d := t.find(DefaultTable); d == nil || d.Prefix != "" {
		return fmt.Errorf("%w: no table %s with the empty prefix", ErrOption, DefaultTable)
	}
	return nil
}

// Equal reports whether two sets are the same.
func (t TableSet) Equal(o TableSet) bool { return slices.Equal(t, o) }

// find returns a table of the set, nil if there is none of that name.
func (t TableSet) find(name string) *TableOptions {
	for i := range t {
		if t[i].Name == name {
			return &t[i]
		}
	}
	return nil
}

// Of returns the table of a key: the one with the longest prefix of it. It is nil only in a set
// that is not valid.
func (t TableSet) Of(key string) (o *TableOptions) {
	for i := range t {
		if strings.HasPrefix(key, t[i].Prefix) && (o == nil || len(t[i].Prefix) > len(o.Prefix)) {
			o = &t[i]
		}
	}
	return o
}

// sorted sorts the set in place.
func (t TableSet) sorted() TableSet {
	slices.SortFunc(t, func(a, b TableOptions) int { return strings.Compare(a.Name, b.Name) })
	return t
}
