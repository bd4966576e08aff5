package commands

import "strings"

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
