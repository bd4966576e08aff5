package commands

import (
	"strconv"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// parseAndReply plays one request's parse and reply without the store, whose
// own cost is not this package's, with an outcome as the store would leave it.
func parseAndReply(p *Pipeline, args [][]byte, w *resp.Writer) {
	r := p.round
	r.now = 1 // the store is not asked for the time either
	p.Do(args, w)
	for i := range r.batch.Ops {
		r.batch.Ops[i].Found, r.batch.Ops[i].Value = true, 123456
	}
	p.Answer(w)
	r.Reset()
	r.Join(p)
	w.Truncate(0)
}

// steady are the requests that must not allocate.
var steady = [][]string{
	{"CINCRBY", "counter:1", "0190163d-8694-739b-aea5-966c26f8ad91", "42"},
	{"cincrby", "counter:1", "op", "42", "AT", "1700000000000", "WITHSTATUS"},
	{"CGET", "counter:1"},
	{"INCRBY", "counter:1", "42"},
	{"GET", "counter:1"},
	{"MGET", "counter:1", "counter:2"},
	{"SET", "counter:1", "42", "EX", "100"},
	{"PING"},
}

func toArgs(words []string) [][]byte {
	args := make([][]byte, len(words))
	for i, s := range words {
		args[i] = []byte(s)
	}
	return args
}

func newIdlePipeline() *Pipeline {
	srv := new(Server)
	p := NewPipeline(srv, NewSession(1, "", "", srv))
	NewRound((*store.Store)(nil), srv, false).Join(p)
	return p
}

func TestSteadyPathAllocatesNothing(t *testing.T) {
	l := newIsland(after(func(v *ClusterView) {
		v.Shards, v.Shards[0].Slots = v.Shards[:1], []SlotRange{{0, slotCount - 1}}
	}))
	for name, cluster := range map[string]*Cluster{"alone": nil, "leading": &l.Cluster} {
		for _, words := range steady {
			p, args := newIdlePipeline(), toArgs(words)
			p.srv.Cluster = cluster
			var w resp.Writer
			parseAndReply(p, args, &w)
			if n := testing.AllocsPerRun(100, func() { parseAndReply(p, args, &w) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, words[0], n)
			}
		}
	}
}

func BenchmarkParseReply(b *testing.B) {
	for i, words := range steady {
		b.Run(strconv.Itoa(i)+"-"+words[0], func(b *testing.B) {
			p, args := newIdlePipeline(), toArgs(words)
			var w resp.Writer
			b.ReportAllocs()
			for b.Loop() {
				parseAndReply(p, args, &w)
			}
		})
	}
}
