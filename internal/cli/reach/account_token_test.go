package reach

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// tokenUntil is a token of an account that is valid until then.
func tokenUntil(id string, end time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"jti": %q, "exp": %d}`, id, end.Unix())
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte("signature"))
}

// CA-43: the token of an account is read again before it ends and after it was refused, and not for each request.
func TestAccountToken(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	first, second := tokenUntil("first", start.Add(10*time.Minute)), tokenUntil("second", start.Add(18*time.Minute))
	away := errors.New("the hub does not answer")
	type request struct {
		after   time.Duration // since the first one
		secret  string        // what can be read then; nothing while the hub does not answer
		refused bool          // the token before
		want    string
	}
	for name, requests := range map[string][]request{
		"kept":                    {{0, first, false, first}, {8*time.Minute + 59*time.Second, second, false, first}},
		"about to end":            {{0, first, false, first}, {9 * time.Minute, second, false, second}},
		"about to end, the same":  {{0, first, false, first}, {9 * time.Minute, first, false, first}, {10 * time.Minute, second, false, second}},
		"about to end, no answer": {{0, first, false, first}, {9 * time.Minute, "", false, first}, {10 * time.Minute, "", false, ""}},
		"ended":                   {{0, first, false, first}, {time.Hour, second, false, second}},
		"refused":                 {{0, first, false, first}, {time.Minute, second, true, second}},
		"refused, no answer":      {{0, first, false, first}, {time.Minute, "", true, ""}},
		"without an end":          {{0, "opaque", false, "opaque"}, {time.Hour, second, false, "opaque"}, {time.Hour, second, true, second}},
		"no answer at first":      {{0, "", false, ""}, {time.Second, first, false, first}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock, secret, before := clocktesting.NewFakePassiveClock(start), "", ""
			account := &accountToken{clock: clock, read: func(context.Context) (string, error) {
				if secret == "" {
					return "", away
				}
				return secret, nil
			}}
			for i, r := range requests {
				clock.SetTime(start.Add(r.after))
				secret = r.secret
				if r.refused {
					account.forget(before)
				}
				got, err := account.get(t.Context())
				if got != r.want || (r.want == "") != errors.Is(err, away) {
					t.Errorf("request %d: %q, %v, want %q", i, got, err, r.want)
				}
				before = got
			}
		})
	}
}

// CA-43: while one request reads a token that is about to end again, others are made with it. One that stays the same is read every few
// seconds, and not for each request.
func TestAccountTokenIsReadByOneRequest(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	first, clock := tokenUntil("first", start.Add(10*time.Minute)), clocktesting.NewFakePassiveClock(start)
	begun, answer := make(chan struct{}), make(chan struct{})
	reads := 0
	account := &accountToken{clock: clock, read: func(context.Context) (string, error) {
		if reads++; reads == 2 {
			close(begun)
			<-answer
		}
		return first, nil
	}}
	get := func() {
		if got, err := account.get(t.Context()); got != first || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	get()
	clock.SetTime(start.Add(9*time.Minute + time.Second))
	var reader sync.WaitGroup
	reader.Go(get)
	<-begun
	get() // does not wait
	close(answer)
	reader.Wait()
	for _, test := range []struct {
		after time.Duration
		reads int
	}{{0, 2}, {readInterval - time.Second, 2}, {readInterval, 3}} {
		clock.SetTime(start.Add(9*time.Minute + time.Second + test.after))
		if get(); reads != test.reads {
			t.Errorf("%s after it was read, it has been read %d times, want %d", test.after, reads, test.reads)
		}
	}
}
