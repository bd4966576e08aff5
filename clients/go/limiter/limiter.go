// Package limiter limits the rate of requests with [throttled], so that a request that is sent again is
// not counted twice, on all servers of an application together:
//
//	limit := throttled.HTTPRateLimiterCtx{
//		RateLimiter: limiter.New(counters, "rate:", fbfkv.Rate{Burst: 4, Count: 60, Period: time.Minute}),
//		VaryBy:      &throttled.VaryBy{Headers: []string{"X-User"}},
//	}
//	http.Handle("/", limiter.Identify("X-Request-Id", limit.RateLimit(handler)))
//
// A request's id is its opid: within the table's WINDOW a retry of a request that was let in gets the
// first verdict and spends nothing. So the header must be one that a proxy of yours sets, or by which
// your application refuses to do a request twice: else a caller passes the limit by repeating an id.
//
// Let the [fbfkv.Client] give up soon, such as with a RetryFor of a second: requests wait for it.
//
// [throttled]: https://github.com/throttled/throttled
package limiter

import (
	"context"
	"net/http"

	"github.com/throttled/throttled/v2"

	fbfkv "github.com/fbfkv/fbfkv/clients/go"
)

// maxID is the longest opid that the server takes.
const maxID = 512

// limiter implements throttled.RateLimiterCtx.
type limiter struct {
	counters *fbfkv.Client
	prefix   string
	rate     fbfkv.Rate
}

// New returns a limiter that keeps its state under the keys that begin with prefix.
func New(counters *fbfkv.Client, prefix string, rate fbfkv.Rate) throttled.RateLimiterCtx {
	return &limiter{counters, prefix, rate}
}

// RateLimitCtx implements throttled.RateLimiterCtx: it says whether a request is limited.
func (l *limiter) RateLimitCtx(ctx context.Context, key string, quantity int) (bool,
	throttled.RateLimitResult, error) {
	id, _ := ctx.Value(idKey{}).(string)
	v, err := l.counters.Throttle(ctx, l.prefix+key, l.rate, int64(quantity), fbfkv.ID(id))
	if err != nil {
		return false, throttled.RateLimitResult{RetryAfter: -1}, err
	}
	return v.Limited, throttled.RateLimitResult{Limit: int(v.Limit), Remaining: int(v.Remaining),
		ResetAfter: v.FullAfter, RetryAfter: v.RetryAfter}, nil
}

// idKey is the key of the id in a context.
type idKey struct{}

// WithID returns a context whose request has an id. Without one, or one that is too long, each request
// is another one.
func WithID(ctx context.Context, id string) context.Context {
	if len(id) > maxID {
		id = ""
	}
	return context.WithValue(ctx, idKey{}, id)
}

// Identify takes the id of each request from a header, for a limiter behind it.
func Identify(header string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(WithID(r.Context(), r.Header.Get(header))))
	})
}
