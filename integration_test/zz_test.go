package integration
import ("testing";"context";"time")
func TestZZ(t *testing.T) {
	s := startServer(t)
	for i := range 300 {
		b := time.Now()
		c := s.client()
		c.Get(context.Background(), "x")
		if d := time.Since(b); d > 100*time.Millisecond { t.Log(i, d) }
	}
	t.Log("done")
	s.crash()
	for i := range 300 {
		b := time.Now()
		c := s.client()
		c.Get(context.Background(), "x")
		if d := time.Since(b); d > 100*time.Millisecond { t.Log(i, d) }
	}
}
