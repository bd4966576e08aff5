package commands

import (
	"strings"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// Command declares one command or subcommand: what it is called, what it
// takes, how it is documented, and the functions that carry it out. Exactly
// one of the following holds:
//
//   - Parse and Reply are set: a keyed command. Parse turns the arguments into
//     a store.Op that joins the connection's batch; Reply encodes its outcome.
//   - Run is set: the command answers at once, after the commands before it in
//     the pipeline were executed.
//   - Control is set: the command steers the pipeline itself (MULTI, EXEC).
//   - Refusal is set: Redis has the command and we do not, for this reason.
//   - Subcommands is set: the second argument names the command to use.
type Command struct {
	// Name in lower case; of a subcommand, without its container's.
	Name string
	// Arity counts the arguments with the command's name (and subcommand's);
	// negative: at least so many.
	Arity int
	// Flags describe the command to clients and to the pipeline.
	Flags Flags
	// Keys says where the keys are.
	Keys KeySpec
	// KeyFlags, if set, returns the key specification flags of one request,
	// where they depend on its arguments.
	KeyFlags func(args [][]byte) string
	// Group is the heading under which the command is documented; of a subcommand "": the container's.
	Group string
	// ACL lists the categories that do not follow from Flags.
	ACL []string
	// Since is the version of Redis, or of fbfkv, that introduced it; of a subcommand "": the container.
	Since string
	// Summary and Complexity are one line each; the latter is O(1) if it is left out.
	Summary, Complexity string
	// Tips are Redis' command tips.
	Tips []string
	// Args documents the arguments after the name; the syntax line is
	// rendered from them.
	Args []Arg

	// Audit is set if the command is an administrative act.
	Audit Audit

	Parse       func(r *Request) error
	Reply       func(w *resp.Writer, r *Result)
	Run         func(c *Context)
	Control     func(p *Pipeline, args [][]byte)
	Refusal     string
	Subcommands []Command

	// Secret calls hide with the index of every argument that must not be
	// shown in MONITOR, SLOWLOG and logs; nil: there is none. An index may lie
	// beyond the arguments.
	Secret func(args [][]byte, hide func(i int))

	parent   *Command
	fullName string              // "config|get"
	subs     map[string]*Command // of a container, by name: Subcommands, and those that are refused
	index    int                 // into commandStats, and in the ACL catalog
	access   acl.Access          // to its keys, by Keys.Flags
}

// FullName is the name in lower case; a subcommand's is "container|name".
func (c *Command) FullName() string { return c.fullName }

// Syntax renders how the command is written, as in "GET key".
func (c *Command) Syntax() string {
	name := strings.ToUpper(strings.ReplaceAll(c.fullName, "|", " "))
	return strings.TrimSpace(name + " " + syntaxOf(c.Args))
}

// arityOK reports whether a request of n arguments, names included, fits.
func (c *Command) arityOK(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// Request is one keyed command on its way to becoming an operation. Parse
// reads Args and fills Op; Style is handed on to Reply.
type Request struct {
	// Args are the request, its name first, valid until the batch was
	// executed.
	Args [][]byte
	// Op is empty but for the memory of its slices.
	Op *store.Op
	// Style tells Reply what the arguments asked for, such as WITHSTATUS.
	Style Style

	expiry  expiryText
	bounds  [2]int64 // of LBOUND and UBOUND, if it is bounded
	bounded bool
	now     func() int64
	bloom   func() *store.BloomOptions
}

// Now is the wall time in Unix milliseconds, the same for a whole batch.
func (r *Request) Now() int64 { return r.now() }

// Result is an executed operation whose reply must still be written.
type Result struct {
	Op    *store.Op
	Style Style
	now   func() int64
}

// Now is the wall time in Unix milliseconds, as Request's.
func (r *Result) Now() int64 { return r.now() }

// Style is what a command's Parse tells its own Reply; the meaning of the
// values belongs to each command.
type Style uint8

// Context is what a command that runs at once can use.
type Context struct {
	Args    [][]byte
	W       *resp.Writer
	Store   *store.Store
	Server  *Server
	Session *Session

	table  *Table
	routes *ClusterView // by which the request was routed
	tx     *transaction
	watch  *watches
	unmute bool // CLIENT REPLY ON answers although replies were off
}

// fail writes the reply of an error.
func (c *Context) fail(err error) {
	if c.Server.Cluster == nil {
		c.W.Error(errorText(err))
		return
	}
	cmd, _ := c.table.resolve(c.Args)
	c.W.Error(c.Server.displaced(err, c.routes, noSlot, c.Session.TLS, cmd == nil || cmd.Flags&Write == 0 ||
		cmd.Flags&anyNode != 0))
}

// failed answers an error that is not nil, and reports whether there is one.
func (c *Context) failed(err error) bool {
	if err != nil {
		c.fail(err)
	}
	return err != nil
}

// ok writes OK, or the reply of an error that is not nil.
func (c *Context) ok(err error) {
	if !c.failed(err) {
		c.W.Status("OK")
	}
}

// Flags describe a command; COMMAND INFO names them as Redis does.
type Flags uint32

// The flags of a command.
const (
	Write          Flags = 1 << iota // may change the data set
	ReadOnly                         // reads keys
	DenyOOM                          // may need memory
	Admin                            // administers the server
	NoScript                         // Redis: not in scripts
	Loading                          // Redis: also while loading
	Stale                            // Redis: also on a stale replica
	NoAsyncLoading                   // Redis: not while a replica loads in the background
	SkipSlowlog                      // Redis: not in the slow log
	Fast                             // constant or logarithmic time
	NoAuth                           // before authentication too
	NoMulti                          // not inside MULTI
	MovableKeys                      // first/last/step do not find the keys
	AllowBusy                        // Redis: also while a script runs

	executes  // carries out what MULTI has queued
	immediate // inside MULTI it is carried out, not queued
	pure      // Run depends on its arguments alone and keeps a batch whole
	waits     // a keyed command that may wait long for the store's other work
	unwatches // ends the client's own MONITOR, which does not show it
	unpaused  // CLIENT PAUSE does not hold it back; of a container: nor its subcommands
	// it waits for other clients or nodes, which is not latency: its calls are counted, but not
	// their durations
	untimed
	anyNode // changes what all shards have: any member of a cluster carries it out, and it may be repeated
)

// flagNames are the names of the flags in COMMAND INFO, in bit order.
var flagNames = [...]string{"write", "readonly", "denyoom", "admin", "noscript", "loading", "stale",
	"no_async_loading", "skip_slowlog", "fast", "no_auth", "no_multi", "movablekeys", "allow_busy"}

// names returns the flags' names as COMMAND INFO shows them.
func (f Flags) names() []string {
	var names []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// KeySpec says where a command's keys are among its arguments; the zero value
// is a command without keys.
type KeySpec struct {
	// First is the index of the first key. Last is the index of the last one;
	// negative counts from the end, -1 being the last argument. Step is the
	// distance between keys.
	First, Last, Step int
	// NumKeys: the argument at First is the number of keys, which follow it at
	// distance Step; Last is not used.
	NumKeys bool
	// Sources, if not 0, is the index of the number of more keys, which follow it and are
	// only read.
	Sources int
	// Flags are Redis' key specification flags, such as "RW access update".
	Flags string
}

// oneKey and manyKeys are the common shapes of KeySpec.
func oneKey(flags string) KeySpec   { return KeySpec{First: 1, Last: 1, Step: 1, Flags: flags} }
func manyKeys(flags string) KeySpec { return KeySpec{First: 1, Last: -1, Step: 1, Flags: flags} }

// The key specification flags of our commands.
const (
	keyRead       = "RO access"
	keyLook       = "RO"
	keyUpdate     = "RW update"
	keyReadUpdate = "RW access update"
	keyInsert     = "RW insert"
	keyOverwrite  = "OW update"
	keySet        = "RW access update variable_flags"
	keyDelete     = "RM delete"
	keyReadDelete = "RW access delete"
)

// span returns the indices of the first and the last key of a request, the
// latter perhaps beyond its arguments; last is smaller if there is no key. It
// is not ok if the arguments do not hold the number of keys they announce.
func (k *KeySpec) span(args [][]byte) (first, last int, ok bool) {
	if k.First == 0 {
		return 0, -1, true
	}
	first, last = k.First, k.Last
	if last < 0 {
		last += len(args)
	}
	if k.NumKeys {
		n, ok := parseInt(args[k.First])
		if !ok || n < 1 || n > int64(len(args)-k.First-1)/int64(k.Step) {
			return 0, -1, false
		}
		first, last = k.First+1, k.First+1+(int(n)-1)*k.Step
	}
	return first, last, true
}

// each calls fn with every key of args until fn returns false. It is false
// too if the arguments do not hold the number of keys they announce.
func (k *KeySpec) each(args [][]byte, fn func(key []byte) bool) bool {
	first, last, ok := k.span(args)
	for i := first; i <= last && i < len(args); i += k.Step {
		if !fn(args[i]) {
			return false
		}
	}
	if k.Sources > 0 && ok {
		sources := k.sources()
		return sources.each(args, fn)
	}
	return ok
}

// sources is the specification of the keys that Sources tells of.
func (k *KeySpec) sources() KeySpec {
	return KeySpec{First: k.Sources, Step: 1, NumKeys: true, Flags: keyRead}
}

// since changes the version that introduced a command.
func since(version string, c Command) Command {
	c.Since = version
	return c
}

// withTips adds tips to a command.
func withTips(c Command, tips ...string) Command {
	c.Tips = append(c.Tips, tips...)
	return c
}

// changingTip is of a command whose reply differs from call to call.
var changingTip = []string{"nondeterministic_output"}

// Arg documents one argument, in the terms of Redis' COMMAND DOCS.
type Arg struct {
	Name     string
	Type     ArgType
	Token    string // the keyword before the value, or the keyword itself
	Optional bool
	Multiple bool  // may be repeated
	Args     []Arg // of OneOf and Block
}

// ArgType is the type of an argument, named as in COMMAND DOCS.
type ArgType string

// The types of arguments.
const (
	TypeKey       ArgType = "key"
	TypeString    ArgType = "string"
	TypeInteger   ArgType = "integer"
	TypeDouble    ArgType = "double"
	TypePattern   ArgType = "pattern"
	TypeUnixTime  ArgType = "unix-time"
	TypePureToken ArgType = "pure-token"
	TypeOneOf     ArgType = "oneof"
	TypeBlock     ArgType = "block"
)

// The constructors below keep the command table readable.

func keyArg() Arg                     { return Arg{Name: "key", Type: TypeKey} }
func strArg(name string) Arg          { return Arg{Name: name, Type: TypeString} }
func intArg(name string) Arg          { return Arg{Name: name, Type: TypeInteger} }
func dblArg(name string) Arg          { return Arg{Name: name, Type: TypeDouble} }
func patArg(name string) Arg          { return Arg{Name: name, Type: TypePattern} }
func timeArg(name string) Arg         { return Arg{Name: name, Type: TypeUnixTime} }
func oneOf(name string, a ...Arg) Arg { return Arg{Name: name, Type: TypeOneOf, Args: a} }
func block(name string, a ...Arg) Arg { return Arg{Name: name, Type: TypeBlock, Args: a} }

// word is a keyword that stands alone.
func word(token string) Arg {
	return Arg{Name: strings.ToLower(token), Type: TypePureToken, Token: token}
}

// with puts a keyword before an argument.
func with(token string, a Arg) Arg { a.Token = token; return a }

// opt makes an argument optional, multi repeatable.
func opt(a Arg) Arg   { a.Optional = true; return a }
func multi(a Arg) Arg { a.Multiple = true; return a }

// syntaxOf renders arguments in the notation of Redis' documentation.
func syntaxOf(args []Arg) string {
	parts := make([]string, len(args))
	for i, a := range args {
		parts[i] = a.syntax()
	}
	return strings.Join(parts, " ")
}

// syntax renders one argument.
func (a Arg) syntax() string {
	s := a.value()
	if a.Multiple {
		s += " [" + s + " ...]"
	}
	if a.Token != "" && a.Type != TypePureToken {
		s = a.Token + " " + s
	}
	if a.Optional {
		s = "[" + s + "]"
	}
	return s
}

// value renders an argument without its keyword and brackets.
func (a Arg) value() string {
	switch a.Type {
	case TypePureToken:
		return a.Token
	case TypeBlock:
		return syntaxOf(a.Args)
	case TypeOneOf:
		parts := make([]string, len(a.Args))
		for i, alt := range a.Args {
			parts[i] = alt.syntax()
		}
		s := strings.Join(parts, " | ")
		if !a.Optional || a.Token != "" {
			s = "<" + s + ">"
		}
		return s
	default:
		return a.Name
	}
}
