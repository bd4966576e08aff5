package cpuprofile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/pprof/profile"
)

// maxProfile bounds what a server may answer, bytes.
const maxProfile = 64 << 20

// Check returns why no profile could be taken from an address, as Fetch takes it.
func Check(ctx context.Context, address string) error {
	url, _, _ := strings.Cut(profileURL(address), profilePath)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+profilePath, nil)
	if err != nil {
		return fmt.Errorf("no profile can be taken: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("no profile can be taken: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("no profile can be taken: %s answers %s (it needs `pprof yes` and metrics-addr)", request.URL, answer.Status)
	}
	return nil
}

// profilePath begins the paths of profiles.
const profilePath = "/debug/pprof/"

// profileURL is where profiles are taken, without how long.
func profileURL(address string) string {
	url := address
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	if !strings.Contains(url, profilePath) {
		url = strings.TrimSuffix(url, "/") + profilePath + "profile"
	}
	return url
}

// Fetch takes a CPU profile of some whole seconds, at least one, from a
// metrics-addr (HOST:PORT) or from the URL of a profile, and returns it as it
// came and read. It returns after that many seconds, or when ctx is done.
func Fetch(ctx context.Context, address string, seconds int) (raw []byte, p *profile.Profile, err error) {
	url := profileURL(address)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	url += fmt.Sprintf("%sseconds=%d", separator, max(seconds, 1))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("taking a profile: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("taking a profile: %w", err)
	}
	defer answer.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(answer.Body, maxProfile)); err != nil {
		return nil, nil, fmt.Errorf("taking a profile: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("taking a profile: %s answers %s: %.200s (it needs `pprof yes` and metrics-addr)", url, answer.Status, raw)
	}
	if p, err = profile.Parse(bytes.NewReader(raw)); err != nil {
		return nil, nil, fmt.Errorf("taking a profile: %w", err)
	}
	return raw, p, nil
}
