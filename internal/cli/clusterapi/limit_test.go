package clusterapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

type roundTripper func(*http.Request) *http.Response

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// CA-02: no more is read of a response than the limit, whatever the cluster sends or says of its length.
func TestResponsesAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 10
	for name, test := range map[string]struct {
		body     io.Reader
		length   int64 // that the cluster declares
		code     int
		query    string
		used     int64 // of what several responses have together; negative if each counts alone
		tooLarge bool
	}{
		"less":                         {strings.NewReader("short"), -1, 200, "", -1, false},
		"as much":                      {strings.NewReader("0123456789"), -1, 200, "", -1, false},
		"one more":                     {strings.NewReader("0123456789a"), -1, 200, "", -1, true},
		"without an end":               {endless{}, -1, 200, "", -1, true},
		"an error without an end":      {endless{}, -1, 500, "", -1, true},
		"declared":                     {strings.NewReader("short"), limit + 1, 200, "", -1, true},
		"a watch":                      {strings.NewReader("0123456789a"), -1, 200, "watch=true", -1, false},
		"a watch that is refused":      {endless{}, -1, 500, "watch=true", -1, true},
		"with others":                  {strings.NewReader("short"), -1, 200, "", 5, false},
		"too much with others":         {strings.NewReader("short"), -1, 200, "", 6, true},
		"declared, too much of others": {strings.NewReader("short"), 5, 200, "", 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := &limitedTransport{limit: limit, base: roundTripper(func(*http.Request) *http.Response {
				return &http.Response{StatusCode: test.code, ContentLength: test.length, Body: io.NopCloser(test.body)}
			})}
			if test.used >= 0 {
				transport.together = &atomic.Int64{}
				transport.together.Store(limit - test.used)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub/api/v1/pods?"+test.query, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			var body []byte
			response, err := transport.RoundTrip(r)
			if err == nil {
				defer response.Body.Close()
				body, err = io.ReadAll(response.Body)
			}
			if IsTooLarge(err) != test.tooLarge || err != nil && !test.tooLarge || len(body) > limit && test.query == "" {
				t.Errorf("%d bytes, %v", len(body), err)
			}
		})
	}
}

// CA-02: clients of clusters have the limit, whether responses count alone or together.
func TestClientsAreBounded(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		client := limited(&http.Client{Transport: roundTripper(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: maxResponseBytes + 1, Body: http.NoBody}
		})}, together)
		response, err := client.Get("https://hub/api/v1/pods")
		if err == nil {
			response.Body.Close()
		}
		if !IsTooLarge(err) {
			t.Errorf("together %t: %v", together, err)
		}
	}
}

// CA-02: each event of a watch may have its size; one without an end is not read.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	event := `{"text":"` + strings.Repeat("x", maxEventBytes*3/4) + `"}` + "\n"
	stream := NewEventStream(io.NopCloser(io.MultiReader(strings.NewReader(event+event+`{"text":"`), endless{})))
	decoder := json.NewDecoder(stream)
	for i := range 3 {
		var got struct{ Text string }
		stream.Next()
		err := decoder.Decode(&got)
		if i < 2 && (err != nil || len(got.Text) != maxEventBytes*3/4) {
			t.Errorf("event %d has %d bytes: %v", i, len(got.Text), err)
		}
		if i == 2 && !errors.Is(err, errEventTooLarge) {
			t.Errorf("an event without an end: %v", err)
		}
	}
}
