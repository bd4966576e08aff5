package cpuprofile

import (
	"errors"
	"path"
	"strings"

	"github.com/google/pprof/profile"
)

// Shares is how a profile's processor time divides.
type Shares struct {
	// Of holds each kind's share of the profile's time; together they are 1.
	Of [Kinds]float64
	// Seconds is the processor time that was sampled.
	Seconds float64
	// InSystemCalls is the share of the time spent in system calls.
	InSystemCalls float64
}

// module is the beginning of our packages' names, which frames go without.
const module = "github.com/fbfkv/fbfkv/"

// Attribute sorts a CPU profile's samples into kinds of work. A profile without
// samples is an error.
func Attribute(p *profile.Profile) (*Shares, error) {
	at := -1
	for i, t := range p.SampleType {
		if t.Type == "cpu" && t.Unit == "nanoseconds" {
			at = i
		}
	}
	if at < 0 {
		return nil, errors.New("this is no CPU profile")
	}
	s := new(Shares)
	for _, sample := range p.Sample {
		kind, call := attribute(stackOf(sample))
		seconds := float64(sample.Value[at]) / 1e9
		s.Seconds += seconds
		s.Of[kind] += seconds
		if call {
			s.InSystemCalls += seconds
		}
	}
	if s.Seconds <= 0 {
		return nil, errors.New("the profile has no samples: nothing used the processor")
	}
	for k := range s.Of {
		s.Of[k] /= s.Seconds
	}
	s.InSystemCalls /= s.Seconds
	return s, nil
}

// frame is one function of a stack, by name and by file.
type frame struct{ function, file string }

// stackOf lists a sample's frames, the innermost first.
func stackOf(s *profile.Sample) (stack []frame) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				stack = append(stack, frameOf(line.Function.Name, line.Function.Filename))
			}
		}
	}
	return stack
}

// frameOf names a frame as the rules do.
func frameOf(function, file string) frame {
	function = strings.TrimPrefix(function, module)
	// The package ends at the first dot behind the last slash of its path;
	// a type parameter may hold slashes too.
	name, _, _ := strings.Cut(function, "[")
	pkg := function
	if dot := strings.IndexByte(function[strings.LastIndexByte(name, '/')+1:], '.'); dot >= 0 {
		pkg = function[:strings.LastIndexByte(name, '/')+1+dot]
	}
	return frame{function: function, file: pkg + "/" + path.Base(file)}
}

// attribute returns a stack's kind, and whether it is in a system call.
func attribute(stack []frame) (k Kind, inSystemCall bool) {
	inSystemCall = len(stack) > 0 && hasPrefix(stack[0].function, systemCalls)
	runtime := false
	for _, f := range stack {
		if r := ruleOf(f); r != nil {
			kind := r.user
			if inSystemCall {
				kind = r.kernel
			}
			if kind != pass {
				return kind, inSystemCall
			}
		}
		runtime = runtime || strings.HasPrefix(f.function, "runtime.")
	}
	// The scheduler and the collector run on stacks of their own.
	if runtime {
		return Runtime, inSystemCall
	}
	return Other, inSystemCall
}

// ruleOf returns the rule with the longest prefix of a frame, or nil.
func ruleOf(f frame) (best *rule) {
	for i := range rules {
		r := &rules[i]
		if (best == nil || len(r.prefix) > len(best.prefix)) &&
			(strings.HasPrefix(f.function, r.prefix) || strings.HasPrefix(f.file, r.prefix)) {
			best = r
		}
	}
	return best
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
