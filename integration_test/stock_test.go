package integration

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestOptimisticTransactions: go-redis' WATCH loop loses no update.
func TestOptimisticTransactions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx := context.Background()
	const clients, each = 4, 15
	var retries atomic.Int64
	var group sync.WaitGroup
	for range clients {
		c := s.client()
		group.Go(func() {
			for n := 0; n < each; {
				err := c.Watch(ctx, func(tx *redis.Tx) error {
					v, err := tx.Get(ctx, "sum").Int64()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
						p.Set(ctx, "sum", v+1, 0)
						p.Incr(ctx, "transactions")
						return nil
					})
					return err
				}, "sum")
				switch {
				case err == nil:
					n++
				case errors.Is(err, redis.TxFailedErr):
					retries.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, key := range []string{"sum", "transactions"} {
		if v, err := s.client().Get(ctx, key).Int(); err != nil || v != clients*each {
			t.Errorf("%s = %d %v after %d transactions and %d retries", key, v, err, clients*each,
				retries.Load())
		}
	}
}

// TestStepwiseTransfers: go-redis moves amounts by CMULTI, a debit with a bound and a credit, sent by two
// clients at once: the sum stays, whichever debits are refused.
func TestStepwiseTransfers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx := context.Background()
	const accounts, transfers, sum = 4, 60, 12
	if err := s.client().MSet(ctx, "acc0", sum, "acc1", 0, "acc2", 0, "acc3", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	var group sync.WaitGroup
	for range 2 {
		c := s.client()
		group.Go(func() {
			for i := range transfers {
				from, to := "acc"+strconv.Itoa(i%accounts), "acc"+strconv.Itoa((i+1+i/4%3)%accounts)
				id := strconv.Itoa(i)
				replies, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
					p.Do(ctx, "CMULTI")
					p.Do(ctx, "INCREX", from, "BYINT", -5, "LBOUND", 0, "OPID", id)
					p.Do(ctx, "CINCRBY", to, id+"-to", 5)
					p.Do(ctx, "EXEC")
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				list, _ := replies[len(replies)-1].(*redis.Cmd).Slice()
				if len(list) != 2 {
					t.Errorf("EXEC: %v", list)
				} else if _, skipped := list[1].(error); skipped {
					refused.Add(1)
				}
			}
		})
	}
	group.Wait()
	total := 0
	for i := range accounts {
		v, err := s.client().Get(ctx, "acc"+strconv.Itoa(i)).Int()
		if total += v; err != nil || v < 0 {
			t.Errorf("account %d: %d, %v", i, v, err)
		}
	}
	if total != sum || refused.Load() == 0 {
		t.Errorf("the accounts have %d together, not %d; %d transfers were refused", total, sum, refused.Load())
	}
}

// TestStock: INCREX … LBOUND 0 IDMP sells what there is and no more, although
// every sale is sent by two clients at once and the server is killed meanwhile.
func TestStock(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx := context.Background()
	const items, buyers = 40, 60
	if err := s.client().Set(ctx, "stock", items, 0).Err(); err != nil {
		t.Fatal(err)
	}
	// sell returns whether the buyer got an item; it retries until it knows.
	sell := func(c *redis.Client, buyer int) bool {
		for {
			reply, err := c.Do(ctx, "INCREX", "stock", "BYINT", -1, "LBOUND", 0, "IDMP", "shop",
				strconv.Itoa(buyer)).Int64Slice()
			if err == nil {
				return reply[1] == -1
			}
			time.Sleep(5 * time.Millisecond) // the server is down
		}
	}
	var sold [2][buyers]bool
	var group sync.WaitGroup
	half := make(chan struct{})
	var answered atomic.Int64
	for i := range sold {
		c := s.client()
		group.Go(func() {
			for b := range buyers {
				sold[i][b] = sell(c, b)
				if answered.Add(1) == buyers {
					close(half)
				}
			}
		})
	}
	<-half
	s.crash()
	group.Wait()
	n := 0
	for b := range buyers {
		if sold[0][b] {
			n++
		}
		if sold[0][b] != sold[1][b] { // nobody refills the stock
			t.Errorf("buyer %d: one reply says %v, the other %v", b, sold[0][b], sold[1][b])
		}
	}
	if left, err := s.client().Get(ctx, "stock").Int(); err != nil || n != items || left != 0 {
		t.Errorf("%d of %d items sold, %d left, %v", n, items, left, err)
	}
}
